//! The server that players find the stream at.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use polypath_stack::Engine;
use polypath_stack::engine::KernelEngine;
use tokio::task::JoinHandle;

use super::super::Failure;
use super::super::ports::cannot_listen;
use super::folder::{Folder, PLAYLIST};
use crate::web::{self, FileServer};

/// The server of the folder.
pub(super) struct Serving {
    address: SocketAddr,
    last_request: Arc<Mutex<Instant>>,
    task: JoinHandle<()>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Serving {
    pub(super) async fn start(at: SocketAddr, folder: &Folder) -> Result<Self, Failure> {
        let engine = Engine::Kernel(KernelEngine::plain_tcp());
        let files = FileServer::new(folder.path(), false).map_err(Failure::run)?.only_called_by_name();
        let listener = engine.listen(at).await;
        let listener = listener.map_err(|error| cannot_listen(at.port(), error.kind(), error))?;
        let address = to_open(listener.local_addr().map_err(Failure::run)?);
        let last_request = Arc::new(Mutex::new(Instant::now()));
        let noted = last_request.clone();
        let log = move |access: &web::Access| {
            // The page asks for the figures as long as it is open.
            if !access.path.ends_with("state.json") {
                *noted.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            }
        };
        let task = tokio::spawn(web::serve(
            files,
            listener,
            web::ServeOptions::default(),
            std::future::pending(),
            log,
        ));
        Ok(Self { address, last_request, task })
    }

    pub(super) fn page(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(super) fn playlist(&self) -> String {
        format!("http://{}/{PLAYLIST}", self.address)
    }

    /// Nobody has asked for anything for so long.
    pub(super) async fn idle(&self, linger: Duration) {
        loop {
            let last = *self.last_request.lock().unwrap_or_else(PoisonError::into_inner);
            match linger.checked_sub(last.elapsed()) {
                Some(left) if !left.is_zero() => tokio::time::sleep(left).await,
                _ => return,
            }
        }
    }
}

/// An address that can be opened: one that means all of this machine's leads nowhere in some browsers.
fn to_open(listening: SocketAddr) -> SocketAddr {
    let ip = match listening.ip() {
        ip if !ip.is_unspecified() => ip,
        ip if ip.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
        _ => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, listening.port())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn only_who_calls_it_by_an_address_or_localhost_gets_the_stream() {
        let folder = Folder::create(None).unwrap_or_else(|_| panic!("a folder"));
        let serving = Serving::start(([0, 0, 0, 0], 0).into(), &folder).await;
        let serving = serving.unwrap_or_else(|_| panic!("a server"));
        assert_eq!(serving.page(), format!("http://127.0.0.1:{}/", serving.address.port()));
        for (host, status) in [
            (serving.address.to_string().as_str(), 200),
            ("localhost", 200),
            ("[::1]:80", 200),
            ("evil.example", 421),
            ("localhost.evil.example:80", 421),
            ("127.0.0.1.evil.example", 421),
        ] {
            let mut stream = TcpStream::connect(serving.address).await.expect("a connection");
            let request = format!("GET /index.html HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.expect("room");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.expect("an answer");
            assert!(answer.starts_with(format!("HTTP/1.1 {status} ").as_bytes()), "{host}");
        }
    }

    #[test]
    fn what_is_shown_can_be_opened() {
        for (listening, shown) in
            [("0.0.0.0:80", "127.0.0.1:80"), ("[::]:80", "[::1]:80"), ("192.0.2.1:80", "192.0.2.1:80")]
        {
            let address: SocketAddr = listening.parse().expect("an address");
            assert_eq!(to_open(address).to_string(), shown);
        }
    }
}
