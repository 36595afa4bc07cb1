use alloc::vec::Vec;

use super::{MAX_OPTIONS_BYTES, Options, SackBlock, TcpOption, Timestamps, kind};
use crate::{Dss, mptcp};

impl Options {
    /// Appends the options and their padding: [`Options::len_bytes`] bytes.
    ///
    /// Order: leading MSS and SACK-permitted options of `rest`, timestamps, SACK, DSS, what remains of
    /// `rest`. The padding is NOPs in front of options, spent so that options end on a multiple of four (`NOP
    /// NOP TS`, `NOP WS`), as long as that costs no space.
    ///
    /// [`Options::parse`] gives back the same value for every value in normal form: what fits 40 bytes; where
    /// a field is empty, no such option in `rest`; nothing in [`TcpOption::Unknown`] or
    /// [`crate::MptcpOption::Unknown`] that is a known option; cookies, SACK repetitions, and address lists
    /// of the sizes that their types name; an ADD_ADDR of version 0 with neither HMAC nor echo.
    ///
    /// An option that does not fit [`MAX_OPTIONS_BYTES`] is left out.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let unpadded = self.unpadded_len_bytes();
        let mut writer = Writer { start: out.len(), nops: unpadded.next_multiple_of(4) - unpadded, out };
        writer.out.reserve(MAX_OPTIONS_BYTES);
        let (leading, remaining) = self.around_fields();
        for option in leading {
            writer.option(option);
        }
        if let Some(timestamps) = &self.timestamps {
            writer.timestamps(timestamps);
        }
        if !self.sack.is_empty() {
            writer.sack(&self.sack);
        }
        if let Some(dss) = &self.dss {
            writer.dss(dss);
        }
        for option in remaining {
            writer.option(option);
        }
        writer.finish();
    }

    /// `rest` as cut by the options that have fields: what is written before them, and what after.
    pub(crate) fn around_fields(&self) -> (&[TcpOption], &[TcpOption]) {
        let is_leading = |option: &&TcpOption| matches!(option, TcpOption::Mss(_) | TcpOption::SackPermitted);
        let leading = self.rest.iter().take_while(is_leading).count();
        self.rest.split_at(leading)
    }
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// Where the options begin in `out`.
    start: usize,
    /// Bytes of padding not yet spent, at most three.
    nops: usize,
}

impl Writer<'_> {
    /// Writes kind and length, after padding. False if there is no room for an option of `len` bytes.
    fn begin(&mut self, kind: u8, len: usize) -> bool {
        let end = self.out.len() - self.start + len;
        let unaligned = end.next_multiple_of(4) - end;
        let nops = if unaligned <= self.nops { unaligned } else { 0 };
        if end + nops > MAX_OPTIONS_BYTES {
            return false;
        }
        self.nops -= nops;
        for _ in 0..nops {
            self.out.push(kind::NOP);
        }
        self.out.extend_from_slice(&[kind, len as u8]);
        true
    }

    fn timestamps(&mut self, timestamps: &Timestamps) {
        if self.begin(kind::TIMESTAMPS, 10) {
            self.out.extend_from_slice(&timestamps.value.to_be_bytes());
            self.out.extend_from_slice(&timestamps.echo.to_be_bytes());
        }
    }

    fn sack(&mut self, blocks: &[SackBlock]) {
        if self.begin(kind::SACK, 2 + 8 * blocks.len()) {
            for block in blocks {
                self.out.extend_from_slice(&block.start.0.to_be_bytes());
                self.out.extend_from_slice(&block.end.0.to_be_bytes());
            }
        }
    }

    fn dss(&mut self, dss: &Dss) {
        if self.begin(kind::MPTCP, dss.len_bytes()) {
            mptcp::emit_dss(dss, self.out);
        }
    }

    fn option(&mut self, option: &TcpOption) {
        let len = option.len_bytes();
        match option {
            TcpOption::Mss(mss) => {
                if self.begin(kind::MSS, len) {
                    self.out.extend_from_slice(&mss.to_be_bytes());
                }
            }
            TcpOption::WindowScale(shift) => {
                if self.begin(kind::WINDOW_SCALE, len) {
                    self.out.push(*shift);
                }
            }
            TcpOption::SackPermitted => {
                self.begin(kind::SACK_PERMITTED, len);
            }
            TcpOption::Sack(blocks) => self.sack(blocks),
            TcpOption::Timestamps(timestamps) => self.timestamps(timestamps),
            TcpOption::FastOpen(cookie) => {
                if self.begin(kind::FAST_OPEN, len) {
                    self.out.extend_from_slice(cookie);
                }
            }
            TcpOption::Mptcp(option) => {
                if self.begin(kind::MPTCP, len) {
                    mptcp::emit(option, self.out);
                }
            }
            TcpOption::Unknown { kind, data } => {
                if self.begin(*kind, len) {
                    self.out.extend_from_slice(data);
                }
            }
        }
    }

    /// Pads what an option that was left out has put out of step.
    fn finish(self) {
        while !(self.out.len() - self.start).is_multiple_of(4) {
            self.out.push(kind::NOP);
        }
    }
}
