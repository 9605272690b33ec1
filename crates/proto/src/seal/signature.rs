//! Who of a group's members sent a packet: one signature for a batch of packets.
//!
//! Inputs → outputs: up to 256 packets → a proof for each, to be carried with it; a packet and its proof
//! → whether the owner of a public key has sent it. The signature (Ed25519, RFC 8032) is over the root
//! of a Merkle tree over the packets (Wong and Lam 1999), so that each can be checked without the
//! others, and the first of a batch pays for all: `cargo run --release -p denrei-proto --example
//! seal_cost` says how much. Nodes are SHA-256 cut to 16 octets: whoever finds two packets of one node
//! is the signer, and could have signed both.

use super::SECRET_BYTES;
use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use std::collections::VecDeque;

/// Most packets in a batch.
pub const MAX_BATCH: usize = 256;
/// Octets of a signature.
const SIGNATURE_BYTES: usize = 64;
const NODE_BYTES: usize = 16;
/// Octets of a proof before the path: place in the batch, packets in the batch less one, signature.
const PROOF_HEAD_BYTES: usize = 2 + SIGNATURE_BYTES;

/// Roots a verifier remembers: of batches whose packets still come in.
const MAX_ROOTS: usize = 32;

type Node = [u8; NODE_BYTES];

/// Octets of the proof of each packet of a batch of `packets`.
pub const fn proof_bytes(packets: usize) -> usize {
    PROOF_HEAD_BYTES + depth(packets) * NODE_BYTES
}

/// Signs batches.
pub struct Signer(Ed25519KeyPair);

/// A batch that was signed.
pub struct SignedBatch {
    packets: usize,
    signature: [u8; SIGNATURE_BYTES],
    /// Nodes of each level, the packets' own first, the root left out.
    levels: Vec<Vec<Node>>,
}

/// Checks what one signer has signed.
pub struct Verifier {
    public: [u8; SECRET_BYTES],
    context: Vec<u8>,
    /// Roots whose signature was checked.
    roots: VecDeque<(Node, usize, [u8; SIGNATURE_BYTES])>,
}

impl Signer {
    /// A signer whose key follows from 32 secret octets.
    ///
    /// # Panics
    /// Never: every 32 octets are a seed of Ed25519.
    pub fn new(seed: &[u8; SECRET_BYTES]) -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(seed).expect("32 octets are a seed"))
    }

    /// What verifiers need.
    ///
    /// # Panics
    /// Never: Ed25519's public keys have 32 octets.
    pub fn public(&self) -> [u8; SECRET_BYTES] {
        self.0.public_key().as_ref().try_into().expect("public keys of Ed25519 have 32 octets")
    }

    /// Signs 1 to [`MAX_BATCH`] packets. `context` says what they are for (group, epoch, sender), so
    /// that a signature cannot be moved elsewhere.
    ///
    /// # Panics
    /// If there is no packet, or more than [`MAX_BATCH`].
    pub fn sign(&self, context: &[u8], packets: &[&[u8]]) -> SignedBatch {
        assert!((1..=MAX_BATCH).contains(&packets.len()), "a batch has 1 to {MAX_BATCH} packets");
        let mut levels = vec![packets.iter().map(|packet| leaf(packet)).collect::<Vec<_>>()];
        while let Some(level) = levels.last()
            && level.len() > 1
        {
            let next = level.chunks(2).map(|pair| parent(pair[0], *pair.last().unwrap_or(&pair[0])));
            levels.push(next.collect());
        }
        let root = levels.pop().expect("there is one packet at least")[0];
        let signature = self.0.sign(&statement(context, packets.len(), root));
        let signature = signature.as_ref().try_into().expect("signatures of Ed25519 have 64 octets");
        SignedBatch { packets: packets.len(), signature, levels }
    }
}

impl SignedBatch {
    /// Hands the octets of the proof of packet `index` to `put`: [`proof_bytes`] of them.
    ///
    /// # Panics
    /// If there is no such packet.
    pub fn proof(&self, index: usize, mut put: impl FnMut(&[u8])) {
        assert!(index < self.packets, "the batch has {} packets", self.packets);
        put(&[index as u8, (self.packets - 1) as u8]);
        put(&self.signature);
        for (height, level) in self.levels.iter().enumerate() {
            let at = index >> height;
            // A node without a sibling is its own.
            put(level.get(at ^ 1).unwrap_or(&level[at]));
        }
    }
}

