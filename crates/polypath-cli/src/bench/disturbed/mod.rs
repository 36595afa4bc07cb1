//! A download over two interfaces that something happens to: afterwards the file is there and right, or one line says why not, and
//! a second attempt brings it.

mod disturbance;
mod liar;

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use polypath_system::Namespace;
use polypath_testbed::Testbed;
use rustix::process::{Pid, Signal, kill_process};

use self::liar::Liar;
use super::nginx::{HTTP_PORT, Nginx, make_file, must};

pub(crate) use self::disturbance::Disturbance;

/// Of each interface.
const RATE: &str = "20mbit";
/// The name of the file at the server.
const NAME: &str = "file";
/// Where the server that lies listens.
const LIAR_PORT: u16 = 8081;
/// How long both interfaces are away, and the server.
const BOTH_AWAY: Duration = Duration::from_secs(20);
const SERVER_AWAY: Duration = Duration::from_secs(1);
/// A download waits so long for an answer, where nothing else is disturbed than the server's answers.
const PATIENCE_WITH_LIES: &str = "5";
/// No attempt takes longer, unless it hangs.
const LIMIT: Duration = Duration::from_secs(90);

/// What became of a disturbed download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It ended well, with the right file.
    Whole,
    /// It ended with a line that says why, or was killed; the next attempt brought the right file.
    Resumed {
        /// The line.
        said: String,
        /// What the second attempt need not fetch.
        kept_bytes: u64,
    },
    /// It should not have ended so.
    Wrong(String),
}

/// Two interfaces that lead to two servers of one file, and a place for what is fetched. All of it is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    testbed: Testbed,
    server: Option<Nginx>,
    liar: Liar,
    folder: tempfile::TempDir,
    file: Vec<u8>,
    other: Vec<u8>,
    has_small_disk: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.leave_small_disk();
    }
}

/// How an attempt ended.
struct Ended {
    status: ExitStatus,
    said: Vec<String>,
    /// What came over the network, by its own report.
    came_bytes: u64,
}

