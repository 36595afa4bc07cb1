//! The proxy as long as it runs: clients enter, SIGHUP has its file read again, SIGTERM ends it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use polypath_config::Policies;
use polypath_proxy::convert::{OptionKind, ServerConfig, SupportedExtensions};
use polypath_proxy::net::{Connector, Entrance, EntranceKind, Proxy};
use polypath_stack::Engine;
use polypath_stack::engine::KernelEngine;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

use super::super::engine::Task;
use super::super::ports::cannot_listen;
use super::super::request_log::Log;
use super::super::{Failure, complain, print_line};
use super::arguments::{Accept, Arguments};
use super::entrances::{EntrancePlan, Listen, Protocol};
use super::file::Plan;
use super::told;

/// What connections of our own stack may take to close after the end.
const CLOSING: Duration = Duration::from_secs(5);
/// A reader of the log has so long for the last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

pub(super) async fn run(arguments: &Arguments, policies: &Policies, mut plan: Plan) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let ports = plan.entrances.iter().map(|entrance| entrance.listen.0.port());
    let task = Task {
        listens: arguments.accept == Accept::Engine,
        ports: ports.filter(|_| arguments.accept == Accept::Engine).collect(),
        is_quiet: arguments.quiet,
        ..Task::default()
    };
    let engine = arguments.engine.start(policies, &task).await?;
    let accepting = match arguments.accept {
        Accept::Kernel => Engine::from(KernelEngine::new()),
        Accept::Tcp => Engine::from(KernelEngine::plain_tcp()),
        Accept::Engine => engine.clone(),
    };
    let (lines, written) = Log::new(io::stdout(), complain).map_err(Failure::run)?;
    let lines = Arc::new(lines);
    let logging = lines.clone();
    let (is_quiet, is_json) = (arguments.quiet, arguments.json);
    let proxy = Proxy::new(Connector::new(engine.clone()), plan.settings(), move |end| {
        if !is_quiet {
            let now = SystemTime::now();
            logging.line(&if is_json { told::json(end, now) } else { told::text(end, now) });
        }
    });
    let mut doors = Doors { accepting, proxy: proxy.clone(), open: BTreeMap::new() };
    for line in doors.follow(&plan.entrances).await? {
        tell(arguments, &line)?;
    }
    loop {
        match signals.next().await {
            Told::Reload => match reload(arguments, &mut doors).await {
                Ok(Some((read, changes))) => {
                    plan = read;
                    changes.iter().for_each(|line| complain(line));
                    complain("the file is read again: new connections go by it");
                }
                Ok(None) => {
                    complain("there is no file to be read again: expected `polypath proxy CONFIG.toml`")
                }
                Err(Failure::Input(message) | Failure::Run(message)) => {
                    complain(&format!("{message}; all stays as it was"));
                }
                Err(failure) => return Err(failure),
            },
            Told::End => break,
        }
    }
    let within = proxy.sessions().count();
    if within > 0 && !arguments.quiet {
        complain(&format!(
            "{within} within have {:?} to finish; a second signal ends them at once",
            plan.drain
        ));
    }
    drop(doors);
    tokio::select! {
        _ = proxy.drain(plan.drain) => {}
        () = signals.end() => drop(proxy.drain(Duration::ZERO).await),
    }
    engine.drain(CLOSING).await;
    drop(proxy);
    if let Some(lines) = Arc::into_inner(lines) {
        lines.finish(&written, LAST_LINES);
    }
    Ok(())
}

/// Where clients can enter is no line of the log.
fn tell(arguments: &Arguments, line: &str) -> Result<(), Failure> {
    if arguments.quiet {
        return Ok(());
    }
    if arguments.json {
        complain(line);
        return Ok(());
    }
    print_line(line)
}

/// Nothing is changed unless all of the file can be.
async fn reload(arguments: &Arguments, doors: &mut Doors) -> Result<Option<(Plan, Vec<String>)>, Failure> {
    if arguments.file.is_none() {
        return Ok(None);
    }
    let plan = arguments.plan()?;
    let changes = doors.follow(&plan.entrances).await?;
    doors.proxy.set_settings(plan.settings());
    Ok(Some((plan, changes)))
}

/// Where clients enter now.
struct Doors {
    accepting: Engine,
    proxy: Proxy,
    open: BTreeMap<Listen, Door>,
}

struct Door {
    plan: EntrancePlan,
    serving: JoinHandle<()>,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Doors {
    /// Opens and closes what differs; those who are within stay. Says what it did.
    async fn follow(&mut self, wanted: &[EntrancePlan]) -> Result<Vec<String>, Failure> {
        let is_open =
            |plan: &EntrancePlan| self.open.get(&plan.listen).is_some_and(|door| door.plan == *plan);
        let missing: Vec<&EntrancePlan> = wanted.iter().filter(|plan| !is_open(plan)).collect();
        let mut told = Vec::new();
        // What is listened at for something else must be free first.
        let is_wanted = |listen: &Listen| wanted.iter().any(|plan| plan.listen == *listen && is_open(plan));
        let closing: Vec<Listen> = self.open.keys().copied().filter(|listen| !is_wanted(listen)).collect();
        let mut listeners = Vec::new();
        for plan in missing {
            let at = plan.listen.0;
            if closing.contains(&plan.listen)
                && let Some(door) = self.open.remove(&plan.listen)
            {
                door.serving.abort();
                // Its socket is closed when the task has ended.
                tokio::task::yield_now().await;
            }
            let listener = self.accepting.listen(at).await;
            let listener = listener.map_err(|error| cannot_listen(at.port(), error.kind(), error))?;
            listeners.push((plan, listener));
        }
        for listen in closing {
            if self.open.remove(&listen).is_some() {
                told.push(format!("Nobody enters at {} any more", listen.0));
            }
        }
        for (plan, listener) in listeners {
            let at = listener.local_addr().map_err(Failure::run)?;
            let (proxy, entrance) = (self.proxy.clone(), entrance(plan)?);
            let serving = tokio::spawn(async move { proxy.serve(listener, entrance).await });
            let leads = match &plan.protocol {
                Protocol::Forward(target) => format!(" to {target}"),
                _ => String::new(),
            };
            told.push(format!("Clients of {} enter at {at}{leads}", plan.protocol.name()));
            self.open.insert(plan.listen, Door { plan: plan.clone(), serving });
        }
        Ok(told)
    }
}

fn entrance(plan: &EntrancePlan) -> Result<Entrance, Failure> {
    let kind = match &plan.protocol {
        Protocol::Socks => EntranceKind::Socks,
        Protocol::Http => EntranceKind::Http,
        Protocol::Forward(target) => EntranceKind::Forward(target.clone()),
        Protocol::Convert => EntranceKind::Convert(Arc::new(ServerConfig::new(SupportedExtensions::new([
            OptionKind::MULTIPATH_TCP,
        ])))),
    };
    Ok(Entrance {
        proxy_protocol_from: plan.proxy_protocol_from.clone(),
        proxy_protocol_to_servers: plan.proxy_protocol_to_servers,
        ..kind.into()
    })
}

/// What is asked of a running proxy.
enum Told {
    Reload,
    End,
}

struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let of = |kind| signal(kind).map_err(|error| Failure::Run(format!("can't handle signals: {error}")));
        Ok(Self {
            hangup: of(SignalKind::hangup())?,
            terminate: of(SignalKind::terminate())?,
            interrupt: of(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.hangup.recv() => Told::Reload,
            _ = self.terminate.recv() => Told::End,
            _ = self.interrupt.recv() => Told::End,
        }
    }

    async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
