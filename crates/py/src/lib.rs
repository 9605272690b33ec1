//! denrei for Python: the module `denrei._internal`, which `python/denrei` dresses.
//!
//! Inputs → outputs: Python calls → calls of [`denrei::Node`]. The interpreter's lock is released
//! around every one of them: the Node's own threads take it when they let go of memory that Python
//! has lent, so nobody may wait for the Node while holding it.

mod buffer;
mod cast;
mod collective;
mod config;
mod counters;
mod error;
mod event;
mod flow;
mod group;
mod held;
mod membership;
mod message;
mod node;
mod number;
mod peer;
mod relay;
mod wait;

use denrei::{GROUP_SETTINGS, SETTINGS};
use denrei_cast::CAST_SETTINGS;
use pyo3::exceptions::PyImportError;
use pyo3::ffi::{PyInterpreterState_Get, PyInterpreterState_GetID};
use pyo3::prelude::*;

/// Of the interpreter that a program starts with.
const MAIN_INTERPRETER: i64 = 0;

/// Refuses what Python refuses by itself from 3.12 on where each interpreter has a lock of its own: a program that ends
/// while another interpreter has a Node would wait for ever, and types are one interpreter's.
fn check_interpreter() -> PyResult<()> {
    // SAFETY: whoever imports a module is attached to an interpreter.
    if unsafe { PyInterpreterState_GetID(PyInterpreterState_Get()) } == MAIN_INTERPRETER {
        return Ok(());
    }
    Err(PyImportError::new_err("module denrei._internal does not support loading in subinterpreters"))
}

/// The compiled part of denrei; import `denrei` instead.
#[pymodule]
fn _internal(module: &Bound<'_, PyModule>) -> PyResult<()> {
    check_interpreter()?;
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("SETTINGS", config::described(py, SETTINGS)?)?;
    module.add("GROUP_OPTIONS", config::described(py, GROUP_SETTINGS)?)?;
    module.add("CAST_OPTIONS", config::described(py, CAST_SETTINGS)?)?;
    module.add_class::<node::Node>()?;
    module.add_class::<peer::Peer>()?;
    module.add_class::<message::Message>()?;
    module.add_class::<event::Event>()?;
    module.add_class::<flow::FlowState>()?;
    module.add_class::<group::Group>()?;
    module.add_class::<group::GroupEvent>()?;
    module.add_class::<group::GroupMember>()?;
    module.add_class::<group::GroupStatus>()?;
    module.add_class::<membership::GroupListener>()?;
    module.add_class::<membership::Membership>()?;
    module.add_class::<collective::Collective>()?;
    module.add_class::<cast::CastMember>()?;
    module.add_class::<cast::CastProgress>()?;
    module.add_class::<cast::CastReport>()?;
    module.add_class::<cast::CastReceipt>()?;
    module.add_class::<relay::Relay>()?;
    module.add_class::<relay::RelayPair>()?;
    module.add_function(wrap_pyfunction!(wait::call_unless, module)?)?;
    let at_the_end = wrap_pyfunction!(buffer::keep_what_is_lent, module)?;
    py.import("atexit")?.call_method1("register", (at_the_end,))?;
    module.add("DenreiError", py.get_type::<error::DenreiError>())?;
    module.add("PeerLost", py.get_type::<error::PeerLost>())?;
    module.add("GroupClosed", py.get_type::<error::GroupClosed>())?;
    module.add("CastFailed", py.get_type::<error::CastFailed>())?;
    module.add("QueueFull", py.get_type::<error::QueueFull>())?;
    Ok(())
}
