//! Captures, packet by packet: pcapng and pcap, in memory that does not grow with them.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{
    Block, InterfaceDescriptionBlock, Linktype, PcapBlockOwned, PcapError, PcapNGOption, create_reader,
};
use polypath_units::Instant;

/// What is read at once. A block that is larger makes it grow.
const BUFFER_BYTES: usize = 1 << 20;
/// No packet is larger; what says so is no block.
const MOST_BLOCK_BYTES: usize = 1 << 26;

/// A packet as it was captured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    /// Since 1970.
    pub(super) at: Instant,
    /// What it begins with.
    pub(super) link: Linktype,
    /// That is said to have sent it: the host that captured it.
    pub(super) is_outbound: bool,
    pub(super) bytes: &'a [u8],
    /// How long it was on the wire.
    pub(super) whole_len: usize,
}

/// How a capture ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Behind its last packet.
    Whole,
    /// In the middle of what comes behind so many packets.
    CutOff(u64),
    /// What comes behind so many packets is no block of a capture.
    Damaged(u64),
}

/// Why there is nothing to read.
#[derive(Debug)]
pub(super) enum CaptureError {
    Io(io::Error),
    Empty,
    Compressed,
    Other,
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                f.write_str("no such file; expected a capture")
            }
            Self::Io(error) => write!(f, "can't be read: {error}"),
            Self::Empty => f.write_str("is empty; expected a capture (pcapng or pcap)"),
            Self::Compressed => {
                f.write_str("is compressed; expected a capture, as gunzip or zstd -d makes of it")
            }
            Self::Other => f.write_str("is no capture; expected pcapng or pcap, such as tcpdump -w writes"),
        }
    }
}

/// A capture that is read.
pub(super) struct Capture {
    reader: Box<dyn PcapReaderIterator + Send>,
    /// Of its buffer.
    capacity: usize,
    error: Arc<Mutex<Option<io::Error>>>,
    interfaces: Vec<Interface>,
    is_pcapng: bool,
    packets: u64,
    last_at: Instant,
    without_time: u64,
    obsolete: u64,
}

/// Where packets were captured: for a pcap file, one.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Linktype,
    /// Units of time in a second, and what to add.
    ticks_per_s: u64,
    offset_s: i64,
    /// The most that is kept of a packet; zero if all is.
    kept_bytes: u32,
}

