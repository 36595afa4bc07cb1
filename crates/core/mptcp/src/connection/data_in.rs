//! Mappings that arrive, and the data that they make of a subflow's bytes (RFC 8684 §3.3.2).

use polypath_units::Duration;
use polypath_wire::{DssChecksum, DssMapping, Payload, Segment};

use super::{Connection, Context};
use crate::mapping::MOST_MAPPED_BYTES;
use crate::misbehaviour::{Consequence, Misbehaviour};
use crate::receive_window::DataArrival;
use crate::subflow::{Arrived, ReceivedMapping};

/// Below, a round-trip time by timestamps says less than that of the handshake.
const COARSE_RTT: Duration = Duration::from_millis(3);

impl Connection {
    /// A mapping came.
    pub(super) fn handle_mapping(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        mapping: &DssMapping,
        data_fin: bool,
    ) {
        if mapping.len == 0 {
            self.handle_infinite_mapping(cx, position, mapping);
            return;
        }
        let data_seq = mapping.data_seq.expand(self.stream.receive.next());
        let payload_len = u32::from(mapping.len) - u32::from(data_fin);
        if data_fin {
            self.note_peer_fin(cx, position, data_seq.add(u64::from(payload_len)));
        }
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        // Offsets count from 1 on the wire; 32 bits of a 64-bit offset, so take the nearest.
        let near = subflow.rx.offset();
        let start = mapping.subflow_offset.wrapping_sub(1);
        let ahead = i64::from(start.wrapping_sub(near as u32) as i32);
        let Some(start) = near.checked_add_signed(ahead) else { return };
        let known = subflow.rx.add(ReceivedMapping {
            start,
            len: payload_len,
            data_seq,
            subflow_offset: mapping.subflow_offset,
            wire_len: mapping.len,
            checksum: if self.stream.negotiation.has_checksum() { mapping.checksum } else { None },
        });
        if !known {
            self.answer(cx, position, Misbehaviour::MappingsContradict);
        }
    }

    /// Takes what TCP has in order, and makes data of it.
    pub(super) fn receive_data(&mut self, cx: &mut Context<'_>, position: usize, segment: &Segment) {
        // Until MP_JOIN is complete, whoever knows the token may have sent it (RFC 8684 §3.2).
        if self.subflows.get(position).is_none_or(|subflow| subflow.state.stage().is_joining()) {
            return;
        }
        while let Some(subflow) = self.subflows.get_mut(position)
            && let Some(bytes) = subflow.tcp.read()
        {
            match subflow.rx.handle_bytes(bytes) {
                Arrived::Mapped(bytes) => self.receive_mapped(cx, position, bytes, segment),
                Arrived::Held => {
                    if segment.options.dss.is_none() && segment.options.rest.is_empty() {
                        self.plain_data_while_held(cx, position);
                    }
                }
                Arrived::Data(seq, bytes) => self.deliver(cx, position, seq, bytes),
            }
        }
        self.notify_readable();
    }

    fn receive_mapped(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        mut bytes: Payload,
        segment: &Segment,
    ) {
        let mut is_within = false;
        while !bytes.is_empty() {
            let Some(subflow) = self.subflows.get_mut(position) else { return };
            let mapping = match subflow.rx.current() {
                Ok(mapping) => mapping,
                Err(before_next) => {
                    if is_within {
                        // Each mapping may begin in a segment that is merged with another, until the peer misses its DATA_ACKs;
                        // one, however small the window is.
                        let most =
                            self.stream.receive.window_bytes(&self.stream.config).max(MOST_MAPPED_BYTES);
                        subflow.rx.expect_unmapped(most);
                    }
                    let count = before_next.map_or(bytes.len(), |count| bytes.len().min(count as usize));
                    if self.unmapped(cx, position, &bytes, segment) {
                        return;
                    }
                    self.skip(position, count);
                    bytes.advance(count);
                    continue;
                }
            };
            is_within = true;
            let left = (mapping.end() - subflow.rx.offset()) as usize;
            let rest = if left < bytes.len() {
                let head = bytes.split_to(left);
                core::mem::replace(&mut bytes, head)
            } else {
                Payload::EMPTY
            };
            let into = subflow.rx.handle_mapped(&mapping, bytes.len());
            let has_head = into == 0 || subflow.rx.has_gathered();
            if mapping.checksum.is_some() && !has_head {
                // Its head came without a mapping and was dropped, so it can't be verified; all of it comes again.
                self.answer(cx, position, Misbehaviour::MappingWithoutHead);
            } else if mapping.checksum.is_some() {
                if subflow.rx.offset() < mapping.end() {
                    subflow.rx.gather(bytes);
                } else {
                    let gathered = subflow.rx.take_gathered_with(bytes);
                    if !self.verify(cx, position, &mapping, gathered, &rest) {
                        return;
                    }
                }
            } else {
                self.deliver(cx, position, mapping.data_seq.add(into), bytes);
            }
            bytes = rest;
        }
    }

