//! The proxies that are compared: what each does, how it is found, configured and started.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, fs, io, thread};

use serde::Serialize;

use super::client::{Service, Way, ask_moment};
use super::scene::{OUTSIDE, PROXY, Scene};
use crate::bench::program::{Program, find, find_own};

/// Of our own file: here all connections come from one client.
const LIMITS: &str =
    "[limits]\nconnections = 65536\nconnections-per-client = 65536\nnew-per-second-per-client = 100000\n";
/// For a program to begin.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks at whether it has.
const LOOK: Duration = Duration::from_millis(20);

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum System {
    /// No proxy: packets are forwarded by the kernel.
    Direct,
    /// Ours, with the kernel's TCP at both sides.
    PolypathTcp,
    /// Ours, with the kernel's Multipath TCP towards servers.
    PolypathKernel,
    /// Ours, with our own stack behind a TUN device towards servers.
    PolypathTun,
    /// nginx with its module stream.
    Nginx,
    /// HAProxy in its mode tcp.
    Haproxy,
    /// Squid.
    Squid,
    /// Dante's server.
    Dante,
    /// microsocks.
    Microsocks,
}

impl System {
    pub(crate) const ALL: [Self; 9] = [
        Self::Direct,
        Self::PolypathTcp,
        Self::PolypathKernel,
        Self::PolypathTun,
        Self::Nginx,
        Self::Haproxy,
        Self::Squid,
        Self::Dante,
        Self::Microsocks,
    ];

    /// As in JSON and on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::PolypathTcp => "polypath-tcp",
            Self::PolypathKernel => "polypath-kernel",
            Self::PolypathTun => "polypath-tun",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Squid => "squid",
            Self::Dante => "dante",
            Self::Microsocks => "microsocks",
        }
    }

    pub(crate) const fn is_ours(self) -> bool {
        self.engine().is_some()
    }

    /// The name of what is towards servers, of ours.
    const fn engine(self) -> Option<&'static str> {
        match self {
            Self::PolypathTcp => Some("tcp"),
            Self::PolypathKernel => Some("kernel"),
            Self::PolypathTun => Some("tun"),
            _ => None,
        }
    }

    /// What it can do. Without a proxy there is no service.
    pub(crate) const fn services(self) -> &'static [Service] {
        match self {
            Self::Direct => &[],
            Self::PolypathTcp | Self::PolypathKernel | Self::PolypathTun => &Service::ALL,
            Self::Nginx | Self::Haproxy => &[Service::Forward],
            Self::Squid => &[Service::Connect],
            Self::Dante | Self::Microsocks => &[Service::Socks],
        }
    }

    /// Its program where the system looks for programs; else why it can't take part.
    pub(crate) fn find(self) -> Result<PathBuf, String> {
        let (names, package): (&[&str], _) = match self {
            Self::Direct => return Ok(PathBuf::new()),
            Self::PolypathTcp | Self::PolypathKernel | Self::PolypathTun => return find_own(&["proxy"]),
            Self::Nginx => (&["nginx"], "nginx-light"),
            Self::Haproxy => (&["haproxy"], "haproxy"),
            Self::Squid => (&["squid"], "squid"),
            Self::Dante => (&["danted", "sockd"], "dante-server"),
            Self::Microsocks => (&["microsocks"], "microsocks"),
        };
        let found = names.iter().find_map(|name| find(name, None));
        let program = found
            .ok_or_else(|| format!("the program {} is not there: install the package {package}", names[0]))?;
        if self == Self::Nginx {
            stream_module(&program)?;
        }
        Ok(program)
    }
}