impl Capture {
    /// Opens a file; `-` is standard input.
    pub(super) fn open(path: &Path) -> Result<Self, CaptureError> {
        if path == Path::new("-") {
            return Self::new(io::stdin());
        }
        let file = File::open(path).map_err(CaptureError::Io)?;
        if file.metadata().is_ok_and(|found| found.is_dir()) {
            return Err(CaptureError::Io(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        Self::new(file)
    }

    pub(super) fn new(input: impl Read + Send + 'static) -> Result<Self, CaptureError> {
        let error = Arc::new(Mutex::new(None));
        let mut input = Whole { input, error: Arc::clone(&error) };
        let mut head = [0; 4];
        let length = input.read(&mut head).map_err(|_| CaptureError::Io(taken(&error)))?;
        let is_pcapng = match head {
            _ if length == 0 => return Err(CaptureError::Empty),
            [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd] => return Err(CaptureError::Compressed),
            [0x0a, 0x0d, 0x0d, 0x0a] => true,
            _ => false,
        };
        let start = io::Cursor::new(head[..length].to_vec());
        let whole = Whole { input: start.chain(input), error: Arc::clone(&error) };
        let reader = create_reader(BUFFER_BYTES, whole).map_err(|problem| match problem {
            PcapError::ReadError => CaptureError::Io(taken(&error)),
            _ => CaptureError::Other,
        })?;
        Ok(Self {
            reader,
            capacity: BUFFER_BYTES,
            error,
            interfaces: Vec::new(),
            is_pcapng,
            packets: 0,
            last_at: Instant::ZERO,
            without_time: 0,
            obsolete: 0,
        })
    }

    pub(super) const fn is_pcapng(&self) -> bool {
        self.is_pcapng
    }

    /// How many packets were read.
    pub(super) const fn packets(&self) -> u64 {
        self.packets
    }

    /// How many of them have no time; they were given that of the packet before.
    pub(super) const fn without_time(&self) -> u64 {
        self.without_time
    }

    /// How many were not read, as they are in a form that nobody writes any more.
    pub(super) const fn obsolete(&self) -> u64 {
        self.obsolete
    }

    /// The most that is kept of each packet, as far as it is known; zero if all is.
    pub(super) fn kept_bytes(&self) -> u32 {
        self.interfaces.iter().map(|it| it.kept_bytes).filter(|kept| *kept > 0).min().unwrap_or(0)
    }

    /// The next packet; none at the end, however that came.
    pub(super) fn read<T>(
        &mut self,
        mut take: impl FnMut(Frame<'_>) -> T,
    ) -> Result<Result<T, Ended>, CaptureError> {
        loop {
            let is_too_small = match self.reader.next() {
                Ok((length, block)) => {
                    let mut pass = Pass {
                        interfaces: &mut self.interfaces,
                        last_at: &mut self.last_at,
                        without_time: &mut self.without_time,
                        obsolete: &mut self.obsolete,
                    };
                    let taken = match pass.frame(&block) {
                        Ok(Some(frame)) => Some(take(frame)),
                        Ok(None) => None,
                        Err(NoInterface) => return Ok(Err(Ended::Damaged(self.packets))),
                    };
                    drop(block);
                    self.reader.consume(length);
                    if let Some(taken) = taken {
                        self.packets += 1;
                        return Ok(Ok(taken));
                    }
                    continue;
                }
                Err(PcapError::Eof) => return Ok(Err(Ended::Whole)),
                Err(PcapError::UnexpectedEof) => return Ok(Err(Ended::CutOff(self.packets))),
                Err(PcapError::Incomplete(_)) => false,
                Err(PcapError::BufferTooSmall) => true,
                Err(_) => return Ok(Err(Ended::Damaged(self.packets))),
            };
            if is_too_small {
                self.capacity *= 2;
                if self.capacity > MOST_BLOCK_BYTES || !self.reader.grow(self.capacity) {
                    return Ok(Err(Ended::Damaged(self.packets)));
                }
            }
            if self.reader.refill().is_err() {
                return Err(CaptureError::Io(taken(&self.error)));
            }
        }
    }
}

/// A packet is of an interface that was not described.
struct NoInterface;

/// What blocks change.
struct Pass<'a> {
    interfaces: &'a mut Vec<Interface>,
    last_at: &'a mut Instant,
    without_time: &'a mut u64,
    obsolete: &'a mut u64,
}

impl Pass<'_> {
    /// The packet in a block, if it has one.
    fn frame<'b>(&mut self, block: &'b PcapBlockOwned<'_>) -> Result<Option<Frame<'b>>, NoInterface> {
        let (interface, ticks, bytes, whole_len, is_outbound) = match block {
            PcapBlockOwned::LegacyHeader(header) => {
                let ticks_per_s = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
                // Above the link type is how long checksums behind packets are.
                let link = Linktype(header.network.0 & 0xffff);
                self.interfaces.push(Interface {
                    link,
                    ticks_per_s,
                    offset_s: 0,
                    kept_bytes: header.snaplen,
                });
                return Ok(None);
            }
            PcapBlockOwned::Legacy(packet) => {
                let interface = self.interfaces.first().ok_or(NoInterface)?;
                let ticks = u64::from(packet.ts_sec) * interface.ticks_per_s + u64::from(packet.ts_usec);
                (interface, Some(ticks), packet.data, packet.origlen, false)
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => {
                self.interfaces.clear();
                return Ok(None);
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(described)) => {
                self.interfaces.push(interface(described));
                return Ok(None);
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let interface = self.interfaces.get(packet.if_id as usize).ok_or(NoInterface)?;
                let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                let is_outbound = is_outbound(&packet.options, packet.big_endian());
                (interface, Some(ticks), packet.packet_data(), packet.origlen, is_outbound)
            }
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                let interface = self.interfaces.first().ok_or(NoInterface)?;
                *self.without_time += 1;
                let kept = match interface.kept_bytes {
                    0 => packet.packet_data(),
                    most => &packet.packet_data()[..packet.packet_data().len().min(most as usize)],
                };
                (interface, None, kept, packet.origlen, false)
            }
            PcapBlockOwned::NG(Block::Unknown(unknown)) => {
                // The Packet Block, which the Enhanced Packet Block took the place of.
                *self.obsolete += u64::from(matches!(unknown.block_type, 2 | 0x0200_0000));
                return Ok(None);
            }
            PcapBlockOwned::NG(_) => return Ok(None),
        };
        let at = ticks.map_or(*self.last_at, |ticks| interface.instant(ticks));
        *self.last_at = at;
        let whole_len = (whole_len as usize).max(bytes.len());
        Ok(Some(Frame { at, link: interface.link, is_outbound, bytes, whole_len }))
    }
}

impl Interface {
    fn instant(&self, ticks: u64) -> Instant {
        let nanos = u128::from(ticks) * 1_000_000_000 / u128::from(self.ticks_per_s);
        let offset = i128::from(self.offset_s) * 1_000_000_000;
        let nanos = i128::try_from(nanos).unwrap_or(i128::MAX).saturating_add(offset);
        Instant::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}

fn interface(described: &InterfaceDescriptionBlock<'_>) -> Interface {
    Interface {
        link: described.linktype,
        ticks_per_s: described.ts_resolution().filter(|ticks| *ticks > 0).unwrap_or(1_000_000),
        offset_s: described.if_tsoffset,
        kept_bytes: described.snaplen,
    }
}

/// Bits 0 and 1 of `epb_flags` say which way a packet went; two is out.
fn is_outbound(options: &[PcapNGOption<'_>], is_big_endian: bool) -> bool {
    const FLAGS: u16 = 2;
    let flags = options.iter().find(|option| option.code.0 == FLAGS);
    let Some(&[first, _, _, last]) = flags.and_then(|option| option.value().first_chunk::<4>()) else {
        return false;
    };
    let low = if is_big_endian { last } else { first };
    low & 3 == 2
}

fn taken(error: &Mutex<Option<io::Error>>) -> io::Error {
    let mut error = error.lock().unwrap_or_else(PoisonError::into_inner);
    error.take().unwrap_or_else(|| io::Error::other("unknown"))
}

/// Reads as much as is asked for, unless there is no more, and keeps the error, which the parser has no place for.
struct Whole<R> {
    input: R,
    error: Arc<Mutex<Option<io::Error>>>,
}

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut length = 0;
        while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let kind = error.kind();
                    *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    return Err(kind.into());
                }
            }
        }
        Ok(length)
    }
}