    fn skip(&mut self, position: usize, count: usize) {
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.rx.skip(count);
        }
    }

    /// Checks a whole mapping and delivers it. False ends the work on this subflow's bytes.
    fn verify(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        mapping: &ReceivedMapping,
        data: Payload,
        rest: &Payload,
    ) -> bool {
        let mut sum = DssChecksum::new(mapping.data_seq, mapping.subflow_offset, mapping.wire_len);
        sum.push_payload(&data);
        if mapping.checksum.is_some_and(|checksum| sum.matches(checksum)) {
            self.deliver(cx, position, mapping.data_seq, data);
            return true;
        }
        let mut held = data;
        held.append(rest.clone());
        self.skip(position, rest.len());
        let offset = self.subflows.get(position).map_or(0, |subflow| subflow.rx.offset());
        let from = offset - held.len() as u64;
        self.checksum_failed(cx, position, mapping.data_seq, from, held);
        false
    }

    /// Bytes without a mapping. True if they were taken care of.
    fn unmapped(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        bytes: &Payload,
        segment: &Segment,
    ) -> bool {
        if self.stream.lifecycle.is_plain() {
            // We have fallen back; so has the peer, and what told so was lost.
            self.infinite_from_here(cx, position, bytes.clone());
            return true;
        }
        if self.stream.receive.is_finished() {
            // A copy of what came elsewhere: nothing follows the end.
            return false;
        }
        let alone = self.carrying_count() <= 1;
        let is_merged = self.subflows.get(position).is_some_and(|subflow| subflow.rx.expects_unmapped());
        if is_merged || segment.options.dss.is_some() || !segment.options.rest.is_empty() {
            // The peer sees that DATA_ACK leaves them out and sends them again.
            self.answer(cx, position, Misbehaviour::MappingMergedAway);
            return false;
        }
        let is_one_of_several = !alone || self.stream.receive.is_waiting();
        let misbehaviour = Misbehaviour::DataWithoutMapping { is_one_of_several };
        if self.answer_partly(cx, position, misbehaviour) == Some(Consequence::FallBack) {
            self.infinite_from_here(cx, position, bytes.clone());
        }
        true
    }

    /// Data came over a subflow: the promise to the peer keeps ahead of it.
    pub(super) fn tune_receive_window(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        segment: &Segment,
        len_bytes: u64,
    ) {
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        let receiver_rtt = subflow.tcp.measure_receiver_rtt(cx.now, segment);
        if !self.stream.config.receive_autotuning || self.stream.receive.is_finished() {
            return;
        }
        // The timestamps' clock ticks in milliseconds.
        let rtt = receiver_rtt.filter(|rtt| *rtt > COARSE_RTT).unwrap_or(subflow.tcp.srtt());
        let id = subflow.state.id;
        let arrival = |end| DataArrival {
            now: cx.now,
            subflow: id,
            rtt,
            longest_rtt: self.subflows.longest(|tcp| tcp.srtt()),
            longest_min_rtt: self.subflows.longest(|tcp| tcp.min_rtt()),
            len_bytes,
            end,
        };
        self.stream.receive.handle_arrival(&self.stream.config, arrival, cx.memory);
    }

    /// Subflows that carry data: the initial one does before the first DSS comes on it, too.
    pub(super) fn carrying_count(&self) -> usize {
        self.subflows.iter().filter(|subflow| subflow.state.stage().carries_data()).count()
    }
}
