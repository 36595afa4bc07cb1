//! How WireGuard's programs in user space are configured: a few lines to a socket, as `wg` writes them.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, thread};

use super::keys::KeyPair;

/// For a program to begin.
const PATIENCE: Duration = Duration::from_secs(10);

/// The socket of an interface.
#[derive(Clone, Debug)]
pub(super) struct Uapi {
    path: PathBuf,
}

impl Uapi {
    pub(super) fn of(interface: &str) -> Self {
        Self { path: PathBuf::from(format!("/var/run/wireguard/{interface}.sock")) }
    }

    /// Waits for the socket, and says which key, port and peer the interface has.
    pub(super) fn configure(
        &self,
        own: &KeyPair,
        peer: &KeyPair,
        port: u16,
        endpoint: SocketAddr,
        allowed: (Ipv4Addr, u8),
    ) -> io::Result<()> {
        let started = Instant::now();
        let mut stream = loop {
            match UnixStream::connect(&self.path) {
                Ok(stream) => break stream,
                Err(error) if started.elapsed() > PATIENCE => {
                    let place = self.path.display();
                    return Err(io::Error::new(error.kind(), format!("no answer at {place}: {error}")));
                }
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        };
        let (addr, length) = allowed;
        let request = format!(
            "set=1\nprivate_key={}\nlisten_port={port}\nreplace_peers=true\npublic_key={}\nendpoint={endpoint}\n\
             replace_allowed_ips=true\nallowed_ip={addr}/{length}\n\n",
            own.private_hex(),
            peer.public_hex(),
        );
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        match answer.trim() {
            "errno=0" => Ok(()),
            other => Err(io::Error::other(format!("{}: {other}", self.path.display()))),
        }
    }

    /// Takes away what a program left that was ended.
    pub(super) fn remove(&self) {
        // It may have done so itself.
        let _ = fs::remove_file(&self.path);
    }
}
