//! The control connection: states and blocks as they come.

use std::io;
use std::time::Duration;

use polypath_stack::engine::{Stream, StreamInfo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::Error;
use super::blocks::{Exchanged, Offer};
use super::wire::{
    self, COOKIE_BYTES, Cookie, Decoder, MAX_PARAMETERS_BYTES, MAX_RESULTS_BYTES,
    MAX_RESULTS_WITH_OUTPUT_BYTES, State, WireError, code,
};

/// How long a peer may take for what is due.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
/// How long a connection may take for its cookie, which follows the handshake at once.
const GREETING: Duration = Duration::from_secs(3);
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 4096;

/// Reads the cookie that each connection begins with.
pub(super) async fn read_cookie(stream: &mut (impl AsyncRead + Unpin)) -> Result<Cookie, Error> {
    let mut bytes = [0; COOKIE_BYTES];
    let mut filled = 0;
    let reading = async {
        while filled < COOKIE_BYTES {
            match stream.read(&mut bytes[filled..]).await.map_err(lost)? {
                0 => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
                length => filled += length,
            }
            // Who speaks something else need not wait until it has said enough.
            Cookie::check(&bytes[..filled])?;
        }
        Ok(())
    };
    tokio::time::timeout(GREETING, reading)
        .await
        .unwrap_or_else(|_| Err(lost(io::ErrorKind::TimedOut.into())))?;
    Ok(Cookie::read(bytes)?)
}

fn lost(error: io::Error) -> Error {
    Error::lost("control connection", error)
}

fn unreadable(error: &serde_json::Error) -> Error {
    Error::Protocol(error.to_string())
}

/// The control connection. Waiting for something can be given up at any time, and nothing is lost.
#[derive(Debug)]
pub(super) struct Control {
    stream: Stream,
    decoder: Decoder,
}

impl Control {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, decoder: Decoder::default() }
    }

    pub(super) fn info(&self) -> Option<StreamInfo> {
        self.stream.info().ok()
    }

    async fn next<T>(
        &mut self,
        mut take: impl FnMut(&mut Decoder) -> Result<Option<T>, WireError>,
    ) -> Result<T, Error> {
        loop {
            if let Some(next) = take(&mut self.decoder)? {
                return Ok(next);
            }
            let mut chunk = [0; CHUNK_BYTES];
            match self.stream.read(&mut chunk).await.map_err(lost)? {
                0 => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
                length => self.decoder.push(&chunk[..length]),
            }
        }
    }

    /// The next state. That the peer gives up is an error.
    pub(super) async fn state(&mut self) -> Result<State, Error> {
        match self.next(Decoder::state).await? {
            State::AccessDenied => Err(Error::Refused("it runs another test; try again later".into())),
            State::ServerError { code, errno } => Err(Error::Refused(wire::describe(code, errno))),
            State::ServerTerminate => Err(Error::Terminated),
            State::ClientTerminate => Err(Error::Interrupted),
            state => Ok(state),
        }
    }

    /// This state and no other, soon.
    pub(super) async fn expect(&mut self, wanted: State) -> Result<(), Error> {
        let state = soon(self.state()).await?;
        if state == wanted { Ok(()) } else { Err(unexpected(state)) }
    }

    pub(super) async fn offer(&mut self) -> Result<Offer, Error> {
        let block = soon(self.next(|decoder| decoder.block(MAX_PARAMETERS_BYTES))).await?;
        Ok(Offer::read(&block)?)
    }

    /// What the peer measured.
    pub(super) async fn exchanged(&mut self, has_output: bool) -> Result<Exchanged, Error> {
        let most = if has_output { MAX_RESULTS_WITH_OUTPUT_BYTES } else { MAX_RESULTS_BYTES };
        let block = soon(self.next(|decoder| decoder.block(most))).await?;
        Ok(Exchanged::read(&block)?)
    }

    pub(super) async fn send_cookie(&mut self, cookie: &Cookie) -> Result<(), Error> {
        self.send_bytes(cookie.as_bytes()).await
    }

    pub(super) async fn send(&mut self, state: State) -> Result<(), Error> {
        self.send_bytes(&state.bytes()).await
    }

    pub(super) async fn send_block(&mut self, value: &impl serde::Serialize) -> Result<(), Error> {
        let text = serde_json::to_vec(value).map_err(|error| unreadable(&error))?;
        self.send_bytes(&wire::block(&text)?).await
    }

    /// If the client is still there, it wants to know what is wrong.
    pub(super) async fn tell(&mut self, error: &Error) {
        let system = |error: &io::Error| error.raw_os_error().and_then(|number| u32::try_from(number).ok());
        let (code, errno) = match error {
            Error::Interrupted | Error::Terminated => return,
            Error::Parameters(text) if text.contains("parallel") => (code::STREAMS, None),
            Error::Parameters(text) if text.starts_with("blocks") || text.starts_with("datagrams") => {
                (code::BLOCK, None)
            }
            Error::Congestion { source, .. } => (code::CONGESTION, system(source)),
            Error::Option { source, .. } => (code::STREAM_ACCEPT, system(source)),
            Error::Listen(source) => (code::STREAM_LISTEN, system(source)),
            Error::Lost { source, .. } => (code::STREAM_READ, system(source)),
            _ => (code::PARAMETERS, None),
        };
        // It may have gone.
        let _ = self.send(State::ServerError { code, errno: errno.unwrap_or(0) }).await;
    }

    async fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let sending = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        soon(async { sending.await.map_err(lost) }).await
    }

    pub(super) async fn close(mut self) {
        // The peer may have closed first.
        let _ = self.stream.shutdown().await;
    }
}

pub(super) fn unexpected(state: State) -> Error {
    Error::Protocol(format!("the state {state:?} at the wrong time"))
}

async fn soon<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(PATIENCE, work)
        .await
        .unwrap_or_else(|_| Err(lost(io::Error::new(io::ErrorKind::TimedOut, "the peer says nothing"))))
}
