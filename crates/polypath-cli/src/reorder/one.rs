//! One capture: the order of sending is in the packets themselves.

use std::net::IpAddr;
use std::path::Path;

use bytes::Bytes;
use polypath_wire::Segment;

use super::capture::{Capture, Ended};
use super::counted_flows::CountedFlows;
use super::data_sequence::DataSequence;
use super::flow::FlowId;
use super::ip::TCP;
use super::numbers::Numbers;
use super::outcome::{Captured, FlowFigures, Outcome, Trouble, name_of};
use super::seen::{Look, Seen};
use super::tcp_flows::{Caught, TcpFlows};

/// With all options that it has room for.
const MOST_HEADER_BYTES: usize = 60;
const OWN: &str = "sent by the host that captured them";

/// What numbers packets, and what came of it.
enum Examined {
    Tcp(TcpFlows),
    Mptcp(DataSequence),
    Counted(CountedFlows),
}

/// How far out of order the packets of a capture came, at most those to one address.
pub(crate) fn examine(
    path: &Path,
    numbers: Numbers,
    to: Option<IpAddr>,
    window: u32,
) -> Result<Outcome, Trouble> {
    let mut capture = Capture::open(path).map_err(|error| Trouble::unreadable(path, &error))?;
    let mut examined = match (numbers, numbers.bits()) {
        (Numbers::Mptcp, _) => Examined::Mptcp(DataSequence::new(window)),
        (_, Some(bits)) => {
            // All that a host sends to another takes from one counter.
            Examined::Counted(CountedFlows::new(window, bits, numbers == Numbers::IpId))
        }
        (_, None) => Examined::Tcp(TcpFlows::new(window)),
    };
    let mut look = Look::default();
    let ended = look.each(&mut capture, to, |look, seen| {
        let left_out = match &mut examined {
            Examined::Tcp(flows) => caught(&seen, |caught| Ok(flows.handle(caught))),
            Examined::Mptcp(data) => caught(&seen, |caught| data.handle(caught)),
            Examined::Counted(_) if seen.is_outbound => Err(OWN),
            Examined::Counted(flows) => count(flows, numbers, &seen),
        };
        if let Err(cause) = left_out {
            look.leave_out(cause);
        }
    });
    let ended = ended.map_err(|error| Trouble::unreadable(path, &error))?;
    let (figures, jumping, is_tcp) = match examined {
        Examined::Tcp(flows) => (flows.finish(), 0, true),
        Examined::Mptcp(data) => (data.finish(), 0, false),
        Examined::Counted(flows) => {
            let (figures, jumping) = flows.finish();
            (figures, jumping, false)
        }
    };
    outcome(path, numbers, window, Read { capture, look, ended }, figures, (jumping, is_tcp))
}

struct Read {
    capture: Capture,
    look: Look,
    ended: Ended,
}

fn outcome(
    path: &Path,
    numbers: Numbers,
    window: u32,
    read: Read,
    (total, flows, more_flows): (FlowFigures, Vec<FlowFigures>, u64),
    (jumping, is_tcp): (u64, bool),
) -> Result<Outcome, Trouble> {
    let Read { capture, look, ended } = read;
    let mut notes = look.notes(&name_of(path), &capture);
    if jumping > 0 {
        notes.push(format!(
            "{jumping} flows are left out: their numbers do not count up by one, so {numbers} is not where they are."
        ));
    }
    if numbers == Numbers::IpId {
        notes.push(
            "Losses are not known: a host may use the identifications in between for packets to others."
                .into(),
        );
    }
    if numbers == Numbers::Mptcp {
        notes.push(
            "Data that was sent again, on the same subflow or another, counts as late if the first copy was lost."
                .into(),
        );
    }
    if is_tcp && total.undecided.is_some_and(|undecided| undecided > 0) {
        notes.push(
            "Of undecided packets no timestamps tell whether they were late or sent again: those that came a round trip \
             of the handshake after they were overtaken count as sent again, all others as late."
                .into(),
        );
    }
    let captured = Captured::new(name_of(path), &capture, look.left_out, &ended);
    if total.figures.received == 0 {
        return Err(Trouble::nothing(&captured, numbers, jumping));
    }
    Ok(Outcome {
        captures: vec![captured],
        order: numbers.to_string(),
        total_is_one_stream: false,
        total,
        flows,
        more_flows,
        notes,
        window,
    })
}

/// Reads the segment in a packet.
fn caught(
    seen: &Seen<'_>,
    handle: impl FnOnce(Caught<'_>) -> Result<bool, &'static str>,
) -> Result<(), &'static str> {
    let packet = &seen.packet;
    if packet.protocol != TCP {
        return Err("not TCP");
    }
    let flow = FlowId::of(packet).ok_or("cut within their headers")?;
    let head = &packet.transport[..packet.transport.len().min(MOST_HEADER_BYTES)];
    let segment = Segment::parse(Bytes::copy_from_slice(head)).map_err(|_| "cut within their headers")?;
    let header_len = head.len() - segment.payload.len();
    let payload_len = packet.transport_len.saturating_sub(header_len);
    let is_outbound = seen.is_outbound;
    let has_come = handle(Caught { flow, at: seen.at, segment: &segment, payload_len, is_outbound })?;
    match (has_come, payload_len) {
        (true, _) => Ok(()),
        (false, 0) => Err("without data"),
        (false, _) => Err(OWN),
    }
}

fn count(flows: &mut CountedFlows, numbers: Numbers, seen: &Seen<'_>) -> Result<(), &'static str> {
    let packet = &seen.packet;
    let number = numbers.read(packet)?;
    let flow = match numbers {
        Numbers::IpId => FlowId::without_ports(packet),
        _ => FlowId::of(packet).ok_or("cut within their headers")?,
    };
    if flows.handle(flow, number, seen.at, packet.transport_len) {
        Ok(())
    } else {
        Err("with a number that does not go with those before")
    }
}
