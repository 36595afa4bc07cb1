use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use polypath_stack::Engine;
use polypath_stack::engine::{Listener, Stream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::client::{PROGRESS_LIMIT, choose_congestion};
use super::flow::{Flow, canonical};
use super::measurement::Measurement;
use super::protocol::{Control, Message, PATIENCE, read_greeting, write};
use super::report::{End, HostPort, Report, Role, Start};
use super::{Amount, Error, Parameters, Progress};

/// Connections that have not said yet what they are; more wait in the engine's backlog.
const MAX_GREETING: usize = 256;
/// Connections whose first frame nobody has looked at yet.
const MAX_WAITING: usize = 16;
/// After a failure to accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// The end that waits for measurements, and runs one at a time.
#[derive(Debug)]
pub(crate) struct Server {
    local: SocketAddr,
    arrivals: mpsc::Receiver<Arrival>,
    accepting: JoinHandle<()>,
    progress_limit: Option<Duration>,
}

#[derive(Debug)]
struct Arrival {
    hello: Message,
    stream: Stream,
    peer: SocketAddr,
}

impl Server {
    /// Listens.
    pub(crate) async fn bind(engine: &Engine, local: SocketAddr) -> Result<Self, Error> {
        let listener = engine.listen(local).await.map_err(Error::Listen)?;
        let local = listener.local_addr().map_err(Error::Listen)?;
        let (sender, arrivals) = mpsc::channel(MAX_WAITING);
        let accepting = tokio::spawn(accept_all(listener, sender));
        Ok(Self { local, arrivals, accepting, progress_limit: Some(PROGRESS_LIMIT) })
    }

    /// Another limit to how long nothing may move in a measurement: a client that has gone keeps others from theirs.
    /// Default a minute; none waits for ever.
    pub(crate) fn set_progress_limit(&mut self, limit: Option<Duration>) {
        self.progress_limit = limit;
    }

    /// Where it listens.
    #[must_use]
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits for a client and runs its measurement. Whatever goes wrong, the server is ready for the next.
    pub(crate) async fn run_one(&mut self, mut progress: impl FnMut(Progress<'_>)) -> Result<Report, Error> {
        let (cookie, parameters, stream, client) = self.next_client().await?;
        let mut control = Control::new(stream);
        if let Err(reason) = parameters.check() {
            control.send(&Message::Refused { reason: reason.clone() }).await?;
            return Err(Error::Parameters(reason));
        }
        control.send(&Message::Accepted).await?;
        let flows = match self.gather(&cookie, &parameters, &mut control).await {
            Ok(flows) => flows,
            Err(error) => {
                // If the client is still there, it wants to know.
                let _ = control.send(&Message::Refused { reason: error.to_string() }).await;
                return Err(error);
            }
        };
        let mut start = Start::new(&parameters, &cookie, Measurement::connected(&flows));
        start.accepted_connection =
            Some(HostPort { host: canonical(client).ip().to_string(), port: client.port() });
        control.send(&Message::Start).await?;
        progress(Progress::Started(&start));
        let (mut measurement, drained) = Measurement::start(&parameters, Role::Server, flows);
        measurement.limit_progress(self.progress_limit);
        let turned_away = turn_away(&mut self.arrivals);
        let until = async {
            tokio::select! {
                result = wait_for_stop(&mut control, &parameters, drained) => result,
                () = turned_away => Err(Error::Listen(io::ErrorKind::BrokenPipe.into())),
            }
        };
        measurement.run(until, &mut progress).await?;
        let own = measurement.results();
        control.send(&Message::Results(own.clone())).await?;
        let peer = match control.next_soon().await? {
            Message::Results(results) => results,
            other => return Err(other.unexpected()),
        };
        let end = End::new(&parameters, measurement.role(), &own, &peer);
        let intervals = measurement.finish().await;
        Ok(Report { start, intervals, end, error: None })
    }

    async fn next_client(&mut self) -> Result<(String, Parameters, Stream, SocketAddr), Error> {
        loop {
            let arrival = self.next_arrival().await?;
            // Data connections of a measurement that failed have nowhere to go.
            if let Message::Control { cookie, parameters } = arrival.hello {
                return Ok((cookie, parameters, arrival.stream, arrival.peer));
            }
        }
    }

    async fn next_arrival(&mut self) -> Result<Arrival, Error> {
        let gone = || Error::Listen(io::Error::other("the task that accepts connections has died"));
        self.arrivals.recv().await.ok_or_else(gone)
    }

    /// The data connections, in order.
    async fn gather(
        &mut self,
        cookie: &str,
        parameters: &Parameters,
        control: &mut Control,
    ) -> Result<Vec<Flow>, Error> {
        let mut flows: Vec<Option<Flow>> = (0..parameters.connections()).map(|_| None).collect();
        let deadline = Instant::now() + PATIENCE;
        while flows.iter().any(Option::is_none) {
            let arrival = tokio::select! {
                arrival = timeout_at(deadline, self.next_arrival()) => {
                    arrival.map_err(|_| Error::lost("data connections", io::ErrorKind::TimedOut.into()))??
                }
                message = control.next() => return Err(message?.unexpected()),
            };
            match arrival.hello {
                Message::Data { cookie: its, number } if its == cookie => {
                    let Some(place) = flows.get_mut(number as usize).filter(|place| place.is_none()) else {
                        return Err(Error::Protocol(format!("data connection {number}, which is none")));
                    };
                    choose_congestion(&arrival.stream, parameters)?;
                    let flow = Flow::new(number, Role::Server.sends(parameters, number), arrival.stream);
                    *place = Some(flow.map_err(|error| Error::lost("data connection", error))?);
                }
                _ => refuse(arrival).await,
            }
        }
        Ok(flows.into_iter().flatten().collect())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn wait_for_stop(
    control: &mut Control,
    parameters: &Parameters,
    mut drained: oneshot::Receiver<()>,
) -> Result<(), Error> {
    let mut is_drained = matches!(parameters.amount, Amount::Time(_));
    loop {
        tokio::select! {
            _ = &mut drained, if !is_drained => {
                is_drained = true;
                control.send(&Message::Drained).await?;
            }
            message = control.next() => match message? {
                Message::Stop => return Ok(()),
                other => return Err(other.unexpected()),
            },
        }
    }
}

/// One measurement at a time: two would measure each other.
async fn turn_away(arrivals: &mut mpsc::Receiver<Arrival>) {
    while let Some(arrival) = arrivals.recv().await {
        refuse(arrival).await;
    }
}

async fn refuse(mut arrival: Arrival) {
    if matches!(arrival.hello, Message::Control { .. }) {
        let reason = "it runs another test; try again later".into();
        // A client that has gone needs no answer.
        let _ = write(&mut arrival.stream, &Message::Refused { reason }).await;
    }
}

async fn accept_all(listener: Listener, arrivals: mpsc::Sender<Arrival>) {
    let greeting = Arc::new(Semaphore::new(MAX_GREETING));
    loop {
        let Ok(permit) = Arc::clone(&greeting).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((mut stream, peer)) => {
                let arrivals = arrivals.clone();
                tokio::spawn(async move {
                    let hello = read_greeting(&mut stream).await;
                    drop(permit);
                    if let Ok(hello) = hello {
                        // Nobody listens any more when the server is gone.
                        let _ = arrivals.send(Arrival { hello, stream, peer }).await;
                    }
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
