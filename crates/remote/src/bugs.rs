//! Planted bugs: each removes or reverses one line that serves a rule of the session, so that tests can prove that they find it.
//! Compiled for tests only, and off even there until one sets it for the current thread.

macro_rules! bugs {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A bug to plant.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Bug { $($(#[$doc])* $name),* }
        impl Bug {
            /// All of them.
            pub const ALL: &'static [Bug] = &[$(Bug::$name),*];
        }
    };
}

bugs! {
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

#[cfg(any(test, feature = "planted-bugs"))]
mod switch {
    use super::Bug;
    use std::cell::Cell;
    thread_local! { static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) }; }

    /// Plants a bug for this thread, or removes it.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Whether this bug is planted on this thread.
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(not(any(test, feature = "planted-bugs")))]
mod switch {
    /// Never: the switch is not compiled in.
    #[inline(always)]
    pub fn planted(_: super::Bug) -> bool {
        false
    }
}

pub use switch::*;
