//! The proxy as long as it runs: clients enter, SIGHUP has its file read again, SIGTERM ends it, and its socket does as much.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use polypath_config::Policies;
use polypath_proxy::net::{Connector, Proxy, Settings};
use polypath_stack::Engine;
use polypath_stack::engine::KernelEngine;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::MissedTickBehavior;

use super::super::engine::Task;
use super::super::metrics::OwnProxy;
use super::super::request_log::Log;
use super::super::uplink_names::UplinkNames;
use super::super::words::amount;
use super::super::{Failure, complain, print_line};
use super::answering::{Answering, Asked, Offered, offer};
use super::arguments::{Accept, RunArguments};
use super::doors::Doors;
use super::doubts::Doubts;
use super::fast_open::{Sides, take_first_packets};
use super::figures::Figures;
use super::file::Plan;
use super::handed_down::HandedDown;
use super::keeping::Place;
use super::limits::{self, Limits};
use super::stage::Stage;
use super::successor::Successor;
use super::surroundings::Machine;
use super::threads::Threads;
use super::told;

/// What connections of our own stack may take to close after the end.
const CLOSING: Duration = Duration::from_secs(5);
/// A reader of the log has so long for the last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

/// How often what is used of budgets is written, if that changes. Of a killed proxy, what came since is lost.
const SAVED: Duration = Duration::from_secs(10);

/// What a proxy is made of while it runs.
struct Running {
    doors: Doors,
    proxy: Proxy,
    limits: Arc<Limits>,
    doubts: Arc<Doubts>,
    machine: Arc<Machine>,
    stage: Stage,
}

/// What was looked at while the process had one thread.
pub(super) struct Given {
    pub(super) handed_down: HandedDown,
    pub(super) successor: Option<Successor>,
}