impl Place {
    /// Makes it, with a file of so many bytes. Needs root and nginx.
    pub(crate) fn new(bytes: u64) -> io::Result<Self> {
        let testbed = Testbed::new(2)?;
        for path in 0..testbed.paths() {
            let interface = Testbed::interface(path);
            let shape = format!("qdisc add dev {interface} root tbf rate {RATE} burst 32k latency 50ms");
            run_in(&testbed.server, "tc", &shape)?;
            add_route(&testbed, path)?;
        }
        testbed.make_neighbours(Duration::from_secs(1))?;
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("site"))?;
        let place = folder.path().join("site").join(NAME);
        make_file(&place, bytes)?;
        let file = fs::read(&place)?;
        let other: Vec<u8> = file.iter().map(|byte| !byte).collect();
        let liar = testbed.server.run(|| Liar::start(LIAR_PORT, file.clone(), other.clone()))??;
        let server = Some(Nginx::start(&testbed, folder.path())?);
        Ok(Self { testbed, server, liar, folder, file, other, has_small_disk: false })
    }

    /// How long a download takes that nothing happens to.
    pub(crate) fn undisturbed(&mut self) -> io::Result<Duration> {
        self.clean()?;
        let started = Instant::now();
        let ended = self.wait(self.start(HTTP_PORT, &[])?, LIMIT)?;
        let took = started.elapsed();
        match ended {
            Some(ended) if ended.status.success() && self.has(&self.file) => Ok(took),
            Some(ended) => {
                Err(io::Error::other(format!("an undisturbed download: {}", ended.said.join("; "))))
            }
            None => Err(io::Error::other("an undisturbed download does not end")),
        }
    }

    /// Lets something happen to a download, so long after it began.
    pub(crate) fn disturb(
        &mut self,
        disturbance: Disturbance,
        path: u8,
        after: Duration,
    ) -> io::Result<Outcome> {
        self.clean()?;
        let mut words = vec![];
        let mut port = HTTP_PORT;
        match disturbance {
            Disturbance::FullDisk => self.enter_small_disk()?,
            Disturbance::Lied(lie) => {
                port = LIAR_PORT;
                words.extend(["--stall-timeout", PATIENCE_WITH_LIES]);
                self.liar.tell(Some(lie));
            }
            _ => {}
        }
        let child = self.start(port, &words)?;
        let id = Pid::from_child(&child);
        thread::sleep(after);
        self.do_it(disturbance, path, id)?;
        let ended = self.wait(child, LIMIT)?;
        let outcome = match ended {
            None => Outcome::Wrong("it does not end".into()),
            Some(ended) => {
                let first = self.judge(disturbance, &ended)?;
                self.undo(disturbance, path)?;
                match first {
                    Some(wrong) => Outcome::Wrong(wrong),
                    None if ended.status.success() => Outcome::Whole,
                    None => self.go_on(port, &ended)?,
                }
            }
        };
        self.undo(disturbance, path)?;
        Ok(outcome)
    }

    fn do_it(&mut self, disturbance: Disturbance, path: u8, id: Pid) -> io::Result<()> {
        let signal = |signal| match kill_process(id, signal) {
            // It was quicker.
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        };
        match disturbance {
            Disturbance::None | Disturbance::FullDisk | Disturbance::Lied(_) => Ok(()),
            Disturbance::LinkDown => {
                run_in(&self.testbed.client, "ip", &format!("link set {} down", Testbed::interface(path)))
            }
            Disturbance::LinkSilent => self.drop_packets(&[path]),
            Disturbance::BothAway => {
                self.drop_packets(&[0, 1])?;
                thread::sleep(BOTH_AWAY);
                self.keep_packets()
            }
            Disturbance::ServerRestarts => {
                self.server = None;
                thread::sleep(SERVER_AWAY);
                self.server = Some(Nginx::start(&self.testbed, self.folder.path())?);
                Ok(())
            }
            Disturbance::FileChanges => self.serve(&self.other),
            Disturbance::Interrupted => signal(Signal::INT),
            Disturbance::Killed => signal(Signal::KILL),
        }
    }

    fn undo(&mut self, disturbance: Disturbance, path: u8) -> io::Result<()> {
        match disturbance {
            Disturbance::LinkDown => {
                let interface = Testbed::interface(path);
                run_in(&self.testbed.client, "ip", &format!("link set {interface} up"))?;
                add_route(&self.testbed, path)?;
                self.testbed.make_neighbours(Duration::from_secs(1))
            }
            Disturbance::LinkSilent => self.keep_packets(),
            Disturbance::FullDisk if self.has_small_disk => {
                let all = self.file.len() * 2;
                run("mount", &["-o", &format!("remount,size={all}"), &self.out().to_string_lossy()])
            }
            Disturbance::Lied(_) => {
                self.liar.tell(None);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What is wrong with how it ended.
    fn judge(&self, disturbance: Disturbance, ended: &Ended) -> io::Result<Option<String>> {
        let said = ended.said.join("; ");
        let has_two = matches!(disturbance, Disturbance::FileChanges)
            || matches!(disturbance, Disturbance::Lied(lie) if lie.has_two_files());
        if ended.status.success() {
            let is_right = self.has(&self.file) || has_two && self.has(&self.other);
            let left = self.left()?;
            return Ok(match (is_right, left.is_empty()) {
                (false, _) => Some("status 0 with a wrong file".into()),
                (true, false) => Some(format!("status 0, and {} is left", left.join(", "))),
                (true, true) => None,
            });
        }
        if self.out().join(NAME).exists() {
            return Ok(Some(format!("a file is there after {}: {said}", ended.status)));
        }
        if disturbance.is_survived() {
            return Ok(Some(format!("it gave up: {said}")));
        }
        // Ctrl-C ends a program at once that has just begun.
        let is_killed = ended.status.signal().is_some();
        let lines = if is_killed { 0 } else { 1 };
        Ok((ended.said.len() != lines)
            .then(|| format!("{} lines instead of {lines}: {said}", ended.said.len())))
    }

    /// A second attempt, where nothing happens.
    fn go_on(&self, port: u16, first: &Ended) -> io::Result<Outcome> {
        let served = if port == HTTP_PORT {
            fs::read(self.folder.path().join("site").join(NAME))?
        } else {
            self.file.clone()
        };
        let Some(second) = self.wait(self.start(port, &["-C"])?, LIMIT)? else {
            return Ok(Outcome::Wrong("the second attempt does not end".into()));
        };
        let said = second.said.join("; ");
        if !second.status.success() {
            return Ok(Outcome::Wrong(format!("the second attempt failed: {said}")));
        }
        if !self.has(&served) {
            return Ok(Outcome::Wrong("the second attempt brought a wrong file with status 0".into()));
        }
        let left = self.left()?;
        if !left.is_empty() {
            return Ok(Outcome::Wrong(format!("the second attempt left {}", left.join(", "))));
        }
        let kept_bytes = (served.len() as u64).saturating_sub(second.came_bytes);
        Ok(Outcome::Resumed { said: first.said.join("; "), kept_bytes })
    }

    fn start(&self, port: u16, words: &[&str]) -> io::Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["get", "--quiet", "--no-config", "--ranges", "--json-file"]).arg(self.report());
        command.args(words).arg("-o").arg(self.out().join(NAME));
        command.arg(format!("http://{}:{port}/{NAME}", Testbed::server_v4(0)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(self.errors())?);
        self.testbed.client.run(|| command.spawn())?
    }

    /// Waits for its end; nothing if it does not come.
    fn wait(&self, mut child: Child, most: Duration) -> io::Result<Option<Ended>> {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if started.elapsed() > most {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            thread::sleep(Duration::from_millis(2));
        };
        let said = fs::read_to_string(self.errors())?.lines().map(Into::into).collect();
        let report: Option<serde_json::Value> =
            fs::read(self.report()).ok().and_then(|report| serde_json::from_slice(&report).ok());
        let came_bytes = report.and_then(|report| report["files"][0]["bytes"].as_u64()).unwrap_or(0);
        Ok(Some(Ended { status, said, came_bytes }))
    }

    fn clean(&mut self) -> io::Result<()> {
        self.leave_small_disk()?;
        match fs::remove_dir_all(self.out()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir(self.out())?,
        }
        self.serve(&self.file)
    }

    /// Another file in the old one's place, at once.
    fn serve(&self, content: &[u8]) -> io::Result<()> {
        let place = self.folder.path().join("site").join(NAME);
        if fs::read(&place)? == content {
            return Ok(());
        }
        let new = self.folder.path().join("new");
        fs::write(&new, content)?;
        // nginx tells versions apart by length and the second of the change.
        let changed = fs::metadata(&place)?.modified()? + Duration::from_secs(2);
        fs::File::options().write(true).open(&new)?.set_modified(changed)?;
        fs::rename(new, place)
    }

    fn enter_small_disk(&mut self) -> io::Result<()> {
        let half = format!("size={}", self.file.len() / 2);
        run("mount", &["-t", "tmpfs", "-o", &half, "tmpfs", &self.out().to_string_lossy()])?;
        self.has_small_disk = true;
        Ok(())
    }

    fn leave_small_disk(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.has_small_disk) {
            run("umount", &[&self.out().to_string_lossy()])?;
        }
        Ok(())
    }

    fn drop_packets(&self, paths: &[u8]) -> io::Result<()> {
        let names: Vec<String> =
            paths.iter().map(|path| format!("\"{}\"", Testbed::interface(*path))).collect();
        let names = names.join(", ");
        let rules = format!(
            "table inet away {{
               chain in {{
                 type filter hook prerouting priority -300
                 iifname {{ {names} }} drop
               }}
               chain out {{
                 type filter hook postrouting priority 300
                 oifname {{ {names} }} drop
               }}
             }}"
        );
        let mut nft = Command::new("nft");
        nft.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = self.testbed.server.run(|| nft.spawn())??;
        if let Some(input) = &mut child.stdin {
            input.write_all(rules.as_bytes())?;
        }
        must(child.wait_with_output()?, "nft")
    }

    fn keep_packets(&self) -> io::Result<()> {
        // It may be done already.
        let _ = run_in(&self.testbed.server, "nft", "delete table inet away");
        Ok(())
    }

    fn has(&self, content: &[u8]) -> bool {
        fs::read(self.out().join(NAME)).is_ok_and(|found| found == content)
    }

    /// What is there beside the file.
    fn left(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.out())? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != NAME {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    fn report(&self) -> PathBuf {
        self.folder.path().join("report.json")
    }

    fn errors(&self) -> PathBuf {
        self.folder.path().join("said")
    }
}

fn add_route(testbed: &Testbed, path: u8) -> io::Result<()> {
    let (interface, gateway) = (Testbed::interface(path), Testbed::server_v4(path));
    let route = format!("route replace default via {gateway} dev {interface} metric {}", 100 + path);
    run_in(&testbed.client, "ip", &route)
}

fn run_in(namespace: &Namespace, program: &str, words: &str) -> io::Result<()> {
    must(namespace.run(|| Command::new(program).args(words.split(' ')).output())??, program)
}

fn run(program: &str, words: &[&str]) -> io::Result<()> {
    must(Command::new(program).args(words).output()?, program)
}
