//! Packets and options in the words of tcpdump.

use core::fmt::{self, Display, Formatter};
use core::net::IpAddr;

use crate::{
    AddAddr, Dss, Endpoint, IcmpMessage, MpCapable, MpCapableKeys, MpJoin, MptcpOption, Options, Packet,
    SackBlock, Segment, TcpFlags, TcpOption, Timestamps, Transport, WireDataSeq,
};

impl Display for Packet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (src, dst) = (self.ip.src, self.ip.dst);
        f.write_str(if src.is_ipv6() { "IP6" } else { "IP" })?;
        match &self.transport {
            Transport::Tcp(segment) => {
                write!(f, " {src}.{} > {dst}.{}: {segment}", segment.src_port, segment.dst_port)
            }
            Transport::Udp(datagram) => {
                let (src_port, dst_port, len) =
                    (datagram.src_port, datagram.dst_port, datagram.payload.len());
                write!(f, " {src}.{src_port} > {dst}.{dst_port}: UDP, length {len}")
            }
            Transport::Icmp(message) => write!(f, " {src} > {dst}: {message}"),
        }
    }
}

impl Display for IcmpMessage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::PacketTooBig { mtu, flow, seq } => {
                write!(f, "ICMP {} unreachable - need to frag (mtu {mtu}), about seq {seq}", flow.remote)
            }
            Self::Unreachable { code, flow, seq } => {
                write!(f, "ICMP {} unreachable - code {code}, about seq {seq}", flow.remote)
            }
        }
    }
}

impl Display for TcpFlags {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { f.write_str("none") } else { fmt::Debug::fmt(self, f) }
    }
}

impl Display for Segment {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let len = self.payload.len();
        write!(f, "Flags [{}], seq {}", self.flags, self.seq)?;
        if len > 0 {
            write!(f, ":{}", self.seq.add(len as u32))?;
        }
        if self.flags.ack() {
            write!(f, ", ack {}", self.ack)?;
        }
        write!(f, ", win {}", self.window)?;
        if self.flags.contains(TcpFlags::URG) {
            write!(f, ", urg {}", self.urgent)?;
        }
        if self.options != Options::default() {
            write!(f, ", options {}", self.options)?;
        }
        write!(f, ", length {len}")?;
        if self.segment_size > 0 {
            write!(f, " in segments of {}", self.segment_size)?;
        }
        Ok(())
    }
}

impl Display for Options {
    /// In the order in which they are written: `[TS val 1 ecr 2,mptcp 8 dss ack 3]`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut separator = "[";
        let mut item = |f: &mut Formatter<'_>, option: &dyn Display| {
            write!(f, "{separator}{option}")?;
            separator = ",";
            Ok(())
        };
        let (leading, remaining) = self.around_fields();
        for option in leading {
            item(f, option)?;
        }
        if let Some(timestamps) = &self.timestamps {
            item(f, timestamps)?;
        }
        if !self.sack.is_empty() {
            item(f, &Sack(&self.sack))?;
        }
        if let Some(dss) = &self.dss {
            item(f, dss)?;
        }
        for option in remaining {
            item(f, option)?;
        }
        f.write_str(if separator == "[" { "[]" } else { "]" })
    }
}

impl Display for Timestamps {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "TS val {} ecr {}", self.value, self.echo)
    }
}

struct Sack<'a>(&'a [SackBlock]);

impl Display for Sack<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "sack {} ", self.0.len())?;
        self.0.iter().try_for_each(|block| write!(f, "{{{}:{}}}", block.start, block.end))
    }
}

impl Display for TcpOption {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mss(mss) => write!(f, "mss {mss}"),
            Self::WindowScale(shift) => write!(f, "wscale {shift}"),
            Self::SackPermitted => f.write_str("sackOK"),
            Self::Sack(blocks) => Sack(blocks).fmt(f),
            Self::Timestamps(timestamps) => timestamps.fmt(f),
            Self::FastOpen(cookie) if cookie.is_empty() => f.write_str("tfo cookiereq"),
            Self::FastOpen(cookie) => write!(f, "tfo cookie {}", Hex(cookie)),
            Self::Mptcp(option) => option.fmt(f),
            Self::Unknown { kind, data } => write!(f, "unknown-{kind} 0x{}", Hex(data)),
        }
    }
}

struct Hex<'a>(&'a [u8]);

impl Display for Hex<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Display for WireDataSeq {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Low(low) => low.fmt(f),
            Self::Full(seq) => seq.fmt(f),
        }
    }
}

