//! End-to-end tests: processes of `e2e-node`, in network namespaces where links are harmed, on
//! loopback otherwise.
//!
//! They run one after the other, because most measure time, but for those that do next to nothing but wait: one of these
//! runs beside. Those that need root, `ip` or `nft`
//! print `SKIPPED: <test>: <reason>` where these are missing.

mod harness;

mod addresses;
mod crash;
mod garbage;
mod group;
mod host;
mod hub;
mod limits;
mod lossy;
mod mtu;
mod outage;
mod relay;
mod slow;
mod stopped;
