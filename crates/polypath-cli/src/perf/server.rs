use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use polypath_stack::Engine;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::blocks::Exchanged;
use super::candidates::{Candidate, Candidates};
use super::client::PROGRESS_LIMIT;
use super::control::{Control, PATIENCE, unexpected};
use super::flow::{Flow, canonical};
use super::greeting::{self, Arrival};
use super::measurement::Measurement;
use super::parameters::{Parameters, Role};
use super::progress::Progress;
use super::report::{HostPort, Start};
use super::sockets::Door;
use super::text::{Unit, Writer};
use super::totals::{End, Report, Results};
use super::wire::{Cookie, State};
use super::{Error, sockets};

/// How long the next data connection may take, and all of them [`PATIENCE`].
const NEXT_CONNECTION: Duration = Duration::from_secs(5);
/// Tests whose late data connections are known for what they are.
const REMEMBERED: usize = 16;
/// More of what is printed here is not sent to clients.
const MAX_OUTPUT_BYTES: usize = 4 << 20;

/// The end that waits for measurements, and runs one at a time.
#[derive(Debug)]
pub(crate) struct Server {
    local: SocketAddr,
    /// Where datagrams arrive.
    datagrams_at: SocketAddr,
    arrivals: mpsc::Receiver<Arrival>,
    accepting: JoinHandle<()>,
    candidates: Candidates,
    progress_limit: Option<Duration>,
    interval: Option<Duration>,
    /// Clients that want what is printed here get JSON.
    is_json: bool,
    /// Of the last tests: what comes late belongs to nobody.
    last: VecDeque<Cookie>,
}

