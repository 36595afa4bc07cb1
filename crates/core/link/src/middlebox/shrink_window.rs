use polypath_units::Instant;
use polypath_wire::Packet;

use super::flows::{FlowTable, flow_of, segment_mut};
use super::{Direction, Middlebox, Outputs};

/// Settings of a [`ShrinkWindow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShrinkWindowConfig {
    /// Largest window that passes, in bytes. Default 16 384.
    pub limit_bytes: u32,
}

impl Default for ShrinkWindowConfig {
    fn default() -> Self {
        Self { limit_bytes: 16_384 }
    }
}

/// Writes a smaller receive window into segments, in both directions, with regard to window scaling (RFC 7323
/// §2.2).
///
/// Flows whose handshake it has not seen pass as they are.
#[derive(Debug)]
pub struct ShrinkWindow {
    config: ShrinkWindowConfig,
    flows: FlowTable<Scales>,
}

/// Window scale shifts by direction of the segments; `None` for an end that has not offered scaling.
#[derive(Clone, Copy, Debug, Default)]
struct Scales {
    offered: [Option<u8>; 2],
}

impl ShrinkWindow {
    /// The box.
    pub fn new(config: ShrinkWindowConfig) -> Self {
        Self { config, flows: FlowTable::new() }
    }
}

impl Middlebox for ShrinkWindow {
    fn name(&self) -> &'static str {
        "shrink-window"
    }

    fn handle_packet(&mut self, _now: Instant, direction: Direction, mut packet: Packet, out: &mut Outputs) {
        let flow = flow_of(direction, &packet);
        if let (Some(flow), Some(segment)) = (flow, segment_mut(&mut packet)) {
            let limit = self.config.limit_bytes;
            let shift = if segment.flags.syn() {
                let (_, scales) = self.flows.get_or_insert(flow, Scales::default);
                if !segment.flags.ack() {
                    *scales = Scales::default();
                }
                scales.offered[direction.index()] = segment.options.window_scale();
                // The window of a SYN is not scaled.
                Some(0)
            } else {
                self.flows.get(flow).map(|scales| match scales.offered {
                    [Some(_), Some(_)] => scales.offered[direction.index()].unwrap_or(0).min(14),
                    _ => 0,
                })
            };
            if let Some(shift) = shift {
                let most = u16::try_from((limit >> shift).max(1)).unwrap_or(u16::MAX);
                segment.window = segment.window.min(most);
            }
        }
        out.push(direction, packet);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::testing::segment_of;

    #[test]
    fn windows_are_limited_in_bytes_whatever_the_scale() {
        let mut path = Path::new(ShrinkWindow::new(ShrinkWindowConfig { limit_bytes: 12_800 }));
        assert_eq!(segment_of(&path.client(syn(100))[0]).window, 12_800);
        assert_eq!(segment_of(&path.server(syn_ack(500, 101))[0]).window, 12_800);
        // The shift is 7: 1000 stands for 128 000 bytes.
        assert_eq!(segment_of(&path.client(seg(101, 501, 0))[0]).window, 100);
        assert_eq!(segment_of(&path.server(seg(501, 101, 0))[0]).window, 100);
        let mut closed = seg(101, 501, 0);
        segment_mut(&mut closed).unwrap().window = 0;
        assert_eq!(segment_of(&path.client(closed)[0]).window, 0);
    }

    #[test]
    fn without_scaling_on_both_ends_there_is_none() {
        let mut path = Path::new(ShrinkWindow::new(ShrinkWindowConfig { limit_bytes: 600 }));
        path.client(syn(100));
        let mut answer = syn_ack(500, 101);
        segment_mut(&mut answer).unwrap().options.rest.clear();
        path.server(answer);
        assert_eq!(segment_of(&path.client(seg(101, 501, 0))[0]).window, 600);
    }
}
