//! denrei as a libfabric provider: `libdenrei-fi.so`, found through `FI_PROVIDER_PATH`.
//!
//! Programs that speak libfabric (MPICH, Open MPI, Intel MPI and their like) run over denrei
//! unchanged. Three layers: [`ffi`] is libfabric's binary interface, written down; `abi` turns its
//! calls into safe ones, an object a file; `engine` does the work on a [`denrei::Node`].
//! `docs/mpi.md` says how to use it, `spec/fabric.md` what is on the wire.
//!
//! Unsafe code is in `abi` (pointers that the caller gives), `memory` (buffers that it posts) and `log`
//! (libfabric's own functions), and nowhere else.

mod abi;
mod collective;
mod endpoint;
mod engine;
mod error;
pub mod ffi;
mod interfaces;
mod keeper;
mod log;
mod memory;
mod settings;

pub use abi::fi_prov_ini;
