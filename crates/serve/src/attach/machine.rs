//! What a server does about a device of the machine: it makes it, serves it, leaves it to the next server, takes it away.

use super::record::{self, recorded};
use super::{AttachedDoc, Kind, MachineFuse, MachineNbd, MachineUblk, Record, Wish, link};
use crate::ask::Answer;
use crate::served::Served;
use crate::server::Server;
use bimetal_driver::Holder;
use bimetal_units::BLOCK_BYTES;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a server that was told to stop waits for a device that it takes away.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);
/// The kernel spares whoever has this when memory is short (proc(5), `oom_score_adj`).
const SPARED: &str = "-1000";

/// How long the loop waits to learn who holds the device. To open it may take a request that this very loop is to serve, as
/// whoever opens it first reads its partitions.
const LOOK_WITHIN: Duration = Duration::from_secs(1);

/// Who holds the device; somebody, where that cannot be learnt now.
fn holder(path: &Path) -> Option<Holder> {
    let (told, hear) = std::sync::mpsc::channel();
    let path = path.to_owned();
    std::thread::spawn(move || told.send(bimetal_driver::who_holds(&path)));
    hear.recv_timeout(LOOK_WITHIN).unwrap_or_else(|_| {
        let how = "busy, so that it cannot be told who holds it; try again".to_owned();
        Some(Holder { how, may_pass: true })
    })
}

/// How a device comes by its requests.
pub(crate) enum Way {
    Nbd(MachineNbd),
    Ublk(Box<MachineUblk>),
    Fuse(MachineFuse),
}

/// Where a device stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is being made.
    Coming,
    /// It is there.
    There,
    /// It is being taken away.
    Going,
}

/// The device of this server's volume.
pub(crate) struct Device {
    pub(crate) record: Record,
    pub(crate) way: Way,
    pub(crate) standing: Standing,
    /// Why not a better way, and what else is to be known.
    pub(crate) notes: Vec<String>,
    /// Which visitor waits for it to come or to go.
    pub(crate) asker: Option<usize>,
}

/// What a server knows of the device of its volume.
pub(crate) struct Machine {
    /// The record.
    pub(crate) file: PathBuf,
    pub(crate) device: Option<Device>,
    /// Since when a server that stops waits for it.
    leaving: Option<Instant>,
}

impl Machine {
    /// Of the volume with this control socket.
    pub(crate) fn beside(control: &Path) -> Machine {
        Machine { file: control.with_extension("attached"), device: None, leaving: None }
    }

    pub(crate) fn ublk(&mut self) -> Option<&mut MachineUblk> {
        match &mut self.device.as_mut()?.way {
            Way::Ublk(ublk) => Some(ublk),
            _ => None,
        }
    }

    /// What documents tell of it.
    pub(crate) fn doc(&self) -> Option<AttachedDoc> {
        let device = self.device.as_ref().filter(|device| device.standing == Standing::There)?;
        Some(device.record.doc(true, device.notes.clone()))
    }

    /// How soon it is to be looked after at the latest.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        let device = self.device.as_ref()?;
        match &device.way {
            Way::Nbd(nbd) => nbd.due_in(),
            Way::Fuse(_) if device.standing == Standing::Coming => Some(MachineFuse::LOOK_EVERY),
            Way::Fuse(_) | Way::Ublk(_) => None,
        }
    }
}

impl<V: Served> Server<V> {
    /// Takes up the device that the last server of this volume left, or makes the one that it put away. What cannot be
    /// had again is said, and no reason not to serve.
    pub fn take_up_device(&mut self) {
        let record = match recorded(&self.machine.file) {
            Ok(Some(record)) => record,
            Ok(None) => return,
            Err(error) => return tracing::warn!("{error}"),
        };
        let (device, wish) = (record.device(), record.wish);
        if record.put_away {
            return self.begin_attach(None, wish);
        }
        self.prepare_for_machine();
        let taken = match record.kind {
            Kind::Nbd => self.take_up_nbd(&record).map(Way::Nbd),
            Kind::Ublk => self.take_up_ublk(&record).map(|ublk| Way::Ublk(Box::new(ublk))),
            Kind::Fuse => super::fuse::clear(&record).and(Err(io::ErrorKind::NotFound.into())),
        };
        match taken {
            Ok(way) => {
                let record = record.taken_up();
                self.machine.device =
                    Some(Device { record, way, standing: Standing::There, notes: Vec::new(), asker: None });
                self.note_device();
                self.device_came();
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::warn!(
                    "{} of the last server is gone; {} is attached anew",
                    device.display(),
                    self.volume.0
                );
                link::remove(&record.volume, &device);
                self.begin_attach(None, wish);
            }
            Err(error) => tracing::error!(
                "{} cannot be taken up ({error}); unmount it, run `bimetal detach {}`, and attach it anew",
                device.display(),
                self.volume.0
            ),
        }
    }

