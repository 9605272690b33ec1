//! The golden vectors of `spec/vectors/sealed.json`: what other implementations are held to.

use super::aead::{PacketKey, Suite};
use super::group::GroupKey;
use super::handshake::Credentials;
use super::prf::{Prf, Secret};
use super::{ClusterKey, SECRET_BYTES};
use denrei_wire::packet::Opening;
use denrei_wire::{Incarnation, Token};
use serde_json::Value;

fn vectors() -> Value {
    let text = include_str!("../../../../spec/vectors/sealed.json");
    serde_json::from_str(text).expect("the vectors are JSON")
}

fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry[key].as_str().unwrap_or_else(|| panic!("{key} is a text in {entry}"))
}

fn octets(entry: &Value, key: &str) -> Vec<u8> {
    let digits = text(entry, key);
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn secret(entry: &Value, key: &str) -> Secret {
    Secret::new(<[u8; SECRET_BYTES]>::try_from(octets(entry, key)).expect("secrets have 32 octets"))
}

fn id(entry: &Value, key: &str) -> u64 {
    u64::from_str_radix(text(entry, key), 16).unwrap()
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[track_caller]
fn check_packet(entry: &Value, key: &PacketKey) {
    let number = entry["number"].as_u64().expect("a number");
    let (header, mut frames) = (octets(entry, "header"), octets(entry, "frames"));
    let tag = key.seal(number, &header, &mut frames);
    frames.extend(tag);
    assert_eq!(hex(&frames), text(entry, "sealed"), "{entry}");
    let mut sealed = octets(entry, "sealed");
    assert_eq!(key.open(number, &header, &mut sealed).map(hex).as_deref(), Some(text(entry, "frames")));
}

#[test]
fn derived_secrets_are_those_of_the_vectors() {
    for entry in vectors()["kdf"].as_array().unwrap() {
        let parts = octets(entry, "parts");
        let derived = Prf::new(&secret(entry, "key")).derive(text(entry, "label"), &[&parts]);
        assert_eq!(hex(&*derived), text(entry, "secret"), "{entry}");
    }
}

#[test]
fn sealed_packets_are_those_of_the_vectors() {
    for entry in vectors()["packets"].as_array().unwrap() {
        let suite = Suite::from_octet(entry["suite"].as_u64().unwrap() as u8).unwrap();
        check_packet(entry, &PacketKey::new(suite, &secret(entry, "secret")));
    }
}

#[test]
fn firsts_are_those_of_the_vectors() {
    for entry in vectors()["firsts"].as_array().unwrap() {
        let key = ClusterKey::from_bytes(*secret(entry, "cluster_key"));
        let initiator = Opening {
            own_token: Token(id(entry, "own_token")),
            incarnation: Incarnation(id(entry, "incarnation")),
        };
        let credentials = Credentials::new(&key, None, &[]);
        check_packet(entry, &credentials.early_key(initiator, &octets(entry, "handshake")));
    }
}

#[test]
fn group_packets_are_those_of_the_vectors() {
    for entry in vectors()["groups"].as_array().unwrap() {
        let key = GroupKey::from_octets(&octets(entry, "key")).unwrap();
        let (header, mut frames) = (octets(entry, "header"), octets(entry, "frames"));
        let number = entry["number"].as_u64().expect("a number");
        let tag = key.sealer(entry["sender"].as_u64().unwrap()).seal(number, &header, &mut frames);
        frames.extend(tag);
        assert_eq!(hex(&frames), text(entry, "sealed"), "{entry}");
    }
}
