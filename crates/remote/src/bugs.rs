//! Planted bugs: each removes or reverses one line that serves a rule of the session, so that tests can prove that they find it.
//! Compiled for tests only, and off even there until one sets it for the current thread.

bimetal_units::planted_bugs! {
    /// A newer write leaves what it overlaps in the journal.
    UncutJournal,
    /// The journal is not written again.
    NothingRewritten,
    /// What waits is sent while the journal is still being written again, before it.
    HastyRewriting,
    /// A flush takes out of the journal what was answered after it was sent.
    GreedyFlush,
    /// After a failed flush the next one is sent at once.
    FailedFlushForgotten,
    /// A write that was with the server when the connection broke counts as done.
    RequestDropped,
    /// A flush that was with the server when the connection broke counts as done.
    FlushAnsweredOverBreak,
    /// Who waited too long is told that all is well.
    TimeoutIsSuccess,
    /// A reply is taken for whatever request has the place of the one that it answers.
    LateAnswerTaken,
    /// The first flush is answered without being sent, as nothing was written since the beginning.
    FirstFlushSpared,
    /// Nobody looks whether the export is still ours while it is used.
    NobodyLooks,
    /// What is given up is answered while the kernel still sends of its buffers.
    LostWhileSending,
}
