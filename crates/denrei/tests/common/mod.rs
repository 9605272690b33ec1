//! What the tests of Nodes share.

use denrei::Drive;

/// The drive of a Node that works in the background: what `DENREI_DRIVE` says, or one thread.
pub fn background() -> Drive {
    if std::env::var_os(denrei::environment::DRIVE).is_some() { Drive::default() } else { Drive::Thread }
}
