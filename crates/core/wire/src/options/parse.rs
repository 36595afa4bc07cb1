use arrayvec::ArrayVec;

use super::{MAX_OPTIONS_BYTES, Options, SackBlock, SackBlocks, TcpOption, Timestamps, kind};
use crate::reader::Reader;
use crate::{MptcpOption, ParseError, SeqNumber, mptcp};

impl Options {
    /// Reads the options of a TCP header.
    ///
    /// A known kind with a length or content that it can't have is kept as unknown.
    ///
    /// # Errors
    /// More than [`MAX_OPTIONS_BYTES`], a length below two, or one that goes beyond the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        if bytes.len() > MAX_OPTIONS_BYTES {
            return Err(ParseError::Malformed("more than 40 bytes of TCP options"));
        }
        let mut options = Self::default();
        options.read(bytes)?;
        Ok(options)
    }

    /// Reads the options of a TCP header as far as they can be read: an illegal length hides what follows it,
    /// and what came before it stands (RFC 9293 §3.1, MUST-7). A middlebox that mangles one option then costs
    /// that option, not the segment. Bytes beyond [`MAX_OPTIONS_BYTES`] are ignored.
    #[must_use]
    pub fn parse_lenient(bytes: &[u8]) -> Self {
        let mut options = Self::default();
        let _illegal_length = options.read(bytes.get(..MAX_OPTIONS_BYTES).unwrap_or(bytes));
        options
    }

    fn read(&mut self, mut bytes: &[u8]) -> Result<(), ParseError> {
        while let [kind, rest @ ..] = bytes {
            match *kind {
                kind::END => break,
                kind::NOP => {
                    bytes = rest;
                    continue;
                }
                _ => {}
            }
            let Some(&len) = rest.first() else {
                return Err(ParseError::Truncated { what: "TCP option", needed: 2, available: 1 });
            };
            let needed = usize::from(len);
            let truncated = ParseError::Truncated { what: "TCP option", needed, available: bytes.len() };
            let (option, tail) = bytes.split_at_checked(needed).ok_or(truncated)?;
            let [kind, _, data @ ..] = option else {
                return Err(ParseError::Malformed("TCP option length below two"));
            };
            self.insert(*kind, data);
            bytes = tail;
        }
        Ok(())
    }

    fn insert(&mut self, kind: u8, data: &[u8]) {
        let option = known(kind, data).or_else(|| {
            let data = ArrayVec::try_from(data).ok()?;
            Some(TcpOption::Unknown { kind, data })
        });
        match option {
            Some(TcpOption::Timestamps(timestamps)) if self.timestamps.is_none() => {
                self.timestamps = Some(timestamps);
            }
            Some(TcpOption::Sack(blocks)) if self.sack.is_empty() => self.sack = blocks,
            Some(TcpOption::Mptcp(MptcpOption::Dss(dss))) if self.dss.is_none() => self.dss = Some(dss),
            Some(option) => self.rest.push(option),
            // Longer than the option space, which the callers have ruled out.
            None => {}
        }
    }
}

fn known(kind: u8, data: &[u8]) -> Option<TcpOption> {
    let mut reader = Reader::new(data);
    match (kind, data.len()) {
        (kind::TIMESTAMPS, 8) => {
            Some(TcpOption::Timestamps(Timestamps { value: reader.u32()?, echo: reader.u32()? }))
        }
        (kind::SACK, 8 | 16 | 24 | 32) => {
            let mut blocks = SackBlocks::new();
            while let (Some(start), Some(end)) = (reader.u32(), reader.u32()) {
                blocks.try_push(SackBlock { start: SeqNumber(start), end: SeqNumber(end) }).ok()?;
            }
            Some(TcpOption::Sack(blocks))
        }
        (kind::MPTCP, _) => mptcp::parse(data).map(TcpOption::Mptcp),
        (kind::MSS, 2) => Some(TcpOption::Mss(reader.u16()?)),
        (kind::WINDOW_SCALE, 1) => Some(TcpOption::WindowScale(reader.u8()?)),
        (kind::SACK_PERMITTED, 0) => Some(TcpOption::SackPermitted),
        (kind::FAST_OPEN, 0 | 4..=16) if data.len().is_multiple_of(2) => {
            Some(TcpOption::FastOpen(ArrayVec::try_from(data).ok()?))
        }
        _ => None,
    }
}
