//! nginx as the server of a benchmark.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use polypath_testbed::Testbed;

/// Where it listens.
pub(crate) const HTTP_PORT: u16 = 8080;
pub(crate) const HTTPS_PORT: u16 = 8443;
/// For it to begin.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server of the files in a folder. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Nginx {
    server: Child,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Nginx {
    /// Begins to serve what is in `site` below the folder, which it also keeps its own files in.
    pub(crate) fn start(testbed: &Testbed, folder: &Path) -> io::Result<Self> {
        let place = |name: &str| -> PathBuf { folder.join(name) };
        let openssl = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "1",
            ])
            .args(["-subj", "/CN=polypath", "-keyout"])
            .arg(place("key"))
            .arg("-out")
            .arg(place("certificate"))
            .output();
        must(openssl.map_err(|error| io::Error::new(error.kind(), format!("openssl: {error}")))?, "openssl")?;
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|what| format!("{what}_temp_path {};", place(what).display()));
        let root = folder.display();
        let configuration = format!(
            "daemon off; master_process off; pid {root}/pid; error_log {root}/errors; events {{}}
         http {{ access_log off; sendfile on; {}
         server {{ listen {HTTP_PORT}; listen {HTTPS_PORT} ssl; root {root}/site;
         ssl_certificate {root}/certificate; ssl_certificate_key {root}/key; }} }}",
            temporary.join(" ")
        );
        fs::write(place("nginx.conf"), configuration)?;
        let mut nginx = Command::new("nginx");
        nginx.args([OsStr::new("-q"), "-c".as_ref()]).arg(place("nginx.conf"));
        nginx.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = testbed.server.run(|| nginx.spawn())?;
        let server = server.map_err(|error| io::Error::new(error.kind(), format!("nginx: {error}")))?;
        let nginx = Self { server };
        let started = Instant::now();
        let is_there = || std::net::TcpStream::connect((Testbed::server_v4(0), HTTP_PORT)).is_ok();
        while !testbed.server.run(is_there)? {
            if started.elapsed() > PATIENCE {
                return Err(io::Error::other("nginx does not begin to listen"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(nginx)
    }
}

/// The program did what it was asked.
pub(crate) fn must(output: Output, what: &str) -> io::Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{what} ended with {}: {}", output.status, said.trim())))
}

/// The same bytes each time, without a pattern that anything could shorten.
pub(crate) fn make_file(place: &Path, bytes: u64) -> io::Result<()> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut data = Vec::with_capacity(bytes as usize + 8);
    while (data.len() as u64) < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data.extend_from_slice(&state.to_le_bytes());
    }
    data.truncate(bytes as usize);
    fs::write(place, data)
}
