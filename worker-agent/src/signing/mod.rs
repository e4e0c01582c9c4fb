//! Brings the key of copies into force: signs existing copies, and reports objects without a proof.

mod copies;
mod settle;

pub use self::copies::{Copies, Unproved};
pub use self::settle::{MarkedObjects, Operators, Pace, ScanResult, settle};
