//! A device takes another's place while the volume is served: begun, looked after, told of.

use crate::ask::Answer;
use crate::served::Served;
use crate::server::Server;
use crate::status::tier_name;
use crate::watched::EventKind;
use bimetal_driver::BlockFile;
use bimetal_engine::format::superblock::Superblock;
use bimetal_engine::options::Level;
use bimetal_replace::{Progress, Replacement, Standing};
use bimetal_units::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// What is wished of a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplaceWish {
    /// That it begins, as the volume file says.
    Begin,
    /// That it ends, and the old device stays.
    Cancel,
    /// That what the old device cannot read is left out.
    LeaveUnreadable,
    /// To hear how far it has come.
    Tell,
}

/// A device that is to take another's place, or has, or was to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplaceDoc {
    /// `none`, `copying`, `whole` (all is copied), `taking-over`, `done`, `cancelled` or `failed`.
    pub state: String,
    /// Whose place it is: `fast` or `slow`.
    pub tier: String,
    /// The successor.
    pub device: String,
    /// Bytes that are copied.
    pub copied_bytes: u64,
    /// Bytes that are to be.
    pub of_bytes: u64,
    /// Bytes that the old device cannot read: while there are some it cannot end.
    pub unreadable_bytes: u64,
    /// Whether those are left out once that is certain.
    pub leaves_unreadable: bool,
    /// Bytes that were, since it was begun or gone on with.
    pub left_bytes: u64,
    /// Bytes that it copies in a second; null until that is known.
    pub bytes_per_s: Option<u64>,
    /// How long it takes if it goes on like that; null until that is known.
    pub left_s: Option<u64>,
    /// Why it has failed; null where it has not.
    pub why: Option<String>,
}

/// Who knows which device is to take another's place: the volume file says so.
pub trait Successors {
    /// Opens it, to take the place that the volume file names; these are the superblocks of the devices as they are.
    ///
    /// # Errors
    /// A sentence, where there is none or it cannot be.
    fn begin(&mut self, superblocks: [Superblock; 2]) -> Result<(BlockFile, Replacement), String>;
    /// It has its place: the volume file names it from now on.
    ///
    /// # Errors
    /// A sentence, where that cannot be written.
    fn has_taken_over(&mut self) -> Result<(), String>;
    /// It is done without: the volume file forgets it.
    ///
    /// # Errors
    /// A sentence, where that cannot be written.
    fn given_up(&mut self) -> Result<(), String>;
}

/// What a server knows of replacements.
#[derive(Default)]
pub(crate) struct Succession {
    known: Option<Box<dyn Successors>>,
    /// How the last one stands or ended.
    last: Option<ReplaceDoc>,
    /// Since when it has been looked at, and what had been copied by then.
    since: Option<(Instant, u64)>,
    cancelled: bool,
    /// The volume file has forgotten it.
    settled: bool,
    /// It was said that the volume file cannot.
    unsaved: bool,
    /// It was said that nobody knows whose place it is.
    torn: bool,
}

impl ReplaceDoc {
    /// What of a replacement is told to those who ask; with when it was begun or gone on with, and what had been copied by then.
    pub fn new(progress: &Progress, device: &BlockFile, since: Option<(Instant, u64)>) -> ReplaceDoc {
        let (state, why) = match &progress.standing {
            Standing::Copying => ("copying", None),
            Standing::Whole => ("whole", None),
            Standing::TakingOver => ("taking-over", None),
            Standing::TakenOver => ("done", None),
            Standing::Failed(why) | Standing::Torn(why) => ("failed", Some(why.clone())),
        };
        let rate = since.and_then(|(at, bytes)| {
            let copied = progress.copied_bytes.saturating_sub(bytes) as f64;
            let rate = copied / at.elapsed().as_secs_f64();
            (at.elapsed().as_secs() >= 1 && rate >= 1.0).then_some(rate as u64)
        });
        let left = progress.of_bytes.saturating_sub(progress.copied_bytes);
        ReplaceDoc {
            state: state.to_owned(),
            tier: tier_name(usize::from(progress.tier.0)),
            device: device.path().display().to_string(),
            copied_bytes: progress.copied_bytes,
            of_bytes: progress.of_bytes,
            unreadable_bytes: progress.unreadable_bytes,
            leaves_unreadable: progress.leaves_unreadable,
            left_bytes: progress.left_bytes,
            bytes_per_s: rate,
            left_s: rate.map(|rate| left / rate),
            why,
        }
    }
}

