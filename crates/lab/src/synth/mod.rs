//! Traces that have the published statistics of others: counts, bytes, sizes, the sequential share, the depth of the
//! queue.
//!
//! What is published is dealt out like cards, so that it is met exactly but for rounding. What is not published is
//! chosen so that as little as possible is assumed beside it (the distribution of the most entropy that has the
//! published mean: Jaynes, 1957), and a profile says in words what that leaves. Sizes, order and depth are independent of
//! each other.

mod compare;
mod law;
mod profile;
mod trace;

pub use compare::{Compared, compare};
pub use profile::{MAX_PROFILE_BYTES, Profile, ProfileError};
pub use trace::Synth;
