//! Multipath TCP options: from what a case says of them to what is on the wire.

use polypath_wire::{
    AddAddr, DataSeq, Dss, DssMapping, MpCapable, MpCapableKeys, MpJoin, MptcpOption, MptcpVersion,
    RemoveAddr, ResetReason, WireDataSeq,
};

use crate::flow::Flow;
use crate::keys;
use crate::script::{AddAddrSpec, Computed, DssSpec, JoinSpec, KeyName, MapSpec, MptcpSpec};

/// Who sends an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Host,
    Peer,
}

/// What both ends of a connection share.
#[derive(Debug)]
pub(crate) struct Secrets {
    pub(crate) version: u8,
    pub(crate) host_key: Option<u64>,
    pub(crate) peer_key: u64,
}

impl Secrets {
    pub(crate) fn key(&self, name: KeyName) -> Result<u64, String> {
        match name {
            KeyName::Host => self.host_key.ok_or_else(|| "the host has not told its key".into()),
            KeyName::Peer => Ok(self.peer_key),
            KeyName::Wrong => Ok(self.peer_key ^ 0x5555),
        }
    }

    fn own(&self, side: Side) -> Result<u64, String> {
        self.key(if side == Side::Host { KeyName::Host } else { KeyName::Peer })
    }

    fn other(&self, side: Side) -> Result<u64, String> {
        self.own(if side == Side::Host { Side::Peer } else { Side::Host })
    }

    /// A data sequence number that this side sends.
    pub(crate) fn data_seq(&self, side: Side, relative: i64) -> Result<u64, String> {
        let (_, idsn) = keys::derive(self.version, self.own(side)?);
        Ok(idsn.wrapping_add(relative as u64))
    }

    fn data_ack(&self, side: Side, relative: i64) -> Result<u64, String> {
        self.data_seq(if side == Side::Host { Side::Peer } else { Side::Host }, relative)
    }

    /// The option on the wire. What a case leaves open is as in `actual`, if there is one.
    pub(crate) fn option(
        &self,
        side: Side,
        flow: &Flow,
        spec: &MptcpSpec,
        actual: Option<&MptcpOption>,
    ) -> Result<MptcpOption, String> {
        Ok(match spec {
            MptcpSpec::Capable { version, flags, keys, len, checksum } => {
                let keys = self.capable_keys(side, keys, *len, *checksum)?;
                MptcpOption::Capable(MpCapable { version: *version, flags: *flags, keys })
            }
            MptcpSpec::Join(join) => MptcpOption::Join(self.join(side, flow, join, actual)?),
            MptcpSpec::Dss(dss) => MptcpOption::Dss(self.dss(side, dss, actual)?),
            MptcpSpec::AddAddr(add) => MptcpOption::AddAddr(self.add_addr(side, add)?),
            MptcpSpec::RemoveAddr(ids) => {
                MptcpOption::RemoveAddr(RemoveAddr { address_ids: ids.iter().copied().collect() })
            }
            MptcpSpec::Prio { backup, id } => MptcpOption::Prio { backup: *backup, address_id: *id },
            MptcpSpec::Fail(relative) => {
                MptcpOption::Fail { data_seq: DataSeq(self.data_ack(side, *relative)?) }
            }
            MptcpSpec::Fastclose(name) => MptcpOption::Fastclose { receiver_key: self.key(*name)? },
            MptcpSpec::Reset { reason, transient } => {
                MptcpOption::Reset { flags: u8::from(*transient), reason: ResetReason(*reason) }
            }
        })
    }

    fn capable_keys(
        &self,
        side: Side,
        names: &[KeyName],
        len: Option<u16>,
        checksum: Computed,
    ) -> Result<MpCapableKeys, String> {
        Ok(match (names, len) {
            ([], _) => MpCapableKeys::None,
            ([sender], _) => MpCapableKeys::Sender(self.key(*sender)?),
            ([sender, receiver, ..], None) => {
                MpCapableKeys::Both { sender: self.key(*sender)?, receiver: self.key(*receiver)? }
            }
            ([sender, receiver, ..], Some(data_len)) => {
                let (sender, receiver) = (self.key(*sender)?, self.key(*receiver)?);
                let map = MapSpec { size: None, start: 1, len: data_len, at: 1 };
                let checksum = self.checksum(side, &map, false, checksum)?;
                MpCapableKeys::BothWithData { sender, receiver, data_len, checksum }
            }
        })
    }

