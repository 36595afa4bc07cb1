//! The tunnels that are compared: how each is found, started and ended. Those with one path have the first, which is the best one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

use polypath_system::{Namespace, Netlink};
use polypath_testbed::{Side, Testbed};
use serde::Serialize;

use super::datagrams::round_trips_ms;
use super::keys::{KEYS, KeyPair};
use super::uapi::Uapi;
use crate::bench::program::{Program, find, find_own};

/// Where each listens.
const PORT: u16 = 51_820;
/// What WireGuard leaves of 1500 bytes, over IPv6 too.
const MTU_BYTES: u32 = 1420;
/// Of the addresses inside.
const PREFIX_LENGTH: u8 = 24;
/// For a program to begin, and for the first packet to cross.
const PATIENCE: Duration = Duration::from_secs(10);

/// A tunnel under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum System {
    /// Ours, over all paths.
    Polypath,
    /// The one in Go, of WireGuard's own author.
    WireguardGo,
    /// The one in Rust, of Cloudflare.
    Boringtun,
    /// Packets in datagrams as they are, many at a time: what protection costs is what the others need beyond it.
    UdpRelay,
}

impl System {
    pub(crate) const ALL: [Self; 4] = [Self::Polypath, Self::WireguardGo, Self::Boringtun, Self::UdpRelay];

    /// As in JSON and on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Polypath => "polypath",
            Self::WireguardGo => "wireguard-go",
            Self::Boringtun => "boringtun",
            Self::UdpRelay => "udp-relay",
        }
    }

    /// Whether it uses all paths, and not the first alone.
    pub(crate) const fn has_all_paths(self) -> bool {
        matches!(self, Self::Polypath)
    }

    /// Its program, in a folder of peers or where the system looks for programs; else why it can't take part.
    pub(crate) fn find(self, folder: Option<&Path>) -> Result<PathBuf, String> {
        let name = match self {
            Self::Polypath => return find_own(&["tunnel", "up"]),
            Self::UdpRelay => return find_own(&["bench", "tunnel-relay"]),
            Self::WireguardGo => "wireguard-go",
            Self::Boringtun => "boringtun-cli",
        };
        find(name, folder)
            .ok_or_else(|| format!("the program {name} is not there: `make setup-tunnels` builds it"))
    }
}

impl fmt::Display for System {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// What both ends are given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'a> {
    /// For their files.
    pub(super) folder: &'a Path,
    /// Tells their devices and files from those of tunnels beside this one. Below 100: names of devices are short.
    pub(super) number: u8,
    /// What the files of our own tunnel say about flows.
    pub(super) rules: &'static str,
}

impl<'a> Given<'a> {
    /// Of a tunnel that has no others beside it, and no rules.
    pub(super) const fn alone(folder: &'a Path) -> Self {
        Self { folder, number: 0, rules: "" }
    }

    /// Sockets are files that all namespaces share: each device has a name of its own.
    fn device(&self, side: Side) -> String {
        format!("pp{}-{}-{}", std::process::id(), self.number, number(side))
    }

    fn file(&self, side: Side, extension: &str) -> PathBuf {
        self.folder.join(format!("tunnel-{}-{}.{extension}", self.number, number(side)))
    }
}

/// Two processes with a device each, joined over the paths of a testbed. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Tunnel {
    ends: Vec<End>,
}

#[derive(Debug)]
struct End {
    program: Program,
    uapi: Option<Uapi>,
}

/// The address inside the tunnel.
pub(super) const fn inner(side: Side) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, number(side))
}

const fn number(side: Side) -> u8 {
    match side {
        Side::Client => 1,
        Side::Server => 2,
    }
}

const fn opposite(side: Side) -> Side {
    match side {
        Side::Client => Side::Server,
        Side::Server => Side::Client,
    }
}

const fn keys(side: Side) -> &'static KeyPair {
    &KEYS[number(side) as usize - 1]
}

/// The address of a side on a path.
fn outer(side: Side, path: u8) -> Ipv4Addr {
    match side {
        Side::Client => Testbed::client_v4(path),
        Side::Server => Testbed::server_v4(path),
    }
}