impl Server {
    /// Listens.
    pub(crate) async fn bind(engine: &Engine, local: SocketAddr) -> Result<Self, Error> {
        let listener = engine.listen(local).await.map_err(Error::Listen)?;
        let local = listener.local_addr().map_err(Error::Listen)?;
        let datagrams_at = match engine {
            Engine::Kernel(_) => local,
            // Addresses of a stack are not the system's.
            _ => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), local.port()),
        };
        let (arrivals, accepting) = greeting::accepted(listener);
        let (progress_limit, interval) = (Some(PROGRESS_LIMIT), Some(Duration::from_secs(1)));
        Ok(Self {
            local,
            datagrams_at,
            arrivals,
            accepting,
            candidates: Candidates::new(),
            progress_limit,
            interval,
            is_json: false,
            last: VecDeque::new(),
        })
    }

    /// Another limit to how long nothing may move in a measurement: a client that has gone keeps others from theirs.
    /// Default a minute; none waits for ever.
    pub(crate) fn set_progress_limit(&mut self, limit: Option<Duration>) {
        self.progress_limit = limit;
    }

    /// Another time between reports. Default a second.
    pub(crate) fn set_interval(&mut self, interval: Option<Duration>) {
        self.interval = interval;
    }

    /// Whether clients that want to see what is printed here get JSON. Default not: they get text.
    pub(crate) fn set_json(&mut self, is_json: bool) {
        self.is_json = is_json;
    }

    /// Where it listens.
    #[must_use]
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits for a client and runs its measurement. Whatever goes wrong, the server is ready for the next.
    pub(crate) async fn run_one(&mut self, mut progress: impl FnMut(Progress<'_>)) -> Result<Report, Error> {
        let client = self.next_client().await?;
        let Candidate { cookie, peer, mut control, parameters } = client;
        self.last.truncate(REMEMBERED - 1);
        self.last.push_front(cookie);
        let begun = self.begin(&mut control, &cookie, peer.ip(), &parameters).await;
        let flows = match begun {
            Ok(flows) => flows,
            Err(error) => {
                self.candidates.note_failure(peer);
                control.tell(&error).await;
                return Err(error);
            }
        };
        self.candidates.deny_all().await;
        let mss_bytes = Some(0);
        let mut start = Start::new(&parameters, cookie.text(), mss_bytes, &flows);
        start.accepted_connection =
            Some(HostPort { host: canonical(peer).ip().to_string(), port: peer.port() });
        progress(Progress::Started(&start));
        let measured = self.measure(&mut control, &parameters, flows, start, progress).await;
        if let Err(error) = &measured {
            control.tell(error).await;
        }
        measured
    }

    /// The data connections, when all of them are there.
    async fn begin(
        &mut self,
        control: &mut Control,
        cookie: &Cookie,
        client: IpAddr,
        parameters: &Parameters,
    ) -> Result<Vec<Flow>, Error> {
        let flows = if parameters.is_udp() {
            let door = self.open_door(parameters).map_err(Error::Listen)?;
            control.send(State::CreateStreams).await?;
            self.gather_datagrams(door, client, parameters, control).await?
        } else {
            control.send(State::CreateStreams).await?;
            self.gather(cookie, parameters, control).await?
        };
        control.send(State::TestStart).await?;
        control.send(State::TestRunning).await?;
        Ok(flows)
    }

    fn open_door(&self, parameters: &Parameters) -> io::Result<Door> {
        let at = self.datagrams_at;
        match Door::open(at, parameters) {
            // No IPv6 here.
            Err(error) if at.ip() == Ipv6Addr::UNSPECIFIED && error.kind() != io::ErrorKind::AddrInUse => {
                Door::open(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), at.port()), parameters)
            }
            door => door,
        }
    }

    async fn measure(
        &mut self,
        control: &mut Control,
        parameters: &Parameters,
        flows: Vec<Flow>,
        start: Start,
        mut progress: impl FnMut(Progress<'_>),
    ) -> Result<Report, Error> {
        let mut measurement = Measurement::start(parameters, Role::Server, flows);
        measurement.limit_progress(self.progress_limit);
        let stragglers = measurement.stragglers();
        let turned_away = turn_away(&mut self.arrivals);
        let mut gone = None;
        let until = async {
            let end = tokio::select! {
                result = wait_for_end(control) => result,
                () = turned_away => Err(dead()),
            };
            match end {
                Err(Error::Interrupted) => gone = Some("the client has terminated".to_string()),
                end => {
                    end?;
                    stragglers.wait().await;
                }
            }
            Ok(())
        };
        measurement.run(until, &mut progress).await?;
        drop(stragglers);
        measurement.stop_sending();
        let own = measurement.results();
        let peer = if gone.is_some() {
            Results::of_nobody(&own)
        } else {
            let mut exchanged = own.exchanged(parameters, Role::Server);
            if parameters.wants_server_output {
                let end = End::new(parameters, Role::Server, &own, &Results::of_nobody(&own));
                let printed = report(parameters, start.clone(), &measurement, end);
                add_output(&mut exchanged, printed, self.is_json);
            }
            tokio::select! {
                told = exchange(control, &exchanged) => Results::of_peer(&told?, &own),
                () = turn_away(&mut self.arrivals) => return Err(dead()),
            }
        };
        let end = End::new(parameters, Role::Server, &own, &peer);
        let mut report = report(parameters, start, &measurement, end);
        report.error = gone;
        measurement.finish().await;
        Ok(report)
    }

    async fn next_client(&mut self) -> Result<Candidate, Error> {
        loop {
            tokio::select! {
                client = self.candidates.next() => return client,
                arrival = next_arrival(&mut self.arrivals) => self.ask(arrival?),
            }
        }
    }

    /// Asks who comes for its parameters.
    fn ask(&mut self, arrival: Arrival) {
        // Data connections of a measurement that failed have nowhere to go.
        if !self.last.contains(&arrival.cookie) {
            self.candidates.ask(arrival, self.interval);
        }
    }

    /// The data connections, in the order in which they were accepted.
    async fn gather(
        &mut self,
        cookie: &Cookie,
        parameters: &Parameters,
        control: &mut Control,
    ) -> Result<Vec<Flow>, Error> {
        let mut gathered = Vec::new();
        let mut due = Due::now();
        while gathered.len() < parameters.connections() as usize {
            let arrival = tokio::select! {
                arrival = timeout_at(due.next(), next_arrival(&mut self.arrivals)) => arrival.map_err(|_| too_late())??,
                state = control.state() => return Err(unexpected(state?)),
            };
            if arrival.cookie == *cookie {
                sockets::prepare(&arrival.stream, parameters)?;
                gathered.push((arrival.order, arrival.stream));
                due.note();
            } else {
                self.ask(arrival);
            }
        }
        gathered.sort_by_key(|(order, _)| *order);
        let flow =
            |(number, (_, stream))| Flow::over_stream(number, Role::Server.sends(parameters, number), stream);
        let flows: io::Result<Vec<Flow>> = (0..).zip(gathered).map(flow).collect();
        flows.map_err(|error| Error::lost("data connection", error))
    }

    /// The streams of datagrams, as they come.
    async fn gather_datagrams(
        &mut self,
        mut door: Door,
        client: IpAddr,
        parameters: &Parameters,
        control: &mut Control,
    ) -> Result<Vec<Flow>, Error> {
        let mut due = Due::now();
        let mut flows = Vec::new();
        for number in 0..parameters.connections() {
            let mut next = std::pin::pin!(door.next(client, parameters));
            let socket = loop {
                tokio::select! {
                    socket = timeout_at(due.next(), &mut next) => break socket.map_err(|_| too_late())?,
                    state = control.state() => return Err(unexpected(state?)),
                    arrival = next_arrival(&mut self.arrivals) => self.ask(arrival?),
                }
            };
            due.note();
            let sends = Role::Server.sends(parameters, number);
            let flow = socket.and_then(|socket| Flow::over_datagrams(number, sends, socket));
            flows.push(flow.map_err(|error| Error::lost("data connection", error))?);
        }
        Ok(flows)
    }
}

