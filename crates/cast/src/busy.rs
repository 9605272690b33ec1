//! Word that something goes on which takes long and adds nothing.
//!
//! Inputs → outputs: how many bytes are here → whoever wants to know: a receiver tells its sender, which would give it
//! up. Source: `spec/cast.md` §5.

/// Is told how many bytes are here, again and again while files are verified, written and put into place, and while
/// holes go into a pipe: large ones, and many, take minutes.
pub struct Busy(Box<dyn FnMut(u64) + Send>);

impl Busy {
    /// Has `tell` called.
    pub fn new(tell: impl FnMut(u64) + Send + 'static) -> Self {
        Self(Box::new(tell))
    }

    /// Tells that this goes on, and that `bytes` are here.
    pub(crate) fn goes_on(&mut self, bytes: u64) {
        (self.0)(bytes);
    }
}

impl Default for Busy {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl std::fmt::Debug for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Busy")
    }
}
