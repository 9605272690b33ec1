//! libfabric's binary interface, written down by hand from its public headers: versions 1.17 … 2.5.
//!
//! Names are libfabric's own. Structures that the *caller* owns may be shorter than here (they grew
//! at their ends): fields beyond those of 1.5 are never read. Structures that *we* make are as long
//! as the longest.

#![allow(non_camel_case_types, missing_docs, clippy::type_complexity, clippy::too_many_arguments)]

mod consts;
mod info;
mod objects;
mod ops;

pub use consts::*;
pub use info::*;
pub use objects::*;
pub use ops::*;
