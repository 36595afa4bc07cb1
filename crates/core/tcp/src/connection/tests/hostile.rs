//! Peers that send anything, at any time.

use std::vec::Vec;

use polypath_units::{Duration, Instant};
use polypath_wire::{
    FourTuple, IcmpMessage, SackBlock, Segment, SeqNumber, TcpFlags, TcpOption, Timestamps, Transport,
};
use proptest::prelude::*;

use super::super::{Connection, State};
use super::pair::{pattern, setup};
use crate::Config;

/// What happens next to a connection.
#[derive(Clone, Debug)]
enum Happening {
    Segment {
        flags: u8,
        seq: i32,
        ack: i32,
        window: u16,
        len: usize,
        segment_size: u16,
        sacks: Vec<(i32, i32)>,
        timestamps: Option<(i32, i32)>,
    },
    TooBig(u16, i32),
    Unreachable(i32),
    Wait(u64),
    Enqueue(usize),
    Finish,
    Abort,
    RequestAck,
    Read,
    Cork(bool),
}

fn happening() -> impl Strategy<Value = Happening> {
    let near = prop_oneof![4 => Just(0), 2 => -3000i32..3000, 1 => any::<i32>()];
    let ahead = prop_oneof![4 => 0i32..30_000, 2 => -3000i32..0, 1 => any::<i32>()];
    let flags = prop_oneof![6 => Just(0x10u8), 2 => Just(0x11), 1 => any::<u8>()];
    let sacks = prop::collection::vec((ahead.clone(), ahead.clone()), 0..4);
    let stamps = prop::option::of((near.clone(), near.clone()));
    let segment = (flags, near.clone(), ahead.clone(), any::<u16>(), 0usize..4000, 0u16..2000, sacks, stamps)
        .prop_map(|(flags, seq, ack, window, len, segment_size, sacks, timestamps)| Happening::Segment {
            flags,
            seq,
            ack,
            window,
            len,
            segment_size,
            sacks,
            timestamps,
        });
    prop_oneof![
        12 => segment,
        1 => (any::<u16>(), ahead.clone()).prop_map(|(mtu, seq)| Happening::TooBig(mtu, seq)),
        1 => ahead.prop_map(Happening::Unreachable),
        4 => (0u64..4000).prop_map(Happening::Wait),
        2 => (0usize..60_000).prop_map(Happening::Enqueue),
        1 => Just(Happening::Finish),
        1 => Just(Happening::RequestAck),
        2 => Just(Happening::Read),
        1 => any::<bool>().prop_map(Happening::Cork),
    ]
}

struct Victim {
    tcp: Connection,
    now: Instant,
    flow: FourTuple,
}

impl Victim {
    fn happen(&mut self, what: Happening) {
        let tcp = &mut self.tcp;
        let una = tcp.send.wire(tcp.send.una()).0;
        let quoted = |seq: i32| SeqNumber(una.wrapping_add_signed(seq));
        match what {
            Happening::Segment { flags, seq, ack, window, len, segment_size, sacks, timestamps } => {
                let mut segment = Segment {
                    flags: TcpFlags(flags),
                    seq: SeqNumber(tcp.receive.wire_ack().0.wrapping_add_signed(seq)),
                    ack: quoted(ack),
                    window,
                    payload: pattern(0, len).into(),
                    segment_size,
                    ..Segment::default()
                };
                if tcp.state() == State::SynSent && flags & 1 == 0 {
                    segment.flags = TcpFlags::SYN.with(TcpFlags::ACK);
                    segment.ack = tcp.send.wire(1);
                    segment.options.rest.push(TcpOption::SackPermitted);
                    segment.options.rest.push(TcpOption::WindowScale(flags));
                    segment.options.timestamps = Some(Timestamps::default());
                }
                for (start, end) in sacks {
                    let _ = segment
                        .options
                        .sack
                        .try_push(SackBlock { start: quoted(start), end: quoted(start.wrapping_add(end)) });
                }
                if let Some((value, echo)) = timestamps {
                    segment.options.timestamps = Some(Timestamps {
                        value: tcp.handshake.timestamps().recent().wrapping_add_signed(value),
                        echo: tcp.handshake.timestamps().clock(self.now).wrapping_add_signed(echo),
                    });
                }
                tcp.handle_segment(self.now, &mut segment, &mut ());
            }
            Happening::TooBig(mtu, seq) => {
                let message = IcmpMessage::PacketTooBig { mtu, flow: self.flow, seq: quoted(seq) };
                tcp.handle_icmp(self.now, &message);
            }
            Happening::Unreachable(seq) => {
                tcp.handle_icmp(
                    self.now,
                    &IcmpMessage::Unreachable { code: 1, flow: self.flow, seq: quoted(seq) },
                );
            }
            Happening::Wait(ms) => {
                self.now += Duration::from_millis(ms);
                tcp.handle_timeout(self.now, &mut ());
            }
            Happening::Enqueue(len) => tcp.enqueue(pattern(0, len).into(), ()),
            Happening::Finish => tcp.finish(),
            Happening::Abort => tcp.abort(),
            Happening::RequestAck => tcp.request_ack(),
            Happening::Read => {
                while tcp.read().is_some() {}
                tcp.window_may_have_opened(&());
            }
            Happening::Cork(corked) => tcp.set_cork(corked),
        }
    }

    /// Takes what leaves; it ends, and what it holds stays bounded.
    fn settle(&mut self) {
        let mut sent = 0;
        while let Some(packet) = self.tcp.poll_transmit(self.now, &mut ()) {
            sent += 1;
            assert!(sent < 10_000, "it never ends");
            let Transport::Tcp(segment) = packet.transport else { panic!("TCP") };
            assert!(segment.options.unpadded_len_bytes() <= 40);
            assert!(segment.payload.len() <= 65_535);
        }
        while self.tcp.poll().is_some() {}
        self.tcp.check_invariants();
        self.tcp.check_timers();
        let most = 1024 + self.tcp.send.outstanding_bytes() as usize;
        assert!(self.tcp.send.board().pieces() <= most);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 1000 } else { 4000 }))]

    /// Whatever comes in whatever order, nothing panics, the books balance, and `poll_transmit` comes to an end.
    #[test]
    fn anything_is_survived(
        happenings in prop::collection::vec(happening(), 1..60),
        (sack, timestamps, pacing, aggregate) in any::<(bool, bool, bool, bool)>(),
        abort in prop::option::of(0usize..60),
    ) {
        let config = Config {
            sack,
            timestamps,
            pacing,
            max_aggregate_bytes: if aggregate { 65_000 } else { 0 },
            receive_buffer_bytes: 20_000,
            ..Config::default()
        };
        let now = Instant::from_secs(1);
        let tcp = Connection::<()>::connect(now, setup(&config, true, u32::MAX - 9000));
        let flow = tcp.tuple();
        let mut victim = Victim { tcp, now, flow };
        victim.settle();
        for (at, what) in happenings.into_iter().enumerate() {
            if abort == Some(at) {
                victim.happen(Happening::Abort);
            }
            victim.happen(what);
            victim.settle();
        }
    }
}
