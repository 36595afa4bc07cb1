use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use polypath_stack::Engine;
use polypath_stack::engine::{ConnectOptions, Stream};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep_until};

use super::blocks::{Offer, datagram_bytes};
use super::control::{Control, unexpected};
use super::error::INTERRUPTED;
use super::flow::Flow;
use super::measurement::{Measurement, Quotas};
use super::parameters::{Amount, Parameters, Role};
use super::progress::Progress;
use super::report::{HostPort, Start};
use super::totals::{End, Report, Results};
use super::wire::{COOKIE_BYTES, Cookie, State};
use super::{Error, sockets};

/// How long nothing may move, unless something else is said.
pub(super) const PROGRESS_LIMIT: Duration = Duration::from_secs(60);
/// How long a stack's peer may take to have a connection in its queue before the next one follows.
const IN_ORDER: Duration = Duration::from_secs(2);

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
        self.parameters.check().map_err(Error::Parameters)?;
        let cookie = Cookie::random();
        let mut stop = pin!(stop);
        let begin = async {
            let (mut control, parameters) = self.ask(&cookie).await?;
            let flows = self.open_flows(&cookie, &parameters).await?;
            control.expect(State::TestStart).await?;
            control.expect(State::TestRunning).await?;
            Ok::<_, Error>((control, parameters, flows))
        };
        let (control, parameters, flows) = tokio::select! {
            begun = begin => begun?,
            () = stop.as_mut() => return Err(Error::Interrupted),
        };
        let mss_bytes = control_mss(&control);
        let mut start = Start::new(&parameters, cookie.text(), mss_bytes, &flows);
        start.connecting_to = Some(HostPort { host: self.server_name.clone(), port: self.server.port() });
        progress(Progress::Started(&start));
        self.measure(control, &parameters, flows, start, (stop, progress)).await
    }

    async fn measure(
        &self,
        mut control: Control,
        parameters: &Parameters,
        flows: Vec<Flow>,
        start: Start,
        (stop, mut progress): (impl Future<Output = ()>, impl FnMut(Progress<'_>)),
    ) -> Result<Report, Error> {
        let mut measurement = Measurement::start(parameters, Role::Client, flows);
        measurement.limit_progress(self.progress_limit);
        let mut error = None;
        let stop = async {
            stop.await;
            error = Some(INTERRUPTED.to_string());
        };
        let until = wait_for_end(&mut control, parameters, measurement.quotas(), stop);
        if let Err(error) = measurement.run(until, &mut progress).await {
            if !matches!(error, Error::Terminated | Error::Refused(_)) {
                // If the server is still there, it need not wait.
                let _ = control.send(State::ClientTerminate).await;
            }
            return Err(error);
        }
        measurement.stop_sending();
        let own = measurement.results();
        if error.is_none() {
            measurement.settle().await;
        }
        control.send(State::TestEnd).await?;
        control.expect(State::ExchangeResults).await?;
        control.send_block(&own.exchanged(parameters, Role::Client)).await?;
        let exchanged = control.exchanged(parameters.wants_server_output).await?;
        control.expect(State::DisplayResults).await?;
        control.send(State::Done).await?;
        control.close().await;
        let end = End::new(parameters, Role::Client, &own, &Results::of_peer(&exchanged, &own));
        Ok(Report {
            start,
            intervals: measurement.finish().await,
            end,
            title: parameters.title.clone(),
            extra_data: parameters.extra_data.clone(),
            server_output_json: exchanged.server_output_json.filter(|_| parameters.wants_server_output),
            server_output_text: exchanged.server_output_text.filter(|_| parameters.wants_server_output),
            error,
        })
    }

    /// The control connection, when the server has taken the parameters.
    async fn ask(&self, cookie: &Cookie) -> Result<(Control, Parameters), Error> {
        let stream = self.engine.connect(self.server, &self.connect).await.map_err(self.unreachable())?;
        let mut control = Control::new(stream);
        control.send_cookie(cookie).await?;
        control.expect(State::ParameterExchange).await?;
        let mut parameters = self.parameters.clone();
        if parameters.is_udp() && parameters.block_bytes.is_none() {
            parameters.block_bytes = Some(datagram_bytes(control_mss(&control)));
        }
        control.send_block(&Offer::from(&parameters)).await?;
        control.expect(State::CreateStreams).await?;
        Ok((control, parameters))
    }

    fn unreachable(&self) -> impl Fn(io::Error) -> Error {
        let address = self.server;
        move |source| Error::Connect { address, source }
    }

    /// The data connections, one after the other: their order is all that tells them apart.
    async fn open_flows(&self, cookie: &Cookie, parameters: &Parameters) -> Result<Vec<Flow>, Error> {
        let lost = |error| Error::lost("data connection", error);
        let engine = match &self.engine {
            Engine::Kernel(engine) => {
                Engine::Kernel(engine.clone().with_options(sockets::before_connecting(parameters)))
            }
            other => other.clone(),
        };
        let mut flows = Vec::new();
        for number in 0..parameters.connections() {
            let sends = Role::Client.sends(parameters, number);
            let flow = if parameters.is_udp() {
                let local = self.connect.local.map(|local| local.ip());
                let socket = sockets::connect(self.server, local, parameters).await;
                Flow::over_datagrams(number, sends, socket.map_err(self.unreachable())?)
            } else {
                let mut stream =
                    engine.connect(self.server, &self.connect).await.map_err(self.unreachable())?;
                sockets::prepare(&stream, parameters)?;
                stream.write_all(cookie.as_bytes()).await.map_err(lost)?;
                stream.flush().await.map_err(lost)?;
                wait_for_place(&stream).await;
                Flow::over_stream(number, sends, stream)
            };
            flows.push(flow.map_err(lost)?);
        }
        Ok(flows)
    }
}

/// Bytes of a segment of the control connection.
fn control_mss(control: &Control) -> Option<u32> {
    control.info()?.subflows.first().map(|subflow| subflow.tcp.mss_bytes)
}

/// Over several paths, a later connection may overtake this one, until the peer has its first bytes.
async fn wait_for_place(stream: &Stream) {
    let Stream::Stack(_) = stream else { return };
    let has_arrived = || {
        let acked = |info: polypath_stack::engine::StreamInfo| {
            info.subflows.iter().any(|subflow| subflow.tcp.bytes_acked >= COOKIE_BYTES as u64)
        };
        stream.info().is_ok_and(acked)
    };
    let arriving = async {
        while !has_arrived() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    // The server finds out, if it goes wrong.
    let _ = tokio::time::timeout(IN_ORDER, arriving).await;
}

async fn wait_for_end(
    control: &mut Control,
    parameters: &Parameters,
    quotas: Quotas,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let end = match parameters.amount {
        Amount::Time(time) if !time.is_zero() => Some(Instant::now() + parameters.omit + time),
        _ => None,
    };
    let has_amount = parameters.bytes().is_some();
    tokio::select! {
        () = stop => Ok(()),
        () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => Ok(()),
        () = quotas.wait(), if has_amount => Ok(()),
        state = control.state() => Err(unexpected(state?)),
    }
}
