//! A tunnel is brought up, and follows the interfaces until it ends.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration as SystemDuration;

use polypath_netsetup::{Gateway, GatewayOptions, Watch};
use polypath_system::tun::{Tun, TunConfig};
use polypath_system::{Namespace, Netlink, SystemState, errno_of};
use polypath_tunnel::driver::{Driver, Handle, has_fast_aes, system_random, zero_since_1970};
use polypath_tunnel::{Engine, EngineConfig, PeerId};
use rustix::io::Errno;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::super::control_socket::{Answer, Control};
use super::super::engine::{clear_leftovers, clear_leftovers_before_gateway};
use super::super::{Failure, complain};
use super::control::{Question, TUNNELS, answering};
use super::endpoints::Endpoints;
use super::file::{File, Plan};
use super::lookups::Lookups;
use super::recording;
use super::routes::{self, Led, Through};
use super::running::{Running, Seen, peer_config};
use super::status;
use super::uplinks::wanted;

/// Names are looked up again after so long, if they were not found or the peer is silent.
const LOOK_AGAIN: SystemDuration = SystemDuration::from_secs(5);
/// What goes over interfaces with a budget is looked at so often.
const COUNT_AGAIN: SystemDuration = SystemDuration::from_secs(1);

pub(super) fn run(path: &Path, is_quiet: bool) -> Result<(), Failure> {
    let plan = File::read(path)?.plan(path)?;
    let control = TUNNELS.offer(&plan.name).map_err(Failure::run)?;
    let place = control.path();
    // A tunnel of this name that was killed, and whatever else was.
    match plan.forward {
        Some(_) => clear_leftovers_before_gateway(&plan.name),
        None => clear_leftovers(),
    }
    let ended = carry(path, plan, control, is_quiet);
    let _ = std::fs::remove_file(place);
    ended
}

fn carry(path: &Path, plan: Plan, control: Control, is_quiet: bool) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Run(format!("can't start the runtime: {error}")))?;
    let _entered = runtime.enter();
    let namespace = Namespace::current().map_err(Failure::run)?;
    let watch = Watch::new(&namespace).map_err(Failure::run)?;
    let netlink = Netlink::new().map_err(Failure::run)?;

    let mut config = EngineConfig::new(plan.private_key.clone());
    config.mtu_bytes = plan.mtu_bytes as usize;
    config.has_fast_aes = has_fast_aes();
    config.peers = plan.peers.iter().map(|peer| peer_config(&plan, peer)).collect();
    let engine = Engine::new(config, zero_since_1970(), system_random());

    let tun = TunConfig { name: plan.name.clone(), udp_segmentation: true, ..TunConfig::default() };
    let tun = Tun::create(&tun).map_err(Failure::run)?;
    routes::set_up(&netlink, &plan).map_err(Failure::run)?;
    let all = routes::wanted(&plan.addresses, &plan.peers);
    Led::default().check(&mut Through::new(&netlink, &plan.name), &all).map_err(Failure::run)?;
    let gateway = forward(&plan)?;
    let listen_port = plan.listen_port;
    let running = Arc::new(Running::new(path, plan, &engine, is_quiet)?);
    let (mut driver, handle) = Driver::new(engine, tun).map_err(Failure::run)?;
    if let Some(port) = listen_port {
        driver.open_socket(true, port, None).map_err(Failure::run)?;
        match driver.open_socket(false, port, None) {
            // A machine without IPv6 has none of it.
            Err(error) if errno_of(&error) == Some(Errno::AFNOSUPPORT.raw_os_error()) => {}
            opened => drop(opened.map_err(Failure::run)?),
        }
    }

    let (ended, end) = tokio::sync::oneshot::channel();
    let carrier = std::thread::Builder::new().name("tunnel".into()).spawn(move || {
        let _ = ended.send(driver.run());
    });
    let carrier = carrier.map_err(Failure::run)?;
    answer(&running, &handle, control)?;
    let ending = Arc::clone(&running);
    let mut following = Following { running, handle: handle.clone(), gateway, lacks_paths: None };
    let ended = runtime.block_on(following.follow(watch, end));
    // Not within the runtime, which must not wait.
    let closed = following.gateway.take().map_or(Ok(()), Gateway::close);
    // What went since the last look is of the budgets, too.
    let counted = handle.ask({
        let ending = Arc::clone(&ending);
        move |driver| ending.state().count(driver)
    });
    handle.stop();
    let _ = carrier.join();
    closed.map_err(Failure::run)?;
    counted.unwrap_or(Ok(())).map_err(Failure::run)?;
    ending.state().budgets.save().map_err(Failure::run)?;
    ended
}

