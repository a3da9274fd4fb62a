//! Planted bugs: each removes or reverses one line that serves a rule of a replacement, so that tests can prove that they find it.
//! Compiled for tests only, and off even there until one sets it for the current thread.

bimetal_units::planted_bugs! {
    /// What is written while its range is being copied is not held back.
    PieceNotFenced,
    /// A piece is read while writes to its range are on their way.
    PieceNotAwaited,
    /// What is on its way to the old device when it begins is not awaited.
    BegunAmidWrites,
    /// What is written to what has been copied goes to the old device alone.
    OldAlone,
    /// It goes to both before a header says that they may differ.
    RegionNotOpened,
    /// A region is closed though the successor was not flushed.
    ClosedUnflushed,
    /// A region is closed while a header that says so is not yet durable, and written to again.
    ClosingForgotten,
    /// A header claims what was copied and not flushed.
    ClaimedUnflushed,
    /// A header claims what was read of the old device, and is in its cache alone.
    ClaimedFromCache,
    /// Nobody hears of a flush of the old device that fails, unless he asked for it.
    FlushErrorKept,
    /// Nobody hears of a flush of the other device that fails, by which the volume was to change over.
    OtherFlushErrorKept,
    /// A flush that the old device failed is told when the successor has answered, too, and others before it.
    FailureToldLate,
    /// An old device that failed a flush is believed when it answers the next one.
    OldBelievedAgain,
    /// A flush is for the old device alone, though the other device may name the successor.
    FlushOldAlone,
    /// A header of another opening is believed.
    OtherOpeningBelieved,
    /// Open regions are not copied again.
    OpenNotCopied,
    /// What the old device failed to write is taken for the same on both.
    FailedWriteSame,
    /// What could not be read counts as copied.
    UnreadIsCopied,
    /// What is needed is not copied.
    NeededLeftOut,
    /// What could not be read is left out though nobody asked for that.
    LeftUnasked,
    /// It is left out though the device reads nothing else either.
    LeftUnproven,
    /// The other device names the successor before that has been flushed.
    CommitUnflushed,
    /// The successor takes over while writes are on their way.
    NotDrained,
    /// After a commit that failed, headers take the place of the first superblock.
    FirstOverwritten,
    /// What the successor fails is answered as done, though the other device may name it.
    TwinIgnored,
    /// The successor is done without though the other device may name it.
    TornWritten,
    /// Buffers are given back that a successor may still write, though the other device may name it.
    TornDoneWithout,
    /// It can be cancelled though the other device may name the successor.
    CancelledLate,
    /// After a failure, writes go on before anybody knows.
    NotSettled,
    /// Payload comes from the memory that the engine's moves have theirs from.
    MemoryShared,
    /// What the successor reads in the place of the old device counts as read by that.
    ElsewhereIsEvidence,
    /// A device that was away is believed when it is back.
    AbsenceIgnored,
}
