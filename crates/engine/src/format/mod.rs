//! The bytes on the devices. `docs/FORMAT.md` draws them and says why they lie so.

pub mod codec;
pub mod geometry;
pub mod header;
pub mod hints;
pub mod left_out;
pub mod log;
pub mod marks;
pub mod page;
pub mod pins;
pub mod scrub;
pub mod superblock;

/// The newest format this program reads: that of a volume with checksum pages of the fast tier.
pub const FORMAT: u32 = 6;
/// The format of a volume without those, and with marks.
pub const FORMAT_WITHOUT_FAST_SUMS: u32 = 5;
/// The format of a volume with neither.
pub const FORMAT_WITHOUT_MARKS: u32 = 4;

/// The length of a volume's or device's identity, bytes.
pub const ID_BYTES: usize = 16;
/// A volume's or device's identity.
pub type Id = [u8; ID_BYTES];

/// An identity as text: 32 hexadecimal digits.
pub fn id_text(id: &Id) -> String {
    id.iter().map(|b| format!("{b:02x}")).collect()
}