/// Passes on what comes through the device, or is to go there, if that is wanted.
fn forward(plan: &Plan) -> Result<Option<Gateway>, Failure> {
    let Some(forward) = &plan.forward else { return Ok(None) };
    let options = GatewayOptions {
        lan: forward.lan.clone(),
        internet: forward.internet,
        masquerade: forward.masquerade,
        addresses: plan.addresses.iter().map(|own| own.address).collect(),
        has_v6: plan.has_v6(),
        mtu_bytes: plan.mtu_bytes,
    };
    Gateway::open(&plan.name, options).map(Some).map_err(Failure::run)
}

/// Answers questions on a thread of their own.
fn answer(running: &Arc<Running>, handle: &Handle<Driver>, control: Control) -> Result<(), Failure> {
    let (running, handle) = (Arc::clone(running), handle.clone());
    let serving = move || {
        control.serve(answering(|question, of| match question {
            Question::Status => Answer::Text(status::report(&running, &handle)),
            Question::Down => {
                running.ending.notify_one();
                Answer::Text("ended\n".into())
            }
            Question::Reload => match running.reload(&handle) {
                Ok(told) => Answer::Text(told.join("\n") + "\n"),
                Err(error) => Answer::mistake(&error),
            },
            Question::File => Answer::Text(running.file.display().to_string()),
            Question::Record => match recording::begin(&running, &handle, of) {
                Ok(write) => Answer::Lines(Box::new(write)),
                Err(error) => Answer::mistake(&error),
            },
        }));
    };
    let thread = std::thread::Builder::new().name("tunnel-control".into()).spawn(serving);
    thread.map(drop).map_err(Failure::run)
}

/// What follows the interfaces.
struct Following {
    running: Arc<Running>,
    handle: Handle<Driver>,
    gateway: Option<Gateway>,
    /// Why the interfaces could not be looked at, as it was told.
    lacks_paths: Option<String>,
}

