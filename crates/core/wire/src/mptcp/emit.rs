use alloc::vec::Vec;
use core::net::IpAddr;

use super::{
    AddAddr, Dss, MpCapable, MpCapableKeys, MpJoin, MptcpOption, MptcpVersion, WireDataSeq, dss_flags,
    subtype,
};

/// Appends what follows kind and length.
pub(crate) fn emit(option: &MptcpOption, out: &mut Vec<u8>) {
    match option {
        MptcpOption::Capable(capable) => emit_capable(capable, out),
        MptcpOption::Join(join) => emit_join(join, out),
        MptcpOption::Dss(dss) => emit_dss(dss, out),
        MptcpOption::AddAddr(add) => emit_add_addr(add, out),
        MptcpOption::RemoveAddr(remove) => {
            first(subtype::REMOVE_ADDR, 0, out);
            out.extend_from_slice(&remove.address_ids);
        }
        MptcpOption::Prio { backup, address_id } => {
            first(subtype::PRIO, u8::from(*backup), out);
            out.extend(*address_id);
        }
        MptcpOption::Fail { data_seq } => {
            first(subtype::FAIL, 0, out);
            out.push(0);
            out.extend_from_slice(&data_seq.0.to_be_bytes());
        }
        MptcpOption::Fastclose { receiver_key } => {
            first(subtype::FASTCLOSE, 0, out);
            out.push(0);
            out.extend_from_slice(&receiver_key.to_be_bytes());
        }
        MptcpOption::Reset { flags, reason } => {
            first(subtype::RESET, *flags, out);
            out.push(reason.0);
        }
        MptcpOption::Unknown { subtype, flags, data } => {
            first(*subtype, *flags, out);
            out.extend_from_slice(data);
        }
    }
}

/// The byte that every MPTCP option begins with.
fn first(subtype: u8, nibble: u8, out: &mut Vec<u8>) {
    out.push(subtype << 4 | nibble & 0x0f);
}

fn emit_capable(capable: &MpCapable, out: &mut Vec<u8>) {
    first(subtype::CAPABLE, capable.version, out);
    out.push(capable.flags);
    match capable.keys {
        MpCapableKeys::None => {}
        MpCapableKeys::Sender(key) => out.extend_from_slice(&key.to_be_bytes()),
        MpCapableKeys::Both { sender, receiver } => {
            out.extend_from_slice(&sender.to_be_bytes());
            out.extend_from_slice(&receiver.to_be_bytes());
        }
        MpCapableKeys::BothWithData { sender, receiver, data_len, checksum } => {
            out.extend_from_slice(&sender.to_be_bytes());
            out.extend_from_slice(&receiver.to_be_bytes());
            out.extend_from_slice(&data_len.to_be_bytes());
            if let Some(checksum) = checksum {
                out.extend_from_slice(&checksum.to_be_bytes());
            }
        }
        MpCapableKeys::Token(token) => out.extend_from_slice(&token.to_be_bytes()),
        MpCapableKeys::Tokens { sender, receiver } => {
            out.extend_from_slice(&sender.to_be_bytes());
            out.extend_from_slice(&receiver.to_be_bytes());
            out.extend_from_slice(&[0; 4]);
        }
    }
}

fn emit_join(join: &MpJoin, out: &mut Vec<u8>) {
    let mut head = |backup: bool, address_id: u8| {
        first(subtype::JOIN, u8::from(backup), out);
        out.push(address_id);
    };
    match *join {
        MpJoin::Syn { backup, address_id, token, nonce } => {
            head(backup, address_id);
            out.extend_from_slice(&token.to_be_bytes());
            out.extend_from_slice(&nonce.to_be_bytes());
        }
        MpJoin::SynAck { backup, address_id, truncated_hmac, nonce } => {
            head(backup, address_id);
            out.extend_from_slice(&truncated_hmac.to_be_bytes());
            out.extend_from_slice(&nonce.to_be_bytes());
        }
        MpJoin::Ack { hmac } => {
            head(false, 0);
            out.extend_from_slice(&hmac);
        }
        MpJoin::AckWithToken { backup, address_id, truncated_hmac, nonce, token } => {
            head(backup, address_id);
            out.extend_from_slice(&truncated_hmac);
            out.extend_from_slice(&nonce.to_be_bytes());
            out.extend_from_slice(&token.to_be_bytes());
        }
        MpJoin::LowOverhead { backup, address_id, token } => {
            head(backup, address_id);
            if let Some(token) = token {
                out.extend_from_slice(&token.to_be_bytes());
            }
        }
    }
}

fn emit_data_seq(seq: WireDataSeq, out: &mut Vec<u8>) {
    match seq {
        WireDataSeq::Low(low) => out.extend_from_slice(&low.to_be_bytes()),
        WireDataSeq::Full(seq) => out.extend_from_slice(&seq.0.to_be_bytes()),
    }
}

pub(crate) fn emit_dss(dss: &Dss, out: &mut Vec<u8>) {
    let mut flags = 0;
    if dss.data_fin {
        flags |= dss_flags::DATA_FIN;
    }
    if dss.control_stream {
        flags |= dss_flags::CONTROL_STREAM;
    }
    match dss.data_ack {
        Some(WireDataSeq::Low(_)) => flags |= dss_flags::ACK,
        Some(WireDataSeq::Full(_)) => flags |= dss_flags::ACK | dss_flags::ACK_FULL,
        None => {}
    }
    match dss.mapping.map(|mapping| mapping.data_seq) {
        Some(WireDataSeq::Low(_)) => flags |= dss_flags::MAPPING,
        Some(WireDataSeq::Full(_)) => flags |= dss_flags::MAPPING | dss_flags::SEQ_FULL,
        None => {}
    }
    first(subtype::DSS, 0, out);
    out.push(flags);
    if let Some(ack) = dss.data_ack {
        emit_data_seq(ack, out);
    }
    if let Some(mapping) = dss.mapping {
        emit_data_seq(mapping.data_seq, out);
        out.extend_from_slice(&mapping.subflow_offset.to_be_bytes());
        out.extend_from_slice(&mapping.len.to_be_bytes());
        if let Some(checksum) = mapping.checksum {
            out.extend_from_slice(&checksum.to_be_bytes());
        }
    }
}

fn emit_add_addr(add: &AddAddr, out: &mut Vec<u8>) {
    let nibble = match (add.version, add.addr) {
        (MptcpVersion::V0, IpAddr::V4(_)) => 4,
        (MptcpVersion::V0, IpAddr::V6(_)) => 6,
        (MptcpVersion::V1, _) => u8::from(add.echo),
    };
    first(subtype::ADD_ADDR, nibble, out);
    out.push(add.address_id);
    match add.addr {
        IpAddr::V4(addr) => out.extend_from_slice(&addr.octets()),
        IpAddr::V6(addr) => out.extend_from_slice(&addr.octets()),
    }
    if let Some(port) = add.port {
        out.extend_from_slice(&port.to_be_bytes());
    }
    if let Some(hmac) = add.hmac {
        out.extend_from_slice(&hmac.to_be_bytes());
    }
}