pub(super) async fn run(
    arguments: &RunArguments,
    policies: &Policies,
    mut plan: Plan,
    given: Given,
) -> Result<(), Failure> {
    let (ask, asked) = unbounded_channel();
    let mut wishes = Wishes::new(asked)?;
    let offered = offer(arguments.instance.as_deref())?;
    let own = OwnProxy::default();
    let ports = plan.entrances.iter().map(|entrance| entrance.listen.0.port());
    let task = Task {
        listens: arguments.accept == Accept::Engine,
        ports: ports.filter(|_| arguments.accept == Accept::Engine).collect(),
        is_quiet: arguments.quiet,
        proxy: own.clone(),
        ..Task::default()
    };
    let engine = arguments.engine.start(policies, &task).await?;
    let accepting = match arguments.accept {
        Accept::Kernel => Engine::from(KernelEngine::new()),
        Accept::Tcp => Engine::from(KernelEngine::plain_tcp()),
        Accept::Engine => engine.clone(),
    };
    let mut connector = Connector::new(engine.clone());
    let mut converting = accepting.clone();
    if arguments.fast_open {
        let sides = Sides::of(&plan);
        sides.check(&engine, &accepting)?;
        sides.warning().iter().for_each(|line| complain(line));
        connector = connector.with_fast_open();
        converting = take_first_packets(converting);
    }
    let multipath = (arguments.accept == Accept::Kernel).then(KernelEngine::new);
    let no_thread = |error| Failure::Run(format!("the log can't have a thread: {error}"));
    let (lines, written) = Log::new(io::stdout(), complain).map_err(no_thread)?;
    let lines = Arc::new(lines);
    // Who looks at the proxy may hold it on; at its end the lines are to be finished all the same.
    let logging = Arc::downgrade(&lines);
    let (is_quiet, is_json) = (arguments.quiet, arguments.json);
    let machine = Arc::new(Machine(UplinkNames::default()));
    let settings = Settings { surroundings: machine.clone(), ..plan.settings() };
    let proxy = Proxy::new(connector, settings, move |end| {
        if let Some(lines) = logging.upgrade().filter(|_| !is_quiet) {
            let now = SystemTime::now();
            lines.line(&if is_json { told::json(end, now) } else { told::text(end, now) });
        }
    });
    let name = offered.as_ref().map_or("proxy", Offered::name).to_owned();
    // Who offers figures goes on after the end, and must not hold the engine on.
    let figures = Arc::new(proxy.clone());
    let looked_at = Arc::downgrade(&figures);
    own.set(move || {
        let figures = looked_at.upgrade().map_or_else(Figures::default, |proxy| Figures::of(&proxy));
        figures.sample(String::new(), &name)
    });
    let are_of_clients = arguments.accept == Accept::Engine && matches!(engine, Engine::Stack(_));
    let limits = Arc::new(Limits::new(are_of_clients));
    limits::check(&proxy, &plan.throttle).map_err(Failure::Input)?;
    limits.follow_file(&proxy, &plan.throttle);
    let doubts = Arc::new(Doubts::default());
    doubts.set(plan.named());
    // Before anybody could use more. Root may read what its successor wrote.
    let lasting_name = offered.as_ref().and_then(Offered::lasting_name);
    let mut keeping = Place::find(lasting_name, given.successor.as_ref()).begin(&proxy);
    let stage = Stage::default();
    let doors = Doors::new([accepting, converting], multipath, proxy.clone(), given.handed_down)?;
    doors.check_handed_down(&plan.entrances)?.iter().for_each(|line| complain(line));
    let mut running = Running { doors, proxy: proxy.clone(), limits, doubts, machine, stage };
    for line in running.open(&plan).await? {
        tell(arguments, &line)?;
    }
    running.warnings().iter().for_each(|line| complain(line));
    plan.warnings().for_each(complain);
    // Before anybody is let in: nothing waited since.
    if let Some(successor) = &given.successor {
        successor.succeed()?;
        running.doors.set_without_rights(successor.name());
    }
    let mut answering = None;
    if let Some(offered) = &offered {
        let Running { limits, doubts, machine, stage, .. } = &running;
        let (limits, doubts) = (limits.clone(), doubts.clone());
        let (machine, stage) = (machine.clone(), stage.clone());
        let begun = Answering { proxy: proxy.clone(), limits, doubts, machine, stage, asked: ask };
        answering = Some(begun.begin(offered)?);
    }
    // Last, as where the system gives few threads, others are needed more.
    let threads = begin_threads(arguments)?;
    proxy.serve_by(threads.runtimes());
    tell_manager(&[NotifyState::Ready]);
    let mut saves = tokio::time::interval(SAVED);
    saves.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let wish = tokio::select! {
            wish = wishes.next() => wish,
            _ = saves.tick() => {
                keeping.save(&proxy);
                continue;
            }
        };
        match wish {
            Wish::Reload(reply) => {
                let said = match running.reload(arguments, &plan).await {
                    Ok((read, mut changes)) => {
                        plan = read;
                        changes.push("the file is read again: new connections go by it".into());
                        Ok(changes)
                    }
                    Err(Failure::Input(message) | Failure::Run(message)) => {
                        Err(format!("{message}; all stays as it was"))
                    }
                    Err(failure) => return Err(failure),
                };
                match &said {
                    Ok(lines) => lines.iter().for_each(|line| complain(line)),
                    Err(message) => complain(message),
                }
                // Who asked may have left.
                let _ = reply.map(|reply| reply.send(said.map(|lines| lines.join("\n"))));
            }
            Wish::End(reply) => {
                // Who hears the answer finds it so.
                running.stage.end(plan.drain);
                let _ = reply.map(|reply| reply.send(Ok((plan.drain + CLOSING).as_secs().to_string())));
                break;
            }
        }
    }
    let most = u32::try_from((plan.drain + CLOSING + LAST_LINES).as_micros()).unwrap_or(u32::MAX);
    tell_manager(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(most)]);
    keeping.save(&proxy);
    // Those within are known to the system until they have finished.
    let intercepting = running.doors.stop_intercepting().await;
    let within = proxy.sessions().count();
    if within > 0 && !arguments.quiet {
        complain(&format!(
            "{within} within have {:?} to finish; a second signal ends them at once",
            plan.drain
        ));
    }
    drop(running);
    tokio::select! {
        _ = proxy.drain(plan.drain) => {}
        () = wishes.end() => drop(proxy.drain(Duration::ZERO).await),
    }
    drop(threads);
    keeping.save(&proxy);
    let taken_down = match intercepting {
        Some(intercepting) => intercepting.close().await,
        None => Ok(()),
    };
    engine.drain(CLOSING).await;
    drop((proxy, figures, answering, offered));
    if let Some(lines) = Arc::into_inner(lines) {
        lines.finish(&written, LAST_LINES);
    }
    taken_down
}

