//! Reads decisions off the fuzzer's octets.

/// The octets not used yet.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// The next octet, `None` at the end.
    pub fn octet(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// The next octet as an index below `bound` (1 ..= 256).
    pub fn below(&mut self, bound: usize) -> Option<usize> {
        self.octet().map(|octet| octet as usize % bound)
    }

    /// The next `len` octets, fewer at the end.
    pub fn octets(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}