impl Display for Dss {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "mptcp {} dss", self.len_bytes())?;
        if self.control_stream {
            f.write_str(" control")?;
        }
        if self.data_fin {
            f.write_str(" fin")?;
        }
        if let Some(ack) = self.data_ack {
            write!(f, " ack {ack}")?;
        }
        if let Some(mapping) = self.mapping {
            write!(f, " seq {} subseq {} len {}", mapping.data_seq, mapping.subflow_offset, mapping.len)?;
            if let Some(checksum) = mapping.checksum {
                write!(f, " csum {checksum:#x}")?;
            }
        }
        Ok(())
    }
}

const fn backup_word(backup: bool) -> &'static str {
    if backup { " backup" } else { "" }
}

impl Display for MptcpOption {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Self::Dss(dss) = self {
            return dss.fmt(f);
        }
        write!(f, "mptcp {} ", self.len_bytes())?;
        match self {
            Self::Capable(capable) => capable.fmt(f),
            Self::Join(join) => join.fmt(f),
            Self::Dss(dss) => dss.fmt(f),
            Self::AddAddr(add) => add.fmt(f),
            Self::RemoveAddr(remove) => {
                f.write_str("rem-addr id")?;
                remove.address_ids.iter().try_for_each(|address_id| write!(f, " {address_id}"))
            }
            Self::Prio { backup, address_id } => {
                write!(f, "prio{}", backup_word(*backup))?;
                address_id.map_or(Ok(()), |address_id| write!(f, " id {address_id}"))
            }
            Self::Fail { data_seq } => write!(f, "fail seq {data_seq}"),
            Self::Fastclose { receiver_key } => write!(f, "fast-close key {receiver_key:#x}"),
            Self::Reset { flags, reason } => {
                write!(f, "tcprst reason {}", reason.0)?;
                f.write_str(if flags & 1 != 0 { " transient" } else { "" })
            }
            Self::Unknown { subtype, data, .. } => write!(f, "unknown-{subtype} 0x{}", Hex(data)),
        }
    }
}

impl Display for MpCapable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "capable v{}", self.version)?;
        if self.flags & Self::CHECKSUM != 0 {
            f.write_str(" csum")?;
        }
        match self.keys {
            MpCapableKeys::None => Ok(()),
            MpCapableKeys::Sender(key) => write!(f, " {{{key:#x}}}"),
            MpCapableKeys::Both { sender, receiver } => write!(f, " {{{sender:#x},{receiver:#x}}}"),
            MpCapableKeys::BothWithData { sender, receiver, data_len, checksum } => {
                write!(f, " {{{sender:#x},{receiver:#x}}} len {data_len}")?;
                checksum.map_or(Ok(()), |checksum| write!(f, " csum {checksum:#x}"))
            }
            MpCapableKeys::Token(token) => write!(f, " token {token:#x}"),
            MpCapableKeys::Tokens { sender, receiver } => write!(f, " tokens {sender:#x},{receiver:#x}"),
        }
    }
}

impl Display for MpJoin {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut head =
            |backup: bool, address_id: u8| write!(f, "join{} id {address_id}", backup_word(backup));
        match self {
            Self::Syn { backup, address_id, token, nonce } => {
                head(*backup, *address_id)?;
                write!(f, " token {token:#x} nonce {nonce:#x}")
            }
            Self::SynAck { backup, address_id, truncated_hmac, nonce } => {
                head(*backup, *address_id)?;
                write!(f, " hmac {truncated_hmac:#x} nonce {nonce:#x}")
            }
            Self::Ack { hmac } => write!(f, "join hmac 0x{}", Hex(hmac)),
            Self::AckWithToken { backup, address_id, truncated_hmac, nonce, token } => {
                head(*backup, *address_id)?;
                write!(f, " hmac 0x{} nonce {nonce:#x} token {token:#x}", Hex(truncated_hmac))
            }
            Self::LowOverhead { backup, address_id, token } => {
                head(*backup, *address_id)?;
                token.map_or(Ok(()), |token| write!(f, " token {token:#x}"))
            }
        }
    }
}

impl Display for AddAddr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "add-addr{} id {} ", if self.echo { " echo" } else { "" }, self.address_id)?;
        match (self.addr, self.port) {
            (addr, Some(port)) => Endpoint::new(addr, port).fmt(f)?,
            (IpAddr::V4(addr), None) => addr.fmt(f)?,
            (IpAddr::V6(addr), None) => addr.fmt(f)?,
        }
        self.hmac.map_or(Ok(()), |hmac| write!(f, " hmac {hmac:#x}"))
    }
}
