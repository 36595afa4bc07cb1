//! A server of one file that says what is not so.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use sha2::{Digest, Sha256};

/// What is wrong with its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// The connection ends in the middle of each answer.
    Truncated,
    /// Each answer brings half of the range that was asked for, and says so.
    ShortRange,
    /// The range begins elsewhere than it was asked to.
    ShiftedRange,
    /// Every other answer is of another version of the file.
    OtherVersion,
    /// Every other answer says another length of the file.
    OtherLength,
    /// The body is longer than its range.
    LongBody,
    /// The digest is that of another file.
    WrongDigest,
    /// Each answer has a digest of its own.
    ContradictingDigests,
    /// The bytes are others than the digest says.
    WrongBytes,
    /// The second answer, and all that follow, are another file as a whole.
    WholeInstead,
    /// What follows the first answer is no HTTP.
    Garbage,
    /// The fields of the second answer never end.
    EndlessHead,
    /// After the first answer, nothing is answered.
    Silent,
    /// After the first answer, the server has an error.
    Failing,
    /// After the first answer, it sends to itself.
    SentAround,
}

impl Lie {
    /// All of them.
    pub(crate) const ALL: [Self; 15] = [
        Self::Truncated,
        Self::ShortRange,
        Self::ShiftedRange,
        Self::OtherVersion,
        Self::OtherLength,
        Self::LongBody,
        Self::WrongDigest,
        Self::ContradictingDigests,
        Self::WrongBytes,
        Self::WholeInstead,
        Self::Garbage,
        Self::EndlessHead,
        Self::Silent,
        Self::Failing,
        Self::SentAround,
    ];

    /// Two versions are served, each of which is right.
    pub(crate) const fn has_two_files(self) -> bool {
        matches!(self, Self::OtherVersion | Self::WholeInstead)
    }
}

impl fmt::Display for Lie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "answers are cut off",
            Self::ShortRange => "ranges are shorter than asked for",
            Self::ShiftedRange => "ranges begin elsewhere",
            Self::OtherVersion => "206 of another version",
            Self::OtherLength => "another length of the file",
            Self::LongBody => "bodies are longer than their range",
            Self::WrongDigest => "the digest of another file",
            Self::ContradictingDigests => "digests contradict each other",
            Self::WrongBytes => "bytes are others than the digest says",
            Self::WholeInstead => "200 with another file",
            Self::Garbage => "what is no HTTP",
            Self::EndlessHead => "fields without end",
            Self::Silent => "no answer any more",
            Self::Failing => "status 500",
            Self::SentAround => "sends to itself",
        })
    }
}

/// Fields that are sent of an answer whose fields never end.
const ENDLESS_FIELDS: usize = 1 << 20;
/// A connection on which nothing was asked for so long is closed.
const IDLE: Duration = Duration::from_secs(60);

struct Shared {
    file: Vec<u8>,
    other: Vec<u8>,
    lie: Mutex<Option<Lie>>,
    answers: AtomicUsize,
    is_over: AtomicBool,
}

/// The server. It ends when this is dropped.
pub(crate) struct Liar {
    shared: Arc<Shared>,
    at: SocketAddr,
}

impl fmt::Debug for Liar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Liar").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

impl Liar {
    /// Listens at a port of the network that the calling thread is in, with a file and another version of it.
    pub(crate) fn start(port: u16, file: Vec<u8>, other: Vec<u8>) -> io::Result<Self> {
        let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let listener = TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            file,
            other,
            lie: Mutex::new(None),
            answers: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let listening = shared.clone();
        thread::spawn(move || {
            while !listening.is_over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let shared = listening.clone();
                        // Whoever asks may go away at any time.
                        thread::spawn(move || serve(stream, &shared).unwrap_or_default());
                    }
                    Err(_) => thread::sleep(Duration::from_millis(2)),
                }
            }
        });
        Ok(Self { shared, at })
    }

    /// From now on it lies so, or not at all.
    pub(crate) fn tell(&self, lie: Option<Lie>) {
        self.shared.answers.store(0, Ordering::Relaxed);
        *self.shared.lie.lock().unwrap_or_else(PoisonError::into_inner) = lie;
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(IDLE))?;
    let mut input = Vec::new();
    loop {
        while let Some(end) = input.windows(4).position(|part| part == b"\r\n\r\n") {
            let request: Vec<u8> = input.drain(..end + 4).collect();
            let lie = *shared.lie.lock().unwrap_or_else(PoisonError::into_inner);
            let number = shared.answers.fetch_add(1, Ordering::Relaxed);
            if !answer(&mut stream, shared, lie, number, &String::from_utf8_lossy(&request))? {
                return Ok(());
            }
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            read => input.extend_from_slice(&buffer[..read]),
        }
    }
}