impl<V: Served> Server<V> {
    /// From now on a device can take another's place: this one knows which.
    pub fn knows_successors(&mut self, known: Box<dyn Successors>) {
        self.succession.known = Some(known);
    }

    /// One that was begun before is gone on with. Where it fails it is settled here from now on.
    pub(crate) fn take_up_replacement(&mut self) {
        self.driver.forget_successor_with(|_| false);
        if let Some(replacement) = self.driver.replacement_mut() {
            replacement.copy(true);
            let copied = replacement.progress().copied_bytes;
            self.succession.since = Some((Instant::now(), copied));
        }
    }

    /// How a replacement stands; none where there was none since the volume was opened. That it ended is told once the volume
    /// file knows it: whoever hears it may look there.
    pub(crate) fn replacement(&self) -> Option<ReplaceDoc> {
        if let Some(last) = &self.succession.last {
            return Some(last.clone());
        }
        let mut doc = self.standing()?;
        match self.driver.replacement()?.standing {
            Standing::TakenOver => "taking-over".clone_into(&mut doc.state),
            Standing::Failed(_) => (doc.state, doc.why) = ("copying".to_owned(), None),
            _ => {}
        }
        Some(doc)
    }

    /// Whether the replacement that is under way comes to no good end.
    fn is_ending(&self) -> bool {
        self.driver.replacement().is_some_and(|progress| matches!(progress.standing, Standing::Failed(_)))
    }

    /// How the replacement that is under way stands with the driver.
    fn standing(&self) -> Option<ReplaceDoc> {
        let (progress, device) = self.driver.replacement().zip(self.driver.successor())?;
        Some(ReplaceDoc::new(&progress, device, self.succession.since))
    }

    /// Does what is wished, and says how it stands.
    pub(crate) fn replace(&mut self, wish: ReplaceWish) -> Answer {
        let done = match wish {
            ReplaceWish::Tell => Ok(()),
            ReplaceWish::Begin if self.driver.replacement().is_some() && !self.is_ending() => Ok(()),
            ReplaceWish::Begin => self.begin_replacement(),
            ReplaceWish::Cancel => self.cancel_replacement(),
            ReplaceWish::LeaveUnreadable => {
                self.driver.replacement_mut().into_iter().for_each(|it| _ = it.leave_unreadable());
                Ok(())
            }
        };
        match done {
            Ok(()) => {
                let none = ReplaceDoc { state: "none".to_owned(), ..ReplaceDoc::default() };
                Answer::Replace(Box::new(self.replacement().unwrap_or(none)))
            }
            Err(why) => Answer::Refused(format!("{}: {why}", self.volume.0)),
        }
    }

    fn begin_replacement(&mut self) -> Result<(), String> {
        if self.driver.replacement().is_some() {
            return Err(
                "the device that was to take its place before is not let go yet; try again".to_owned()
            );
        }
        let known = self.succession.known.as_mut().ok_or("its server can replace no device")?;
        let superblocks = self.engine.superblocks().filter(|_| !self.stopping);
        let superblocks = superblocks
            .ok_or("it is read-only, lacks a device or is being closed; a device is replaced while the volume takes writes")?;
        let (device, replacement) = known.begin(superblocks)?;
        let name = device.path().display().to_string();
        let tier = tier_name(usize::from(replacement.plan().tier.0));
        self.driver.begin_replacement(device, replacement);
        self.succession = Succession { known: self.succession.known.take(), ..Succession::default() };
        self.take_up_replacement();
        let what = format!("{name} is being made the {tier} device");
        self.say_happened(EventKind::DeviceChanged, Level::Info, what);
        Ok(())
    }

    fn cancel_replacement(&mut self) -> Result<(), String> {
        let Some(progress) = self.driver.replacement() else {
            return Err("no device is being replaced".to_owned());
        };
        // One that has failed ends as it is.
        if matches!(progress.standing, Standing::Failed(_)) {
            return Ok(());
        }
        if !self.driver.replacement_mut().is_some_and(Replacement::cancel) {
            return Err("the new device takes over, or may have already: there is no way back".to_owned());
        }
        self.succession.cancelled = true;
        Ok(())
    }

