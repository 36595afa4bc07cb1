use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use polypath_stack::Engine;
use polypath_stack::engine::{ConnectOptions, Stream};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::error::INTERRUPTED;
use super::flow::Flow;
use super::measurement::Measurement;
use super::protocol::{Control, Message, greet};
use super::report::{End, HostPort, Report, Results, Role, Start};
use super::{Amount, Direction, Error, Parameters, Progress};

/// How long nothing may move, unless something else is said.
pub(super) const PROGRESS_LIMIT: Duration = Duration::from_secs(60);

/// The end that asks for a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// What carries the connections.
    pub engine: Engine,
    /// Where the server is.
    pub server: SocketAddr,
    /// The server's name in reports. Default its address.
    pub server_name: String,
    /// What is measured.
    pub parameters: Parameters,
    /// How connections are opened.
    pub connect: ConnectOptions,
    /// How long nothing may move. Default a minute; none waits for ever.
    pub progress_limit: Option<Duration>,
}

impl Client {
    /// A client with default options.
    #[must_use]
    pub(crate) fn new(engine: Engine, server: SocketAddr, parameters: Parameters) -> Self {
        let server_name = server.ip().to_string();
        let (connect, progress_limit) = (ConnectOptions::default(), Some(PROGRESS_LIMIT));
        Self { engine, server, server_name, parameters, connect, progress_limit }
    }

    /// Measures. A `stop` that completes ends the measurement early, with a report of what was until then, which says so.
    ///
    /// Errors: see [`Error`]; among them that the server is busy.
    pub(crate) async fn run(
        &self,
        stop: impl Future<Output = ()>,
        mut progress: impl FnMut(Progress<'_>),
    ) -> Result<Report, Error> {
        let parameters = &self.parameters;
        parameters.check().map_err(Error::Parameters)?;
        let cookie = cookie();
        let mut stop = pin!(stop);
        let (mut control, flows) = tokio::select! {
            connected = self.connect(&cookie) => connected?,
            () = stop.as_mut() => return Err(Error::Interrupted),
        };
        let mut start = Start::new(parameters, &cookie, Measurement::connected(&flows));
        start.connecting_to = Some(HostPort { host: self.server_name.clone(), port: self.server.port() });
        progress(Progress::Started(&start));
        let (mut measurement, drained) = Measurement::start(parameters, Role::Client, flows);
        measurement.limit_progress(self.progress_limit);
        let mut error = None;
        let stop = async {
            stop.await;
            error = Some(INTERRUPTED.to_string());
        };
        let until = wait_for_end(&mut control, parameters, drained, stop);
        measurement.run(until, &mut progress).await?;
        let own = measurement.results();
        control.send(&Message::Stop).await?;
        let peer = wait_for_results(&mut control).await?;
        control.send(&Message::Results(own.clone())).await?;
        control.close().await;
        let end = End::new(parameters, measurement.role(), &own, &peer);
        let intervals = measurement.finish().await;
        Ok(Report { start, intervals, end, error })
    }

    /// The connections, when the server lets them begin.
    async fn connect(&self, cookie: &str) -> Result<(Control, Vec<Flow>), Error> {
        let parameters = &self.parameters;
        let hello = Message::Control { cookie: cookie.into(), parameters: parameters.clone() };
        let mut control = Control::new(self.open(&hello).await?);
        match control.next_soon().await? {
            Message::Accepted => {}
            Message::Refused { reason } => return Err(Error::Refused(reason)),
            other => return Err(other.unexpected()),
        }
        let mut flows = Vec::new();
        for number in 0..parameters.connections() {
            let stream = self.open(&Message::Data { cookie: cookie.into(), number }).await?;
            choose_congestion(&stream, parameters)?;
            let flow = Flow::new(number, Role::Client.sends(parameters, number), stream);
            flows.push(flow.map_err(|error| Error::lost("data connection", error))?);
        }
        match control.next_soon().await? {
            Message::Start => Ok((control, flows)),
            Message::Refused { reason } => Err(Error::Refused(reason)),
            other => Err(other.unexpected()),
        }
    }

    async fn open(&self, hello: &Message) -> Result<Stream, Error> {
        let failed = |source| Error::Connect { address: self.server, source };
        let mut stream = self.engine.connect(self.server, &self.connect).await.map_err(failed)?;
        greet(&mut stream, hello).await.map_err(|error| Error::lost("new connection", error))?;
        Ok(stream)
    }
}

async fn wait_for_end(
    control: &mut Control,
    parameters: &Parameters,
    drained: oneshot::Receiver<()>,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let end = match parameters.amount {
        Amount::Time(time) => Some(Instant::now() + parameters.omit + time),
        Amount::Bytes(_) => None,
    };
    let (mut drained, mut stop) = (pin!(drained), pin!(stop));
    let mut all_here = parameters.direction == Direction::Upload;
    let mut all_there = parameters.direction == Direction::Download;
    while end.is_some() || !(all_here && all_there) {
        tokio::select! {
            () = &mut stop => return Ok(()),
            () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => return Ok(()),
            _ = &mut drained, if !all_here => all_here = true,
            message = control.next() => match message? {
                Message::Drained => all_there = true,
                other => return Err(other.unexpected()),
            },
        }
    }
    Ok(())
}

async fn wait_for_results(control: &mut Control) -> Result<Results, Error> {
    loop {
        match control.next_soon().await? {
            Message::Results(results) => return Ok(results),
            Message::Drained => {}
            other => return Err(other.unexpected()),
        }
    }
}

/// The kernel takes the choice from the socket; other engines took it from the options of the connection.
pub(super) fn choose_congestion(stream: &Stream, parameters: &Parameters) -> Result<(), Error> {
    match (stream, &parameters.congestion) {
        (Stream::Kernel(stream), Some(name)) => {
            stream.set_congestion(name).map_err(|source| Error::Congestion { name: name.clone(), source })
        }
        _ => Ok(()),
    }
}

/// A name that nobody guesses: the keys of the hashers come from the system's random numbers.
fn cookie() -> String {
    let random = || RandomState::new().hash_one(0);
    format!("{:016x}{:016x}", random(), random())
}
