//! Clients that mean no good beside honest ones, at a server on the loopback interface: for `polypath bench attacks`.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use polypath_stack::Engine;
use polypath_stack::engine::KernelEngine;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::time::{sleep, timeout};

use super::blocks::{MOST_IN_LARGE_BLOCKS_BYTES, SMALL_BLOCK_BYTES};
use super::{FileServer, ServeOptions, Token, serve};

/// Clients of each kind that begin something and go on with nothing.
const SLOW: usize = 100;
/// Clients that ask for a file meanwhile.
const HONEST: usize = 32;

/// Digests of large files that are asked for.
const DIGESTS: usize = 8;
/// Longer than anybody waits.
const HUGE_BYTES: u64 = 50 << 30;
/// Downloads that nobody reads.
const UNREAD: usize = 200;
/// How long something may take that takes a moment.
const PATIENCE: Duration = Duration::from_secs(10);

const CONTENT: &[u8] = &[0x5a; 100_000];
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Runs clients against a server of a folder with one file.
fn beside<T>(
    token: Option<Token>,
    clients: impl AsyncFnOnce(SocketAddr, &Path, &FileServer) -> io::Result<T>,
) -> io::Result<T> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("file"), CONTENT)?;
    let mut files = FileServer::new(folder.path(), true)?;
    if let Some(token) = token {
        files = files.with_token(token);
    }
    runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let engine = Engine::Kernel(KernelEngine::plain_tcp());
        let listener = engine.listen(([127, 0, 0, 1], 0).into()).await.map_err(io::Error::other)?;
        let at = listener.local_addr().map_err(io::Error::other)?;
        let serving =
            tokio::spawn(serve(files.clone(), listener, ServeOptions::default(), pending(), |_| ()));
        let result = clients(at, folder.path(), &files).await;
        serving.abort();
        result
    })
}

/// A file without content, which takes no room.
fn make_huge(folder: &Path, name: &str) -> io::Result<()> {
    std::fs::File::create(folder.join(name))?.set_len(HUGE_BYTES)
}

/// Everything that the server says to a request.
async fn answer(at: SocketAddr, request: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(at).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer)
}

/// 200 clients stop in the middle of a request, half of them in its fields and half in its body: of 32 that then ask for a file, how
/// many do not get it.
///
/// # Errors
/// There is no loopback interface, no folder for temporary files, or no descriptor left.
pub(crate) fn starved_by_slow_clients() -> io::Result<usize> {
    beside(None, async |at, _, _| {
        let mut slow = Vec::new();
        for number in 0..SLOW {
            let put = format!("PUT /{number} HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 100000\r\n\r\nbegun");
            for request in ["GET /file HTTP/1.1\r\nHost: x\r\n", &put] {
                let mut stream = TcpStream::connect(at).await?;
                stream.write_all(request.as_bytes()).await?;
                slow.push(stream);
            }
        }
        let mut served = 0;
        for _ in 0..HONEST {
            let request = "GET /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            let answer = answer(at, request).await.unwrap_or_default();
            served += usize::from(answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(CONTENT));
        }
        drop(slow);
        Ok(HONEST - served)
    })
}

/// Attempts to store a file at a server that wants a token, without it, with a wrong one and with a part of the right one, that leave
/// anything there; and whether the right one does.
///
/// # Errors
/// As [`starved_by_slow_clients`].
pub(crate) fn stored_without_the_token() -> io::Result<(usize, bool)> {
    let token = Token::new(TOKEN).map_err(io::Error::other)?;
    beside(Some(token), async |at, folder, _| {
        let store = async |name: &str, field: &str| -> io::Result<bool> {
            let head = format!("PUT /{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{field}");
            answer(at, &format!("{head}Content-Length: 4\r\n\r\ndata")).await?;
            Ok(std::fs::read_dir(folder)?.count() > 1)
        };
        let wrong = [
            String::new(),
            "Authorization: Bearer 0123456789abcdef0123456789abcdeg\r\n".into(),
            format!("Authorization: Bearer {}\r\n", &TOKEN[..16]),
            "Authorization: Basic Og==\r\n".into(),
            "Origin: http://127.0.0.1\r\n".into(),
        ];
        let mut stored = 0;
        for (number, field) in wrong.iter().enumerate() {
            stored += usize::from(store(&number.to_string(), field).await?);
        }
        let is_taken = store("right", &format!("Authorization: Bearer {TOKEN}\r\n")).await?;
        Ok((stored, is_taken))
    })
}

/// What those get who ask for a small file and its digest while others ask for the digests of huge ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BesideDigests {
    /// Of 32 who ask for a file, how many do not get it with its digest.
    pub starved: usize,
    /// Bytes that are read on when all of the others have gone.
    pub read_for_nobody: u64,
}

/// Eight clients ask for digests of 50 GiB, and go.
///
/// # Errors
/// As [`starved_by_slow_clients`].
pub(crate) fn beside_digests() -> io::Result<BesideDigests> {
    beside(None, async |at, folder, files| {
        let mut greedy = Vec::new();
        for number in 0..DIGESTS {
            make_huge(folder, &number.to_string())?;
            let mut stream = TcpStream::connect(at).await?;
            let fields = "Want-Repr-Digest: sha-256=1\r\nPrefer: respond-async, wait=1";
            let request =
                format!("HEAD /{number} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            greedy.push(stream);
        }
        let mut served = 0;
        for _ in 0..HONEST {
            let request =
                "GET /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\nWant-Repr-Digest: sha-256=1\r\n\r\n";
            let Ok(answer) = timeout(PATIENCE, answer(at, request)).await else { break };
            let answer = answer?;
            let head = String::from_utf8_lossy(&answer[..answer.len().saturating_sub(CONTENT.len())]);
            served += usize::from(head.contains("repr-digest: ") && answer.ends_with(CONTENT));
        }
        for stream in &mut greedy {
            // Whether they have an answer or not, they go.
            let _ = timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
        }
        drop(greedy);
        let (before, _) = files.digest_activity();
        // For ever, if the server has its way.
        let idle = async {
            while files.digest_activity().1 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = timeout(PATIENCE, idle).await;
        let read_for_nobody = files.digest_activity().0 - before;
        Ok(BesideDigests { starved: HONEST - served, read_for_nobody })
    })
}

/// 200 clients ask for a large file and read nothing of it: the most bytes of it that the server has in memory for each of
/// them, and the bound.
///
/// # Errors
/// As [`starved_by_slow_clients`].
pub(crate) fn held_for_those_who_do_not_read() -> io::Result<(f64, f64)> {
    beside(None, async |at, folder, files| {
        make_huge(folder, "huge")?;
        let mut unread = Vec::new();
        let mut most = 0;
        for _ in 0..UNREAD {
            let mut stream = TcpStream::connect(at).await?;
            stream.write_all(b"GET /huge HTTP/1.1\r\nHost: x\r\n\r\n").await?;
            unread.push(stream);
            most = most.max(files.held_bytes());
        }
        for _ in 0..100 {
            sleep(Duration::from_millis(10)).await;
            most = most.max(files.held_bytes());
        }
        // One on its way, and the next being read.
        let bound = MOST_IN_LARGE_BLOCKS_BYTES / UNREAD + 2 * SMALL_BLOCK_BYTES;
        Ok((most as f64 / UNREAD as f64, bound as f64))
    })
}
