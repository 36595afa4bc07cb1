use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use polypath_stack::Engine;
use polypath_stack::engine::{Listener, Stream};
use tokio::io::AsyncWriteExt;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::blocks::Exchanged;
use super::client::PROGRESS_LIMIT;
use super::control::{Control, PATIENCE, read_cookie, unexpected};
use super::flow::{Flow, canonical};
use super::measurement::Measurement;
use super::parameters::{Parameters, Role};
use super::progress::Progress;
use super::report::{HostPort, Start};
use super::sockets::Door;
use super::text::{Unit, Writer};
use super::totals::{End, Report, Results};
use super::wire::{Cookie, State, code};
use super::{Error, sockets};

/// Connections that have not said yet what they are; more wait in the engine's backlog.
const MAX_GREETING: usize = 256;
/// Connections whose cookie nobody has looked at yet.
const MAX_WAITING: usize = 16;
/// More of what is printed here is not sent to clients.
const MAX_OUTPUT_BYTES: usize = 4 << 20;
/// After a failure to accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// The end that waits for measurements, and runs one at a time.
#[derive(Debug)]
pub(crate) struct Server {
    local: SocketAddr,
    /// Where datagrams arrive.
    datagrams_at: SocketAddr,
    arrivals: mpsc::Receiver<Arrival>,
    accepting: JoinHandle<()>,
    progress_limit: Option<Duration>,
    interval: Option<Duration>,
    /// Clients that want what is printed here get JSON.
    is_json: bool,
    /// Of the last test: what comes late belongs to nobody.
    last: Option<Cookie>,
}

/// A connection that has said which test it belongs to.
#[derive(Debug)]
struct Arrival {
    /// In which order they were accepted.
    order: u64,
    cookie: Cookie,
    stream: Stream,
    peer: SocketAddr,
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
        let (sender, arrivals) = mpsc::channel(MAX_WAITING);
        let accepting = tokio::spawn(accept_all(listener, sender));
        let (progress_limit, interval) = (Some(PROGRESS_LIMIT), Some(Duration::from_secs(1)));
        Ok(Self {
            local,
            datagrams_at,
            arrivals,
            accepting,
            progress_limit,
            interval,
            is_json: false,
            last: None,
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
        self.last = Some(client.cookie);
        let mut control = Control::new(client.stream);
        let begun = self.begin(&mut control, &client.cookie, client.peer.ip()).await;
        let (parameters, flows) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                tell(&mut control, &error).await;
                return Err(error);
            }
        };
        let mss_bytes = Some(0);
        let mut start = Start::new(&parameters, client.cookie.text(), mss_bytes, &flows);
        start.accepted_connection =
            Some(HostPort { host: canonical(client.peer).ip().to_string(), port: client.peer.port() });
        progress(Progress::Started(&start));
        let measured = self.measure(&mut control, &parameters, flows, start, progress).await;
        if let Err(error) = &measured {
            tell(&mut control, error).await;
        }
        measured
    }

    /// The parameters and the data connections, when everything is there.
    async fn begin(
        &mut self,
        control: &mut Control,
        cookie: &Cookie,
        client: IpAddr,
    ) -> Result<(Parameters, Vec<Flow>), Error> {
        control.send(State::ParameterExchange).await?;
        let offer = control.offer().await?;
        let parameters = offer.parameters(self.interval).map_err(Error::Parameters)?;
        parameters.check().map_err(Error::Parameters)?;
        let flows = if parameters.is_udp() {
            let door = self.open_door(&parameters).map_err(Error::Listen)?;
            control.send(State::CreateStreams).await?;
            gather_datagrams(door, client, &parameters, control).await?
        } else {
            control.send(State::CreateStreams).await?;
            self.gather(cookie, &parameters, control).await?
        };
        control.send(State::TestStart).await?;
        control.send(State::TestRunning).await?;
        Ok((parameters, flows))
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
                () = turned_away => Err(Error::Listen(io::ErrorKind::BrokenPipe.into())),
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
        let mut peer = Results::of_nobody(&own);
        if gone.is_none() {
            control.send(State::ExchangeResults).await?;
            peer = Results::of_peer(&control.exchanged(false).await?, &own);
            let mut exchanged = own.exchanged(parameters, Role::Server);
            if parameters.wants_server_output {
                let end = End::new(parameters, Role::Server, &own, &Results::of_nobody(&own));
                self.add_output(&mut exchanged, report(parameters, start.clone(), &measurement, end));
            }
            control.send_block(&exchanged).await?;
            control.send(State::DisplayResults).await?;
            // It has all that it needs; whether it says so or goes makes no difference.
            let _ = control.expect(State::Done).await;
        }
        let end = End::new(parameters, Role::Server, &own, &peer);
        let mut report = report(parameters, start, &measurement, end);
        report.error = gone;
        measurement.finish().await;
        Ok(report)
    }

    /// What this end prints, if it is not too much.
    fn add_output(&self, exchanged: &mut Exchanged, report: Report) {
        if self.is_json {
            let value = serde_json::to_value(&report).ok();
            exchanged.server_output_json = value.filter(|value| value.to_string().len() <= MAX_OUTPUT_BYTES);
        } else {
            let text = Writer::new(&report.start, Unit::default()).whole(&report);
            exchanged.server_output_text = Some(text).filter(|text| text.len() <= MAX_OUTPUT_BYTES);
        }
    }

    async fn next_client(&mut self) -> Result<Arrival, Error> {
        loop {
            let arrival = self.next_arrival().await?;
            // Data connections of a measurement that failed have nowhere to go.
            if Some(arrival.cookie) != self.last {
                return Ok(arrival);
            }
        }
    }

    async fn next_arrival(&mut self) -> Result<Arrival, Error> {
        let gone = || Error::Listen(io::Error::other("the task that accepts connections has died"));
        self.arrivals.recv().await.ok_or_else(gone)
    }

    /// The data connections, in the order in which they were accepted.
    async fn gather(
        &mut self,
        cookie: &Cookie,
        parameters: &Parameters,
        control: &mut Control,
    ) -> Result<Vec<Flow>, Error> {
        let mut gathered = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while gathered.len() < parameters.connections() as usize {
            let arrival = tokio::select! {
                arrival = timeout_at(deadline, self.next_arrival()) => arrival.map_err(|_| too_late())??,
                state = control.state() => return Err(unexpected(state?)),
            };
            if arrival.cookie == *cookie {
                sockets::prepare(&arrival.stream, parameters)?;
                gathered.push((arrival.order, arrival.stream));
            } else {
                refuse(arrival).await;
            }
        }
        gathered.sort_by_key(|(order, _)| *order);
        let flow =
            |(number, (_, stream))| Flow::over_stream(number, Role::Server.sends(parameters, number), stream);
        let flows: io::Result<Vec<Flow>> = (0..).zip(gathered).map(flow).collect();
        flows.map_err(|error| Error::lost("data connection", error))
    }
}

