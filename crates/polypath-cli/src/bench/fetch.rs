//! Downloads of one file over several emulated access links: ours in ranges, beside aria2 and curl, from one nginx.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{fmt, fs, io};

use polypath_emulate::Emulation;
use polypath_testbed::Testbed;

use super::beside_kernel::scene::{AccessLink, emulated, lead_everywhere, neighbours_wait};
use super::nginx::{HTTP_PORT, HTTPS_PORT, Nginx, make_file, must};

/// The name of the file at the server.
const NAME: &str = "file";

/// Who fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetcher {
    /// `polypath get`.
    Ours,
    /// aria2 with one connection for each interface, and pieces of 1 MB.
    Aria2,
    /// aria2 with 16 connections.
    Aria2Many,
    /// curl over the fastest interface.
    Curl,
}

impl Fetcher {
    /// The others.
    pub(crate) const PEERS: [Self; 3] = [Self::Aria2, Self::Aria2Many, Self::Curl];

    /// As in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "polypath",
            Self::Aria2 => "aria2c",
            Self::Aria2Many => "aria2c-16",
            Self::Curl => "curl-best",
        }
    }

    const fn program(self) -> &'static str {
        match self {
            Self::Ours => "polypath",
            Self::Aria2 | Self::Aria2Many => "aria2c",
            Self::Curl => "curl",
        }
    }

    /// Whether this machine has it.
    pub(crate) fn is_installed(self) -> bool {
        self == Self::Ours || Command::new(self.program()).arg("--version").output().is_ok()
    }
}

impl fmt::Display for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Links, a server behind them, and a place for what is fetched. All of it is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Site {
    lines: Vec<AccessLink>,
    bytes: u64,
    _emulation: Emulation,
    testbed: Testbed,
    _server: Nginx,
    folder: tempfile::TempDir,
}

impl Site {
    /// Makes it, with a file of so many bytes, which the server's kernel sends with this congestion control. Needs root, nginx
    /// and openssl.
    pub(crate) fn new(lines: &[AccessLink], bytes: u64, congestion: &str) -> io::Result<Self> {
        let testbed = Testbed::with_middle(lines.len() as u8)?;
        let middle = testbed.middle.as_ref().ok_or_else(|| io::Error::other("nothing between the hosts"))?;
        let emulation = Emulation::start(middle, emulated(lines))?;
        testbed.make_neighbours(neighbours_wait(lines))?;
        lead_everywhere(&testbed, congestion)?;
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("site"))?;
        make_file(&folder.path().join("site").join(NAME), bytes)?;
        let server = Nginx::start(&testbed, folder.path())?;
        Ok(Self { lines: lines.to_vec(), bytes, _emulation: emulation, testbed, _server: server, folder })
    }

    /// Share of the sum of the links' rates that a download had.
    pub(crate) fn share(&self, seconds: f64) -> f64 {
        let sum_bps: f64 = self.lines.iter().map(|line| line.mbit_per_s * 1e6).sum();
        self.bytes as f64 * 8.0 / seconds / sum_bps
    }

    /// Seconds that a download takes, with everything that its program does before and after.
    pub(crate) fn fetch(&self, fetcher: Fetcher, is_https: bool) -> io::Result<f64> {
        let out = self.folder.path().join("out");
        fs::create_dir_all(&out)?;
        let mut command = self.command(fetcher, is_https, &out)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).current_dir(&out);
        let started = Instant::now();
        let output = self.testbed.client.run(|| command.output())??;
        let seconds = started.elapsed().as_secs_f64();
        must(output, fetcher.program())?;
        let is_same = is_same(&out.join(NAME), &self.folder.path().join("site").join(NAME))?;
        fs::remove_dir_all(&out)?;
        if is_same { Ok(seconds) } else { Err(io::Error::other(format!("{fetcher} brought another file"))) }
    }

    fn command(&self, fetcher: Fetcher, is_https: bool, out: &Path) -> io::Result<Command> {
        let address = Testbed::server_v4(0);
        let url = match is_https {
            true => format!("https://{address}:{HTTPS_PORT}/{NAME}"),
            false => format!("http://{address}:{HTTP_PORT}/{NAME}"),
        };
        let names: Vec<String> = (0..self.testbed.paths()).map(Testbed::interface).collect();
        let rate = |at: &usize| self.lines[*at].mbit_per_s;
        let best = (0..names.len()).max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or(0);
        let mut command = match fetcher {
            Fetcher::Ours => Command::new(std::env::current_exe()?),
            other => Command::new(other.program()),
        };
        match fetcher {
            Fetcher::Ours => {
                command.args(["get", "--quiet", "--no-config", "--ranges", "--insecure", "-o"]);
                command.arg(out.join(NAME));
            }
            Fetcher::Aria2 | Fetcher::Aria2Many => {
                let connections = if fetcher == Fetcher::Aria2 { names.len() } else { 16 };
                command.args(["--quiet", "--no-conf", "--check-certificate=false", "--file-allocation=none"]);
                command.args(["--min-split-size=1M", "--piece-length=1M"]);
                command.arg(format!("--split={connections}"));
                command.arg(format!("--max-connection-per-server={connections}"));
                command.arg(format!("--multiple-interface={}", names.join(",")));
                command.arg(format!("--dir={}", out.display()));
            }
            Fetcher::Curl => {
                command.args(["--silent", "--show-error", "--fail", "--insecure", "--interface"]);
                command.arg(&names[best]).arg("--output").arg(out.join(NAME));
            }
        }
        command.arg(url);
        Ok(command)
    }
}

fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    Ok(fs::read(one)? == fs::read(other)?)
}
