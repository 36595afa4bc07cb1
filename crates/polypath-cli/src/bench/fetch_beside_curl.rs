//! Downloads over one path beside curl: a large file on a fast link, and many small ones. What counts is time, and time of the processor.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use polypath_emulate::Emulation;
use polypath_testbed::Testbed;

use super::beside_kernel::scene::{AccessLink, emulated, neighbours_wait};
use super::host::TICKS_PER_SECOND;
use super::nginx::{HTTP_PORT, HTTPS_PORT, Nginx, make_file, must};

/// Of the large file.
const LARGE_BYTES: u64 = 500_000_000;
/// How many small files there are, of 1 to 4 KiB.
const SMALL_FILES: usize = 10_000;
const LEAST_SMALL_BYTES: usize = 1 << 10;
const MOST_SMALL_BYTES: usize = 4 << 10;
/// At the same time, as curl does it by default.
const AT_ONCE: &str = "50";

/// The link between client and server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Link {
    /// 1 Gbit/s, by the kernel's own queue: no emulator carries so much.
    Gigabit,
    /// An emulated one.
    Emulated(AccessLink),
}

/// What is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// One large file.
    Large,
    /// Many small ones, by `-Z`.
    Small,
}

/// What it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// From the program's start to its end.
    pub(crate) seconds: f64,
    /// User and system time of the program.
    pub(crate) cpu_seconds: f64,
}

/// A link, a server behind it, and a place for what is fetched. All of it is gone when this is dropped.
pub(crate) struct OnePath {
    fetched: Fetched,
    // The server ends before its folder is gone.
    _server: Nginx,
    _emulation: Option<Emulation>,
    testbed: Testbed,
    folder: tempfile::TempDir,
}

impl OnePath {
    /// Needs root, nginx, openssl and tc.
    pub(crate) fn new(link: Link, fetched: Fetched) -> io::Result<Self> {
        let (testbed, emulation) = match link {
            Link::Gigabit => {
                let testbed = Testbed::new(1)?;
                let device = Testbed::interface(0);
                let queue = ["qdisc", "add", "dev", &device, "root", "tbf", "rate", "1gbit"];
                let limits = ["burst", "256k", "latency", "50ms"];
                must(testbed.server.run(|| Command::new("tc").args(queue).args(limits).output())??, "tc")?;
                (testbed, None)
            }
            Link::Emulated(line) => {
                let testbed = Testbed::with_middle(1)?;
                let nothing = || io::Error::other("nothing between the hosts");
                let middle = testbed.middle.as_ref().ok_or_else(nothing)?;
                let emulation = Emulation::start(middle, emulated(&[line]))?;
                testbed.make_neighbours(neighbours_wait(&[line]))?;
                (testbed, Some(emulation))
            }
        };
        let route = ["route", "add", "default", "via", &Testbed::server_v4(0).to_string()];
        must(testbed.client.run(|| Command::new("ip").args(route).output())??, "ip")?;
        // In memory, if it can be: no disk is measured.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }?;
        let site = folder.path().join("site");
        fs::create_dir(&site)?;
        match fetched {
            Fetched::Large => make_file(&site.join("large"), LARGE_BYTES)?,
            Fetched::Small => make_small_files(&site)?,
        }
        let server = Nginx::start(&testbed, folder.path())?;
        Ok(Self { fetched, _server: server, _emulation: emulation, testbed, folder })
    }

    /// Fetches once, by curl or by `polypath get`.
    pub(crate) fn fetch(&self, is_curl: bool, is_https: bool) -> io::Result<Cost> {
        let out = self.folder.path().join("out");
        fs::create_dir(&out)?;
        let mut command = self.command(is_curl, is_https)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).current_dir(&out);
        let (before, started) = (cpu_seconds_of_ended_children()?, Instant::now());
        let output = self.testbed.client.run(|| command.output())??;
        let seconds = started.elapsed().as_secs_f64();
        let cpu_seconds = cpu_seconds_of_ended_children()? - before;
        must(output, if is_curl { "curl" } else { "polypath" })?;
        let names = self.names();
        let mut is_right = fs::read_dir(&out)?.count() == names.len();
        for name in names {
            is_right &= is_same(&out.join(&name), &self.folder.path().join("site").join(name))?;
        }
        fs::remove_dir_all(&out)?;
        if is_right { Ok(Cost { seconds, cpu_seconds }) } else { Err(io::Error::other("other files came")) }
    }

    fn names(&self) -> Vec<String> {
        match self.fetched {
            Fetched::Large => vec!["large".into()],
            Fetched::Small => (1..=SMALL_FILES).map(|number| format!("f{number}")).collect(),
        }
    }

    /// As people would write it.
    fn command(&self, is_curl: bool, is_https: bool) -> io::Result<Command> {
        let address = Testbed::server_v4(0);
        let server = match is_https {
            true => format!("https://{address}:{HTTPS_PORT}"),
            false => format!("http://{address}:{HTTP_PORT}"),
        };
        let mut command = match is_curl {
            true => Command::new("curl"),
            false => Command::new(std::env::current_exe()?),
        };
        match is_curl {
            true => command.args(["--silent", "--show-error", "--fail", "--insecure"]),
            false => command.args(["get", "--quiet", "--no-config", "--ranges", "--insecure"]),
        };
        if self.fetched == Fetched::Small {
            command.args(["--parallel", "--parallel-max", AT_ONCE]);
        }
        match (self.fetched, is_curl) {
            (Fetched::Large, true) => command.arg("--remote-name").arg(server + "/large"),
            (Fetched::Large, false) => command.arg(server + "/large"),
            (Fetched::Small, true) => {
                command.arg("--remote-name-all").arg(format!("{server}/f[1-{SMALL_FILES}]"))
            }
            (Fetched::Small, false) => {
                let list = self.folder.path().join("list");
                let urls = self.names().iter().map(|name| format!("{server}/{name}\n")).collect::<String>();
                fs::write(&list, urls)?;
                command.arg("--input-file").arg(list)
            }
        };
        Ok(command)
    }
}

/// Files of all lengths between the least and the most.
fn make_small_files(site: &Path) -> io::Result<()> {
    let source = site.join("source");
    make_file(&source, (SMALL_FILES + MOST_SMALL_BYTES) as u64)?;
    let bytes = fs::read(&source)?;
    fs::remove_file(source)?;
    (1..=SMALL_FILES).try_for_each(|number| {
        let len = LEAST_SMALL_BYTES + number * 7919 % (MOST_SMALL_BYTES - LEAST_SMALL_BYTES);
        fs::write(site.join(format!("f{number}")), &bytes[number..number + len])
    })
}

fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut first, mut second) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        match one.read(&mut first)? {
            0 => return Ok(true),
            read => {
                other.read_exact(&mut second[..read])?;
                if first[..read] != second[..read] {
                    return Ok(false);
                }
            }
        }
    }
}

/// User and system time of all processes that this one has started, and that have ended.
fn cpu_seconds_of_ended_children() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which may have anything in it, and what comes before `cutime` and `cstime`.
    let fields = text.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default().split_whitespace();
    let ticks = fields.skip(13).take(2).map(|field| field.parse::<f64>().map_err(io::Error::other));
    Ok(ticks.sum::<io::Result<f64>>()? / TICKS_PER_SECOND)
}
