//! Writes packets in the pcapng format (draft-ietf-opsawg-pcapng), which Wireshark and tshark read.

use std::io::{self, Write};

use polypath_units::{BitRate, Instant};

/// LINKTYPE_RAW: the packet begins with an IPv4 or IPv6 header.
const LINKTYPE_RAW: u16 = 101;
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

/// An interface, which is where packets were seen.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    /// Shown by Wireshark as the interface name.
    pub name: String,
    /// What it is, in words.
    pub(crate) description: String,
    /// Its speed, if it has one.
    pub(crate) speed: Option<BitRate>,
}

/// Which way a packet went, as the host at that interface sees it (draft §4.3.1, bits 0–1 of `epb_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketDirection {
    /// It came in.
    Inbound = 1,
    /// It went out.
    Outbound = 2,
}

/// A pcapng file that is being written: one section, nanosecond timestamps.
#[derive(Debug)]
pub(crate) struct PcapngWriter<W: Write> {
    out: W,
    snap_bytes: usize,
    interfaces: u32,
    block: Vec<u8>,
}

impl<W: Write> PcapngWriter<W> {
    /// Starts the file. Of each packet at most `snap_bytes` bytes are kept; 0 keeps all.
    ///
    /// # Errors
    /// Whatever `out` reports.
    pub(crate) fn new(mut out: W, snap_bytes: usize, comment: &str) -> io::Result<Self> {
        let mut block = Vec::with_capacity(2048);
        begin(&mut block, SECTION_HEADER);
        block.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        block.extend_from_slice(&1_u16.to_le_bytes());
        block.extend_from_slice(&0_u16.to_le_bytes());
        block.extend_from_slice(&u64::MAX.to_le_bytes());
        if !comment.is_empty() {
            push_option(&mut block, 1, comment.as_bytes());
        }
        push_option(&mut block, 4, concat!("polypath ", env!("CARGO_PKG_VERSION")).as_bytes());
        end_of_options(&mut block);
        finish(&mut block);
        out.write_all(&block)?;
        Ok(Self { out, snap_bytes, interfaces: 0, block })
    }

    /// Adds an interface and returns its number. Interfaces are added before the packets that name them.
    ///
    /// # Errors
    /// Whatever the output reports.
    pub(crate) fn add_interface(&mut self, interface: &Interface) -> io::Result<u32> {
        let block = &mut self.block;
        begin(block, INTERFACE_DESCRIPTION);
        block.extend_from_slice(&LINKTYPE_RAW.to_le_bytes());
        block.extend_from_slice(&0_u16.to_le_bytes());
        block.extend_from_slice(&(self.snap_bytes as u32).to_le_bytes());
        push_option(block, 2, interface.name.as_bytes());
        if !interface.description.is_empty() {
            push_option(block, 3, interface.description.as_bytes());
        }
        if let Some(speed) = interface.speed {
            push_option(block, 8, &speed.as_bps().to_le_bytes());
        }
        // if_tsresol: timestamps count units of 10⁻⁹ s.
        push_option(block, 9, &[9]);
        end_of_options(block);
        finish(block);
        self.out.write_all(block)?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Adds a packet, seen on `interface` at `at`.
    ///
    /// # Errors
    /// Whatever the output reports.
    pub(crate) fn write_packet(
        &mut self,
        interface: u32,
        at: Instant,
        direction: PacketDirection,
        bytes: &[u8],
        comment: Option<&str>,
    ) -> io::Result<()> {
        let kept = if self.snap_bytes == 0 { bytes } else { &bytes[..bytes.len().min(self.snap_bytes)] };
        let nanos = at.as_nanos();
        let block = &mut self.block;
        begin(block, ENHANCED_PACKET);
        for word in [interface, (nanos >> 32) as u32, nanos as u32, kept.len() as u32, bytes.len() as u32] {
            block.extend_from_slice(&word.to_le_bytes());
        }
        block.extend_from_slice(kept);
        pad(block);
        push_option(block, 2, &(direction as u32).to_le_bytes());
        if let Some(comment) = comment {
            push_option(block, 1, comment.as_bytes());
        }
        end_of_options(block);
        finish(block);
        self.out.write_all(block)
    }

    #[cfg(test)]
    fn into_inner(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// Whatever the output reports.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn begin(block: &mut Vec<u8>, kind: u32) {
    block.clear();
    block.extend_from_slice(&kind.to_le_bytes());
    // The total length, known only at the end.
    block.extend_from_slice(&[0; 4]);
}

fn finish(block: &mut Vec<u8>) {
    let total = (block.len() as u32 + 4).to_le_bytes();
    block[4..8].copy_from_slice(&total);
    block.extend_from_slice(&total);
}

fn pad(block: &mut Vec<u8>) {
    block.resize(block.len().next_multiple_of(4), 0);
}

fn push_option(block: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    block.extend_from_slice(&code.to_le_bytes());
    block.extend_from_slice(&(value.len() as u16).to_le_bytes());
    block.extend_from_slice(value);
    pad(block);
}

fn end_of_options(block: &mut Vec<u8>) {
    block.extend_from_slice(&[0; 4]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn blocks_chain_by_their_lengths_and_hold_what_was_written() {
        let mut writer = PcapngWriter::new(Vec::new(), 0, "a run").unwrap();
        let wifi = Interface {
            name: "wifi".into(),
            description: String::new(),
            speed: Some(BitRate::from_mbps(40)),
        };
        assert_eq!(writer.add_interface(&wifi).unwrap(), 0);
        assert_eq!(writer.add_interface(&Interface { name: "lte".into(), ..wifi }).unwrap(), 1);
        let at = Instant::from_nanos(0x1_0000_0007);
        writer.write_packet(1, at, PacketDirection::Outbound, &[1, 2, 3, 4, 5], Some("lost")).unwrap();
        let bytes = writer.into_inner().unwrap();

        let mut kinds = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let len = word(&bytes, at + 4) as usize;
            assert_eq!(len % 4, 0);
            assert_eq!(word(&bytes, at + len - 4) as usize, len);
            kinds.push(word(&bytes, at));
            if kinds.len() == 4 {
                assert_eq!([8, 12, 16, 20, 24].map(|o| word(&bytes, at + o)), [1, 1, 7, 5, 5]);
                assert_eq!(bytes[at + 28..at + 36], [1, 2, 3, 4, 5, 0, 0, 0]);
            }
            at += len;
        }
        assert_eq!(kinds, [SECTION_HEADER, INTERFACE_DESCRIPTION, INTERFACE_DESCRIPTION, ENHANCED_PACKET]);
    }
}
