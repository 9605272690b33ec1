//! Which version this is.

use std::ffi::c_char;

/// The library's version, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn denrei_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
