//! What clients say to each kind of proxy, and what they ask of the server behind it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};

use serde::Serialize;

use super::origin::{Moment, Order, PATIENCE};
use super::scene::PROXY;

/// What a proxy does for its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Service {
    /// All connections to a port go to one server.
    Forward,
    /// HTTP's CONNECT.
    Connect,
    /// SOCKS, version 5.
    Socks,
}

impl Service {
    pub(crate) const ALL: [Self; 3] = [Self::Forward, Self::Connect, Self::Socks];

    /// As in JSON and on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Connect => "connect",
            Self::Socks => "socks",
        }
    }

    /// Where proxies listen for it.
    pub(super) const fn addr(self) -> SocketAddrV4 {
        let port = match self {
            Self::Forward => 5201,
            Self::Connect => 3128,
            Self::Socks => 1080,
        };
        SocketAddrV4::new(PROXY, port)
    }
}

/// The longest answer to CONNECT that makes sense.
const MOST_HEAD_BYTES: usize = 8 << 10;

/// How connections to the origin are made: through a proxy, or directly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) service: Option<Service>,
    pub(super) origin: SocketAddr,
}

impl Way {
    /// A connection that the proxy has said is there.
    pub(super) fn connect(self) -> io::Result<TcpStream> {
        let addr = self.service.map_or(self.origin, |service| service.addr().into());
        let mut stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        match self.service {
            None | Some(Service::Forward) => {}
            Some(Service::Connect) => ask_http(&mut stream, self.origin)?,
            Some(Service::Socks) => ask_socks(&mut stream, self.origin)?,
        }
        Ok(stream)
    }

    /// A connection with an order on it.
    pub(super) fn order(self, order: Order) -> io::Result<TcpStream> {
        let mut stream = self.connect()?;
        stream.write_all(&order.to_bytes())?;
        Ok(stream)
    }
}

/// Asks on a connection when it came to the server.
pub(super) fn ask_moment(stream: &mut TcpStream) -> io::Result<Moment> {
    stream.write_all(&Order::Moment.to_bytes())?;
    let mut answer = [0; Moment::LEN];
    stream.read_exact(&mut answer)?;
    Ok(Moment::from_bytes(answer))
}

fn ask_http(stream: &mut TcpStream, origin: SocketAddr) -> io::Result<()> {
    stream.write_all(format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n\r\n").as_bytes())?;
    let mut head = Vec::new();
    let mut part = [0; 1024];
    // The server is silent until it is asked: nothing of what it says can be behind the head.
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => head.extend_from_slice(&part[..bytes]),
        }
        if head.len() > MOST_HEAD_BYTES {
            return Err(io::Error::other("an answer to CONNECT without an end"));
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let is_there = line.starts_with(b"HTTP/1.") && line.get(9..12) == Some(b"200");
    let refused = || io::Error::other(format!("CONNECT was answered by {}", String::from_utf8_lossy(line)));
    if is_there { Ok(()) } else { Err(refused()) }
}

/// RFC 1928, without authentication, to an address of IPv4.
fn ask_socks(stream: &mut TcpStream, origin: SocketAddr) -> io::Result<()> {
    stream.write_all(&[5, 1, 0])?;
    let mut method = [0; 2];
    stream.read_exact(&mut method)?;
    if method != [5, 0] {
        return Err(io::Error::other(format!("SOCKS was answered by the method {method:?}")));
    }
    let SocketAddr::V4(origin) = origin else { return Err(io::ErrorKind::Unsupported.into()) };
    stream.write_all(&socks_request(*origin.ip(), origin.port()))?;
    let mut reply = [0; 10];
    stream.read_exact(&mut reply)?;
    match reply[..4] {
        [5, 0, _, 1] => Ok(()),
        _ => Err(io::Error::other(format!("SOCKS was answered by the reply {:?}", &reply[..4]))),
    }
}

pub(super) fn socks_request(addr: Ipv4Addr, port: u16) -> [u8; 10] {
    let mut request = [5, 1, 0, 1, 0, 0, 0, 0, 0, 0];
    request[4..8].copy_from_slice(&addr.octets());
    request[8..].copy_from_slice(&port.to_be_bytes());
    request
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// What a client of ours makes of an answer.
    fn asked(
        ask: fn(&mut TcpStream, SocketAddr) -> io::Result<()>,
        answers: &'static [u8],
    ) -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("its address");
        let proxy = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the client");
            stream.write_all(answers).expect("it reads");
            // Until it has gone.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let mut stream = TcpStream::connect(addr).expect("the proxy");
        let result = ask(&mut stream, "10.88.1.2:80".parse().expect("an address"));
        drop(stream);
        proxy.join().expect("it ends");
        result
    }

    #[test]
    fn a_refusal_is_told_from_a_connection() {
        assert!(asked(ask_http, b"HTTP/1.1 200 Connection established\r\n\r\n").is_ok());
        let refused = asked(ask_http, b"HTTP/1.1 403 Forbidden\r\nVia: x\r\n\r\n").expect_err("refused");
        assert!(refused.to_string().contains("403 Forbidden"), "{refused}");
        assert!(asked(ask_socks, &[5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).is_ok());
        assert!(asked(ask_socks, &[5, 0, 5, 5, 0, 1, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(asked(ask_socks, &[5, 255]).is_err());
    }

    #[test]
    fn a_request_of_socks_has_the_address_and_the_port() {
        let request = socks_request(Ipv4Addr::new(10, 88, 1, 2), 0x1234);
        assert_eq!(request, [5, 1, 0, 1, 10, 88, 1, 2, 0x12, 0x34]);
    }
}
