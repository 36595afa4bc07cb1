//! iperf3's protocol on the control connection, without a socket: what bytes mean, and what goes out.
//!
//! A connection begins with the cookie of its test. Then come states, one byte each. Some are followed by a block of JSON
//! with its length before it, and an error of the server by two numbers.

use std::hash::{BuildHasher, RandomState};

/// The cookie and a zero.
pub(super) const COOKIE_BYTES: usize = 37;
/// Parameters of a test are far smaller; newer servers of iperf3 have the same bound.
pub(super) const MAX_PARAMETERS_BYTES: u32 = 8 << 10;
/// Results of all streams fit several times.
pub(super) const MAX_RESULTS_BYTES: u32 = 1 << 20;
/// Results with what the server printed.
pub(super) const MAX_RESULTS_WITH_OUTPUT_BYTES: u32 = 16 << 20;

/// What came is not the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    #[error("it begins with something else than a cookie")]
    Cookie,
    #[error("a state {0}, which is none")]
    State(i8),
    #[error("a block of {length} bytes; at most {most} are taken")]
    Block { length: u32, most: u32 },
    #[error("a block of JSON that can't be read: {0}")]
    Json(String),
}

/// Name of a test at both ends: nobody guesses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cookie([u8; COOKIE_BYTES]);

impl Cookie {
    /// The keys of the hashers come from the system's random numbers.
    pub(super) fn random() -> Self {
        const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let mut cookie = [0; COOKIE_BYTES];
        for part in cookie[..COOKIE_BYTES - 1].chunks_mut(12) {
            let mut random = RandomState::new().hash_one(0);
            for letter in part {
                *letter = LETTERS[(random % 32) as usize];
                random /= 32;
            }
        }
        Self(cookie)
    }

    pub(super) fn read(bytes: [u8; COOKIE_BYTES]) -> Result<Self, WireError> {
        Self::check(&bytes)?;
        Ok(Self(bytes))
    }

    /// Whether it can begin like this.
    pub(super) fn check(bytes: &[u8]) -> Result<(), WireError> {
        let (text, end) = bytes.split_at(bytes.len().min(COOKIE_BYTES - 1));
        let is_cookie = text.iter().all(u8::is_ascii_alphanumeric) && end.iter().all(|byte| *byte == 0);
        if is_cookie { Ok(()) } else { Err(WireError::Cookie) }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0[..COOKIE_BYTES - 1]).into_owned()
    }
}

/// What one end tells the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    TestStart,
    TestRunning,
    TestEnd,
    ParameterExchange,
    CreateStreams,
    ServerTerminate,
    ClientTerminate,
    ExchangeResults,
    DisplayResults,
    Start,
    Done,
    AccessDenied,
    /// The server's number of the error, and the system's.
    ServerError {
        code: u32,
        errno: u32,
    },
}

const NUMBERED: [(i8, State); 12] = [
    (1, State::TestStart),
    (2, State::TestRunning),
    (4, State::TestEnd),
    (9, State::ParameterExchange),
    (10, State::CreateStreams),
    (11, State::ServerTerminate),
    (12, State::ClientTerminate),
    (13, State::ExchangeResults),
    (14, State::DisplayResults),
    (15, State::Start),
    (16, State::Done),
    (-1, State::AccessDenied),
];
const SERVER_ERROR: i8 = -2;

impl State {
    pub(super) fn bytes(self) -> Vec<u8> {
        if let Self::ServerError { code, errno } = self {
            let mut bytes = SERVER_ERROR.to_ne_bytes().to_vec();
            bytes.extend([code, errno].map(u32::to_be_bytes).as_flattened());
            return bytes;
        }
        let number = NUMBERED.iter().find(|(_, state)| *state == self).map_or(0, |(number, _)| *number);
        number.to_ne_bytes().to_vec()
    }
}

/// Puts a block of JSON on the wire.
pub(super) fn block(text: &[u8]) -> Result<Vec<u8>, WireError> {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    if length > MAX_RESULTS_WITH_OUTPUT_BYTES {
        return Err(WireError::Block { length, most: MAX_RESULTS_WITH_OUTPUT_BYTES });
    }
    Ok([&length.to_be_bytes()[..], text].concat())
}

/// Takes bytes as they come, and gives out what is complete. Whoever pushes asks first, so that it holds little more than one
/// block.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    bytes: Vec<u8>,
}

