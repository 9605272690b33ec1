//! What a node counts and what its port can do, as dicts.

use denrei::{Capabilities, EndpointCounters, IoCounters, MembershipCounters};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A dict of all fields of a value: one that is not named does not compile.
macro_rules! fields {
    ($py:expr, $value:expr, $of:ident { $($field:ident),* $(,)? }) => {{
        let $of { $($field),* } = $value;
        let all = PyDict::new($py);
        $(all.set_item(stringify!($field), $field)?;)*
        Ok(all)
    }};
}

/// Those of the protocol.
pub(crate) fn endpoint<'py>(py: Python<'py>, counters: EndpointCounters) -> PyResult<Bound<'py, PyDict>> {
    fields!(
        py,
        counters,
        EndpointCounters {
            datagrams,
            malformed,
            corrupted,
            unknown_session,
            foreign_version,
            refused_sessions,
            crowds,
            overruns,
            suppressed_replies,
            strange_keys,
            strangers,
            unsealed,
            repeated_group_packets,
            sealed_unread,
            limited,
            retries,
            dropped_events
        }
    )
}

/// Those of the sockets.
pub(crate) fn io<'py>(py: Python<'py>, counters: IoCounters) -> PyResult<Bound<'py, PyDict>> {
    fields!(
        py,
        counters,
        IoCounters {
            send_calls,
            recv_calls,
            sent_datagrams,
            sent_bytes,
            sent_trains,
            send_would_block,
            send_dropped,
            gso_fallbacks,
            gso_disabled,
            recv_datagrams,
            recv_bytes,
            recv_trains,
            gro_switches,
            recv_would_block,
            recv_errors,
            recv_truncated,
            peers_connected,
            peers_disconnected,
            recv_landed
        }
    )
}

/// Those of a group's member.
pub(crate) fn membership<'py>(py: Python<'py>, counters: MembershipCounters) -> PyResult<Bound<'py, PyDict>> {
    fields!(py, counters, MembershipCounters { bytes_received, reports, duplicates, parities, restored })
}

/// What the port can do.
pub(crate) fn port<'py>(py: Python<'py>, port: Capabilities) -> PyResult<Bound<'py, PyDict>> {
    fields!(
        py,
        port,
        Capabilities {
            backend,
            gso,
            gso_disabled_paths,
            gro,
            ecn,
            recv_buffer_bytes,
            send_buffer_bytes,
            max_segments
        }
    )
}
