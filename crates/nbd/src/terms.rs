//! What client and server agreed on beside the export: the shape of replies, and metadata contexts.
//!
//! Two contexts are offered (section "Metadata querying"). Both describe extents with a 32-bit word:
//!
//! | context | word | meaning |
//! |---|---|---|
//! | `base:allocation` | 0 | data |
//! | | 3 (`HOLE`, `ZERO`) | not allocated, reads zeros |
//! | `x-bimetal:tier` | 0 | not allocated, reads zeros |
//! | | 1 | at home on the fast tier |
//! | | 2 | at home on the slow tier |
//! | | 3 | landed: the newest copy is in the log on the fast tier, to be merged into its home later |
//! | | 4 | lost: the newest copy cannot be read any more; reading it is an error |

/// A metadata context that this server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetaContext {
    /// `base:allocation`: what is a hole (section "Metadata contexts", `base:allocation`).
    Allocation,
    /// `x-bimetal:tier`: on which tier the newest copy is.
    Tier,
}

impl MetaContext {
    /// All of them, in the order in which they are listed and replied to.
    pub const ALL: [MetaContext; 2] = [MetaContext::Allocation, MetaContext::Tier];

    /// The name that clients query.
    pub const fn name(self) -> &'static str {
        match self {
            MetaContext::Allocation => "base:allocation",
            MetaContext::Tier => "x-bimetal:tier",
        }
    }

    /// The number that stands for it in replies, chosen by the server.
    pub const fn id(self) -> u32 {
        match self {
            MetaContext::Allocation => 1,
            MetaContext::Tier => 2,
        }
    }

    /// What the context says of an extent.
    pub const fn word(self, placement: Placement) -> u32 {
        /// `NBD_STATE_HOLE` and `NBD_STATE_ZERO`.
        const HOLE_AND_ZERO: u32 = 0b11;
        match (self, placement) {
            (MetaContext::Allocation, Placement::Hole) => HOLE_AND_ZERO,
            (MetaContext::Allocation, _) => 0,
            (MetaContext::Tier, Placement::Hole) => 0,
            (MetaContext::Tier, Placement::Fast) => 1,
            (MetaContext::Tier, Placement::Slow) => 2,
            (MetaContext::Tier, Placement::Landed) => 3,
            (MetaContext::Tier, Placement::Lost) => 4,
        }
    }

    /// Whether a query means this context: its name, or `namespace:` for all of a namespace.
    pub(crate) fn matches(self, query: &[u8]) -> bool {
        let name = self.name().as_bytes();
        query == name || query.ends_with(b":") && name.starts_with(query)
    }
}

/// Where the newest copy of an extent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Nowhere: it reads zeros.
    Hole,
    /// At home on the fast tier.
    Fast,
    /// At home on the slow tier.
    Slow,
    /// In the log on the fast tier.
    Landed,
    /// It cannot be read any more.
    Lost,
}

/// A set of metadata contexts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Contexts(u8);

impl Contexts {
    /// None at all.
    pub const NONE: Contexts = Contexts(0);

    const fn bit(context: MetaContext) -> u8 {
        1 << context.id()
    }

    /// The set with one more.
    pub const fn with(self, context: MetaContext) -> Contexts {
        Contexts(self.0 | Self::bit(context))
    }

    /// Whether the context is one of them.
    pub const fn contains(self, context: MetaContext) -> bool {
        self.0 & Self::bit(context) != 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The contexts, in the order of [`MetaContext::ALL`].
    pub fn iter(self) -> impl Iterator<Item = MetaContext> {
        MetaContext::ALL.into_iter().filter(move |&context| self.contains(context))
    }
}

/// What was agreed on in the handshake; the default is what a client gets that asks for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Terms {
    /// READ and BLOCK_STATUS are answered with structured replies.
    pub structured: bool,
    /// What BLOCK_STATUS tells of.
    pub contexts: Contexts,
}