    fn join(
        &self,
        side: Side,
        flow: &Flow,
        spec: &JoinSpec,
        actual: Option<&MptcpOption>,
    ) -> Result<MpJoin, String> {
        let actual_id = match actual {
            Some(MptcpOption::Join(MpJoin::Syn { address_id, .. } | MpJoin::SynAck { address_id, .. })) => {
                *address_id
            }
            _ => 0,
        };
        let (backup, address_id) = (spec.backup, spec.id.unwrap_or(actual_id));
        let nonces = match side {
            Side::Host => (flow.host_nonce, flow.peer_nonce),
            Side::Peer => (flow.peer_nonce, flow.host_nonce),
        };
        if spec.token != Computed::Absent {
            let (token, _) = keys::derive(self.version, self.other(side)?);
            let token = if spec.token == Computed::Wrong { !token } else { token };
            return Ok(MpJoin::Syn { backup, address_id, token, nonce: nonces.0 });
        }
        let mut hmac = keys::join(self.version, (self.own(side)?, self.other(side)?), nonces);
        if spec.hmac == Computed::Wrong {
            hmac[0] ^= 1;
        }
        if !spec.nonce {
            return Ok(MpJoin::Ack { hmac });
        }
        let truncated_hmac = u64::from_be_bytes(hmac[..8].try_into().expect("eight bytes"));
        Ok(MpJoin::SynAck { backup, address_id, truncated_hmac, nonce: nonces.0 })
    }

    fn dss(&self, side: Side, spec: &DssSpec, actual: Option<&MptcpOption>) -> Result<Dss, String> {
        let actual = match actual {
            Some(MptcpOption::Dss(dss)) => Some(dss),
            _ => None,
        };
        let mut dss = Dss { data_fin: spec.fin, ..Dss::default() };
        if let Some((size, relative)) = spec.ack {
            let actual_size = actual.and_then(|dss| Some(dss.data_ack?.len_bytes() as u8));
            dss.data_ack = Some(wire(size.or(actual_size), self.data_ack(side, relative)?));
        }
        if let Some(map) = &spec.map {
            let actual_size = actual.and_then(|dss| Some(dss.mapping?.data_seq.len_bytes() as u8));
            dss.mapping = Some(DssMapping {
                data_seq: wire(map.size.or(actual_size), self.data_seq(side, map.start)?),
                subflow_offset: map.at,
                len: map.len,
                checksum: self.checksum(side, map, spec.fin, spec.checksum)?,
            });
        }
        Ok(dss)
    }

    /// The checksum of a mapping, if there is to be one. That of an infinite mapping is zero (RFC 8684 §3.7).
    fn checksum(
        &self,
        side: Side,
        map: &MapSpec,
        fin: bool,
        computed: Computed,
    ) -> Result<Option<u16>, String> {
        if computed == Computed::Absent {
            return Ok(None);
        }
        if map.len == 0 {
            return Ok(Some(0));
        }
        let bytes = usize::from(map.len) - usize::from(fin);
        let data = keys::stream(map.start.max(1) as u64 - 1, bytes);
        let sum = keys::checksum(self.data_seq(side, map.start)?, map.at, map.len, &data);
        Ok(Some(if computed == Computed::Wrong { sum ^ 0x1234 } else { sum }))
    }

    fn add_addr(&self, side: Side, spec: &AddAddrSpec) -> Result<AddAddr, String> {
        let AddAddrSpec { id, addr, port, echo, hmac } = *spec;
        let right = keys::add_addr((self.own(side)?, self.other(side)?), id, addr, port);
        let hmac = match hmac {
            Computed::Absent => None,
            Computed::Right => Some(right),
            Computed::Wrong => Some(right ^ 1),
        };
        let version = if self.version == 0 { MptcpVersion::V0 } else { MptcpVersion::V1 };
        Ok(AddAddr { version, echo, address_id: id, addr, port, hmac })
    }
}

fn wire(size: Option<u8>, seq: u64) -> WireDataSeq {
    if size == Some(4) { WireDataSeq::Low(seq as u32) } else { WireDataSeq::Full(DataSeq(seq)) }
}
