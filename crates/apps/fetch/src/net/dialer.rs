use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::{Position, Url};

use super::endpoint::Endpoint;
use super::interface::Interface;
use super::proxy::User;
use super::race::{in_turn, race};
use super::{DialError, Failure, Proxy, Stream, Tls};
use crate::http1::{InvalidRequest, Method, Request};
use crate::shown::without_user;

/// How long opening a connection may take, unless it is said otherwise.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at whether the interface of a connection is there.
const LOOK: Duration = Duration::from_millis(500);
/// So long what was found of an interface is used again: connections that begin together look once.
const MOMENT: Duration = Duration::from_millis(100);

/// Opens connections over one interface.
#[derive(Clone, Debug)]
pub struct Dialer {
    interface: Option<String>,
    tls: Tls,
    proxy: Option<Proxy>,
    patience: Duration,
    /// The interface as it was a moment ago.
    found: Arc<Mutex<Option<(Instant, Interface)>>>,
}

impl Dialer {
    /// Over the interface of that name, or as the system's routes lead. Names of hosts are resolved by the system, wherever its
    /// questions go.
    #[must_use]
    pub fn new(interface: Option<&str>, tls: Tls) -> Self {
        let interface = interface.map(str::to_owned);
        Self { interface, tls, proxy: None, patience: PATIENCE, found: Arc::default() }
    }

    /// Through a proxy, which is reached over the interface.
    #[must_use]
    pub fn with_proxy(self, proxy: Proxy) -> Self {
        Self { proxy: Some(proxy), ..self }
    }

    /// How long opening a connection may take in all: 30 s unless it is said here.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The interface, if one is named.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// Connects to a URL's host, with TLS for `https`.
    pub async fn dial(&self, url: &Url) -> Result<Stream, DialError> {
        let to = Endpoint::of(url).filter(|_| is_tls(url).is_some());
        let place = || to.as_ref().map_or_else(|| without_user(url).into(), Endpoint::to_string);
        let fail = |failure| DialError::new(place(), self.interface(), failure);
        let (Some(to), Some(is_tls)) = (&to, is_tls(url)) else { return Err(fail(Failure::Url)) };
        let dialed = tokio::time::timeout(self.patience, self.dial_patiently(to, is_tls)).await;
        dialed.unwrap_or(Err(Failure::TimedOut(self.patience))).map_err(fail)
    }

    /// Completes when the interface is down or gone, with the reason; pending for ever where none is named, as nobody can know.
    pub(crate) async fn interface_lost(&self) -> Failure {
        let Some(name) = &self.interface else { return std::future::pending().await };
        loop {
            tokio::time::sleep(LOOK).await;
            match Interface::find(name).await {
                Ok(_) | Err(Failure::Interfaces(_)) => {}
                Err(failure) => return failure,
            }
        }
    }

    /// The request for a URL on a connection to it: with its host, the user that it names, and as a proxy wants it.
    pub fn request(&self, method: Method, url: &Url) -> Result<Request, InvalidRequest> {
        let is_tls = is_tls(url).ok_or_else(|| InvalidRequest::Target(without_user(url).into()))?;
        let proxy = self.proxy.as_ref().filter(|proxy| proxy.takes_requests(is_tls));
        let (host, target) = (
            &url[Position::BeforeHost..Position::AfterPort],
            &url[Position::BeforePath..Position::AfterQuery],
        );
        let mut request = match proxy {
            Some(_) => Request::new(method, host, &format!("{}://{host}{target}", url.scheme()))?,
            None => Request::new(method, host, target)?,
        };
        if let Some(user) = User::of(url) {
            request = request.with_field("Authorization", &user.to_field())?;
        }
        if let Some(authorization) = proxy.and_then(Proxy::authorization) {
            request = request.with_field("Proxy-Authorization", &authorization)?;
        }
        Ok(request)
    }

    async fn dial_patiently(&self, to: &Endpoint, is_tls: bool) -> Result<Stream, Failure> {
        let proxy = self.proxy.as_ref();
        let stream = self.connect(proxy.map_or(to, Proxy::endpoint)).await?;
        let stream = match proxy.filter(|proxy| !proxy.takes_requests(is_tls)) {
            Some(proxy) => proxy.tunnel(to, stream).await?,
            None => stream,
        };
        if is_tls { self.tls.connect(to, stream).await.map(Stream::tls) } else { Ok(Stream::plain(stream)) }
    }

    async fn find(&self, name: &str) -> Result<Interface, Failure> {
        let mut found = self.found.lock().await;
        match &*found {
            Some((at, interface)) if at.elapsed() < MOMENT => Ok(interface.clone()),
            _ => {
                let interface = Interface::find(name).await?;
                *found = Some((Instant::now(), interface.clone()));
                Ok(interface)
            }
        }
    }

    async fn connect(&self, to: &Endpoint) -> Result<TcpStream, Failure> {
        let interface = match &self.interface {
            Some(name) => Some(self.find(name).await?),
            None => None,
        };
        let unresolved = |error| Failure::Resolve { name: to.name(), error };
        let mut addresses = to.resolve().await.map_err(unresolved)?;
        if addresses.is_empty() {
            return Err(unresolved(io::Error::other("the name has none")));
        }
        if let Some(interface) = &interface {
            addresses = interface.reachable(addresses)?;
        }
        let attempt = |address| connect_from(interface.clone(), address);
        race(&in_turn(addresses), attempt).await.map_err(|failures| {
            let other_addresses = failures.len().saturating_sub(1);
            match failures.into_iter().next() {
                Some((address, error)) => Failure::Connect { address, error, other_addresses },
                None => unresolved(io::Error::other("the name has none")),
            }
        })
    }
}

/// Whether a URL wants TLS; none if it isn't of HTTP.
fn is_tls(url: &Url) -> Option<bool> {
    match url.scheme() {
        "http" => Some(false),
        "https" => Some(true),
        _ => None,
    }
}

async fn connect_from(interface: Option<Interface>, remote: SocketAddr) -> io::Result<TcpStream> {
    let socket = if remote.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if let Some(interface) = interface {
        // Without rights since Linux 5.7.
        socket.bind_device(Some(interface.name().as_bytes())).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => io::Error::new(
                error.kind(),
                "this kernel lets only root choose an interface; Linux 5.7 lets everybody",
            ),
            _ => error,
        })?;
        if let Some(local) = interface.local_for(remote.ip()) {
            socket.bind(SocketAddr::new(local, 0))?;
        }
    }
    let stream = socket.connect(remote).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests;
