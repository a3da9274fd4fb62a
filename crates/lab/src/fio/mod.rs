//! fio's faces: its job files are read, and its reports are printed from a record.

mod check;
pub mod error;
pub mod file;
pub mod ini;
pub mod number;
pub mod open;
pub mod options;
pub mod set;
mod table;
pub mod value;

pub use error::{At, Error, Errors};
pub use file::{JobFile, JobSection, parse};
pub use ini::{Machine, Surroundings};
pub use open::open;
pub use options::JobOptions;
