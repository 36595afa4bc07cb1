//! Data that leaves after a fallback: as TCP.

use super::Connection;
use super::option_writer::MOST_DATA_OPTION_BYTES;
use crate::mapping::Mapping;
use crate::subflow::{Stage, Subflow};

impl Connection {
    /// Everything goes to the one subflow.
    pub(super) fn schedule_plain(&mut self) {
        let is_plain = |subflow: &Subflow| subflow.state.stage() == Stage::Plain;
        let Some(position) = self.subflows.position_where(is_plain) else { return };
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.tcp.set_cork(self.scheduling.is_corked());
        }
        while self.stream.send.unsent_bytes() > 0 {
            let Some(subflow) = self.subflows.get_mut(position) else { return };
            // Small writes wait here, where they grow together, until TCP has room for them. With nothing under way TCP gets a
            // segment, to probe a closed window with, and to send when it opens.
            let segment = subflow.tcp.segment_payload_bytes_with(0) as u64;
            let id = subflow.state.id;
            let idle = !subflow.holds_data() && subflow.tcp.state().is_synchronized();
            let room =
                subflow.tcp.window_or_probe_room_bytes().max(if idle { segment } else { 0 }).min(65_535);
            if room == 0 {
                return;
            }
            let seq = self.stream.send.next();
            // While an infinite mapping is on its way, each segment carries its own (see `InfiniteMapping::is_restart`).
            let announcing = self.stream.fallback.ours().is_some_and(|infinite| infinite.is_restart);
            let most = if announcing {
                subflow.tcp.segment_payload_bytes_with(MOST_DATA_OPTION_BYTES) as u64
            } else {
                room
            };
            let held = subflow.tcp.in_flight_bytes() + subflow.tcp.unsent_bytes();
            if self.stream.send.unsent_bytes() < most.min(65_535) && self.tail_waits(held) {
                return;
            }
            let unsent = self.stream.send.unsent_bytes();
            let mut count = room.min(most).min(unsent);
            if count < unsent && !announcing {
                // The window grows by fractions of a segment; whole segments leave (RFC 9293 §3.8.6.2.1).
                if count < segment && !idle {
                    return;
                }
                count -= if count > segment { count % segment } else { 0 };
            }
            let data = self.stream.send.take_new(count);
            let len = data.len() as u32;
            if let Some(subflow) = self.subflows.get_mut(position) {
                let subflow_offset = (subflow.tcp.enqueued_offset() as u32).wrapping_add(1);
                let own =
                    Mapping { data_seq: seq, subflow_offset, len_bytes: len as u16, ..Mapping::default() };
                subflow.tcp.enqueue(data, if announcing { own } else { Mapping::default() });
                let end_offset = subflow.tcp.enqueued_offset();
                self.stream.send.handle_sent(seq, len, id, end_offset);
            }
        }
    }
}
