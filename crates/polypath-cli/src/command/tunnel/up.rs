//! A tunnel that runs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration as SystemDuration;

use polypath_netsetup::Watch;
use polypath_system::tun::{Tun, TunConfig};
use polypath_system::{Namespace, Netlink, SystemState};
use polypath_tunnel::driver::{Driver, Handle, has_fast_aes, system_random, zero_since_1970};
use polypath_tunnel::{Engine, EngineConfig, PeerConfig, PeerId, Rules};
use tokio::signal::unix::{SignalKind, signal};

use super::super::{Failure, complain};
use super::control::{Control, Question};
use super::file::{File, Plan, resolve};
use super::routes;
use super::status::{Dropped, PeerReport, TunnelReport};
use super::uplinks::{Follower, wanted};

/// Names that were not found are looked up again after so long.
const LOOK_AGAIN: SystemDuration = SystemDuration::from_secs(5);

/// What the threads of a tunnel share.
struct Shared {
    plan: Plan,
    public_key: String,
    peers: Vec<PeerId>,
    follower: Mutex<Follower>,
    quiet: bool,
}

pub(super) fn run(path: &Path, quiet: bool) -> Result<(), Failure> {
    let plan = File::read(path)?.plan(path)?;
    let control = Control::offer(&plan.name).map_err(Failure::run)?;
    let place = control.path();
    let ended = carry(plan, control, quiet);
    let _ = std::fs::remove_file(place);
    ended
}

fn carry(plan: Plan, control: Control, quiet: bool) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Run(format!("can't start the runtime: {error}")))?;
    let _entered = runtime.enter();
    let namespace = Namespace::current().map_err(Failure::run)?;
    let watch = Watch::new(&namespace).map_err(Failure::run)?;
    let netlink = Netlink::new().map_err(Failure::run)?;

    let mut config = EngineConfig::new(plan.private_key.clone());
    config.mtu_bytes = plan.mtu_bytes as usize;
    config.has_fast_aes = has_fast_aes();
    for peer in &plan.peers {
        config.peers.push(PeerConfig {
            public_key: peer.public_key,
            preshared_key: peer.preshared_key.clone(),
            allowed_ips: peer.allowed_ips.clone(),
            rules: Rules::new(plan.rules.clone()),
        });
    }
    let engine = Engine::new(config, zero_since_1970(), system_random());
    let peers: Vec<PeerId> =
        plan.peers.iter().filter_map(|peer| engine.peer_by_key(&peer.public_key)).collect();
    if engine.peer_ids().count() != plan.peers.len() {
        return Err(Failure::Input("two peers of the file have one public key: expected each once".into()));
    }

    let tun = TunConfig { name: plan.name.clone(), udp_segmentation: true, ..TunConfig::default() };
    let tun = Tun::create(&tun).map_err(Failure::run)?;
    routes::set_up(&netlink, &plan).map_err(Failure::run)?;
    let (mut driver, handle) = Driver::new(engine, tun).map_err(Failure::run)?;
    if let Some(port) = plan.listen_port {
        driver.open_socket(true, port, None).map_err(Failure::run)?;
        // A machine without IPv6 has none of it.
        let _ = driver.open_socket(false, port, None);
    }
    let public_key = plan.private_key.public_key().to_string();
    let follower = Mutex::new(Follower::default());
    let shared = Arc::new(Shared { plan, public_key, peers, follower, quiet });

    let (ended, end) = tokio::sync::oneshot::channel();
    let carrier = std::thread::Builder::new().name("tunnel".into()).spawn(move || {
        let _ = ended.send(driver.run());
    });
    let carrier = carrier.map_err(Failure::run)?;
    answer(&shared, &handle, control)?;
    let ended = runtime.block_on(follow(&shared, &handle, watch, end));
    handle.stop();
    let _ = carrier.join();
    ended
}

/// Answers `status` and `down` on a thread of their own.
fn answer(shared: &Arc<Shared>, handle: &Handle<Driver>, control: Control) -> Result<(), Failure> {
    let (shared, handle) = (Arc::clone(shared), handle.clone());
    let answering = move || {
        control.serve(|question| match question {
            Question::Status => report(&shared, &handle),
            Question::Down => {
                handle.stop();
                String::from("ended\n")
            }
        });
    };
    std::thread::Builder::new()
        .name("tunnel-control".into())
        .spawn(answering)
        .map(|_| ())
        .map_err(Failure::run)
}

