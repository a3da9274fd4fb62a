//! How chunks that rose have done, and what is measured of moves.

/// How chunks that rose have done, for the engine's status.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Audit {
    /// Chunks that rose, and have repaid it or gone down since.
    pub judged: u64,
    /// Those of them that repaid it.
    pub repaid: u64,
    /// What is measured now.
    pub yields: Yield,
}

/// What moves save and cost, as far as it has been measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Yield {
    /// How much sooner a read of a chunk is answered from the fast tier, ns; 0 where it is not.
    pub read_ns: Option<u64>,
    /// What it takes the slow device to merge a landed block, ns: a write to a chunk on the fast tier needs none of it.
    pub write_ns: Option<u64>,
    /// What it takes the slow device to read or write a chunk that is moved, ns.
    pub move_ns: Option<u64>,
    pub(crate) caution: u32,
}