    /// A visitor, or nobody, wants the volume to be a device of the machine.
    pub(crate) fn begin_attach(&mut self, asker: Option<usize>, wish: Wish) {
        if let Some(device) = &self.machine.device {
            let (is, standing) = (device.record.wish, device.standing);
            let same =
                wish.kind.is_none_or(|kind| kind == device.record.kind) && wish.read_only == is.read_only;
            return match standing {
                Standing::There if same => self.welcome_again(asker, wish),
                Standing::There => {
                    let mode = if is.read_only { ", read-only" } else { "" };
                    let (path, kind) = (device.record.device(), device.record.kind.name());
                    self.refuse(
                        asker,
                        &format!("it is {} already, by {kind}{mode}; detach it first", path.display()),
                    );
                }
                _ => self.refuse(asker, "its device is just coming or going; ask again"),
            };
        }
        if self.stopping {
            return self.refuse(asker, "its server is stopping");
        }
        self.prepare_for_machine();
        self.attach_by(&Kind::ALL, asker, wish, Vec::new());
    }

    /// Tries these ways, in their order.
    pub(crate) fn attach_by(
        &mut self,
        kinds: &[Kind],
        asker: Option<usize>,
        wish: Wish,
        mut notes: Vec<String>,
    ) {
        for &kind in kinds.iter().filter(|&&kind| wish.kind.is_none_or(|wished| wished == kind)) {
            let made = match kind {
                Kind::Ublk => self.make_ublk(wish),
                Kind::Nbd => self.make_nbd(wish),
                Kind::Fuse => self.make_fuse(wish),
            };
            match made {
                Ok(mut device) => {
                    device.notes.splice(0..0, notes);
                    device.asker = asker;
                    let there = device.standing == Standing::There;
                    self.machine.device = Some(device);
                    self.note_device();
                    if there {
                        self.device_came();
                    }
                    return;
                }
                Err(why) => notes.push(format!("not by {}: {why}", kind.name())),
            }
        }
        self.refuse(asker, &format!("no device of the machine can be made: {}", notes.join("; ")));
    }

    /// The record of a device of this volume that this process makes.
    pub(crate) fn new_record(&self, kind: Kind, number: u32, wish: Wish) -> Record {
        let id = crate::status::hex(&self.engine.status().volume_id);
        Record::new(&self.volume.0, &id, kind, number, wish, self.sector_bytes())
    }

    /// The unit that a device is read and written in: that of the members.
    fn sector_bytes(&self) -> u32 {
        let facts = self.driver.io_facts();
        let units = facts.iter().filter_map(|facts| facts.logical_sector_bytes);
        units.max().unwrap_or(512).next_power_of_two().clamp(512, BLOCK_BYTES)
    }

    /// From here on the kernel may write back through this process.
    fn prepare_for_machine(&mut self) {
        self.engine.outlive_kills();
        // Where the rights are missing, it is killed no sooner than others.
        let _ = std::fs::write("/proc/self/oom_score_adj", SPARED);
    }

    /// Writes the record of the device.
    pub(crate) fn note_device(&mut self) {
        let Machine { file, device: Some(device), .. } = &mut self.machine else { return };
        if let Err(error) = device.record.save(file) {
            device.notes.push(format!(
                "the next server will not find it, as {} cannot be written: {error}",
                file.display()
            ));
        }
    }

    /// The device is there: it gets its name, and whoever asked is told.
    pub(crate) fn device_came(&mut self) {
        let Some(device) = &mut self.machine.device else { return };
        device.standing = Standing::There;
        let (record, path) = (&device.record, device.record.device());
        if let Err(why) = link::make(&record.volume, &path) {
            device.notes.push(why);
        }
        if bimetal_driver::lock_memory().is_err() {
            device.notes.push(
                "the server's memory could not be locked; raise the limit of that (LimitMEMLOCK)".into(),
            );
        }
        tracing::info!("{} is {}, by {}", self.volume.0, path.display(), record.kind.name());
        device.notes.iter().for_each(|note| tracing::info!("{}: {note}", path.display()));
        let (doc, asker) = (record.doc(true, device.notes.clone()), device.asker.take());
        self.tell_asker(asker, &Answer::Attached(Box::new(doc)));
    }

    /// The device could not be made after all: the next best way is tried.
    pub(crate) fn device_failed(&mut self, why: &str) {
        let Some(device) = self.machine.device.take() else { return };
        let Device { record, mut notes, asker, .. } = device;
        record::forget(&self.machine.file);
        notes.push(format!("not by {}: {why}", record.kind.name()));
        let next = Kind::ALL.iter().position(|&kind| kind == record.kind).map_or(0, |place| place + 1);
        match self.stopping {
            true => self.refuse(asker, "its server is stopping"),
            false => self.attach_by(&Kind::ALL[next..], asker, record.wish, notes),
        }
    }

