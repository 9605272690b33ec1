//! Events.

use crate::node::Node;
use crate::peer::Peer;
use denrei::{Event as Happened, LostReason, MessageId};
use pyo3::prelude::*;

/// Something that happened. `kind` says what; the other fields are `None` where they have no meaning.
#[pyclass(frozen, get_all, module = "denrei")]
pub(crate) struct Event {
    /// "connected", "acknowledged", "delivered", "offered", "refused", "expired", "withdrawn",
    /// "status", "rate_set", "done_writing", "done_reading", "peer_lost" or "other".
    kind: &'static str,
    /// With which peer.
    peer: Option<Py<Peer>>,
    /// The address of a peer that has come or is gone.
    address: Option<String>,
    /// Channel of the message it is about.
    channel: Option<u16>,
    /// Number of the message it is about in its channel, or of the request for a status.
    number: Option<u64>,
    /// Bytes: of the message offered, of a status, per second of a rate.
    bytes: Option<u64>,
    /// How many: messages of a status, bytes in a row of a rate (0: no limit).
    count: Option<u64>,
    /// The code with which the peer ended the session.
    code: Option<u16>,
    /// Why the session is over, for people; what happened, if the kind is "other".
    reason: Option<String>,
    /// The messages of which it is not known that they arrived, and those that follow one of them on its channel, which
    /// nobody is handed without it, unless "acknowledged" told of them: pairs of channel and number.
    unacknowledged: Vec<(u16, u64)>,
}

fn pairs(messages: Vec<MessageId>) -> Vec<(u16, u64)> {
    messages.into_iter().map(|id| (id.channel.channel, id.number)).collect()
}

impl Event {
    /// An event that says no more than its kind.
    fn nothing(kind: &'static str) -> Self {
        Self {
            kind,
            peer: None,
            address: None,
            channel: None,
            number: None,
            bytes: None,
            count: None,
            code: None,
            reason: None,
            unacknowledged: Vec::new(),
        }
    }

    pub fn new(py: Python<'_>, node: &Node, happened: Happened) -> PyResult<Self> {
        let blank = |kind, peer| -> PyResult<Self> {
            let peer = Some(Py::new(py, Peer::new(node, peer))?);
            Ok(Self { peer, ..Self::nothing(kind) })
        };
        let about = |kind, id: MessageId| -> PyResult<Self> {
            let (channel, number) = (Some(id.channel.channel), Some(id.number));
            Ok(Self { channel, number, ..blank(kind, id.channel.peer)? })
        };
        let told = format!("{happened:?}");
        Ok(match happened {
            Happened::Connected { peer, addr, .. } => {
                Self { address: Some(addr.to_string()), ..blank("connected", peer)? }
            }
            Happened::Acknowledged(id) => about("acknowledged", id)?,
            Happened::Delivered(id) => about("delivered", id)?,
            Happened::Offered { channel, number, bytes } => {
                Self { bytes: Some(bytes), ..about("offered", MessageId { channel, number })? }
            }
            Happened::Refused(id) => about("refused", id)?,
            Happened::Expired(id) => about("expired", id)?,
            Happened::Withdrawn { channel, number } => about("withdrawn", MessageId { channel, number })?,
            Happened::Status { peer, request, buffered_bytes, buffered_messages } => {
                let (number, bytes) = (Some(request.into()), Some(buffered_bytes));
                Self { number, bytes, count: Some(buffered_messages.into()), ..blank("status", peer)? }
            }
            Happened::RateSet { peer, rate } => {
                let (bytes, count) = (Some(rate.bytes_per_s), Some(rate.burst_bytes));
                Self { bytes, count, ..blank("rate_set", peer)? }
            }
            Happened::PeerDoneWriting(peer) => blank("done_writing", peer)?,
            Happened::PeerDoneReading { peer, unacknowledged } => {
                Self { unacknowledged: pairs(unacknowledged), ..blank("done_reading", peer)? }
            }
            Happened::PeerLost { peer, addr, reason, unacknowledged } => Self {
                address: Some(addr.to_string()),
                code: match reason {
                    LostReason::Ended { code, .. } => Some(code),
                    _ => None,
                },
                reason: Some(reason.to_string()),
                unacknowledged: pairs(unacknowledged),
                ..blank("peer_lost", peer)?
            },
            _ => Self { reason: Some(told), ..Self::nothing("other") },
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
