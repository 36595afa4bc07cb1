use std::fmt::{self, Write};
use std::io;
use std::str::FromStr;

use rustix::net::SocketAddrUnix;

/// Bytes of each half.
const HALF: usize = 8;

/// Where a keeper is, and what shows that a program was started with it. Its text form is `NAME.SECRET`.
///
/// The name is that of an abstract Unix socket, which every user of the machine can see; the secret is in the environment
/// of the programs only, and lets those too in that have changed their user.
#[derive(Clone, PartialEq, Eq)]
pub struct KeeperAddress {
    name: String,
    secret: String,
}

impl KeeperAddress {
    /// A new one.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 2 * HALF];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let hex = |bytes: &[u8]| {
            bytes.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        };
        Ok(Self { name: hex(&bytes[..HALF]), secret: hex(&bytes[HALF..]) })
    }

    pub(super) fn socket(&self) -> io::Result<SocketAddrUnix> {
        Ok(SocketAddrUnix::new_abstract_name(format!("polypath-{}", self.name).as_bytes())?)
    }

    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    /// Takes as long whatever is wrong.
    pub(super) fn has_secret(&self, told: &str) -> bool {
        told.len() == self.secret.len()
            && told.bytes().zip(self.secret.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

impl FromStr for KeeperAddress {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        let is_half =
            |text: &str| text.len() == 2 * HALF && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match text.split_once('.') {
            Some((name, secret)) if is_half(name) && is_half(secret) => {
                Ok(Self { name: name.to_string(), secret: secret.to_string() })
            }
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "expected NAME.SECRET, 16 hexadecimal digits each",
            )),
        }
    }
}

impl fmt::Display for KeeperAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.name, self.secret)
    }
}

impl fmt::Debug for KeeperAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeeperAddress").field("name", &self.name).finish_non_exhaustive()
    }
}
