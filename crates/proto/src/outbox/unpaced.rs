//! What goes though the receiver's rate lets no data go, over all channels.
//!
//! Inputs → outputs: the channels that wait → OFFERs and SKIPs in the packet under construction. Source: R3;
//! `spec/protocol.md` §13.1.

use super::{Outbox, Wrote, note};
use crate::send_channel::{Room, Written};
use crate::sent::SentFrame;
use denrei_wire::TransmitBuf;
use smallvec::SmallVec;

impl Outbox {
    /// Whether [`write_unpaced`](Self::write_unpaced) may have something to write.
    pub fn has_unpaced(&mut self) -> bool {
        (0..self.turns.len()).any(|turn| {
            let channel = self.turns[turn].channel;
            let allowance = self.allowance_of(channel);
            self.channels.get_mut(channel).is_some_and(|state| state.has_unpaced(allowance))
        })
    }

    /// Fills the packet with what goes whatever the rate. Nobody's turn passes by it.
    pub fn write_unpaced(
        &mut self,
        out: &mut TransmitBuf,
        end: usize,
        frames: &mut SmallVec<[SentFrame; 2]>,
    ) -> Wrote {
        let mut wrote = Wrote::default();
        for turn in 0..self.turns.len() {
            let channel = self.turns[turn].channel;
            let allowance = self.allowance_of(channel);
            let state = self.channels.get_mut(channel).expect("scheduled channels exist");
            loop {
                let here = end.saturating_sub(out.len());
                match state.write_unpaced(out, Room { here, fresh: here }, allowance) {
                    Written::Frame { frame, again } => {
                        wrote.frames += 1;
                        wrote.repeated += again as u64;
                        note(frames, frame);
                    }
                    Written::NoRoom => return wrote,
                    Written::Nothing => break,
                }
            }
        }
        wrote
    }
}