impl Tunnel {
    /// Starts both ends and waits until a packet has crossed.
    pub(super) fn start(
        system: System,
        program: &Path,
        testbed: &Testbed,
        given: Given<'_>,
    ) -> io::Result<Self> {
        let mut tunnel = Self { ends: Vec::new() };
        for side in [Side::Client, Side::Server] {
            let namespace = testbed.namespace(side);
            let end = match system {
                System::Polypath => start_polypath(program, testbed, side, given)?,
                System::WireguardGo => {
                    let mut command = Command::new(program);
                    command.args(["--foreground", &given.device(side)]).env("LOG_LEVEL", "error");
                    start_wireguard(command, namespace, side, given)?
                }
                System::Boringtun => {
                    let mut command = Command::new(program);
                    command.args(["--foreground", "--disable-drop-privileges", &given.device(side)]);
                    start_wireguard(command, namespace, side, given)?
                }
                System::UdpRelay => {
                    let mut command = Command::new(program);
                    command.args(["bench", "tunnel-relay", &given.device(side)]);
                    command.arg(outer(opposite(side), 0).to_string()).arg(PORT.to_string());
                    let mut end = End::spawn(command, namespace, None, &given.file(side, "log"))?;
                    end.set_up_device(namespace, side, given)?;
                    end
                }
            };
            tunnel.ends.push(end);
        }
        let ends = [&testbed.client, &testbed.server];
        if round_trips_ms(ends, inner(Side::Server), PATIENCE, true)?.is_empty() {
            let error = io::Error::other(format!("no packet crossed {system} within {PATIENCE:?}"));
            return Err(tunnel.ends.iter_mut().fold(error, |error, end| end.program.explain(&error)));
        }
        Ok(tunnel)
    }

    /// User and system time of both processes until now.
    pub(super) fn cpu_s(&self) -> io::Result<f64> {
        self.ends.iter().map(|end| end.program.cpu_s()).sum()
    }
}

/// The one place that knows our own command and its configuration: two files, and a process for each.
fn start_polypath(program: &Path, testbed: &Testbed, side: Side, given: Given<'_>) -> io::Result<End> {
    let (own, peer) = (keys(side), keys(opposite(side)));
    // The client calls, over all paths.
    let paths = if side == Side::Client { testbed.paths() } else { 0 };
    let endpoints: Vec<String> =
        (0..paths).map(|path| format!("\"{}:{PORT}\"", outer(opposite(side), path))).collect();
    let configuration = format!(
        "[interface]\nname = \"{}\"\nprivate-key = \"{}\"\naddresses = [\"{}/{PREFIX_LENGTH}\"]\nlisten-port = {PORT}\nmtu = {MTU_BYTES}\n\n\
         [[peers]]\npublic-key = \"{}\"\nendpoints = [{}]\nallowed-ips = [\"{}/{PREFIX_LENGTH}\"]\n{}",
        given.device(side),
        own.private_base64(),
        inner(side),
        peer.public_base64(),
        endpoints.join(", "),
        inner(Side::Client),
        given.rules,
    );
    let file = given.file(side, "toml");
    fs::write(&file, configuration)?;
    let mut command = Command::new(program);
    command.args(["tunnel", "up"]).arg(file);
    let namespace = testbed.namespace(side);
    let mut end = End::spawn(command, namespace, None, &given.file(side, "log"))?;
    // It gives its device the address itself.
    let started = Instant::now();
    while let Err(error) = namespace.run(|| UdpSocket::bind((inner(side), 0)))? {
        if started.elapsed() > PATIENCE {
            return Err(end.program.explain(&error));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(end)
}

fn start_wireguard(command: Command, namespace: &Namespace, side: Side, given: Given<'_>) -> io::Result<End> {
    let uapi = Uapi::of(&given.device(side));
    let mut end = End::spawn(command, namespace, Some(uapi.clone()), &given.file(side, "log"))?;
    let (own, peer) = (keys(side), keys(opposite(side)));
    let endpoint = SocketAddr::from((outer(opposite(side), 0), PORT));
    uapi.configure(own, peer, PORT, endpoint, (inner(Side::Client), PREFIX_LENGTH))
        .map_err(|error| end.program.explain(&error))?;
    end.set_up_device(namespace, side, given)?;
    Ok(end)
}

impl End {
    fn spawn(command: Command, namespace: &Namespace, uapi: Option<Uapi>, said: &Path) -> io::Result<Self> {
        Ok(Self { program: Program::spawn(command, namespace, said)?, uapi })
    }

    /// Waits for the device and gives it its address.
    fn set_up_device(&mut self, namespace: &Namespace, side: Side, given: Given<'_>) -> io::Result<()> {
        let (name, started) = (given.device(side), Instant::now());
        while let Err(error) = namespace.run(|| Netlink::new()?.link_index(&name))? {
            if started.elapsed() > PATIENCE {
                return Err(self.program.explain(&error));
            }
            thread::sleep(Duration::from_millis(10));
        }
        namespace.run(|| {
            let netlink = Netlink::new()?;
            netlink.add_address(&name, IpAddr::V4(inner(side)), PREFIX_LENGTH)?;
            netlink.set_mtu(&name, MTU_BYTES)?;
            netlink.set_up(&name)
        })?
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.program.stop();
        if let Some(uapi) = &self.uapi {
            uapi.remove();
        }
    }
}
