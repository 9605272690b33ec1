//! The paper's two stacks as example layers (L8), and its application above and loop-back below.

pub mod fletcher;
pub mod ip;
pub mod tp4;
mod tpdu;
pub mod user;