fn report(parameters: &Parameters, start: Start, measurement: &Measurement, end: End) -> Report {
    Report {
        start,
        intervals: measurement.intervals().to_vec(),
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

/// The streams of datagrams, as they come.
async fn gather_datagrams(
    mut door: Door,
    client: IpAddr,
    parameters: &Parameters,
    control: &mut Control,
) -> Result<Vec<Flow>, Error> {
    let deadline = Instant::now() + PATIENCE;
    let mut flows = Vec::new();
    for number in 0..parameters.connections() {
        let socket = tokio::select! {
            socket = timeout_at(deadline, door.next(client, parameters)) => socket.map_err(|_| too_late())?,
            state = control.state() => return Err(unexpected(state?)),
        };
        let sends = Role::Server.sends(parameters, number);
        let flow = socket.and_then(|socket| Flow::over_datagrams(number, sends, socket));
        flows.push(flow.map_err(|error| Error::lost("data connection", error))?);
    }
    Ok(flows)
}

async fn wait_for_end(control: &mut Control) -> Result<(), Error> {
    match control.state().await? {
        State::TestEnd => Ok(()),
        other => Err(unexpected(other)),
    }
}

/// If the client is still there, it wants to know.
async fn tell(control: &mut Control, error: &Error) {
    let system = |error: &io::Error| error.raw_os_error().and_then(|number| u32::try_from(number).ok());
    let (code, errno) = match error {
        Error::Interrupted | Error::Terminated => return,
        Error::Parameters(text) if text.contains("parallel") => (code::STREAMS, None),
        Error::Parameters(text) if text.starts_with("blocks") || text.starts_with("datagrams") => {
            (code::BLOCK, None)
        }
        Error::Congestion { source, .. } => (code::CONGESTION, system(source)),
        Error::Option { source, .. } => (code::STREAM_ACCEPT, system(source)),
        Error::Listen(source) => (code::STREAM_LISTEN, system(source)),
        Error::Lost { source, .. } => (code::STREAM_READ, system(source)),
        _ => (code::PARAMETERS, None),
    };
    // It may have gone.
    let _ = control.send(State::ServerError { code, errno: errno.unwrap_or(0) }).await;
}

/// One measurement at a time: two would measure each other.
async fn turn_away(arrivals: &mut mpsc::Receiver<Arrival>) {
    while let Some(arrival) = arrivals.recv().await {
        refuse(arrival).await;
    }
}

async fn refuse(mut arrival: Arrival) {
    // A client that has gone needs no answer.
    let _ = arrival.stream.write_all(&State::AccessDenied.bytes()).await;
    let _ = arrival.stream.shutdown().await;
}

async fn accept_all(listener: Listener, arrivals: mpsc::Sender<Arrival>) {
    let greeting = Arc::new(Semaphore::new(MAX_GREETING));
    let mut order = 0;
    loop {
        let Ok(permit) = Arc::clone(&greeting).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((mut stream, peer)) => {
                let arrivals = arrivals.clone();
                order += 1;
                tokio::spawn(async move {
                    if let Ok(cookie) = read_cookie(&mut stream).await {
                        // Nobody listens any more when the server is gone.
                        let _ = arrivals.send(Arrival { order, cookie, stream, peer }).await;
                    }
                    // Who waits to be served takes a place, too.
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
