//! Stages of operations, named, so that a simulator can say at which of them it hit the engine.

use serde::{Deserialize, Serialize};

macro_rules! stages {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// A stage of an operation: where it stands when a crash or an error comes.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum Stage { $($(#[$doc])* $name),* }
        impl Stage {
            /// All stages, in order.
            pub const ALL: &'static [Stage] = &[$(Stage::$name),*];
            /// The stage's name: operation, colon, stage.
            pub fn name(self) -> &'static str { match self { $(Stage::$name => $text),* } }
        }
    };
}

stages! {
    /// A read waits for its data.
    ReadData = "read: data",
    /// A read waits for a page of checksums.
    ReadChecksums = "read: checksums",
    /// A chunk is read to be copied.
    CopyRead = "copy: read",
    /// A copy is being written.
    CopyWrite = "copy: write",
    /// A partial write fetches the rest of its blocks.
    WriteFill = "write: fill",
    /// An in-place write on the fast tier.
    WriteInPlace = "write: in place",
    /// A first write into blocks not yet shown.
    WriteFresh = "write: fresh",
    /// A landing write waits for its log group.
    WriteLand = "write: land",
    /// A whole chunk goes to a fresh slow slot.
    WriteStream = "write: stream",
    /// A discard waits for its log group.
    Discard = "discard: log",
    /// A commit flushes the devices whose data it will show.
    CommitFlushData = "commit: flush data",
    /// A commit waits for its records in the log.
    CommitAppend = "commit: append",
    /// A commit flushes the fast device.
    CommitFlushLog = "commit: flush log",
    /// A move waits for writes in flight to the old home.
    MoveQuiesce = "move: quiesce",
    /// A move reads its source.
    MoveRead = "move: read",
    /// A merge of parts of blocks waits for the record of what it will write over.
    MoveIntend = "move: intend",
    /// A merge flushes the landed blocks that it will write over a slow home.
    MoveFlushLanded = "move: flush landed",
    /// A move writes its destination.
    MoveWrite = "move: write",
    /// A move flushes its destination.
    MoveFlushData = "move: flush data",
    /// A move waits for its records in the log.
    MoveAppend = "move: append",
    /// A move flushes the log.
    MoveFlushLog = "move: flush log",
    /// A checkpoint writes map pages.
    CheckpointMap = "checkpoint: map pages",
    /// A checkpoint folds checksums into their pages.
    CheckpointFold = "checkpoint: fold checksums",
    /// A checkpoint writes checksum pages of the fast tier, and reads those that it names no more.
    CheckpointRegions = "checkpoint: regions of the fast tier",
    /// A checkpoint writes pages of the directory.
    CheckpointDirectory = "checkpoint: directory",
    /// A checkpoint writes its root (references to the directory, checksum list).
    CheckpointRoot = "checkpoint: root",
    /// A checkpoint waits for the log and flushes the pages.
    CheckpointFlushPages = "checkpoint: flush pages",
    /// A checkpoint writes its header.
    CheckpointHeader = "checkpoint: header",
    /// A checkpoint flushes its header.
    CheckpointFlushHeader = "checkpoint: flush header",
    /// What the slow device says about itself is written.
    MarkPages = "marks: pages",
    /// Pages of marks are flushed.
    MarkFlushPages = "marks: flush pages",
    /// The header that names them is written.
    MarkHeader = "marks: header",
    /// It is flushed.
    MarkFlushHeader = "marks: flush header",
    /// A commit waits until it is durable that what it covers may be stale on the slow device.
    CommitAwaitMarks = "commit: await marks",
    /// The list of pins is written to one of its places.
    PinWrite = "pins: write",
    /// What was written of the list of pins is flushed.
    PinFlush = "pins: flush",
    /// A sealed segment's index is being written.
    SealIndex = "log: seal index",
    /// A block that went bad is written again into the log.
    MendLand = "mend: land",
    /// A scrub, or who looks after what a read found, reads something.
    ScrubRead = "scrub: read",
    /// A scrub writes how far it has come.
    ScrubKeep = "scrub: keep",
    /// A group is written that says only what is durable.
    LogClaim = "log: claim",
    /// A shutdown waits for its last writes.
    Shutdown = "shutdown: superblocks",
    /// Opening flushes the devices.
    OpenFlush = "open: flush",
    /// Opening reads superblocks.
    OpenSuperblocks = "open: superblocks",
    /// Opening reads the checkpoint.
    OpenCheckpoint = "open: checkpoint",
    /// Opening replays the log.
    OpenReplay = "open: replay",
    /// Opening raises the generation.
    OpenRaise = "open: raise generation",
}