/// Those that serve connections beside this one.
fn begin_threads(arguments: &RunArguments) -> Result<Threads, Failure> {
    let further = arguments.further_threads();
    let (threads, missing) = Threads::begin(further);
    let Some(error) = missing else { return Ok(threads) };
    let (got, wanted) = (threads.count() + 1, further + 1);
    if arguments.has_chosen_threads() {
        return Err(Failure::Run(format!(
            "--threads: the system gives {got} and no more ({error}): expected that many, or a higher limit (`ulimit -u`, `TasksMax`)"
        )));
    }
    complain(&format!("only {got} of {wanted} threads can serve connections: {error}"));
    Ok(threads)
}

/// Tells a service manager that wants to know, such as systemd where a unit has `Type=notify`.
fn tell_manager(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        complain(&format!("the service manager can't be told: {error}"));
    }
}

/// Where clients can enter is no line of the log.
fn tell(arguments: &RunArguments, line: &str) -> Result<(), Failure> {
    if arguments.quiet {
        return Ok(());
    }
    if arguments.json {
        complain(line);
        return Ok(());
    }
    print_line(line)
}

impl Running {
    /// Lets clients in where the plan says, and says what changed.
    async fn open(&mut self, plan: &Plan) -> Result<Vec<String>, Failure> {
        let changes = self.doors.follow(&plan.entrances).await?;
        self.stage.open(self.doors.report());
        Ok(changes)
    }

    /// Nothing is changed unless all of the file can be.
    async fn reload(
        &mut self,
        arguments: &RunArguments,
        before: &Plan,
    ) -> Result<(Plan, Vec<String>), Failure> {
        if arguments.file.is_none() {
            return Err(Failure::Input(
                "there is no file to be read again: expected `polypath proxy CONFIG.toml`".into(),
            ));
        }
        // What has no end, such as a pipe, would hold all up.
        if let Some(file) = arguments.file.as_ref().filter(|file| file.exists() && !file.is_file()) {
            return Err(Failure::Input(format!(
                "{}: no file that can be read again: expected one that stays",
                file.display()
            )));
        }
        let mut plan = arguments.plan()?;
        plan.keep_what_is_known(before);
        limits::check(&self.proxy, &plan.throttle).map_err(Failure::Input)?;
        let mut changes = self.open(&plan).await?;
        self.proxy.set_settings(Settings { surroundings: self.machine.clone(), ..plan.settings() });
        changes.extend(self.limits.follow_file(&self.proxy, &plan.throttle));
        self.doubts.set(plan.named());
        changes.extend(self.warnings());
        changes.extend(plan.warnings().map(Into::into));
        Ok((plan, changes))
    }

    /// What holds otherwise than somebody may think.
    fn warnings(&self) -> Vec<String> {
        let missing = self.doubts.lines(&self.limits.all());
        self.too_little_memory().into_iter().chain(missing).collect()
    }

    /// What to say of a limit of memory that lets nobody in.
    fn too_little_memory(&self) -> Option<String> {
        let memory = self.proxy.memory().filter(|memory| memory.is_full())?;
        Some(format!(
            "limits.memory: no client comes in now: the process has {} of memory, and may have {}",
            amount(memory.octets),
            amount(memory.most)
        ))
    }
}

type Reply = std::sync::mpsc::Sender<Result<String, String>>;

/// What is wanted of a running proxy, and who is to be told what became of it.
enum Wish {
    Reload(Option<Reply>),
    End(Option<Reply>),
}

/// Signals, and what comes by the socket.
struct Wishes {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    asked: UnboundedReceiver<Asked>,
}

impl Wishes {
    fn new(asked: UnboundedReceiver<Asked>) -> Result<Self, Failure> {
        let of = |kind| signal(kind).map_err(|error| Failure::Run(format!("can't handle signals: {error}")));
        Ok(Self {
            hangup: of(SignalKind::hangup())?,
            terminate: of(SignalKind::terminate())?,
            interrupt: of(SignalKind::interrupt())?,
            asked,
        })
    }

    async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.hangup.recv() => Wish::Reload(None),
            _ = self.terminate.recv() => Wish::End(None),
            _ = self.interrupt.recv() => Wish::End(None),
            Some(asked) = self.asked.recv() => match asked {
                Asked::Reload(reply) => Wish::Reload(Some(reply)),
                Asked::Down(reply) => Wish::End(Some(reply)),
            },
        }
    }

    /// What ends those within, too. What else is asked meanwhile has no answer.
    async fn end(&mut self) {
        loop {
            match self.next().await {
                Wish::Reload(_) => {}
                Wish::End(reply) => {
                    let _ = reply.map(|reply| reply.send(Ok("0".into())));
                    return;
                }
            }
        }
    }
}