/// When data connections are due.
#[derive(Debug)]
struct Due {
    last: Instant,
    next: Instant,
}

impl Due {
    fn now() -> Self {
        let now = Instant::now();
        Self { last: now + PATIENCE, next: now + NEXT_CONNECTION }
    }

    /// The next of them.
    fn next(&self) -> Instant {
        self.next.min(self.last)
    }

    /// One has come.
    fn note(&mut self) {
        self.next = Instant::now() + NEXT_CONNECTION;
    }
}

async fn next_arrival(arrivals: &mut mpsc::Receiver<Arrival>) -> Result<Arrival, Error> {
    arrivals.recv().await.ok_or_else(dead)
}

fn dead() -> Error {
    Error::Listen(io::Error::other("the task that accepts connections has died"))
}

/// What the client measured, for what was measured here.
async fn exchange(control: &mut Control, own: &Exchanged) -> Result<Exchanged, Error> {
    control.send(State::ExchangeResults).await?;
    let told = control.exchanged(false).await?;
    control.send_block(own).await?;
    control.send(State::DisplayResults).await?;
    // It has all that it needs; whether it says so or goes makes no difference.
    let _ = control.expect(State::Done).await;
    Ok(told)
}

/// What this end prints, if it is not too much.
fn add_output(exchanged: &mut Exchanged, report: Report, is_json: bool) {
    if is_json {
        let value = serde_json::to_value(&report).ok();
        exchanged.server_output_json = value.filter(|value| value.to_string().len() <= MAX_OUTPUT_BYTES);
    } else {
        let text = Writer::new(&report.start, Unit::default()).whole(&report);
        exchanged.server_output_text = Some(text).filter(|text| text.len() <= MAX_OUTPUT_BYTES);
    }
}

fn report(parameters: &Parameters, start: Start, measurement: &Measurement, end: End) -> Report {
    Report {
        start,
        intervals: measurement.intervals(),
        end,
        title: parameters.title.clone(),
        extra_data: parameters.extra_data.clone(),
        server_output_json: None,
        server_output_text: None,
        error: None,
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn too_late() -> Error {
    Error::lost("data connections", io::ErrorKind::TimedOut.into())
}

async fn wait_for_end(control: &mut Control) -> Result<(), Error> {
    match control.state().await? {
        State::TestEnd => Ok(()),
        other => Err(unexpected(other)),
    }
}

/// One measurement at a time: two would measure each other.
async fn turn_away(arrivals: &mut mpsc::Receiver<Arrival>) {
    while let Some(arrival) = arrivals.recv().await {
        arrival.refuse().await;
    }
}