fn report(shared: &Arc<Shared>, handle: &Handle<Driver>) -> String {
    let asked = Arc::clone(shared);
    let report = handle.ask(move |driver| {
        let (engine, now) = driver.engine();
        let counts = engine.counts();
        let follower = asked.follower.lock().unwrap_or_else(PoisonError::into_inner);
        let peers = asked.peers.iter().zip(&asked.plan.peers).enumerate();
        let peers = peers.filter_map(|(number, (&id, plan))| {
            let status = engine.peer_status(now, id)?;
            let interface = |path| follower.interface_of(number, path).map(str::to_owned);
            Some(PeerReport::new(plan.name.clone(), &status, interface))
        });
        TunnelReport {
            name: asked.plan.name.clone(),
            public_key: asked.public_key.clone(),
            listen_port: asked.plan.listen_port,
            peers: peers.collect(),
            dropped: Dropped {
                malformed: counts.malformed,
                unknown_session: counts.unknown_session,
                refused_handshakes: counts.refused_handshakes,
                replayed_handshakes: counts.replayed_handshakes,
                unknown_peers: counts.unknown_peers,
                no_peer: counts.no_peer,
                too_long: counts.too_long,
            },
        }
    });
    report.ok().and_then(|report| serde_json::to_string(&report).ok()).unwrap_or_default()
}

/// Follows the interfaces until the driver ends, or a signal comes.
async fn follow(
    shared: &Arc<Shared>,
    handle: &Handle<Driver>,
    mut watch: Watch,
    mut end: tokio::sync::oneshot::Receiver<std::io::Result<()>>,
) -> Result<(), Failure> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::run)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::run)?;
    let mut endpoints = Endpoints::default();
    let mut leads = false;
    if !shared.quiet {
        complain(&format!("{} is up; `polypath tunnel status` shows it", shared.plan.name));
    }
    loop {
        let is_complete;
        (endpoints, is_complete) = look_up(shared, endpoints).await?;
        if is_complete && !leads {
            leads = true;
            lead(shared).await?;
        }
        let state = read_state().await.map_err(Failure::run)?;
        let paths = wanted(&state, &shared.plan.name, &shared.plan.uplinks, &endpoints.found);
        let asked = Arc::clone(shared);
        let told = handle.ask(move |driver| {
            let mut follower = asked.follower.lock().unwrap_or_else(PoisonError::into_inner);
            follower.follow(driver, &asked.peers, &paths)
        });
        for line in told.unwrap_or_default() {
            if !shared.quiet {
                complain(&line);
            }
        }
        let again = async {
            if is_complete { std::future::pending().await } else { tokio::time::sleep(LOOK_AGAIN).await }
        };
        tokio::select! {
            changed = watch.changed() => {
                if changed.is_none() {
                    return Err(Failure::Run("the system tells no more of its interfaces".into()));
                }
            }
            () = again => {}
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
            ended = &mut end => {
                return match ended {
                    Ok(ended) => ended.map_err(Failure::run),
                    Err(_) => Err(Failure::Run("the tunnel's thread ended".into())),
                };
            }
        }
    }
}

/// Looks up what was not found yet, which may take long; true if all is found.
async fn look_up(shared: &Arc<Shared>, mut endpoints: Endpoints) -> Result<(Endpoints, bool), Failure> {
    let shared = Arc::clone(shared);
    let looking = tokio::task::spawn_blocking(move || {
        let is_complete = endpoints.look_up(&shared.plan, shared.quiet);
        (endpoints, is_complete)
    });
    looking.await.map_err(Failure::run)
}

async fn lead(shared: &Arc<Shared>) -> Result<(), Failure> {
    let shared = Arc::clone(shared);
    let leading = tokio::task::spawn_blocking(move || routes::lead(&Netlink::new()?, &shared.plan));
    leading.await.map_err(Failure::run)?.map_err(Failure::run)
}

/// The interfaces and routes of this machine.
async fn read_state() -> std::io::Result<SystemState> {
    let reading = tokio::task::spawn_blocking(|| SystemState::read(&Netlink::new()?));
    reading.await.map_err(std::io::Error::other)?
}

/// The addresses of the peers' endpoints.
#[derive(Debug, Default)]
struct Endpoints {
    found: Vec<(SocketAddr, usize)>,
    done: Vec<(usize, String)>,
    told: Vec<String>,
}

impl Endpoints {
    /// Looks up those that were not found yet; true if all are.
    fn look_up(&mut self, plan: &Plan, quiet: bool) -> bool {
        let mut is_complete = true;
        for (number, peer) in plan.peers.iter().enumerate() {
            for text in &peer.endpoints {
                let this = (number, text.clone());
                if self.done.contains(&this) {
                    continue;
                }
                match resolve(text) {
                    Ok(addresses) => {
                        self.found.extend(addresses.into_iter().map(|address| (address, number)));
                        self.done.push(this);
                    }
                    Err(error) => {
                        is_complete = false;
                        if !self.told.contains(&error) && !quiet {
                            complain(&error);
                        }
                        self.told.push(error);
                    }
                }
            }
        }
        self.found.sort();
        self.found.dedup();
        is_complete
    }
}
