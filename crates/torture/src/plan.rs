//! What one seed does: drawn from the seed, small enough to read once shrunk.

use crate::arena::ArenaSizes;
use crate::world::storm::Storm;
use crate::world::{Death, Export, FaultRates, Service};
use bimetal_engine::coverage::Stage;
use bimetal_engine::moments::Moment;
use bimetal_engine::options::{Marking, Tuning};
use bimetal_units::Tier;
use std::fmt;

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush.
    Flush,
    /// Discard.
    Discard,
    /// Write zeroes.
    Zero,
    /// Say that the range will be wanted: a hint.
    Prefer,
}

/// One client request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Op {
    /// What to do.
    pub kind: OpKind,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Force unit access.
    pub fua: bool,
    /// Wait this long before it, ns.
    pub pause_ns: u64,
    /// Wait for all answers before it.
    pub drain: bool,
}

/// The devices and the layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes per chunk.
    pub chunk_bytes: u32,
    /// Size of the fast device.
    pub fast_bytes: u64,
    /// Size of the slow device.
    pub slow_bytes: u64,
    /// Landing zone.
    pub landing_bytes: Option<u64>,
    /// Area.
    pub area_bytes: Option<u32>,
    /// Added to a size that creation names as the least.
    pub slack_bytes: u64,
    /// References in a page of the directory.
    pub refs_per_page: Option<u32>,
    /// Whether the slow device describes itself.
    pub marking: Marking,
}

/// How a volume is protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protect {
    /// The oldest that its image is to be.
    pub seconds: u32,
    /// Clients wait rather than that it is older.
    pub strict: bool,
    /// The ring.
    pub ring_bytes: u64,
    /// Copied at a time.
    pub piece_bytes: u64,
    /// The least blocks of a region of the map.
    pub region_blocks: u64,
    /// So many regions behind one that is written to are open with it.
    pub open_ahead: usize,
}

/// The limits of one opening.
#[derive(Clone, PartialEq, Debug)]
pub struct Limits {
    /// The engine's.
    pub tuning: Tuning,
    /// The driver's memory.
    pub arena: ArenaSizes,
}

/// When a life ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Amid load.
    Busy,
    /// In a lull of at most this long, ns.
    Idle(u64),
    /// While stopping.
    Stopping,
}

/// A second fault, when a first one has left something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair {
    /// What the first one left.
    pub moment: Moment,
    /// Devices fail so often from then on, ...
    pub rates: FaultRates,
    /// ... for so long, ns. Then the machine dies, if it is to.
    pub ns: u64,
}

/// How opening goes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Opening {
    /// Crashes while opening: after so many steps, so.
    pub crashes: Vec<(u32, Death)>,
    /// Crashes while the generation is raised: so many steps from when that began. Where they leave copies of a superblock that
    /// differ, the newer one may decay.
    pub raises: Vec<(u32, Death)>,
    /// An attempt with I/O errors.
    pub rates: Option<FaultRates>,
    /// What devices do beside that in this attempt; an attempt of its own where there are no errors.
    pub storm: Storm,
    /// A crash amid the storm: after so many steps, so.
    pub storm_crash: Option<(u32, Death)>,
}

/// From one opening to the next crash.
#[derive(Clone, PartialEq, Debug)]
pub struct Life {
    /// Make a new volume on the devices first.
    pub recreate: bool,
    /// Other limits than the plan's, in this life.
    pub limits: Option<Box<Limits>>,
    /// How it is opened.
    pub opening: Opening,
    /// The slow device is missing, and the volume is written to all the same.
    pub alone: bool,
    /// Before each opening, and before it is opened again after a crash in one: what would be left if the slow device
    /// were missing is held against the model, and both devices go on as they were.
    pub lone: bool,
    /// At the same moments, what would be left if the fast device were lost, and the power of the slow one cut.
    pub salvage: bool,
    /// At the same moments, what the image of a protected volume holds.
    pub image: bool,
    /// Before it the fast device is lost for good, and the volume goes on with its image.
    pub fast_lost: bool,
    /// So many blocks go bad at its end that say where the image is.
    pub image_harms: u32,
    /// A device is to take another's place.
    pub successor: Option<Successor>,
    /// Crash again once all is verified, and verify again.
    pub twice: Option<Death>,
    /// Verify every sector, not only those written lately and a sample.
    pub verify_all: bool,
    /// How long I/O takes.
    pub services: [Service; 2],
    /// How often I/O fails.
    pub rates: FaultRates,
    /// What devices do beside that.
    pub storm: Storm,
    /// Before the end all faults stop, and what is pending must come to its end.
    pub calm: bool,
    /// Requests in flight at most.
    pub depth: u32,
    /// What the client does.
    pub ops: Vec<Op>,
    /// Answers after which the end begins.
    pub after: u32,
    /// The end.
    pub when: When,
    /// Steps from there to the crash.
    pub points: u32,
    /// Amid load: crash as soon as an operation is in this stage, which is seldom or short.
    pub hunt: Option<Stage>,
    /// Another fault waits for what one leaves.
    pub pair: Option<Pair>,
    /// How it dies; `None` is an orderly stop.
    pub death: Option<Death>,
    /// Pages that are damaged with it: a bad sector, a flipped bit, or a lost write.
    pub bad_sectors: u32,
    /// Parts of the volume that decay before it is opened again.
    pub decays: u32,
    /// Most of them payload of the log.
    pub decay_payload: bool,
    /// The power cut leaves as many sectors unreadable, of those that were being written.
    pub torn_sectors: u32,
    /// Check offline afterwards.
    pub check: bool,
}

