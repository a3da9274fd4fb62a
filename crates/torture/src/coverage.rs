//! Which stages of the engine were hit by which faults.

use bimetal_engine::coverage::Stage;
use std::collections::BTreeMap;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// A kind of fault that stages are crossed with.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Fault { $($(#[$doc])* $name),* }
        impl Fault {
            /// All kinds.
            pub const ALL: &'static [Fault] = &[$(Fault::$name),*];
            /// The name in reports.
            pub fn name(self) -> &'static str { match self { $(Fault::$name => $text),* } }
        }
    };
}

faults! {
    /// Power cut while the operation was in flight.
    PowerCut = "power-cut",
    /// The process died while the operation was in flight.
    Kill = "kill",
    /// The I/O that the operation waited for failed.
    IoError = "io-error",
    /// A crash while the operation was in flight, and another one in the recovery after it.
    CrashInRecovery = "crash-in-recovery",
    /// Power cut while opening.
    CutInRecovery = "power-cut-in-recovery",
    /// The process died while opening.
    KillInRecovery = "kill-in-recovery",
    /// A device vanished while the operation was in flight.
    Vanished = "device-vanished",
    /// The I/O that the operation waited for met a stall.
    Stalled = "stall",
    /// A write of the operation's was acknowledged and did not happen, or not all of it.
    LostWrite = "lost-write",
    /// A write of the operation's was acknowledged and landed elsewhere.
    Misdirected = "misdirected-write",
    /// The connections to the slow device, an export, broke while the operation was in flight.
    Broken = "connection-broken",
    /// Its server died then, and lost what was not flushed.
    Forgot = "server-forgot",
}

/// Crossings that cannot exist, with the reason.
pub const IMPOSSIBLE: &[(Stage, Fault, &str)] = &[
    (Stage::MoveQuiesce, Fault::IoError, "it waits for other operations to end and has no I/O of its own"),
    (Stage::MoveQuiesce, Fault::Stalled, "it waits for other operations to end and has no I/O of its own"),
];

/// Stages that wait for the log: a log write that fails hits all of them, whoever's token it has.
pub const LOG_WAITERS: &[Stage] = &[Stage::WriteLand, Stage::Discard, Stage::CommitAppend, Stage::MoveAppend];

/// Stages that write where there are checksums: a write of theirs that the device acknowledges and loses is noticed.
pub const SUMMED: &[Stage] = &[
    Stage::WriteLand,
    Stage::WriteStream,
    Stage::CopyWrite,
    Stage::Discard,
    Stage::CommitAppend,
    Stage::MoveWrite,
    Stage::MoveAppend,
    Stage::CheckpointMap,
    Stage::CheckpointFold,
    Stage::CheckpointRegions,
    Stage::CheckpointDirectory,
    Stage::CheckpointRoot,
    Stage::CheckpointHeader,
    Stage::SealIndex,
    Stage::Shutdown,
];

/// The stages of opening.
pub const OPENING: &[Stage] =
    &[Stage::OpenFlush, Stage::OpenSuperblocks, Stage::OpenCheckpoint, Stage::OpenReplay, Stage::OpenRaise];

/// The faults that a stage is to be crossed with.
pub fn faults_of(stage: Stage) -> &'static [Fault] {
    if OPENING.contains(&stage) {
        const ALL: &[Fault] = &[
            Fault::IoError,
            Fault::CutInRecovery,
            Fault::KillInRecovery,
            Fault::Vanished,
            Fault::Stalled,
            Fault::Broken,
            Fault::Forgot,
            Fault::LostWrite,
            Fault::Misdirected,
        ];
        // Only this one writes.
        return if stage == Stage::OpenRaise { ALL } else { &ALL[..7] };
    }
    const ALL: &[Fault] = &[
        Fault::PowerCut,
        Fault::Kill,
        Fault::IoError,
        Fault::CrashInRecovery,
        Fault::Vanished,
        Fault::Stalled,
        Fault::Broken,
        Fault::Forgot,
        Fault::LostWrite,
        Fault::Misdirected,
    ];
    if SUMMED.contains(&stage) { ALL } else { &ALL[..8] }
}

const STAGES: usize = Stage::ALL.len();
const FAULTS: usize = Fault::ALL.len();

/// Counts of crossings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coverage {
    counts: [[u64; FAULTS]; STAGES],
}

impl Default for Coverage {
    fn default() -> Self {
        Coverage { counts: [[0; FAULTS]; STAGES] }
    }
}

impl Coverage {
    /// Counts a crossing.
    pub fn hit(&mut self, stage: Stage, fault: Fault) {
        self.counts[stage as usize][fault as usize] += 1;
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Coverage) {
        for (mine, theirs) in self.counts.iter_mut().flatten().zip(other.counts.iter().flatten()) {
            *mine += theirs;
        }
    }

    /// Crossings by name.
    pub fn crossings(&self) -> BTreeMap<String, u64> {
        self.wanted().filter(|&(_, _, n)| n > 0).map(|(s, f, n)| (name(s, f), n)).collect()
    }

    /// Crossings that can exist and were never seen.
    pub fn unseen(&self) -> Vec<String> {
        let possible = |s, f| !IMPOSSIBLE.iter().any(|&(stage, fault, _)| (stage, fault) == (s, f));
        self.wanted().filter(|&(s, f, n)| n == 0 && possible(s, f)).map(|(s, f, _)| name(s, f)).collect()
    }

    fn wanted(&self) -> impl Iterator<Item = (Stage, Fault, u64)> + '_ {
        let all = Stage::ALL.iter().flat_map(|&s| faults_of(s).iter().map(move |&f| (s, f)));
        all.map(|(s, f)| (s, f, self.counts[s as usize][f as usize]))
    }
}

fn name(stage: Stage, fault: Fault) -> String {
    format!("{} x {}", stage.name(), fault.name())
}

/// A set of stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StageSet(u64);

const _: () = assert!(STAGES <= 64, "a stage set is one word");

impl StageSet {
    /// Adds a stage.
    pub fn insert(&mut self, stage: Stage) {
        self.0 |= 1 << stage as u8;
    }

    /// Adds all of another set.
    pub fn extend(&mut self, other: StageSet) {
        self.0 |= other.0;
    }

    /// Its stages, in order.
    pub fn iter(self) -> impl Iterator<Item = Stage> {
        Stage::ALL.iter().copied().filter(move |&s| self.0 & (1 << s as u8) != 0)
    }
}
