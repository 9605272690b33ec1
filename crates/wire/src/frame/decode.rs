//! Octets → frames, every length, flag and reserved octet checked.
//!
//! Inputs → outputs: the body of a packet → an iterator of [`Frame`]s that borrow from it.
//! Source: `spec/protocol.md` §4.

use super::layout::*;
use super::{
    ACCEPT_REFUSED, Accept, Credit, Delivered, End, Feedback, Fragment, Frame, FrameError, MAX_REASON_BYTES,
    Message, Offer, Parameters, Status, kind, message_flags,
};
use crate::ack::AckFrame;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Iterates over the frames of a packet's body (its trailer already removed).
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Frames in `body`.
    pub fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    pub(super) fn take<T: FromBytes + KnownLayout + Immutable + Unaligned>(
        &mut self,
        kind: u8,
    ) -> Result<&'a T, FrameError> {
        let (value, rest) = T::ref_from_prefix(self.rest).map_err(|_| FrameError::Truncated { kind })?;
        self.rest = rest;
        Ok(value)
    }

    fn take_bytes(&mut self, kind: u8, len: usize) -> Result<&'a [u8], FrameError> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(FrameError::Truncated { kind })?;
        self.rest = rest;
        Ok(bytes)
    }

    fn message(&mut self) -> Result<Frame<'a>, FrameError> {
        let header: &MessageHeader = self.take(kind::MESSAGE)?;
        check_flags(kind::MESSAGE, header.flags, message_flags::REPORT)?;
        let payload = self.take_bytes(kind::MESSAGE, header.length.get() as usize)?;
        Ok(Frame::Message(Message {
            flags: header.flags,
            channel: header.channel.get(),
            number: header.number.get(),
            payload,
        }))
    }

    fn fragment(&mut self) -> Result<Frame<'a>, FrameError> {
        let header: &FragmentHeader = self.take(kind::FRAGMENT)?;
        self.part(&header.part, header.offset.get().into(), header.total.get().into())
    }

    fn long_fragment(&mut self) -> Result<Frame<'a>, FrameError> {
        let header: &LongFragmentHeader = self.take(kind::LONG_FRAGMENT)?;
        let total = header.total.get();
        if total <= u32::MAX.into() {
            return Err(FrameError::Impossible { kind: kind::LONG_FRAGMENT, field: "size" });
        }
        self.part(&header.part, header.offset.get(), total)
    }

    #[inline(always)] // as `next`
    fn part(&mut self, header: &MessageHeader, offset: u64, total: u64) -> Result<Frame<'a>, FrameError> {
        let kind = header.kind;
        check_flags(kind, header.flags, message_flags::KNOWN)?;
        let payload = self.take_bytes(kind, header.length.get() as usize)?;
        let end = offset.checked_add(payload.len() as u64);
        if payload.is_empty() || end.is_none_or(|end| end > total) {
            return Err(FrameError::Impossible { kind, field: "length" });
        }
        Ok(Frame::Fragment(Fragment {
            flags: header.flags,
            channel: header.channel.get(),
            number: header.number.get(),
            offset,
            total,
            payload,
        }))
    }

    fn offer_or_accept(&mut self, kind: u8) -> Result<Frame<'a>, FrameError> {
        let body: &OfferBody = self.take(kind)?;
        let (channel, number, bytes) = (body.channel.get(), body.number.get(), body.bytes.get());
        if kind == kind::OFFER {
            check_flags(kind, body.flags, message_flags::REPORT)?;
            if bytes == 0 {
                return Err(FrameError::Impossible { kind, field: "size" });
            }
            return Ok(Frame::Offer(Offer { flags: body.flags, channel, number, total: bytes }));
        }
        check_flags(kind, body.flags, ACCEPT_REFUSED)?;
        let refused = body.flags & ACCEPT_REFUSED != 0;
        if refused && bytes != 0 {
            return Err(FrameError::Impossible { kind, field: "limit" });
        }
        Ok(Frame::Accept(Accept { refused, channel, number, limit: bytes }))
    }

    fn parameters(&mut self) -> Result<Frame<'a>, FrameError> {
        const KNOWN: usize = size_of::<ParametersBody>() - 2;
        let body: &ParametersBody = self.take(kind::PARAMETERS)?;
        let beyond = (body.length as usize)
            .checked_sub(KNOWN)
            .ok_or(FrameError::Impossible { kind: kind::PARAMETERS, field: "length" })?;
        let beyond = self.take_bytes(kind::PARAMETERS, beyond)?;
        let parameters = Parameters {
            channel_credit: body.channel_credit.get(),
            max_message: body.max_message.get(),
            max_datagram: body.max_datagram.get(),
            max_channels: body.max_channels.get(),
            ack_delay_us: body.ack_delay_us.get(),
            rate_req: body.rate_req.get(),
            burst_req: body.burst_req.get(),
            relays: beyond.first().copied().unwrap_or(0),
        };
        match parameters.impossible_field() {
            Some(field) => Err(FrameError::Impossible { kind: kind::PARAMETERS, field }),
            None => Ok(Frame::Parameters(parameters)),
        }
    }

    fn end(&mut self) -> Result<Frame<'a>, FrameError> {
        let body: &EndBody = self.take(kind::END)?;
        let reason = self.take_bytes(kind::END, body.reason_len as usize)?;
        let impossible = FrameError::Impossible { kind: kind::END, field: "reason" };
        if reason.len() > MAX_REASON_BYTES {
            return Err(impossible);
        }
        let reason = core::str::from_utf8(reason).map_err(|_| impossible)?;
        Ok(Frame::End(End { code: body.code.get(), reason }))
    }

    /// Whatever is not in nearly every packet.
    #[cold]
    #[inline(never)]
    fn rare(&mut self, first: u8) -> Option<Result<Frame<'a>, FrameError>> {
        Some(match first {
            kind::PADDING => {
                self.skip_padding();
                return self.next();
            }
            kind::OFFER | kind::ACCEPT => self.offer_or_accept(first),
            kind::PING => self.bare(Frame::Ping),
            kind::CLOSE_WRITE => self.bare(Frame::CloseWrite),
            kind::CLOSE_READ => self.bare(Frame::CloseRead),
            kind::PARAMETERS => self.parameters(),
            kind::END => self.end(),
            kind::RATE..=kind::SKIP => self.pace(first),
            kind::LONG_FRAGMENT => self.long_fragment(),
            kind::FEEDBACK => Feedback::take(&mut self.rest).map(Frame::Feedback),
            other => self.fixed(other),
        })
    }

    fn fixed(&mut self, first: u8) -> Result<Frame<'a>, FrameError> {
        Ok(match first {
            kind::CREDIT => {
                let body: &CreditBody = self.take(first)?;
                check_flags(first, body.reserved, 0)?;
                Frame::Credit(Credit { channel: body.channel.get(), limit: body.limit.get() })
            }
            kind::DELIVERED => {
                let body: &DeliveredBody = self.take(first)?;
                check_flags(first, body.reserved, 0)?;
                Frame::Delivered(Delivered { channel: body.channel.get(), next: body.next.get() })
            }
            kind::STATUS_REQUEST => {
                let body: &StatusRequestBody = self.take(first)?;
                Frame::StatusRequest(body.id.get())
            }
            kind::STATUS => {
                let body: &StatusBody = self.take(first)?;
                Frame::Status(Status {
                    id: body.id.get(),
                    buffered_bytes: body.buffered_bytes.get(),
                    buffered_messages: body.buffered_messages.get(),
                })
            }
            unknown => return Err(FrameError::Unknown(unknown)),
        })
    }

    /// Many octets at a time: a probe of the path's size has up to 64 KiB of them.
    fn skip_padding(&mut self) {
        const AT_ONCE: [u8; 64] = [kind::PADDING; 64];
        while let Some((&AT_ONCE, rest)) = self.rest.split_first_chunk() {
            self.rest = rest;
        }
        while let [kind::PADDING, rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn bare(&mut self, frame: Frame<'a>) -> Result<Frame<'a>, FrameError> {
        self.rest = &self.rest[1..];
        Ok(frame)
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    #[inline(always)] // into the loop that looks at each: moving a frame costs as much as reading it
    fn next(&mut self) -> Option<Self::Item> {
        let frame = match *self.rest.first()? {
            kind::MESSAGE => self.message(),
            kind::ACK | kind::ACK_ECN | kind::ACK_ECT0 => AckFrame::take(&mut self.rest).map(Frame::Ack),
            kind::FRAGMENT => self.fragment(),
            rare => self.rare(rare)?,
        };
        if frame.is_err() {
            self.rest = &[];
        }
        Some(frame)
    }
}

pub(super) fn check_flags(kind: u8, flags: u8, known: u8) -> Result<(), FrameError> {
    if flags & !known != 0 { Err(FrameError::Impossible { kind, field: "flags" }) } else { Ok(()) }
}