/// How a device comes to take another's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Successor {
    /// Whose place.
    pub tier: Tier,
    /// It begins after so many answers.
    pub after: u32,
    /// It is cancelled at one moment in so many; never, where it is 0.
    pub cancel_one_in: u32,
    /// It takes over at one moment in so many, once it can.
    pub takes_over_one_in: u32,
    /// What a slow device cannot read is left out.
    pub leaves_unreadable: bool,
    /// It is the device whose place was taken last, if there is one, with all that it held.
    pub was_here: bool,
}

/// All that one seed does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The devices.
    pub geometry: Geometry,
    /// The engine's limits.
    pub tuning: Tuning,
    /// The driver's memory.
    pub arena: ArenaSizes,
    /// Whether all memory is poisoned, or the first bytes of each sector.
    pub poison_all: bool,
    /// Whether devices are damaged: sectors go bad, bits rot, writes are lost.
    pub latent: bool,
    /// Before every second opening one of the devices is lost.
    pub losses: bool,
    /// Devices take one another's place.
    pub replaces: bool,
    /// It has an image on its slow device.
    pub protect: Option<Protect>,
    /// The slow device is an export, and reached so.
    pub export: Option<Export>,
    /// The volume's size; zero until the first opening.
    pub size_bytes: u64,
    /// One after the other, on the same devices; drawn when the size is known.
    pub lives: Vec<Life>,
}

impl Plan {
    /// The limits of its openings, where a life has no others.
    pub fn limits(&self) -> Limits {
        Limits { tuning: self.tuning.clone(), arena: self.arena }
    }

    /// Client operations in it.
    pub fn ops(&self) -> usize {
        self.lives.iter().map(|l| l.ops.len()).sum()
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.drain {
            write!(f, "drain; ")?;
        }
        if self.pause_ns > 0 {
            write!(f, "pause {} us; ", self.pause_ns / 1000)?;
        }
        let fua = if self.fua { " fua" } else { "" };
        match self.kind {
            OpKind::Flush => write!(f, "flush"),
            kind => write!(f, "{} {}+{}{fua}", format!("{kind:?}").to_lowercase(), self.offset, self.len),
        }
    }
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.recreate {
            writeln!(f, "  create anew")?;
        }
        if let Some(limits) = &self.limits {
            writeln!(f, "  {:?}\n  {:?}", limits.tuning, limits.arena)?;
        }
        if self.lone {
            writeln!(f, "  look at it without the slow device, before each opening")?;
        }
        if self.salvage {
            writeln!(f, "  look at it without the fast device, before each opening")?;
        }
        if self.image {
            writeln!(f, "  look at its image, before each opening")?;
        }
        if self.fast_lost {
            writeln!(f, "  lose the fast device, and go on with the image")?;
        }
        if self.image_harms > 0 {
            writeln!(f, "  {} blocks of the image go bad at the end", self.image_harms)?;
        }
        if let Some(successor) = &self.successor {
            writeln!(f, "  {successor:?}")?;
        }
        for (steps, death) in &self.opening.crashes {
            writeln!(f, "  open, {death:?} after {steps} steps")?;
        }
        for (steps, death) in &self.opening.raises {
            writeln!(f, "  open, {death:?} after {steps} steps of raising the generation")?;
        }
        if let Some(rates) = self.opening.rates {
            writeln!(f, "  open with errors {rates:?}")?;
        }
        if self.opening.storm != Storm::default() {
            writeln!(f, "  open in {:?}, crash {:?}", self.opening.storm, self.opening.storm_crash)?;
        }
        if self.alone {
            writeln!(f, "  the slow device is missing")?;
        }
        writeln!(f, "  open, verify{}", if self.verify_all { " all" } else { "" })?;
        if let Some(death) = self.twice {
            writeln!(f, "  {death:?}, open, verify")?;
        }
        writeln!(f, "  depth {}, {} operations:", self.depth, self.ops.len())?;
        for op in &self.ops {
            writeln!(f, "    {op}")?;
        }
        if self.rates != FaultRates::default() {
            writeln!(f, "  errors, one in: {:?}", self.rates)?;
        }
        if self.storm != Storm::default() {
            writeln!(f, "  {:?}", self.storm)?;
        }
        if let Some(pair) = self.pair {
            writeln!(f, "  {pair:?}")?;
        }
        if self.calm {
            writeln!(f, "  after {} answers the faults stop, and nothing may stay pending", self.after)?;
        }
        write!(f, "  after {} answers, {:?}: ", self.after, self.when)?;
        match self.death {
            Some(death) => writeln!(f, "{death:?} after {} steps", self.points)?,
            None => writeln!(f, "orderly stop")?,
        }
        if self.bad_sectors > 0 {
            writeln!(f, "  {} pages are damaged", self.bad_sectors)?;
        }
        if self.decays + self.torn_sectors > 0 {
            writeln!(f, "  {} parts decay, {} sectors are torn", self.decays, self.torn_sectors)?;
        }
        if self.check {
            writeln!(f, "  check")?;
        }
        Ok(())
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {} bytes, {:?}", self.seed, self.size_bytes, self.geometry)?;
        writeln!(f, "{:?}", self.tuning)?;
        writeln!(f, "{:?}", self.arena)?;
        if let Some(export) = self.export {
            writeln!(f, "{export:?}")?;
        }
        if let Some(protect) = self.protect {
            writeln!(f, "{protect:?}")?;
        }
        for (i, life) in self.lives.iter().enumerate() {
            writeln!(f, "life {i}:")?;
            life.fmt(f)?;
        }
        write!(f, "at last: open, verify all, stop, check")
    }
}
