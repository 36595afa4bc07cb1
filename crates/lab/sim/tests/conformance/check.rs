//! Whether a packet of the host is what a line says.

use std::fmt::Debug;

use polypath_wire::{MptcpOption, Packet, Segment, SeqNumber, TcpFlags, Transport};

use crate::peer::{Peer, content, mptcp_options};
use crate::script::{Comparison, MptcpSpec, OptionSpec, PacketSpec};
use crate::values::Side;

fn same<T: PartialEq + Debug>(what: &str, actual: T, expected: T) -> Result<(), String> {
    if actual == expected { Ok(()) } else { Err(format!("{what} is {actual:?}, expected {expected:?}")) }
}

impl Peer {
    /// Checks a packet of the flow at `position`, and learns from it what the host chose.
    pub(crate) fn check(
        &mut self,
        position: usize,
        spec: &PacketSpec,
        packet: &Packet,
    ) -> Result<(), String> {
        let Transport::Tcp(segment) = &packet.transport else { return Err("it is no TCP segment".into()) };
        let ignored = if spec.flags.contains(TcpFlags::PSH) { TcpFlags::default() } else { TcpFlags::PSH };
        same("flags", segment.flags.without(ignored), spec.flags)?;
        if segment.flags.syn() {
            self.check_initial(position, spec, segment)?;
        }
        self.check_numbers(position, spec, segment)?;
        self.check_mptcp(position, spec, segment)?;
        for option in &spec.options {
            self.check_option(position, option, segment)?;
        }
        self.check_payload(position, segment)?;
        self.flows[position].note_host(segment);
        Ok(())
    }

    fn check_initial(&mut self, position: usize, spec: &PacketSpec, syn: &Segment) -> Result<(), String> {
        let flow = &mut self.flows[position];
        if spec.new {
            let last = SeqNumber(flow.host_seq(flow.host_next));
            if !syn.seq.after(last) {
                return Err(format!("the new initial sequence number {} is not after {last}", syn.seq));
            }
            (flow.host_isn, flow.host_next) = (None, 0);
        }
        flow.host_isn.get_or_insert(syn.seq.0);
        Ok(())
    }

    fn check_numbers(&self, position: usize, spec: &PacketSpec, segment: &Segment) -> Result<(), String> {
        let flow = &self.flows[position];
        let default = if spec.flags.syn() { Some(0) } else { None };
        if let Some(seq) = spec.seq.or(default) {
            same("relative sequence number", flow.relative_host(segment.seq.0), seq)?;
        }
        same("payload length", segment.payload.len() as u32, spec.payload_bytes)?;
        if segment.segment_size != 0 {
            return Err("it is an aggregate".into());
        }
        if let Some(ack) = spec.ack {
            same("relative acknowledgment number", flow.relative_peer(segment.ack.0), ack)?;
        }
        if let Some(urgent) = spec.urgent {
            same("urgent pointer", segment.urgent, urgent)?;
        }
        let window = u32::from(segment.window);
        match spec.window {
            Some((Comparison::Equal, expected)) => same("window", window, expected),
            Some((Comparison::AtLeast, least)) if window < least => {
                Err(format!("window is {window}, expected at least {least}"))
            }
            Some((Comparison::AtMost, most)) if window > most => {
                Err(format!("window is {window}, expected at most {most}"))
            }
            _ => Ok(()),
        }
    }

    /// All options of Multipath TCP must be expected, and all that are expected must be there.
    fn check_mptcp(&mut self, position: usize, spec: &PacketSpec, segment: &Segment) -> Result<(), String> {
        let mut actual = mptcp_options(&segment.options);
        for option in &spec.options {
            let OptionSpec::Mptcp(expected) = option else { continue };
            let found = actual.iter().position(|option| is_of_kind(expected, option));
            let Some(found) = found else { return Err(format!("there is no {expected:?}")) };
            let option = actual.remove(found);
            self.learn(position, expected, &option);
            let flow = &self.flows[position];
            let expected = self.secrets.option(Side::Host, flow, expected, Some(&option))?;
            if option != expected {
                return Err(format!("option is    {option}\n    expected     {expected}"));
            }
        }
        match actual.first() {
            Some(option) => Err(format!("option {option} is not expected")),
            None => Ok(()),
        }
    }

    fn check_option(&self, position: usize, spec: &OptionSpec, segment: &Segment) -> Result<(), String> {
        let flow = &self.flows[position];
        let options = &segment.options;
        match spec {
            OptionSpec::Mss(mss) => same("mss", options.mss(), Some(*mss)),
            OptionSpec::WindowScale(shift) => same("window scale", options.window_scale(), Some(*shift)),
            OptionSpec::SackPermitted => same("sackOK", options.sack_permitted(), true),
            OptionSpec::Sack(blocks) => {
                let relative = |seq: SeqNumber| flow.relative_peer(seq.0);
                let actual: Vec<_> =
                    options.sack.iter().map(|block| (relative(block.start), relative(block.end))).collect();
                same("sack", &actual, blocks)
            }
            OptionSpec::Timestamps { value, echo } => {
                let timestamps = options.timestamps.ok_or("there are no timestamps")?;
                let first = flow.first_host_timestamp.unwrap_or(timestamps.value);
                let since_first = i64::from(timestamps.value.wrapping_sub(first) as i32);
                same("timestamp", since_first, value.unwrap_or(since_first))?;
                same("echoed timestamp", i64::from(timestamps.echo), echo.unwrap_or(timestamps.echo.into()))
            }
            OptionSpec::Without(name) => {
                let is_there = match name.as_str() {
                    "ts" => options.timestamps.is_some(),
                    "sack" => !options.sack.is_empty(),
                    "sackOK" => options.sack_permitted(),
                    "wscale" => options.window_scale().is_some(),
                    "mss" => options.mss().is_some(),
                    _ => return Err(format!("`no {name}` is nothing that is looked at")),
                };
                if is_there { Err(format!("there is a {name}, which is not expected")) } else { Ok(()) }
            }
            OptionSpec::Raw { .. } | OptionSpec::Mptcp(_) => Ok(()),
        }
    }

    /// Whatever a case says, the bytes are those of the stream at that place.
    fn check_payload(&self, position: usize, segment: &Segment) -> Result<(), String> {
        let flow = &self.flows[position];
        let seq = flow.relative_host(segment.seq.0) + i64::from(segment.flags.syn());
        let expected = content(&flow.host_maps, seq, segment.payload.len() as u32);
        let differs = expected != segment.payload.to_vec();
        if differs { Err("the payload is not the stream at its place".into()) } else { Ok(()) }
    }
}

fn is_of_kind(spec: &MptcpSpec, option: &MptcpOption) -> bool {
    matches!(
        (spec, option),
        (MptcpSpec::Capable { .. }, MptcpOption::Capable(_))
            | (MptcpSpec::Join(_), MptcpOption::Join(_))
            | (MptcpSpec::Dss(_), MptcpOption::Dss(_))
            | (MptcpSpec::AddAddr(_), MptcpOption::AddAddr(_))
            | (MptcpSpec::RemoveAddr(_), MptcpOption::RemoveAddr(_))
            | (MptcpSpec::Prio { .. }, MptcpOption::Prio { .. })
            | (MptcpSpec::Fail(_), MptcpOption::Fail { .. })
            | (MptcpSpec::Fastclose(_), MptcpOption::Fastclose { .. })
            | (MptcpSpec::Reset { .. }, MptcpOption::Reset { .. })
    )
}
