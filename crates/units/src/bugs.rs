//! The switch for planted bugs, of which each crate that has rules lists its own.

/// Makes a crate's planted bugs: each removes or reverses one line that serves a rule, so that a test can prove that it would be
/// found. The switch is compiled in for tests and with the crate's feature `planted-bugs`, and is off even there until a test sets
/// it for the current thread.
#[macro_export]
macro_rules! planted_bugs {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A bug to plant.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Bug { $($(#[$doc])* $name),* }

        impl Bug {
            /// All of them.
            pub const ALL: &'static [Bug] = &[$(Bug::$name),*];
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
    };
}
