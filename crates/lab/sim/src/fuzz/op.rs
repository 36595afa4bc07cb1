//! What can happen in a run, read from records of [`RECORD_BYTES`] bytes.

use polypath_units::Duration;

use super::forge::Forgery;
use super::reader::Reader;
use super::setup::{Faults, Side};

/// Length of a record: one operation.
pub(crate) const RECORD_BYTES: usize = 16;

/// How an application reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Everything at once.
    Eager,
    /// One piece each time that so long has passed.
    Slow(Duration),
    /// Nothing.
    Paused,
}

/// Packets that a [`Op::DropNext`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Without payload, SYN, FIN and RST: what opens windows.
    Acknowledgment,
    /// With payload.
    Data,
    /// With SYN.
    Syn,
    /// With FIN, DATA_FIN or RST.
    End,
    /// Any.
    Any,
}

/// One operation. Ends and flows are named by numbers, modulo how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what their types and names say")]
pub(crate) enum Op {
    /// Virtual time passes.
    Wait(Duration),
    /// So many things happen.
    Steps(u16),
    /// The client opens a connection.
    Connect { link: u8, server_addr: u8 },
    /// An application has so many bytes more to write.
    Write { end: u8, bytes: u64 },
    /// An application reads otherwise.
    Read { end: u8, pace: Pace },
    /// An application writes what it has, then ends its stream.
    Shutdown { end: u8 },
    /// An application aborts.
    Abort { end: u8 },
    /// An application lets go.
    Release { end: u8 },
    /// A subflow becomes a backup, or a regular one.
    SetBackup { end: u8, subflow: u8, backup: bool },
    /// A local address goes.
    RemoveEndpoint { side: Side, number: u8 },
    /// A local address comes back.
    AddEndpoint { side: Side, number: u8 },
    /// The network changes.
    Faults(Faults),
    /// The next packets of a kind from a host are lost.
    DropNext { from: Side, kind: Kind, count: u8 },
    /// Nothing passes over a link of the client for so long.
    Cut { link: u8, lasts: Duration },
    /// Packets that passed before pass again.
    Replay { back: u8, count: u8 },
    /// Bits of a packet under way change; its checksums are right.
    Flip { packet: u8, bits: [u16; 3] },
    /// A forged segment, so many times.
    Forge { forgery: Forgery, count: u8 },
    /// The hosts come to rest; then a forged segment comes, and what follows is counted.
    ForgeAtRest(Forgery),
    /// Strangers open connections: SYNs from addresses of their own.
    Flood { count: u8, join: Join, capable: bool },
    /// The latest stranger that was answered completes its handshake.
    Complete { data_bytes: u8 },
    /// A router says something of a flow.
    Icmp { flow: u8, mtu: Option<u16>, exact: bool },
}

/// The token in a stranger's MP_JOIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// There is no MP_JOIN.
    No,
    /// Of a connection that there is.
    Right,
    /// Of none.
    Wrong,
}

impl Op {
    pub(super) fn read(record: &[u8; RECORD_BYTES]) -> Self {
        let mut reader = Reader::new(record);
        let reader = &mut reader;
        match reader.byte() {
            0..40 => Self::Wait(Duration::from_micros(reader.log(21))),
            40..64 => Self::Steps(1 + reader.u16() % 64),
            64..70 => Self::Connect { link: reader.byte(), server_addr: reader.byte() },
            70..110 => Self::Write { end: reader.byte(), bytes: reader.log(19) },
            110..122 => Self::Read { end: reader.byte(), pace: pace(reader) },
            122..126 => Self::Shutdown { end: reader.byte() },
            126..128 => Self::Abort { end: reader.byte() },
            128..131 => Self::Release { end: reader.byte() },
            131..138 => Self::of_paths(reader),
            138..146 => Self::Faults(Faults::read(reader, 64)),
            146..160 => {
                Self::DropNext { from: side(reader), kind: kind(reader), count: 1 + reader.byte() % 4 }
            }
            160..166 => Self::Cut { link: reader.byte(), lasts: Duration::from_micros(reader.log(21)) },
            166..182 => Self::Replay { back: reader.byte(), count: 1 + reader.byte() % 4 },
            182..190 => {
                Self::Flip { packet: reader.byte(), bits: [reader.u16(), reader.u16(), reader.u16()] }
            }
            190..230 => {
                let count = if reader.chance(16) { 64 } else { 1 };
                Self::Forge { forgery: Forgery::read(reader), count }
            }
            230..238 => Self::ForgeAtRest(Forgery::read(reader)),
            238..246 => Self::Flood {
                count: 1 + reader.byte() % 32,
                join: reader.pick(&[Join::No, Join::Right, Join::Wrong]),
                capable: reader.chance(128),
            },
            246..250 => Self::Complete { data_bytes: reader.byte() },
            _ => Self::Icmp {
                flow: reader.byte(),
                mtu: reader.pick(&[Some(1400), None, Some(576), Some(0), Some(68), Some(9000)]),
                exact: reader.chance(128),
            },
        }
    }

    fn of_paths(reader: &mut Reader<'_>) -> Self {
        match reader.below(3) {
            0 => {
                Self::SetBackup { end: reader.byte(), subflow: reader.byte() % 4, backup: reader.chance(160) }
            }
            1 => Self::RemoveEndpoint { side: side(reader), number: reader.byte() },
            _ => Self::AddEndpoint { side: side(reader), number: reader.byte() },
        }
    }
}

fn side(reader: &mut Reader<'_>) -> Side {
    reader.pick(&[Side::Client, Side::Server])
}

fn pace(reader: &mut Reader<'_>) -> Pace {
    match reader.below(3) {
        0 => Pace::Eager,
        1 => Pace::Paused,
        _ => Pace::Slow(Duration::from_micros(reader.log(18))),
    }
}

fn kind(reader: &mut Reader<'_>) -> Kind {
    reader.pick(&[Kind::Acknowledgment, Kind::Acknowledgment, Kind::Data, Kind::Syn, Kind::End, Kind::Any])
}
