//! DiskTester's tests: files created and read with a live table, a volume filled from start to end, a volume left
//! alone, and the story that tells whether a volume migrates.
//!
//! **Sources.** The session and the plots that macperformanceguide.com published of DiskTester 2.2 on a fused volume
//! (fusion-speed.html, iMac-Fusion-fill-volume.html), whose table and names are kept.
//! MB and GB are powers of two here, as in its published rows; elsewhere in the lab they are powers of ten.

mod adaptation;
mod fill;
mod idle;
mod pass;
mod table;
mod tester;

pub use adaptation::{Adaptation, AdaptationPlan, Step, adaptation};
pub use fill::{Burst, Cliff, Fill, FillPlan, fill};
pub use idle::{Idle, IdleRule, IdleSample, Watched};
pub use pass::{Deed, Layout, LayoutError};
pub use table::mb_per_s;
pub use tester::{Audience, Nobody, Tester, TesterError};