impl Following {
    /// Until the driver ends, somebody asks for the end, or a signal comes.
    async fn follow(
        &mut self,
        mut watch: Watch,
        mut end: tokio::sync::oneshot::Receiver<std::io::Result<()>>,
    ) -> Result<(), Failure> {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::run)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(Failure::run)?;
        self.tell(&format!("{} is up; `polypath tunnel status` shows it", self.running.state().plan.name));
        self.tell_of_leaks().await;
        let (mut endpoints, mut lookups) = (Endpoints::default(), Lookups::new());
        endpoints.ask(self.asked());
        let mut wants_paths = true;
        let mut tried_at = Instant::now();
        let mut next_look = Instant::now() + self.interval();
        loop {
            if std::mem::take(&mut wants_paths) {
                self.take_paths(&endpoints).await;
                self.lead(&endpoints).await?;
            }
            lookups.begin(endpoints.take_due());
            tokio::select! {
                changed = watch.changed() => {
                    if changed.is_none() {
                        return Err(Failure::Run("the system tells no more of its interfaces".into()));
                    }
                    self.update_gateway().await?;
                    endpoints.look_again(&[]);
                    wants_paths = true;
                }
                () = self.running.changed.notified() => {
                    endpoints.ask(self.asked());
                    next_look = next_look.min(Instant::now() + self.interval());
                    wants_paths = true;
                }
                (key, found) = lookups.next() => {
                    let outcome = endpoints.handle_found(key, found);
                    outcome.told.iter().for_each(|line| self.tell(line));
                    wants_paths = outcome.has_changed;
                }
                () = tokio::time::sleep_until(next_look) => {
                    let seen = self.look();
                    wants_paths = seen.budgets_changed;
                    if tried_at.elapsed() >= LOOK_AGAIN {
                        tried_at = Instant::now();
                        endpoints.look_again(&seen.silent);
                        wants_paths |= self.lacks_something();
                    }
                    next_look = Instant::now() + self.interval();
                }
                () = self.running.ending.notified() => return Ok(()),
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

    fn tell(&self, line: &str) {
        if !self.running.is_quiet {
            complain(line);
        }
    }

    /// Something could not be done, and is tried again.
    fn lacks_something(&self) -> bool {
        self.lacks_paths.is_some() || self.running.lacks_routes()
    }

    fn interval(&self) -> SystemDuration {
        let has_budgets = self.running.state().plan.uplinks.budgets().next().is_some();
        if has_budgets { COUNT_AGAIN } else { LOOK_AGAIN }
    }

    /// How peers and budgets are.
    fn look(&self) -> Seen {
        let running = Arc::clone(&self.running);
        let seen = self.handle.ask(move |driver| running.state().look(driver)).unwrap_or_default();
        seen.told.iter().for_each(|line| self.tell(line));
        seen
    }

    /// The peers' endpoints.
    fn asked(&self) -> BTreeMap<PeerId, Vec<String>> {
        self.running.state().peers().map(|(id, peer)| (id, peer.endpoints.clone())).collect()
    }

    /// Leads the networks of peers that are known through the device.
    async fn lead(&self, endpoints: &Endpoints) -> Result<(), Failure> {
        let running = Arc::clone(&self.running);
        running.state().known.clone_from(endpoints.known());
        let told = tokio::task::spawn_blocking(move || running.lead()).await.map_err(Failure::run)?;
        told.iter().for_each(|line| self.tell(line));
        Ok(())
    }

    /// Takes the paths that the interfaces give now. If they can't be looked at, those of before stay.
    async fn take_paths(&mut self, endpoints: &Endpoints) {
        let state = match read_state().await {
            Ok(state) => state,
            Err(error) => {
                let line = format!("paths can't follow the interfaces: {error}");
                if self.lacks_paths.as_ref() != Some(&line) {
                    self.tell(&line);
                }
                self.lacks_paths = Some(line);
                return;
            }
        };
        self.lacks_paths = None;
        let paths = {
            let running = self.running.state();
            wanted(&state, &running.plan.name, (&running.plan.uplinks, &running.budgets), &endpoints.found())
        };
        let running = Arc::clone(&self.running);
        let told = self.handle.ask(move |driver| running.state().follow(driver, &paths));
        told.unwrap_or_default().iter().for_each(|line| self.tell(line));
    }

    /// Interfaces have changed: those that are new may have to pass something on.
    async fn update_gateway(&mut self) -> Result<(), Failure> {
        let Some(mut gateway) = self.gateway.take() else { return Ok(()) };
        let updating = tokio::task::spawn_blocking(move || {
            let result = gateway.update();
            (gateway, result)
        });
        let (gateway, result) = updating.await.map_err(Failure::run)?;
        self.gateway = Some(gateway);
        if let Err(error) = result {
            self.tell(&format!("what is forwarded can't follow the interfaces: {error}"));
        }
        Ok(())
    }

    /// Where all of IPv4 goes through the tunnel, people expect the rest to do so too.
    async fn tell_of_leaks(&self) {
        if !self.running.state().plan.leaves_out_v6() {
            return;
        }
        // That it can't be looked at is told when paths are taken.
        let Ok(state) = read_state().await else { return };
        if state.routes.iter().any(|route| route.is_default() && route.destination.0.is_ipv6()) {
            self.tell("IPv6 goes past the tunnel; \"::/0\" among a peer's allowed-ips takes it in");
        }
    }
}

/// The interfaces and routes of this machine.
async fn read_state() -> std::io::Result<SystemState> {
    let reading = tokio::task::spawn_blocking(|| SystemState::read(&Netlink::new()?));
    reading.await.map_err(std::io::Error::other)?
}
