//! A stock nginx on the kernel's Multipath TCP, in the foreground, with a configuration of its own.

use std::fs::{self, File};
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use polypath_system::Namespace;
use polypath_testbed::Testbed;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use tempfile::TempDir;

use super::error::NamespaceError;

/// What it serves, at port 80.
pub(super) const FILE_NAME: &str = "file";

/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// It ends with this.
#[derive(Debug)]
pub(super) struct Nginx {
    child: Child,
    program: PathBuf,
    folder: TempDir,
}

/// Where the programs are that a server needs: nginx and mptcpize.
pub(super) fn find_programs() -> Result<[PathBuf; 2], NamespaceError> {
    Ok([
        find("nginx", "serves the file", "nginx")?,
        find("mptcpize", "makes nginx use Multipath TCP", "mptcpize")?,
    ])
}

fn find(
    program: &'static str,
    purpose: &'static str,
    package: &'static str,
) -> Result<PathBuf, NamespaceError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Servers are in folders that not everyone looks in.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = folders.map(|folder| folder.join(program)).find(|file| file.is_file());
    found.ok_or(NamespaceError::Missing { program, purpose, package })
}

impl Nginx {
    /// Serves the content in a namespace; it listens when this returns.
    pub(super) fn start(namespace: &Namespace, content: &[u8]) -> Result<Self, NamespaceError> {
        let [program, mptcpize] = find_programs()?;
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join(FILE_NAME), content)?;
        let configuration = folder.path().join("nginx.conf");
        fs::write(&configuration, self::configuration(folder.path()))?;
        let log = File::create(folder.path().join("stderr"))?;
        let mut command = Command::new(mptcpize);
        command.arg("run").arg(&program).arg("-c").arg(&configuration).arg("-p").arg(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = namespace.run(|| command.spawn())??;
        let mut server = Self { child, program, folder };
        let deadline = Instant::now() + PATIENCE;
        let to = (Testbed::server_v4(0), 80);
        while namespace.run(|| TcpStream::connect(to))?.is_err() {
            let has_ended = server.child.try_wait()?.is_some();
            if has_ended || Instant::now() > deadline {
                return Err(NamespaceError::Server(server.complaint()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// What it said last.
    fn complaint(&self) -> String {
        let said = fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default();
        said.lines().rfind(|line| !line.is_empty()).unwrap_or("it does not listen at port 80").to_string()
    }

    /// Its name and version, as in "nginx/1.22.1".
    pub(super) fn version(&self) -> String {
        let output = Command::new(&self.program).arg("-v").stdin(Stdio::null()).output();
        let text =
            output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).unwrap_or_default();
        text.trim().rsplit(' ').find(|word| word.starts_with("nginx/")).unwrap_or("nginx").to_string()
    }

    /// A handle to its socket of the connection with a client, if it can be had.
    pub(super) fn socket_to(&self, client: IpAddr) -> Option<OwnedFd> {
        let process = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).ok()?;
        let files = fs::read_dir(format!("/proc/{}/fd", self.child.id())).ok()?;
        files.flatten().find_map(|file| {
            let number = file.file_name().to_str()?.parse().ok()?;
            let is_socket = fs::read_link(file.path()).ok()?.to_str()?.starts_with("socket:");
            let handle =
                is_socket.then(|| pidfd_getfd(process.as_fd(), number, PidfdGetfdFlags::empty()))?.ok()?;
            let peer = socket2::SockRef::from(&handle).peer_addr().ok()?.as_socket()?;
            (peer.ip() == client).then_some(handle)
        })
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Fails when it has ended already, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One process and no file outside of the folder.
fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {folder}/{kind};\n"))
        .concat();
    format!(
        "daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n  access_log off;\n\
         {temporary}  server {{\n    listen 80;\n    root {folder};\n  }}\n}}\n"
    )
}