impl fmt::Display for System {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// Starts a system for one service, and waits until a client reaches the origin through it.
pub(super) fn start(
    system: System,
    program: &Path,
    (service, origin): (Service, SocketAddr),
    scene: &Scene,
    folder: &Path,
) -> io::Result<Program> {
    let mut command = Command::new(program);
    let listen = service.addr();
    let file = folder.join("configuration");
    let configuration = match system {
        System::Nginx => Some(nginx(program, origin, folder).map_err(io::Error::other)?),
        System::Haproxy => Some(haproxy(origin)),
        System::Squid => Some(squid(folder)),
        System::Dante => Some(dante()),
        System::PolypathTcp | System::PolypathKernel | System::PolypathTun => Some(LIMITS.to_string()),
        System::Direct | System::Microsocks => None,
    };
    if let Some(configuration) = configuration {
        fs::write(&file, configuration)?;
    }
    match system {
        System::Direct => return Err(io::Error::other("there is nothing to start")),
        System::PolypathTcp | System::PolypathKernel | System::PolypathTun => {
            command.arg("proxy").arg(&file);
            match service {
                Service::Forward => command.arg("--forward").arg(format!("{listen}={origin}")),
                Service::Connect => command.arg("--http").arg(listen.to_string()),
                Service::Socks => command.arg("--socks").arg(listen.to_string()),
            };
            command.args(["--open", "--accept", "tcp", "--quiet"]);
            command.args(["--engine", system.engine().unwrap_or_default()]);
        }
        System::Nginx => drop(command.arg("-q").arg("-c").arg(&file)),
        System::Haproxy => drop(command.args(["-db", "-q", "-f"]).arg(&file)),
        System::Squid => drop(command.args(["-N", "-f"]).arg(&file)),
        System::Dante => drop(command.arg("-f").arg(&file).arg("-p").arg(folder.join("pid"))),
        System::Microsocks => {
            command.args(["-i", &listen.ip().to_string(), "-p", &listen.port().to_string()]);
        }
    }
    let program = Program::spawn(command, &scene.proxy, &folder.join("said"))?;
    let way = Way { service: Some(service), origin };
    await_start(program, scene, || way.connect().and_then(|mut stream| ask_moment(&mut stream)).map(drop))
}

/// Starts one of ours for all services, and waits until clients reach it.
pub(super) fn start_all(
    system: System,
    program: &Path,
    origin: SocketAddr,
    scene: &Scene,
    folder: &Path,
) -> io::Result<Program> {
    let engine = system.engine().ok_or_else(|| io::Error::other("it does not do all services"))?;
    let file = folder.join("configuration");
    fs::write(&file, LIMITS)?;
    let mut command = Command::new(program);
    let [forward, http, socks] = Service::ALL.map(|service| service.addr().to_string());
    command.arg("proxy").arg(&file).arg("--forward").arg(format!("{forward}={origin}"));
    command.args([
        "--http", &http, "--socks", &socks, "--open", "--accept", "tcp", "--quiet", "--engine", engine,
    ]);
    let program = Program::spawn(command, &scene.proxy, &folder.join("said"))?;
    let way = |service| Way { service: Some(service), origin };
    await_start(program, scene, || {
        Service::ALL.into_iter().try_for_each(|service| way(service).connect().map(drop))
    })
}

/// Until clients are served.
fn await_start(
    mut program: Program,
    scene: &Scene,
    ask: impl Fn() -> io::Result<()> + Sync,
) -> io::Result<Program> {
    let begun = Instant::now();
    while let Err(error) = scene.client.run(&ask)? {
        if begun.elapsed() > PATIENCE || !program.is_alive() {
            return Err(program.explain(&error));
        }
        thread::sleep(LOOK);
    }
    Ok(program)
}

/// Where nginx's module is, if it is one that has to be loaded.
fn stream_module(program: &Path) -> Result<Option<PathBuf>, String> {
    let mut ask = Command::new(program);
    ask.arg("-V").stdin(Stdio::null());
    let output = ask.output().map_err(|error| format!("nginx: {error}"))?;
    let options = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut options = options.split_whitespace();
    if options.clone().any(|option| option == "--with-stream") {
        return Ok(None);
    }
    let place = options.find_map(|option| option.strip_prefix("--modules-path="));
    let module = place.map(|place| Path::new(place).join("ngx_stream_module.so"));
    let module = module.filter(|module| module.is_file());
    module.map(Some).ok_or_else(|| {
        "nginx's module stream is not there: install the package libnginx-mod-stream".to_string()
    })
}

/// As Debian has it, but for what tells where its files are.
fn nginx(program: &Path, origin: SocketAddr, folder: &Path) -> Result<String, String> {
    let module = stream_module(program)?;
    let module = module.map(|module| format!("load_module {};\n", module.display())).unwrap_or_default();
    Ok(format!(
        "{module}daemon off; worker_processes auto; pid {folder}/pid; error_log stderr crit;\n\
         events {{ worker_connections 8192; }}\n\
         stream {{ server {{ listen {}; proxy_pass {origin}; }} }}\n",
        Service::Forward.addr(),
        folder = folder.display(),
    ))
}

fn haproxy(origin: SocketAddr) -> String {
    format!(
        "defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 1m\n  timeout server 1m\n\
         listen forward\n  bind {}\n  server origin {origin}\n",
        Service::Forward.addr()
    )
}

/// It keeps nothing, and writes nothing down.
fn squid(folder: &Path) -> String {
    format!(
        "http_port {}\nhttp_access allow all\ncache deny all\naccess_log none\ncache_log /dev/null\n\
         cache_store_log none\nnetdb_filename none\npid_filename none\npinger_enable off\n\
         coredump_dir {}\nshutdown_lifetime 0 seconds\nvisible_hostname proxy\n\
         max_filedescriptors 16384\ndns_nameservers {PROXY}\n",
        Service::Connect.addr(),
        folder.display(),
    )
}

fn dante() -> String {
    let addr = Service::Socks.addr();
    let all = "{ from: 0.0.0.0/0 to: 0.0.0.0/0 }";
    format!(
        "logoutput: stderr\ninternal: {} port = {}\nexternal: {OUTSIDE}\nclientmethod: none\nsocksmethod: none\n\
         user.privileged: root\nuser.unprivileged: nobody\nclient pass {all}\nsocks pass {all}\n",
        addr.ip(),
        addr.port(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_has_one_of_ours_and_a_peer() {
        for service in Service::ALL {
            let has = |is_ours| {
                let mut all = System::ALL.into_iter().filter(|system| system.is_ours() == is_ours);
                all.any(|system| system.services().contains(&service))
            };
            assert!(has(true) && has(false), "{service:?}");
        }
        assert!(System::Direct.services().is_empty());
    }

    #[test]
    fn names_are_those_of_json() {
        for system in System::ALL {
            assert_eq!(serde_json::to_value(system).expect("a name"), system.name());
        }
        for service in Service::ALL {
            assert_eq!(serde_json::to_value(service).expect("a name"), service.name());
        }
    }
}