impl Decoder {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next state, when it is there.
    pub(super) fn state(&mut self) -> Result<Option<State>, WireError> {
        let Some(&first) = self.bytes.first() else { return Ok(None) };
        let number = i8::from_ne_bytes([first]);
        if number == SERVER_ERROR {
            let Some(numbers) = self.bytes.get(1..9) else { return Ok(None) };
            let number = |part: &[u8]| part.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
            let state = State::ServerError { code: number(&numbers[..4]), errno: number(&numbers[4..]) };
            self.bytes.drain(..9);
            return Ok(Some(state));
        }
        let state = NUMBERED.iter().find(|(known, _)| *known == number).map(|(_, state)| *state);
        self.bytes.drain(..1);
        state.map(Some).ok_or(WireError::State(number))
    }

    /// The next block of JSON, when all of it is there.
    pub(super) fn block(&mut self, most: u32) -> Result<Option<Vec<u8>>, WireError> {
        let Some(head) = self.bytes.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head);
        if length > most {
            return Err(WireError::Block { length, most });
        }
        let end = 4 + length as usize;
        if self.bytes.len() < end {
            return Ok(None);
        }
        let block = self.bytes[4..end].to_vec();
        self.bytes.drain(..end);
        Ok(Some(block))
    }
}

/// Numbers of errors that servers of iperf3 send, as far as a client can do something about them.
pub(super) mod code {
    pub(in super::super) const STREAMS: u32 = 6;
    pub(in super::super) const BLOCK: u32 = 7;
    pub(in super::super) const PARAMETERS: u32 = 114;
    pub(in super::super) const CONGESTION: u32 = 134;
    pub(in super::super) const STREAM_LISTEN: u32 = 202;
    pub(in super::super) const STREAM_ACCEPT: u32 = 204;
    pub(in super::super) const STREAM_READ: u32 = 206;
}

/// What a server's error means, in words.
pub(super) fn describe(number: u32, errno: u32) -> String {
    let words = match number {
        5 | 37 => "the test is too long for it",
        code::STREAMS => "too many parallel streams",
        code::BLOCK | 20 => "it does not take blocks of this size",
        8 | 124 | 130 | 141 => "it can't have buffers of this size",
        10 | 123 => "it can't have segments of this size",
        21 | 125 | 126 => "it can't set this type of service",
        26 | 27 => "the rate is higher than it allows",
        code::PARAMETERS => "it can't read the parameters",
        code::CONGESTION => "it does not have this congestion control",
        142 => "it wants a user and a password",
        144 => "it got nothing for too long",
        160 => "its time for the test is over",
        200..=204 => "it can't open the data connections",
        205..=207 => "it lost a data connection",
        _ => "an error of its own",
    };
    let system = match i32::try_from(errno) {
        Ok(number) if number > 0 => format!(", {}", std::io::Error::from_raw_os_error(number)),
        _ => String::new(),
    };
    format!("{words} (iperf3's error {number}{system})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_come_in_pieces_and_go_as_they_came() {
        let error = State::ServerError { code: 134, errno: 2 };
        let states: Vec<State> = NUMBERED.iter().map(|(_, state)| *state).chain([error]).collect();
        let mut decoder = Decoder::default();
        let mut seen = Vec::new();
        for byte in states.iter().flat_map(|state| state.bytes()) {
            decoder.push(&[byte]);
            seen.extend(decoder.state().expect("a state"));
        }
        assert_eq!(seen, states);
        decoder.push(&[3]);
        assert_eq!(decoder.state(), Err(WireError::State(3)));
    }

    #[test]
    fn blocks_have_a_bound_and_leave_what_follows() {
        let mut decoder = Decoder::default();
        let mut bytes = block(b"{}").expect("a block");
        bytes.push(14);
        for byte in &bytes[..5] {
            decoder.push(&[*byte]);
            assert_eq!(decoder.block(10), Ok(None));
        }
        decoder.push(&bytes[5..]);
        assert_eq!(decoder.block(10), Ok(Some(b"{}".to_vec())));
        assert_eq!(decoder.state(), Ok(Some(State::DisplayResults)));
        decoder.push(&[0, 0, 0, 11]);
        assert_eq!(decoder.block(10), Err(WireError::Block { length: 11, most: 10 }));
    }

    #[test]
    fn cookies_are_words() {
        let cookie = Cookie::random();
        let bytes: [u8; COOKIE_BYTES] = cookie.as_bytes().try_into().expect("its length");
        assert!(Cookie::read(bytes) == Ok(cookie) && cookie.text().len() == 36);
        assert!(cookie != Cookie::random());
        assert!(Cookie::read(*b"GET / HTTP/1.1\r\nHost: x\r\nAccept: */*\r").is_err());
    }
}
