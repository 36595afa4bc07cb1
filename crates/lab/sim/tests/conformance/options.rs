//! The options of a segment as a case writes them.

use std::net::IpAddr;

use polypath_wire::MpCapable;

use crate::script::{AddAddrSpec, Computed, DssSpec, JoinSpec, KeyName, MapSpec, MptcpSpec, OptionSpec};
use crate::words::{Words, range};

/// The option `name`; what it has in parentheses follows in `words`.
pub(crate) fn option(name: &str, words: &mut Words) -> Result<OptionSpec, String> {
    Ok(match name {
        "mss" => OptionSpec::Mss(words.value("segment size")?),
        "wscale" => OptionSpec::WindowScale(words.value("shift")?),
        "sackOK" => OptionSpec::SackPermitted,
        "sack" => OptionSpec::Sack(blocks(words.arguments()?)?),
        "ts" => timestamps(words.arguments()?)?,
        "no" => OptionSpec::Without(words.word("the name of an option")?),
        "raw" => raw(words.arguments()?)?,
        _ => {
            let mut arguments = words.arguments()?;
            let option = OptionSpec::Mptcp(mptcp(name, &mut arguments)?);
            arguments.end()?;
            option
        }
    })
}

fn blocks(mut words: Words) -> Result<Vec<(i64, i64)>, String> {
    let mut blocks = Vec::new();
    while let Some(word) = words.next() {
        blocks.push(range(&word).ok_or_else(|| format!("`{word}` is no block"))?);
    }
    Ok(blocks)
}

fn timestamps(mut words: Words) -> Result<OptionSpec, String> {
    let (mut value, mut echo) = (None, None);
    while let Some(word) = words.next() {
        match word.as_str() {
            "val" => value = Some(words.value("timestamp")?),
            "echo" => echo = Some(words.value("timestamp")?),
            _ => return Err(format!("`{word}` says nothing of timestamps")),
        }
    }
    Ok(OptionSpec::Timestamps { value, echo })
}

/// `raw(KIND HEX)`.
fn raw(mut words: Words) -> Result<OptionSpec, String> {
    let kind = words.value("option kind")?;
    let hex = words.rest().replace(' ', "");
    let byte = |at: usize| hex.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let data: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
    Ok(OptionSpec::Raw { kind, data: data.ok_or_else(|| format!("`{hex}` is no row of bytes"))? })
}

fn mptcp(name: &str, words: &mut Words) -> Result<MptcpSpec, String> {
    match name {
        "mp_capable" => capable(words),
        "mp_join" => join(words),
        "dss" => dss(words),
        "add_addr" => add_addr(words),
        "remove_addr" => {
            let mut ids = Vec::new();
            while !words.is_empty() {
                ids.push(words.value("identifier")?);
            }
            Ok(MptcpSpec::RemoveAddr(ids))
        }
        "mp_prio" => {
            let backup = words.take("backup") || !words.take("regular");
            let id = if words.take("id") { Some(words.value("identifier")?) } else { None };
            Ok(MptcpSpec::Prio { backup, id })
        }
        "mp_fail" => Ok(MptcpSpec::Fail(words.value("data sequence number")?)),
        "mp_fastclose" => {
            words.take("key");
            Ok(MptcpSpec::Fastclose(key(words)?))
        }
        "mp_tcprst" => {
            Ok(MptcpSpec::Reset { reason: words.value("reason")?, transient: words.take("transient") })
        }
        _ => Err(format!("`{name}` is no option")),
    }
}

fn key(words: &mut Words) -> Result<KeyName, String> {
    match words.word("whose key")?.as_str() {
        "host" => Ok(KeyName::Host),
        "peer" => Ok(KeyName::Peer),
        "wrong" => Ok(KeyName::Wrong),
        word => Err(format!("`{word}` has no key: host, peer or wrong")),
    }
}

/// What follows a name whose value the runner computes: nothing, or `wrong`.
fn computed(words: &mut Words) -> Computed {
    if words.take("wrong") { Computed::Wrong } else { Computed::Right }
}

