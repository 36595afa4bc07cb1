use core::net::{Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;

use super::{
    AddAddr, Dss, DssMapping, MpCapable, MpCapableKeys, MpJoin, MptcpOption, MptcpVersion, RemoveAddr,
    ResetReason, WireDataSeq, dss_flags, subtype,
};
use crate::DataSeq;
use crate::reader::Reader;

/// Reads what follows kind and length of an option of kind 30. `None` only if that is empty or longer than a
/// TCP header has room for; what is malformed becomes [`MptcpOption::Unknown`]. Reserved bits are ignored.
pub(crate) fn parse(body: &[u8]) -> Option<MptcpOption> {
    let (&first, rest) = body.split_first()?;
    let (subtype, nibble) = (first >> 4, first & 0x0f);
    known(subtype, nibble, rest).or_else(|| {
        Some(MptcpOption::Unknown { subtype, flags: nibble, data: ArrayVec::try_from(rest).ok()? })
    })
}

fn known(subtype: u8, nibble: u8, rest: &[u8]) -> Option<MptcpOption> {
    let mut reader = Reader::new(rest);
    match subtype {
        subtype::CAPABLE => capable(nibble, reader).map(MptcpOption::Capable),
        subtype::JOIN => join(nibble, reader).map(MptcpOption::Join),
        subtype::DSS => dss(reader).map(MptcpOption::Dss),
        subtype::ADD_ADDR => add_addr(nibble, reader).map(MptcpOption::AddAddr),
        subtype::REMOVE_ADDR if !rest.is_empty() => {
            let address_ids = ArrayVec::try_from(rest).ok()?;
            Some(MptcpOption::RemoveAddr(RemoveAddr { address_ids }))
        }
        subtype::PRIO if rest.len() <= 1 => {
            Some(MptcpOption::Prio { backup: nibble & 1 != 0, address_id: reader.u8() })
        }
        subtype::FAIL if rest.len() == 9 => {
            reader.u8()?;
            Some(MptcpOption::Fail { data_seq: DataSeq(reader.u64()?) })
        }
        subtype::FASTCLOSE if rest.len() == 9 => {
            reader.u8()?;
            Some(MptcpOption::Fastclose { receiver_key: reader.u64()? })
        }
        subtype::RESET if rest.len() == 1 => {
            Some(MptcpOption::Reset { flags: nibble, reason: ResetReason(reader.u8()?) })
        }
        _ => None,
    }
}

/// RFC 8684 §3.1: the length alone says which keys are there.
fn capable(version: u8, mut reader: Reader<'_>) -> Option<MpCapable> {
    let flags = reader.u8()?;
    let keys = match reader.len() {
        0 => MpCapableKeys::None,
        4 => MpCapableKeys::Token(reader.u32()?),
        8 => MpCapableKeys::Sender(reader.u64()?),
        12 => MpCapableKeys::Tokens { sender: reader.u32()?, receiver: reader.u32()? },
        16 => MpCapableKeys::Both { sender: reader.u64()?, receiver: reader.u64()? },
        18 | 20 => MpCapableKeys::BothWithData {
            sender: reader.u64()?,
            receiver: reader.u64()?,
            data_len: reader.u16()?,
            checksum: reader.u16(),
        },
        _ => return None,
    };
    Some(MpCapable { version, flags, keys })
}

/// RFC 8684 §3.2: the length says which step of the handshake it is.
fn join(nibble: u8, mut reader: Reader<'_>) -> Option<MpJoin> {
    let backup = nibble & 1 != 0;
    let address_id = reader.u8()?;
    Some(match reader.len() {
        0 => MpJoin::LowOverhead { backup, address_id, token: None },
        4 => MpJoin::LowOverhead { backup, address_id, token: Some(reader.u32()?) },
        8 => MpJoin::Syn { backup, address_id, token: reader.u32()?, nonce: reader.u32()? },
        12 => MpJoin::SynAck { backup, address_id, truncated_hmac: reader.u64()?, nonce: reader.u32()? },
        20 => MpJoin::Ack { hmac: reader.array()? },
        24 => MpJoin::AckWithToken {
            backup,
            address_id,
            truncated_hmac: reader.array()?,
            nonce: reader.u32()?,
            token: reader.u32()?,
        },
        _ => return None,
    })
}

fn data_seq(reader: &mut Reader<'_>, full: bool) -> Option<WireDataSeq> {
    if full { Some(WireDataSeq::Full(DataSeq(reader.u64()?))) } else { Some(WireDataSeq::Low(reader.u32()?)) }
}

/// RFC 8684 §3.3: the flags say what is there, but for the checksum, which is there if the length leaves
/// room.
fn dss(mut reader: Reader<'_>) -> Option<Dss> {
    let flags = reader.u8()?;
    let is_set = |flag| flags & flag != 0;
    let mut dss = Dss {
        data_fin: is_set(dss_flags::DATA_FIN),
        control_stream: is_set(dss_flags::CONTROL_STREAM),
        ..Dss::default()
    };
    if is_set(dss_flags::ACK) {
        dss.data_ack = Some(data_seq(&mut reader, is_set(dss_flags::ACK_FULL))?);
    }
    if is_set(dss_flags::MAPPING) {
        dss.mapping = Some(DssMapping {
            data_seq: data_seq(&mut reader, is_set(dss_flags::SEQ_FULL))?,
            subflow_offset: reader.u32()?,
            len: reader.u16()?,
            checksum: reader.u16(),
        });
    }
    (reader.len() == 0).then_some(dss)
}

/// RFC 8684 §3.4.1 and RFC 6824 §3.4.1. Version 0 has the IP version (4 or 6) where version 1 has the E flag,
/// and no HMAC; so a nibble of 4 or 6 that agrees with a length without HMAC is version 0.
fn add_addr(nibble: u8, mut reader: Reader<'_>) -> Option<AddAddr> {
    let address_id = reader.u8()?;
    let (is_v6, has_port, has_hmac) = match reader.len() {
        4 => (false, false, false),
        6 => (false, true, false),
        12 => (false, false, true),
        14 => (false, true, true),
        16 => (true, false, false),
        18 => (true, true, false),
        24 => (true, false, true),
        26 => (true, true, true),
        _ => return None,
    };
    let addr = if is_v6 {
        Ipv6Addr::from(reader.array::<16>()?).into()
    } else {
        Ipv4Addr::from(reader.array::<4>()?).into()
    };
    let is_v0 = !has_hmac && nibble == if is_v6 { 6 } else { 4 };
    Some(AddAddr {
        version: if is_v0 { MptcpVersion::V0 } else { MptcpVersion::V1 },
        echo: !is_v0 && nibble & 1 != 0,
        address_id,
        addr,
        port: if has_port { Some(reader.u16()?) } else { None },
        hmac: if has_hmac { Some(reader.u64()?) } else { None },
    })
}