    /// It is wished for again: what may be changed is.
    fn welcome_again(&mut self, asker: Option<usize>, wish: Wish) {
        if let Some(device) = &mut self.machine.device {
            device.record.wish.wait_seconds = wish.wait_seconds;
        }
        self.note_device();
        if let Some(doc) = self.machine.doc() {
            self.tell_asker(asker, &Answer::Attached(Box::new(doc)));
        }
    }

    /// A visitor wants the device to be taken away.
    pub(crate) fn begin_detach(&mut self, asker: usize) {
        let Some(device) = &mut self.machine.device else {
            return self.refuse(Some(asker), "it is not attached");
        };
        let path = device.record.device();
        if device.standing != Standing::There {
            return self.refuse(Some(asker), "its device is just coming or going; ask again");
        }
        if let Some(holder) = holder(&path) {
            return self.refuse(Some(asker), &format!("{} is {}", path.display(), holder.how));
        }
        device.asker = Some(asker);
        self.take_device_away();
    }

    /// Begins to take the device away, which nobody holds.
    fn take_device_away(&mut self) {
        let Some(device) = &mut self.machine.device else { return };
        device.standing = Standing::Going;
        let begun = match &mut device.way {
            Way::Nbd(_) => bimetal_driver::kernel_nbd::disconnect(device.record.number).map(|()| true),
            Way::Ublk(ublk) => ublk.begin_stop(&mut self.driver.ring).map(|()| false),
            Way::Fuse(fuse) => fuse.take_away(&device.record).map(|()| true),
        };
        match begun {
            Ok(true) => self.device_went(),
            Ok(false) => {}
            Err(error) => {
                device.standing = Standing::There;
                let (path, asker) = (device.record.device(), device.asker.take());
                self.refuse(asker, &format!("{} cannot be taken away: {error}", path.display()));
            }
        }
    }

    /// The device is gone; whoever asked is told.
    pub(crate) fn device_went(&mut self) {
        let Some(device) = self.machine.device.take() else { return };
        let path = device.record.device();
        link::remove(&device.record.volume, &path);
        if self.stopping {
            // The next server is to make it again.
            let _ = device.record.put_away().save(&self.machine.file);
        } else {
            record::forget(&self.machine.file);
        }
        tracing::info!("{} is {} no more", self.volume.0, path.display());
        self.tell_asker(device.asker, &Answer::Detached(path));
    }

    /// Somebody else has taken the device away.
    pub(crate) fn device_was_taken(&mut self) {
        if let Some(device) = &self.machine.device {
            tracing::warn!("somebody else has taken {} away", device.record.device().display());
            self.device_went();
        }
    }

    /// This server stops. A device that somebody holds is left to the next one, and waits for it.
    pub(crate) fn leave_device(&mut self) {
        self.machine.leaving = Some(Instant::now());
        let Some(device) = &self.machine.device else { return };
        let (path, wait) = (device.record.device(), device.record.wish.wait_seconds);
        match (device.standing, holder(&path), &device.way) {
            (Standing::There, None, _) => self.take_device_away(),
            (Standing::There, Some(holder), Way::Fuse(_)) => {
                tracing::warn!(
                    "{} is {}, and fails from now on: no other server can take it up",
                    path.display(),
                    holder.how
                );
            }
            (Standing::There, Some(holder), _) => tracing::warn!(
                "{} is {}: it waits up to {wait} s for the next server of {}; `bimetal detach` takes it away",
                path.display(),
                holder.how,
                self.volume.0
            ),
            _ => {}
        }
    }

    /// Whether a server that stops need not wait for the device any more.
    pub(crate) fn device_is_left(&self) -> bool {
        let going = self.machine.device.as_ref().is_some_and(|device| device.standing == Standing::Going);
        !going || self.machine.leaving.is_some_and(|since| since.elapsed() > LEAVE_WITHIN)
    }

    /// What is to be done now and then.
    pub(crate) fn look_after_device(&mut self) {
        match self.machine.device.as_ref().map(|device| &device.way) {
            Some(Way::Nbd(_)) => self.mend_nbd(),
            Some(Way::Fuse(_)) => self.look_after_fuse(),
            Some(Way::Ublk(_)) | None => {}
        }
    }

    pub(crate) fn refuse(&mut self, asker: Option<usize>, what: &str) {
        let what = format!("{}: {what}", self.volume.0);
        match asker {
            Some(_) => self.tell_asker(asker, &Answer::Refused(what)),
            None => tracing::error!("{what}"),
        }
    }

    fn tell_asker(&mut self, asker: Option<usize>, answer: &Answer) {
        if let Some(place) = asker {
            self.desk.tell(place, Some(answer));
        }
    }
}