/// Answers a request; whether the connection goes on.
fn answer(
    stream: &mut TcpStream,
    shared: &Shared,
    lie: Option<Lie>,
    number: usize,
    request: &str,
) -> io::Result<bool> {
    let later = number > 0;
    match lie {
        Some(Lie::Garbage) if later => {
            stream.write_all(&shared.file[..shared.file.len().min(100_000)])?;
            return Ok(false);
        }
        Some(Lie::EndlessHead) if later => {
            stream.write_all(b"HTTP/1.1 206 Partial Content\r\n")?;
            for _ in 0..ENDLESS_FIELDS {
                stream.write_all(b"X-More: and more and more and more\r\n")?;
            }
            return Ok(false);
        }
        // The answers after it are held up, too.
        Some(Lie::Silent) if later => {
            thread::sleep(IDLE);
            return Ok(false);
        }
        Some(Lie::Failing) if later => {
            stream.write_all(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno")?;
            return Ok(true);
        }
        Some(Lie::SentAround) if later => {
            stream.write_all(b"HTTP/1.1 302 Found\r\nLocation: /file\r\nContent-Length: 0\r\n\r\n")?;
            return Ok(true);
        }
        Some(Lie::WholeInstead) if later => {
            let head =
                format!("HTTP/1.1 200 OK\r\nETag: \"two\"\r\nContent-Length: {}\r\n\r\n", shared.other.len());
            stream.write_all(head.as_bytes())?;
            stream.write_all(&shared.other)?;
            return Ok(true);
        }
        _ => {}
    }
    let is_other = lie == Some(Lie::OtherVersion) && number % 2 == 1;
    let has_other_bytes = is_other || lie == Some(Lie::WrongBytes) && number % 2 == 1;
    let file = if has_other_bytes { &shared.other } else { &shared.file };
    let etag = if is_other { "two" } else { "one" };
    let total = file.len();
    let asked = request.lines().find_map(|line| line.strip_prefix("Range: bytes="));
    let (first, last) = asked.and_then(|range| range.split_once('-')).unwrap_or(("0", ""));
    let first = first.parse().unwrap_or(0);
    let last = last.parse().map_or(total - 1, |last: usize| last.min(total - 1));
    if first > last {
        let head = format!(
            "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */{total}\r\nContent-Length: 0\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        return Ok(true);
    }
    let last = if lie == Some(Lie::ShortRange) { first + (last - first) / 2 } else { last };
    let body = &file[first..=last];
    let more = if lie == Some(Lie::LongBody) { 1000 } else { 0 };
    let shift = if lie == Some(Lie::ShiftedRange) { 1000 } else { 0 };
    let said_total = if lie == Some(Lie::OtherLength) && number % 2 == 1 { total + 1000 } else { total };
    let digest = match lie {
        Some(Lie::WrongDigest) => Some(Sha256::digest(&shared.other)),
        Some(Lie::ContradictingDigests) => Some(Sha256::digest(number.to_le_bytes())),
        Some(Lie::WrongBytes) => Some(Sha256::digest(&shared.file)),
        _ => None,
    };
    let digest = digest
        .map(|digest| format!("Repr-Digest: sha-256=:{}:\r\n", BASE64_STANDARD.encode(digest)))
        .unwrap_or_default();
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nETag: \"{etag}\"\r\n{digest}Content-Range: bytes {}-{}/{said_total}\r\nContent-Length: {}\r\n\r\n",
        first + shift,
        last + shift,
        body.len() + more
    );
    stream.write_all(head.as_bytes())?;
    if lie == Some(Lie::Truncated) {
        stream.write_all(&body[..body.len() / 2])?;
        return Ok(false);
    }
    stream.write_all(body)?;
    stream.write_all(&vec![0; more])?;
    Ok(true)
}
