//! What is kept of a run: packets in pcapng, in qlog and in text, and a hash of everything.

mod hash;
mod pcapng;
mod qlog;

use std::fmt;
use std::io::{self, Write};

use polypath_mptcp::SubflowInfo;
use polypath_units::Instant;
use polypath_wire::Packet;

pub use hash::TraceHash;
pub(crate) use pcapng::{Interface, PacketDirection, PcapngWriter};
use qlog::QlogWriter;

/// Where packets of a link are seen: at its first node, as a capture on that node's interface would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// Number of the link.
    pub(crate) link: u32,
    /// From the first node's point of view.
    pub(crate) direction: PacketDirection,
}

/// Records packets.
pub struct Tracer {
    hash: Option<TraceHash>,
    pcapng: Option<PcapngWriter<Box<dyn Write>>>,
    qlog: Option<QlogWriter<Box<dyn Write>>>,
    text: Option<Box<dyn Write>>,
    link_names: Vec<String>,
    bytes: Vec<u8>,
    error: Option<io::Error>,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("hash", &self.hash).finish_non_exhaustive()
    }
}

impl Tracer {
    /// A tracer for links of these names, in order.
    pub(crate) fn new(interfaces: &[Interface], outputs: TraceOutputs) -> io::Result<Self> {
        let mut pcapng = None;
        if let Some(out) = outputs.pcapng {
            let mut writer = PcapngWriter::new(out, outputs.snap_bytes, &outputs.comment)?;
            for interface in interfaces {
                writer.add_interface(interface)?;
            }
            pcapng = Some(writer);
        }
        let qlog = outputs.qlog.map(|out| QlogWriter::new(out, &outputs.comment)).transpose()?;
        Ok(Self {
            qlog,
            hash: outputs.hash.then(TraceHash::default),
            pcapng,
            text: outputs.text,
            link_names: interfaces.iter().map(|interface| interface.name.clone()).collect(),
            bytes: Vec::new(),
            error: None,
        })
    }

    /// The hash so far, if one is made.
    pub fn hash(&self) -> Option<u64> {
        self.hash.map(TraceHash::value)
    }

    /// Every packet at both ends of every channel.
    pub(crate) fn hash_packet(&mut self, at: Instant, place: u64, packet: &Packet) {
        if let Some(hash) = &mut self.hash {
            hash.add_packet(at, place, packet);
        }
    }

    /// A packet at the first node of its link.
    pub(crate) fn see(&mut self, at: Instant, sighting: Sighting, packet: &Packet) {
        if self.error.is_some() {
            return;
        }
        let mut result = Ok(());
        if let Some(pcapng) = &mut self.pcapng {
            self.bytes.clear();
            packet.emit(&mut self.bytes);
            result = pcapng.write_packet(sighting.link, at, sighting.direction, &self.bytes, None);
        }
        let name = self.link_names.get(sighting.link as usize).map_or("?", String::as_str);
        if let (Some(qlog), Ok(())) = (&mut self.qlog, &result) {
            result = qlog.packet(at, name, sighting.direction, packet);
        }
        if let (Some(text), Ok(())) = (&mut self.text, &result) {
            let arrow = if sighting.direction == PacketDirection::Outbound { '>' } else { '<' };
            result = writeln!(text, "{at} {name} {arrow} {packet}");
        }
        self.error = result.err();
    }

    /// Subflows of a connection, as the sender of their data sees them.
    pub(crate) fn note_subflows(&mut self, at: Instant, subflows: &[SubflowInfo]) {
        let Some(qlog) = self.qlog.as_mut().filter(|_| self.error.is_none()) else { return };
        self.error = subflows.iter().try_for_each(|subflow| qlog.metrics(at, subflow)).err();
    }

    /// Flushes the outputs.
    ///
    /// # Errors
    /// The first error of any output, at any time.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if let Some(pcapng) = &mut self.pcapng {
            pcapng.flush()?;
        }
        if let Some(qlog) = &mut self.qlog {
            qlog.flush()?;
        }
        self.text.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// What to record.
#[derive(Default)]
pub struct TraceOutputs {
    /// Hash every packet at both ends of every link.
    pub hash: bool,
    /// Packets in pcapng, one interface for each link.
    pub pcapng: Option<Box<dyn Write>>,
    /// Packets, events and the state of subflows in qlog.
    pub qlog: Option<Box<dyn Write>>,
    /// Packets in text, one a line.
    pub text: Option<Box<dyn Write>>,
    /// Bytes to keep of each packet in pcapng; 0 keeps all.
    pub snap_bytes: usize,
    /// A comment for the head of the pcapng file, and the title of the qlog file.
    pub comment: String,
}

impl fmt::Debug for TraceOutputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceOutputs").field("hash", &self.hash).finish_non_exhaustive()
    }
}
