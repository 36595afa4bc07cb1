use bytes::{Buf as _, Bytes};

use super::Error;

/// Most bytes of the line before a chunk, with its extensions.
const MAX_LINE_BYTES: usize = 1024;
/// Most bytes of the trailer.
const MAX_TRAILER_BYTES: usize = 16 * 1024;
/// Hexadecimal digits that fit a `u64`.
const MAX_DIGITS: u8 = 16;

/// Reads a chunked body (RFC 9112 §7.1). Lines end with CRLF only: readers differ about a bare LF. Extensions and trailer are left out.
#[derive(Debug)]
pub(super) struct ChunkedBody {
    state: State,
    /// Of the chunk that is read.
    size: u64,
    /// Of the line, or of the trailer.
    line_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Size {
        digits: u8,
    },
    /// Old servers fill sizes up with spaces.
    SizePadding,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerLine,
    TrailerRest,
    TrailerLf,
    LastLf,
}

/// What came out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The input is used up.
    Wants,
    /// A part of the body.
    Data(Bytes),
    /// The body is complete; the input goes on behind it.
    End,
}

impl ChunkedBody {
    pub(super) fn new() -> Self {
        Self { state: State::Size { digits: 0 }, size: 0, line_bytes: 0 }
    }

    /// Takes from `input` until there is something to say.
    pub(super) fn read(&mut self, input: &mut Bytes) -> Result<Step, Error> {
        while let Some(byte) = input.first().copied() {
            if let State::Data = self.state {
                let length = usize::try_from(self.size).unwrap_or(usize::MAX).min(input.len());
                self.size -= length as u64;
                if self.size == 0 {
                    self.state = State::DataCr;
                }
                return Ok(Step::Data(input.split_to(length)));
            }
            input.advance(1);
            if self.handle_byte(byte)? {
                return Ok(Step::End);
            }
        }
        Ok(Step::Wants)
    }

    /// A byte that is not of the body; true if it was the last one.
    fn handle_byte(&mut self, byte: u8) -> Result<bool, Error> {
        self.count_line()?;
        self.state = match (self.state, byte) {
            (State::Size { digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if digits < MAX_DIGITS => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                self.size = (self.size << 4) | u64::from(digit);
                State::Size { digits: digits + 1 }
            }
            (State::Size { digits: 1.. } | State::SizePadding, b' ' | b'\t') => State::SizePadding,
            (State::Size { digits: 1.. } | State::SizePadding, b';') => State::Extension,
            (State::Size { digits: 1.. } | State::SizePadding | State::Extension, b'\r') => State::SizeLf,
            (State::Extension, b'\t' | b' '..=b'~' | 0x80..) => State::Extension,
            (State::SizeLf, b'\n') => {
                self.line_bytes = 0;
                if self.size == 0 { State::TrailerLine } else { State::Data }
            }
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => {
                self.line_bytes = 0;
                State::Size { digits: 0 }
            }
            (State::TrailerLine, b'\r') => State::LastLf,
            (State::TrailerLine, b'!'..=b'~') => State::TrailerRest,
            (State::TrailerRest, b'\t' | b' '..=b'~' | 0x80..) => State::TrailerRest,
            (State::TrailerRest, b'\r') => State::TrailerLf,
            (State::TrailerLf, b'\n') => State::TrailerLine,
            (State::LastLf, b'\n') => return Ok(true),
            _ => return Err(Error::MalformedChunk),
        };
        Ok(false)
    }

    fn count_line(&mut self) -> Result<(), Error> {
        self.line_bytes += 1;
        let is_trailer =
            matches!(self.state, State::TrailerLine | State::TrailerRest | State::TrailerLf | State::LastLf);
        let most = if is_trailer { MAX_TRAILER_BYTES } else { MAX_LINE_BYTES };
        if self.line_bytes > most { Err(Error::ChunkLineTooLong) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body and what is left behind it; none if it isn't complete.
    fn read(text: &str) -> Result<Option<(String, String)>, Error> {
        let (mut body, mut input) = (Vec::new(), Bytes::copy_from_slice(text.as_bytes()));
        let mut chunked = ChunkedBody::new();
        loop {
            match chunked.read(&mut input)? {
                Step::Wants => return Ok(None),
                Step::Data(bytes) => body.extend_from_slice(&bytes),
                Step::End => {
                    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                    return Ok(Some((text(&body), text(&input))));
                }
            }
        }
    }

    #[test]
    fn chunks_are_put_together() {
        let whole = |body: &str, rest: &str| Ok(Some((body.to_owned(), rest.to_owned())));
        assert_eq!(read("0\r\n\r\n"), whole("", ""));
        assert_eq!(read("5\r\nhello\r\n1\r\n!\r\n0\r\n\r\nHTTP"), whole("hello!", "HTTP"));
        assert_eq!(read("A;a=\"b;c\"\r\n0123456789\r\n000\r\n\r\n"), whole("0123456789", ""));
        assert_eq!(read("1  \r\nx\r\n0 ;y\r\nRepr-Digest: z\r\nB: \r\n\r\n"), whole("x", ""));
        for cut in 0.."3\r\nabc\r\n0\r\nA: b\r\n\r\n".len() {
            assert_eq!(read(&"3\r\nabc\r\n0\r\nA: b\r\n\r\n"[..cut]), Ok(None), "{cut}");
        }
    }

    #[test]
    fn chunks_that_smuggle_are_refused() {
        let malformed = [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "0x1\r\n",
            " 1\r\n",
            ";a\r\n",
            "1\nx",
            "1\rx",
            "1;a\nx",
            "1\r\nxy",
            "1\r\nx\n",
            "1\r\nx\rx",
            "1 1\r\nx",
            "00000000000000000\r\n",
            "0\r\n\n",
            "0\r\n a: b\r\n",
            "0\r\na: b\n",
            "0\r\n\rx",
        ];
        for text in malformed {
            assert_eq!(read(text), Err(Error::MalformedChunk), "{text:?}");
        }
    }

    #[test]
    fn lines_and_trailer_are_bounded() {
        let line = |bytes: usize| format!("0;{}\r\n\r\n", "a".repeat(bytes - 4));
        assert!(read(&line(MAX_LINE_BYTES)).is_ok_and(|body| body.is_some()));
        assert_eq!(read(&line(MAX_LINE_BYTES + 1)), Err(Error::ChunkLineTooLong));
        let trailer = |lines: usize| format!("0\r\n{}\r\n", "a: 456\r\n".repeat(lines));
        assert!(read(&trailer(MAX_TRAILER_BYTES / 8 - 1)).is_ok_and(|body| body.is_some()));
        assert_eq!(read(&trailer(MAX_TRAILER_BYTES / 8)), Err(Error::ChunkLineTooLong));
        // Each line counts for itself.
        let many = format!("{}0\r\n\r\n", "1\r\nx\r\n".repeat(1000));
        assert!(read(&many).is_ok_and(|body| body.is_some_and(|(body, _)| body.len() == 1000)));
    }
}
