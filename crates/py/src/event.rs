//! Events.

use crate::node::Node;
use crate::peer::Peer;
use denrei::{Event as Happened, MessageId};
use pyo3::prelude::*;

/// Something that happened. `kind` says what; the other fields are `None` where they have no meaning.
#[pyclass(frozen, get_all, module = "denrei")]
pub(crate) struct Event {
    /// "connected", "acknowledged", "delivered", "offered", "refused", "expired", "withdrawn",
    /// "status", "rate_set", "done_writing", "done_reading", "peer_lost" or "other".
    kind: &'static str,
    /// With which peer.
    peer: Option<Py<Peer>>,
    /// Channel of the message it is about.
    channel: Option<u16>,
    /// Number of the message it is about in its channel, or of the request for a status.
    number: Option<u64>,
    /// Bytes: of the message offered, of a status, per second of a rate.
    bytes: Option<u64>,
    /// Why the session is over, for people; what happened, if the kind is "other".
    reason: Option<String>,
    /// The messages of which it is not known that they arrived: pairs of channel and number.
    unacknowledged: Vec<(u16, u64)>,
}

fn pairs(messages: Vec<MessageId>) -> Vec<(u16, u64)> {
    messages.into_iter().map(|id| (id.channel.channel, id.number)).collect()
}

impl Event {
    pub fn new(py: Python<'_>, node: &Node, happened: Happened) -> PyResult<Self> {
        let blank = |kind, peer| -> PyResult<Self> {
            let peer = Some(Py::new(py, Peer::new(node, peer))?);
            let unacknowledged = Vec::new();
            Ok(Self { kind, peer, channel: None, number: None, bytes: None, reason: None, unacknowledged })
        };
        let about = |kind, id: MessageId| -> PyResult<Self> {
            let (channel, number) = (Some(id.channel.channel), Some(id.number));
            Ok(Self { channel, number, ..blank(kind, id.channel.peer)? })
        };
        let told = format!("{happened:?}");
        Ok(match happened {
            Happened::Connected { peer, .. } => blank("connected", peer)?,
            Happened::Acknowledged(id) => about("acknowledged", id)?,
            Happened::Delivered(id) => about("delivered", id)?,
            Happened::Offered { channel, number, bytes } => {
                Self { bytes: Some(bytes), ..about("offered", MessageId { channel, number })? }
            }
            Happened::Refused(id) => about("refused", id)?,
            Happened::Expired(id) => about("expired", id)?,
            Happened::Withdrawn { channel, number } => about("withdrawn", MessageId { channel, number })?,
            Happened::Status { peer, request, buffered_bytes, .. } => {
                let (number, bytes) = (Some(request.into()), Some(buffered_bytes));
                Self { number, bytes, ..blank("status", peer)? }
            }
            Happened::RateSet { peer, rate } => {
                Self { bytes: Some(rate.bytes_per_s), ..blank("rate_set", peer)? }
            }
            Happened::PeerDoneWriting(peer) => blank("done_writing", peer)?,
            Happened::PeerDoneReading { peer, unacknowledged } => {
                Self { unacknowledged: pairs(unacknowledged), ..blank("done_reading", peer)? }
            }
            Happened::PeerLost { peer, reason, unacknowledged, .. } => Self {
                reason: Some(reason.to_string()),
                unacknowledged: pairs(unacknowledged),
                ..blank("peer_lost", peer)?
            },
            _ => Self {
                kind: "other",
                peer: None,
                channel: None,
                number: None,
                bytes: None,
                reason: Some(told),
                unacknowledged: Vec::new(),
            },
        })
    }
}

#[pymethods]
impl Event {
    fn __repr__(&self) -> String {
        let about = match (self.channel, self.number) {
            (Some(channel), Some(number)) => format!(" message {number} of channel {channel}"),
            _ => String::new(),
        };
        let reason = self.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        format!("<denrei.Event {}{about}{reason}>", self.kind)
    }
}
