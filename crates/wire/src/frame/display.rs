//! One line per frame, for people: what `denrei_wire::dump` and error messages show.
//!
//! Inputs → outputs: a [`Frame`] → text like `MESSAGE 2:7 len 64`, where `2:7` is message 7 of
//! channel 2. Numbers are the 32 bits that travel. The text is no interface: it may change.

use super::{Frame, Parameters, message_flags};
use crate::ack::AckFrame;
use core::fmt;

impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ping => f.write_str("PING"),
            Self::CloseWrite => f.write_str("CLOSE_WRITE"),
            Self::CloseRead => f.write_str("CLOSE_READ"),
            Self::Ack(ack) => ack.fmt(f),
            Self::Message(m) => {
                write!(f, "MESSAGE {}:{} len {}", m.channel, m.number, m.payload.len())?;
                show_flags(f, m.flags)
            }
            Self::Fragment(part) => {
                let (start, end) = (part.offset, part.offset + part.payload.len() as u64);
                write!(f, "FRAGMENT {}:{} {start}..{end} of {}", part.channel, part.number, part.total)?;
                show_flags(f, part.flags)
            }
            Self::Offer(o) => {
                write!(f, "OFFER {}:{} size {}", o.channel, o.number, o.total)?;
                show_flags(f, o.flags)
            }
            Self::Accept(a) if a.refused => write!(f, "ACCEPT {}:{} refused", a.channel, a.number),
            Self::Accept(a) => write!(f, "ACCEPT {}:{} limit {}", a.channel, a.number, a.limit),
            Self::Credit(c) => write!(f, "CREDIT {} limit {}", c.channel, c.limit),
            Self::Parameters(p) => p.fmt(f),
            Self::Delivered(d) => write!(f, "DELIVERED {}:{} next", d.channel, d.next),
            Self::StatusRequest(id) => write!(f, "STATUS_REQUEST {id}"),
            Self::Status(s) => {
                write!(
                    f,
                    "STATUS {} unread {} messages {} bytes",
                    s.id, s.buffered_messages, s.buffered_bytes
                )
            }
            Self::Rate(r) => write!(f, "RATE {} rate {} burst {}", r.serial, r.rate, r.burst),
            Self::GrantRequest(r) => write!(f, "GRANT_REQUEST sent {} wanted {}", r.sent, r.wanted),
            Self::Grant(g) => match g.limit {
                Some(limit) => write!(f, "GRANT {} limit {limit}", g.serial),
                None => write!(f, "GRANT {} unlimited", g.serial),
            },
            Self::Skip(s) => write!(f, "SKIP {}:{} charged {}", s.channel, s.number, s.charged),
            Self::Feedback(report) => report.fmt(f),
            // Escaped: the text comes from the network and may end in a terminal.
            Self::End(end) => write!(f, "END code {} {:?}", end.code, end.reason),
        }
    }
}

fn show_flags(f: &mut fmt::Formatter<'_>, flags: u8) -> fmt::Result {
    if flags & message_flags::REPORT != 0 {
        f.write_str(" report")?;
    }
    if flags & message_flags::OFFERED != 0 {
        f.write_str(" offered")?;
    }
    Ok(())
}

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { channel_credit, max_message, max_datagram, max_channels, ack_delay_us, .. } = self;
        write!(f, "PARAMETERS credit {channel_credit} message {max_message} datagram {max_datagram}")?;
        write!(f, " channels {max_channels} ack-delay {ack_delay_us}us")?;
        if self.rate_req != u64::MAX {
            write!(f, " rate {}", self.rate_req)?;
        }
        if self.burst_req != 0 {
            write!(f, " burst {}", self.burst_req)?;
        }
        if self.relays != 0 {
            write!(f, " relays {}", self.relays)?;
        }
        Ok(())
    }
}

impl fmt::Display for AckFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Expanded far from 0, so that no range is cut short, and shown as what travels.
        const FAR: u64 = 1 << 40;
        f.write_str("ACK")?;
        for range in self.ranges(FAR | self.largest as u64) {
            let (start, end) = (*range.start() as u32, *range.end() as u32);
            if start == end { write!(f, " {end}")? } else { write!(f, " {end}-{start}")? }
        }
        write!(f, " delay {}us", self.delay_us)?;
        match self.ecn {
            Some(ecn) => write!(f, " ecn {}/{}/{}", ecn.ect0, ecn.ect1, ecn.ce),
            None => Ok(()),
        }
    }
}
