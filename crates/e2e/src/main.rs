//! `e2e-node ROLE`: one process of an end-to-end test; see `denrei_e2e::roles`.

#![forbid(unsafe_code)]

fn main() -> anyhow::Result<()> {
    denrei_e2e::roles::run(std::env::args().nth(1).as_deref())
}