/// `mp_capable(v1 A H, key host, key peer, len 1000, csum)`.
fn capable(words: &mut Words) -> Result<MptcpSpec, String> {
    let (mut version, mut flags, mut keys, mut len, mut checksum) =
        (1, 0, Vec::new(), None, Computed::Absent);
    while let Some(word) = words.next() {
        match word.as_str() {
            "A" => flags |= MpCapable::CHECKSUM,
            "B" => flags |= MpCapable::EXTENSIBILITY,
            "C" => flags |= MpCapable::NO_JOIN_INITIAL_ADDRESS,
            "G" => flags |= 0x02,
            "H" => flags |= MpCapable::HMAC,
            "key" => keys.push(key(words)?),
            "len" => len = Some(words.value("length")?),
            "csum" => checksum = computed(words),
            _ => {
                let number = word.strip_prefix('v').and_then(|number| number.parse().ok());
                version = number.ok_or_else(|| format!("`{word}` says nothing of MP_CAPABLE"))?;
            }
        }
    }
    Ok(MptcpSpec::Capable { version, flags, keys, len, checksum })
}

/// `mp_join(id 1, token, nonce, backup)`, `mp_join(id 1, hmac, nonce)`, `mp_join(hmac)`.
fn join(words: &mut Words) -> Result<MptcpSpec, String> {
    let mut join = JoinSpec::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "backup" => join.backup = true,
            "id" => join.id = Some(words.value("identifier")?),
            "token" => join.token = computed(words),
            "nonce" => join.nonce = true,
            "hmac" => join.hmac = computed(words),
            _ => return Err(format!("`{word}` says nothing of MP_JOIN")),
        }
    }
    Ok(MptcpSpec::Join(join))
}

/// `dss(ack 1, map 1:1001 at 1, fin, csum)`, `dss(infinite 1 at 1)`; `ack4`, `ack8`, `map4` and `map8` name lengths.
fn dss(words: &mut Words) -> Result<MptcpSpec, String> {
    let mut dss = DssSpec::default();
    while let Some(word) = words.next() {
        let size = word.strip_prefix("ack").or_else(|| word.strip_prefix("map")).and_then(|n| n.parse().ok());
        match word.trim_end_matches(['4', '8']) {
            "ack" => dss.ack = Some((size, words.value("data sequence number")?)),
            "map" => dss.map = Some(map(size, words)?),
            "infinite" => {
                let start = words.value("data sequence number")?;
                let at = if words.take("at") { words.value("subflow sequence number")? } else { 1 };
                dss.map = Some(MapSpec { size, start, len: 0, at });
            }
            "fin" => dss.fin = true,
            "csum" => dss.checksum = computed(words),
            _ => return Err(format!("`{word}` says nothing of a DSS")),
        }
    }
    Ok(MptcpSpec::Dss(dss))
}

fn map(size: Option<u8>, words: &mut Words) -> Result<MapSpec, String> {
    let word = words.word("a range")?;
    let (start, end) = range(&word).ok_or_else(|| format!("`{word}` is no range"))?;
    let len = u16::try_from(end - start).map_err(|_| "a mapping is at most 65 535 long")?;
    if !words.take("at") {
        return Err("`map A:B at N` says where in the subflow it is".into());
    }
    Ok(MapSpec { size, start, len, at: words.value("subflow sequence number")? })
}

/// `add_addr(id 2, 10.0.2.2, port 90, hmac)`, `add_addr(id 2, 10.0.2.2, echo)`.
fn add_addr(words: &mut Words) -> Result<MptcpSpec, String> {
    let (mut id, mut addr, mut port, mut echo, mut hmac) = (0, None::<IpAddr>, None, false, Computed::Absent);
    while let Some(word) = words.next() {
        match word.as_str() {
            "id" => id = words.value("identifier")?,
            "port" => port = Some(words.value("port")?),
            "echo" => echo = true,
            "hmac" => hmac = computed(words),
            _ => addr = Some(word.parse().map_err(|_| format!("`{word}` is no address"))?),
        }
    }
    let addr = addr.ok_or("ADD_ADDR has an address")?;
    Ok(MptcpSpec::AddAddr(AddAddrSpec { id, addr, port, echo, hmac }))
}