    /// Takes the next step of a replacement, where there is one.
    pub(crate) fn look_after_replacement(&mut self) -> bool {
        let Some(progress) = self.driver.replacement() else { return false };
        match progress.standing {
            Standing::Copying | Standing::TakingOver => false,
            Standing::Whole => {
                let superblocks = self.engine.superblocks().filter(|_| !self.stopping);
                superblocks.into_iter().for_each(|superblocks| self.driver.begin_takeover(superblocks));
                self.driver.replacement().is_some_and(|now| now.standing == Standing::TakingOver)
            }
            Standing::TakenOver => {
                self.end_replacement(&progress);
                true
            }
            Standing::Failed(why) => self.settle_replacement(&why),
            Standing::Torn(why) => {
                if !std::mem::replace(&mut self.succession.torn, true) {
                    self.engine.refuse_changes(format!(
                        "the new device failed ({why}) at the moment at which it took over; open the volume again"
                    ));
                }
                false
            }
        }
    }

    /// The successor has its place.
    fn end_replacement(&mut self, progress: &Progress) {
        let ended = self.standing();
        let new = self.driver.replacement_mut().map(|replacement| replacement.plan().new);
        let name = self.driver.successor().map(|device| device.path().display().to_string());
        let (Some(old), Some(new), Some(name)) = (self.driver.take_over(), new, name) else { return };
        self.engine.device_replaced(progress.tier, new, name);
        let status = self.engine.status();
        if let Err(error) = self.driver.watch(status.volume_id, status.generation) {
            let what = format!("the devices are no longer watched: {error}");
            self.say_happened(EventKind::DeviceChanged, Level::Error, what);
        }
        let saved = self.succession.known.as_mut().map_or(Ok(()), |known| known.has_taken_over());
        if let Err(why) = saved {
            let what = format!("{why}; the next opening of the volume writes it");
            self.say_happened(EventKind::DeviceChanged, Level::Warning, what);
        }
        let what = match old.is_part() {
            true => format!("{} has not the place of the fast device any more", old.name()),
            false => format!("{} is no longer the volume's and can be taken away", old.name()),
        };
        self.say_happened(EventKind::DeviceChanged, Level::Info, what);
        if progress.left_bytes > 0 {
            let what = format!(
                "{} bytes could not be read of {}, and are errors until they are written again",
                progress.left_bytes,
                old.name()
            );
            self.say_happened(EventKind::DeviceChanged, Level::Warning, what);
        }
        self.succession.last = ended;
    }

    /// The successor is done without: first the volume file forgets it, then writes go on, then it is let go.
    fn settle_replacement(&mut self, why: &str) -> bool {
        let mut ended = self.standing().unwrap_or_default();
        let cancelled = self.succession.cancelled;
        if cancelled {
            (ended.state, ended.why) = ("cancelled".to_owned(), None);
        }
        if self.succession.settled {
            return self.let_successor_go(ended);
        }
        // What is written from then on the successor lacks, whatever it says of itself: nobody may go on with it.
        if let Some(Err(why)) = self.succession.known.as_mut().map(|known| known.given_up()) {
            if !std::mem::replace(&mut self.succession.unsaved, true) {
                let what = format!(
                    "{why}; nothing is written to the volume until its file has forgotten {}",
                    ended.device
                );
                self.say_happened(EventKind::DeviceChanged, Level::Error, what);
            }
            return false;
        }
        self.succession.settled = true;
        let (level, what) = match cancelled {
            true => (Level::Info, "is not made a device of the volume: it was cancelled".to_owned()),
            false => (Level::Error, format!("cannot take the other's place: {why}")),
        };
        self.say_happened(EventKind::DeviceChanged, level, format!("{} {what}", ended.device));
        if let Some(replacement) = self.driver.replacement_mut() {
            replacement.settle();
        }
        // One that failed may never answer what it was asked; one that was cancelled ends without what it said of itself.
        self.succession.last = Some(ended).filter(|_| !cancelled);
        true
    }

    fn let_successor_go(&mut self, ended: ReplaceDoc) -> bool {
        let places = self.driver.replacement_mut().map(|replacement| replacement.plan().own);
        let Some(device) = self.driver.drop_successor() else { return false };
        if self.succession.cancelled {
            for at in places.into_iter().flatten() {
                // It says that it is an unfinished copy, which whoever overwrites it is asked about.
                let _ = device.erase(at, u64::from(BLOCK_BYTES));
            }
            self.succession.last = Some(ended);
        }
        true
    }
}