impl Verifier {
    /// For what the owner of `public` signs for `context`.
    pub fn new(public: [u8; SECRET_BYTES], context: &[u8]) -> Self {
        Self { public, context: context.to_vec(), roots: VecDeque::new() }
    }

    /// Whether the signer has sent `packet`. Costs a few hashes, and a signature for the first packet
    /// of a batch.
    pub fn verify(&mut self, packet: &[u8], proof: &[u8]) -> bool {
        let Some((&[index, last], rest)) = proof.split_first_chunk() else { return false };
        let Some((signature, path)) = rest.split_first_chunk() else { return false };
        let packets = last as usize + 1;
        if index > last || path.len() != depth(packets) * NODE_BYTES {
            return false;
        }
        let mut node = leaf(packet);
        for (height, sibling) in path.as_chunks().0.iter().enumerate() {
            let right = (index as usize >> height) & 1 == 1;
            node = if right { parent(*sibling, node) } else { parent(node, *sibling) };
        }
        let root = (node, packets, *signature);
        if self.roots.contains(&root) {
            return true;
        }
        let key = UnparsedPublicKey::new(&ED25519, &self.public);
        let genuine = key.verify(&statement(&self.context, packets, node), signature).is_ok();
        if genuine {
            if self.roots.len() == MAX_ROOTS {
                self.roots.pop_front();
            }
            self.roots.push_back(root);
        }
        genuine
    }
}

/// Levels between a packet and the root.
const fn depth(packets: usize) -> usize {
    packets.next_power_of_two().ilog2() as usize
}

/// What is signed.
fn statement(context: &[u8], packets: usize, root: Node) -> Vec<u8> {
    [b"denrei 1 batch\0", context, &(packets as u16).to_le_bytes(), &root].concat()
}

fn leaf(packet: &[u8]) -> Node {
    node(0, &[packet])
}

fn parent(left: Node, right: Node) -> Node {
    node(1, &[&left, &right])
}

/// Packets and nodes are hashed apart, so that none passes for the other (RFC 6962 §2.1).
fn node(kind: u8, parts: &[&[u8]]) -> Node {
    let mut context = Context::new(&SHA256);
    context.update(&[kind]);
    parts.iter().for_each(|part| context.update(part));
    *context.finish().as_ref().first_chunk().expect("SHA-256 has 32 octets")
}

impl core::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Verifier")
    }
}

impl core::fmt::Debug for Signer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Signer(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(batch: &SignedBatch, index: usize) -> Vec<u8> {
        let mut octets = Vec::new();
        batch.proof(index, |bytes| octets.extend(bytes));
        octets
    }

    #[test]
    fn every_packet_of_a_batch_of_any_size_can_be_checked_alone() {
        let signer = Signer::new(&[3; 32]);
        for count in [1, 2, 3, 4, 5, 7, 8, 33, 64, 255, 256] {
            let packets: Vec<Vec<u8>> = (0..count).map(|number| vec![number as u8; number]).collect();
            let borrowed: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
            let batch = signer.sign(b"group", &borrowed);
            for (index, packet) in packets.iter().enumerate() {
                let proof = proof(&batch, index);
                assert_eq!(proof.len(), proof_bytes(count));
                assert!(
                    Verifier::new(signer.public(), b"group").verify(packet, &proof),
                    "{index} of {count}"
                );
                assert!(!Verifier::new(signer.public(), b"other").verify(packet, &proof));
                assert!(!Verifier::new(Signer::new(&[4; 32]).public(), b"group").verify(packet, &proof));
            }
        }
    }

    #[test]
    fn no_changed_bit_passes_and_no_packet_in_the_place_of_another() {
        let signer = Signer::new(&[3; 32]);
        let packets: [&[u8]; 3] = [b"one", b"two", b"three"];
        let batch = signer.sign(b"group", &packets);
        let mut verifier = Verifier::new(signer.public(), b"group");
        let good = proof(&batch, 1);
        assert!(verifier.verify(b"two", &good) && !verifier.verify(b"one", &good));
        for bit in 0..good.len() * 8 {
            let mut changed = good.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!verifier.verify(b"two", &changed), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(!verifier.verify(b"two", &good[..len]));
        }
        assert_eq!(verifier.roots.len(), 1);
    }
}
