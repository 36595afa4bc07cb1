//! Packets in the words of tcpdump.

use core::fmt::{self, Display, Formatter};

use crate::{
    Dss, IcmpMessage, MpCapableKeys, MpJoin, MptcpOption, Options, Packet, Segment, TcpOption, Transport,
    WireDataSeq,
};

impl Display for Packet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.transport {
            Transport::Tcp(segment) => {
                let (src, dst) = (self.ip.src, self.ip.dst);
                write!(f, "{src}.{} > {dst}.{}: {segment}", segment.src_port, segment.dst_port)
            }
            Transport::Udp(datagram) => write!(
                f,
                "{}.{} > {}.{}: UDP, length {}",
                self.ip.src,
                datagram.src_port,
                self.ip.dst,
                datagram.dst_port,
                datagram.payload.len()
            ),
            Transport::Icmp(message) => write!(f, "{} > {}: {message}", self.ip.src, self.ip.dst),
        }
    }
}

impl Display for IcmpMessage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::PacketTooBig { mtu, flow, .. } => {
                write!(f, "ICMP {} unreachable - need to frag (mtu {mtu})", flow.remote)
            }
            Self::Unreachable { code, flow, .. } => {
                write!(f, "ICMP {} unreachable, code {code}", flow.remote)
            }
        }
    }
}

impl Display for Segment {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Flags [{:?}], seq {}", self.flags, self.seq)?;
        if !self.payload.is_empty() {
            write!(f, ":{}", self.seq.add(self.payload.len() as u32))?;
        }
        if self.flags.ack() {
            write!(f, ", ack {}", self.ack)?;
        }
        write!(f, ", win {}{}, length {}", self.window, self.options, self.payload.len())
    }
}

impl Display for Options {
    /// `, options [TS val 1 ecr 2,mptcp dss ack 3]`, or nothing.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut separator = ", options [";
        let mut begin = |f: &mut Formatter<'_>| {
            f.write_str(separator)?;
            separator = ",";
            Ok(())
        };
        for option in &self.rest {
            begin(f)?;
            write!(f, "{option}")?;
        }
        if let Some(timestamps) = self.timestamps {
            begin(f)?;
            write!(f, "TS val {} ecr {}", timestamps.value, timestamps.echo)?;
        }
        if let Some(dss) = &self.dss {
            begin(f)?;
            write!(f, "{dss}")?;
        }
        if !self.sack.is_empty() {
            begin(f)?;
            write_sack(f, &self.sack)?;
        }
        if separator == "," { f.write_str("]") } else { Ok(()) }
    }
}

fn write_sack(f: &mut Formatter<'_>, blocks: &[crate::SackBlock]) -> fmt::Result {
    write!(f, "sack {} ", blocks.len())?;
    blocks.iter().try_for_each(|block| write!(f, "{{{}:{}}}", block.start, block.end))
}

impl Display for TcpOption {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mss(mss) => write!(f, "mss {mss}"),
            Self::WindowScale(shift) => write!(f, "wscale {shift}"),
            Self::SackPermitted => f.write_str("sackOK"),
            Self::Sack(blocks) => write_sack(f, blocks),
            Self::Timestamps(timestamps) => write!(f, "TS val {} ecr {}", timestamps.value, timestamps.echo),
            Self::FastOpen(cookie) if cookie.is_empty() => f.write_str("tfo cookiereq"),
            Self::FastOpen(_) => f.write_str("tfo cookie"),
            Self::Mptcp(option) => write!(f, "{option}"),
            Self::Unknown { kind, data } => write!(f, "unknown-{kind} {} bytes", data.len()),
        }
    }
}

impl Display for Dss {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let number = |seq: WireDataSeq| match seq {
            WireDataSeq::Low(low) => u64::from(low),
            WireDataSeq::Full(seq) => seq.0,
        };
        write!(f, "mptcp {} dss", self.len_bytes())?;
        if self.data_fin {
            f.write_str(" fin")?;
        }
        if let Some(ack) = self.data_ack {
            write!(f, " ack {}", number(ack))?;
        }
        if let Some(mapping) = &self.mapping {
            write!(
                f,
                " seq {} subseq {} len {}",
                number(mapping.data_seq),
                mapping.subflow_offset,
                mapping.len
            )?;
            if let Some(checksum) = mapping.checksum {
                write!(f, " csum {checksum:#x}")?;
            }
        }
        Ok(())
    }
}

impl Display for MptcpOption {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Self::Dss(dss) = self {
            return write!(f, "{dss}");
        }
        write!(f, "mptcp {} ", self.len_bytes())?;
        match self {
            Self::Capable(capable) => {
                write!(f, "capable v{}", capable.version)?;
                match capable.keys {
                    MpCapableKeys::Sender(key) => write!(f, " {{{key:#x}}}"),
                    MpCapableKeys::Both { sender, receiver } => write!(f, " {{{sender:#x},{receiver:#x}}}"),
                    MpCapableKeys::BothWithData { sender, receiver, data_len, .. } => {
                        write!(f, " {{{sender:#x},{receiver:#x}}} len {data_len}")
                    }
                    _ => Ok(()),
                }
            }
            Self::Join(MpJoin::Syn { backup, address_id, token, nonce }) => {
                let backup = if *backup { " backup" } else { "" };
                write!(f, "join{backup} id {address_id} token {token:#x} nonce {nonce:#x}")
            }
            Self::Join(MpJoin::SynAck { backup, address_id, truncated_hmac, nonce }) => {
                let backup = if *backup { " backup" } else { "" };
                write!(f, "join{backup} id {address_id} hmac {truncated_hmac:#x} nonce {nonce:#x}")
            }
            Self::Join(_) => f.write_str("join hmac"),
            Self::AddAddr(add) => {
                let echo = if add.echo { " echo" } else { "" };
                write!(f, "add-addr{echo} id {} {}", add.address_id, add.addr)?;
                add.port.map_or(Ok(()), |port| write!(f, ":{port}"))
            }
            Self::RemoveAddr(remove) => write!(f, "rem-addr id {:?}", remove.address_ids.as_slice()),
            Self::Prio { backup, .. } => write!(f, "prio{}", if *backup { " backup" } else { "" }),
            Self::Fail { data_seq } => write!(f, "fail seq {data_seq}"),
            Self::Fastclose { receiver_key } => write!(f, "fast-close key {receiver_key:#x}"),
            Self::Reset { reason, .. } => write!(f, "tcprst reason {}", reason.0),
            _ => f.write_str("unknown"),
        }
    }
}
