//! Moments at which another fault is worst: what one fault has left and is not settled yet, named, so that a simulator
//! can bring the second one then.

macro_rules! moments {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// Something that a fault, or a race, has left and that is not settled.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
        pub enum Moment { $($(#[$doc])* $name),* }
        impl Moment {
            /// All of them.
            pub const ALL: &'static [Moment] = &[$(Moment::$name),*];
            /// The name in reports.
            pub fn name(self) -> &'static str { match self { $(Moment::$name => $text),* } }
        }
    };
}

moments! {
    /// The newest copy of some block is lost.
    LostBlock = "a block is lost",
    /// A loss is being recorded: streams wait for it, or land.
    LossUnderWay = "a loss is being recorded",
    /// Jobs of the log are to be appended again, with a fence behind them.
    Fence = "a fence is up",
    /// A commit waits for a discard to be in the log.
    DiscardAwaited = "a commit waits for a discard",
    /// A home may be torn, and only the log says how that is told.
    TornHome = "a home may be torn",
    /// A checkpoint's header is written and not known to be durable.
    HeaderUnflushed = "a checkpoint is between header and flush",
}
