//! An image of the volume on its slow device, for the day on which the fast one dies, sans-I/O.
//!
//! A [`Protection`] stands between a machine and its driver. It holds a machine's two devices as they were at one moment, the
//! **freeze**: a **copy** of the fast device behind what the volume uses of the slow one, and what the slow device held then
//! where it has been written over since. Every few seconds there is a newer freeze. What the machine itself has is on the devices
//! as it is without: nothing of it depends on the image.
//!
//! | file | owns |
//! |---|---|
//! | `protection` | what is asked and answered |
//! | `protected` | a machine with it, or without |
//! | `epoch` | **how far the next image is** |
//! | `fast` | what the image lacks of the fast device |
//! | `undo` | what is kept of the slow device |
//! | `bundle`, `group`, `ring` | ranges that go to the ring together, and what of it is durable |
//! | `transfer`, `sums` | what goes to the copy, unless it has rotted in the ring |
//! | `header`, `layout` | what is where on the devices, and what they say of it |
//! | `scan` | what a crash has left of the ring |
//! | `salvage` | **the image, in the place of the devices** |
//! | `stand_in` | **the copy, in the place of the fast device for good** |

mod blocks;
pub mod bugs;
mod bundle;
mod epoch;
mod extents;
mod fast;
mod group;
mod header;
mod layout;
mod protected;
mod protection;
mod ring;
mod salvage;
mod scan;
mod stand_in;
mod sums;
#[cfg(test)]
mod tests;
mod transfer;
mod undo;

pub use header::{Header, Image, Newest, NoImage};
pub use layout::Layout;
pub use protected::Protected;
pub use protection::{Plan, Progress, Protection, Standing};
pub use ring::Pos;
pub use salvage::Salvage;
pub use scan::{Reader, Scanned, image, newest_header, scan};
pub use stand_in::{Disk, StandInError, stand_in};
