//! What a server offers: exports, and the flags that describe them.

use crate::error::ExportsError;
use crate::limits::{MAX_EXPORT_SIZE_BYTES, MAX_EXPORTS, MAX_STRING_BYTES};
use crate::wire::OPTION_REPLY_HEADER_BYTES;

/// One volume that clients can choose by name (section "Option types", EXPORT_NAME).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// The name clients ask for; at most [`MAX_STRING_BYTES`] bytes.
    pub name: String,
    /// A line for people, shown by LIST and INFO; may be empty; at most [`MAX_STRING_BYTES`] bytes.
    pub description: String,
    /// Size in bytes; any value up to [`MAX_EXPORT_SIZE_BYTES`], no alignment needed.
    pub size_bytes: u64,
    /// Whether everything that writes is refused with EPERM.
    pub read_only: bool,
}

impl Export {
    /// The flags announced for this export (section "Transmission flags").
    ///
    /// A flush on one connection covers all, hence CAN_MULTI_CONN. A read-only export does not announce
    /// TRIM and WRITE_ZEROES, which it would always refuse. DF means something only with `structured`
    /// replies, and must not be announced without them. ROTATIONAL is never set: a tiered volume wants its
    /// hot part requested in any order, and gains nothing from a client's elevator.
    pub const fn transmission_flags(&self, structured: bool) -> TransmissionFlags {
        let always = TransmissionFlags::HAS_FLAGS
            .union(TransmissionFlags::SEND_FLUSH)
            .union(TransmissionFlags::SEND_FUA)
            .union(TransmissionFlags::CAN_MULTI_CONN)
            .union(TransmissionFlags::SEND_CACHE);
        let always = if structured { always.union(TransmissionFlags::SEND_DF) } else { always };
        if self.read_only {
            always.union(TransmissionFlags::READ_ONLY)
        } else {
            always
                .union(TransmissionFlags::SEND_TRIM)
                .union(TransmissionFlags::SEND_WRITE_ZEROES)
                .union(TransmissionFlags::SEND_FAST_ZERO)
        }
    }

    fn check(&self) -> Result<(), ExportsError> {
        if self.name.len() > MAX_STRING_BYTES || self.description.len() > MAX_STRING_BYTES {
            return Err(ExportsError::StringTooLong { name: self.name.chars().take(64).collect() });
        }
        if self.size_bytes > MAX_EXPORT_SIZE_BYTES {
            return Err(ExportsError::TooLarge { name: self.name.clone(), size_bytes: self.size_bytes });
        }
        Ok(())
    }
}

/// Place of an export in its [`Exports`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExportIndex(usize);

impl ExportIndex {
    /// The place as an index into [`Exports::as_slice`].
    pub const fn get(self) -> usize {
        self.0
    }
}

/// The exports of a server, checked once; connections share it behind an `Arc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exports {
    list: Vec<Export>,
}

impl Exports {
    /// Checks and takes the exports. The default export, which a client gets for the empty name, is the one
    /// whose own name is empty, else the first (section "Option types", EXPORT_NAME).
    pub fn new(list: Vec<Export>) -> Result<Self, ExportsError> {
        if list.is_empty() {
            return Err(ExportsError::Empty);
        }
        if list.len() > MAX_EXPORTS {
            return Err(ExportsError::TooMany { count: list.len() });
        }
        for (place, export) in list.iter().enumerate() {
            export.check()?;
            // Quadratic, over at most MAX_EXPORTS, once.
            if list[..place].iter().any(|earlier| earlier.name == export.name) {
                return Err(ExportsError::DuplicateName { name: export.name.clone() });
            }
        }
        Ok(Exports { list })
    }

    /// All exports, in the order given.
    pub fn as_slice(&self) -> &[Export] {
        &self.list
    }

    /// The export at `index`.
    ///
    /// # Panics
    /// Where the index came from another, longer set of exports.
    pub fn get(&self, index: ExportIndex) -> &Export {
        &self.list[index.0]
    }

    /// Length of the whole answer to a LIST, in bytes.
    pub(crate) fn list_bytes(&self) -> usize {
        let reply = |export: &Export| {
            OPTION_REPLY_HEADER_BYTES + size_of::<u32>() + export.name.len() + export.description.len()
        };
        self.list.iter().map(reply).sum::<usize>() + OPTION_REPLY_HEADER_BYTES
    }

    /// The export a client means by `name`. Bytes are compared: a name that is not UTF-8 matches none.
    pub fn find(&self, name: &[u8]) -> Option<ExportIndex> {
        match self.list.iter().position(|export| export.name.as_bytes() == name) {
            Some(place) => Some(ExportIndex(place)),
            None if name.is_empty() => Some(ExportIndex(0)),
            None => None,
        }
    }
}

/// What an export can do, as announced when it is chosen (section "Transmission flags").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransmissionFlags(u16);

impl TransmissionFlags {
    /// Always set.
    pub const HAS_FLAGS: Self = Self(1 << 0);
    /// Writes are refused.
    pub const READ_ONLY: Self = Self(1 << 1);
    /// FLUSH is understood.
    pub const SEND_FLUSH: Self = Self(1 << 2);
    /// The FUA command flag is understood.
    pub const SEND_FUA: Self = Self(1 << 3);
    /// Seeks cost time.
    pub const ROTATIONAL: Self = Self(1 << 4);
    /// TRIM is understood.
    pub const SEND_TRIM: Self = Self(1 << 5);
    /// WRITE_ZEROES and its NO_HOLE flag are understood.
    pub const SEND_WRITE_ZEROES: Self = Self(1 << 6);
    /// The DF command flag is understood on reads.
    pub const SEND_DF: Self = Self(1 << 7);
    /// A flush on one connection covers the writes answered on all.
    pub const CAN_MULTI_CONN: Self = Self(1 << 8);
    /// CACHE is understood.
    pub const SEND_CACHE: Self = Self(1 << 10);
    /// The FAST_ZERO command flag is understood.
    pub const SEND_FAST_ZERO: Self = Self(1 << 11);

    /// The flags as they stand on the wire; bits without a name are kept.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// The flags as they stand on the wire.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The flags of both.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
