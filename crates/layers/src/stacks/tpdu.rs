//! The two TPDUs of the data phase (X.224 §13.7, §13.9, extended formats), as octets.
//!
//! Inputs → outputs: numbers, credit and what a checksum is to cover → headers; octets from below → which TPDU, if it
//! is one of ours and whole.

use super::fletcher;

/// TPDU codes (X.224 §13.1).
const DT: u8 = 0xf0;
pub(super) const AK: u8 = 0x60;
/// The parameter that carries a checksum, and the octets of its value (X.224 §13.2.3.1).
const CHECKSUM: [u8; 2] = [0xc3, 2];
const CHECKSUM_BYTES: usize = 4;
/// LI, code, DST-REF, EOT and TPDU-NR.
const DT_BYTES: usize = 8;
/// LI, code, DST-REF, YR-TU-NR, CDT.
pub(super) const AK_BYTES: usize = 10;
/// EOT, the top bit of the number.
pub(super) const EOT: u32 = 1 << 31;
/// Octets of the longest header that is put in front of data.
pub const HEADER_BYTES: usize = DT_BYTES + CHECKSUM_BYTES;
/// Reference of the one connection.
const REFERENCE: [u8; 2] = [0, 1];

/// What came from below.
pub(super) enum Tpdu {
    /// Data.
    Dt { number: u32 },
    /// An acknowledgement of all before `number`, with credit from there on.
    Ak { number: u32, credit: u16 },
}

/// Octets of a DT's header.
pub(super) fn dt_bytes(checksum: bool) -> usize {
    if checksum { DT_BYTES + CHECKSUM_BYTES } else { DT_BYTES }
}

/// Octets of an AK.
pub(super) fn ak_bytes(checksum: bool) -> usize {
    if checksum { AK_BYTES + CHECKSUM_BYTES } else { AK_BYTES }
}

/// Writes a DT's header; with a checksum over it and `covered`, what comes behind it.
pub(super) fn dt<'a>(place: &'a mut [u8; HEADER_BYTES], number: u32, covered: Option<&[u8]>) -> &'a [u8] {
    let header = &mut place[..dt_bytes(covered.is_some())];
    begin(header, DT, number | EOT);
    if let Some(payload) = covered {
        seal(header, DT_BYTES, payload);
    }
    header
}

/// Writes an AK of all before `number`.
pub(super) fn ak(place: &mut [u8], number: u32, credit: u16, checksum: bool) {
    begin(place, AK, number & !EOT);
    place[8..10].copy_from_slice(&credit.to_be_bytes());
    if checksum {
        seal(place, AK_BYTES, &[]);
    }
}

/// What LI, code, reference and number are.
fn begin(header: &mut [u8], code: u8, number: u32) {
    header[0] = header.len() as u8 - 1;
    header[1] = code;
    header[2..4].copy_from_slice(&REFERENCE);
    header[4..8].copy_from_slice(&number.to_be_bytes());
}

/// Writes a checksum parameter at `at` of a header.
fn seal(header: &mut [u8], at: usize, payload: &[u8]) {
    header[at..at + 2].copy_from_slice(&CHECKSUM);
    // What was in the buffer before must not count.
    header[at + 2..at + 4].fill(0);
    let check = fletcher::check_octets(header, payload, at + 2);
    header[at + 2..at + 4].copy_from_slice(&check);
}

/// Which TPDU it is; `None`: damaged, or none of ours.
pub(super) fn read(pdu: &[u8], checksum: bool) -> Option<Tpdu> {
    if pdu.get(2..4)? != REFERENCE || checksum && !fletcher::is_intact(pdu) {
        return None;
    }
    let number = u32::from_be_bytes(*pdu.get(4..8)?.first_chunk()?) & !EOT;
    match pdu[1] {
        DT if has_header(pdu, dt_bytes(checksum)) => Some(Tpdu::Dt { number }),
        AK if has_header(pdu, ak_bytes(checksum)) => {
            let credit = u16::from_be_bytes(*pdu.get(8..10)?.first_chunk()?);
            Some(Tpdu::Ak { number, credit })
        }
        _ => None,
    }
}

/// Whether a TPDU says that its header has so many octets, and has them.
fn has_header(pdu: &[u8], bytes: usize) -> bool {
    pdu.len() >= bytes && usize::from(pdu[0]) == bytes - 1
}
