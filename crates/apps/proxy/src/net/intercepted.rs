//! Where a client that knows of no proxy wanted to go.

use std::io;
use std::net::SocketAddr;

use polypath_stack::engine::{KernelStream, Stream};
use socket2::SockRef;

use super::settings::InterceptedBy;

/// Where the client wanted to go; none if that is the proxy itself. `at` is where the proxy listens.
pub(super) fn destination(
    stream: &Stream,
    by: InterceptedBy,
    at: SocketAddr,
) -> io::Result<Option<SocketAddr>> {
    let Stream::Kernel(stream) = stream else {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "only connections of the kernel are intercepted",
        ));
    };
    let local = canonical(stream.local_addr()?);
    let (destination, own) = match by {
        InterceptedBy::Tproxy => (local, at),
        InterceptedBy::Redirect => (original(stream, local)?, local),
    };
    Ok((!is_within(destination, canonical(own))).then_some(destination))
}

/// Whether a connection to `destination` comes to who listens at `own`.
fn is_within(destination: SocketAddr, own: SocketAddr) -> bool {
    destination.port() == own.port() && (own.ip().is_unspecified() || own.ip() == destination.ip())
}

/// The destination before the translation.
fn original(stream: &KernelStream, local: SocketAddr) -> io::Result<SocketAddr> {
    let socket = SockRef::from(stream.as_tokio());
    let asked = if local.is_ipv4() { socket.original_dst_v4() } else { socket.original_dst_v6() };
    match asked {
        Ok(found) => found.as_socket().map(canonical).ok_or_else(|| io::ErrorKind::Unsupported.into()),
        // Nobody follows connections here, or not this one, so nobody has translated it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(local),
        Err(error) => Err(error),
    }
}

fn canonical(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_the_proxy_comes_to_itself() {
        for (destination, own, expected) in [
            ("127.0.0.1:8877", "127.0.0.1:8877", true),
            ("192.0.2.1:8877", "127.0.0.1:8877", false),
            ("192.0.2.1:80", "127.0.0.1:8877", false),
            ("192.0.2.1:8877", "0.0.0.0:8877", true),
            ("[2001:db8::1]:8877", "[::1]:8877", false),
        ] {
            let at = |text: &str| text.parse().expect("an address");
            assert_eq!(is_within(at(destination), at(own)), expected, "{destination} at {own}");
        }
    }
}
