//! `polypath perf`.

mod daemon;
mod output;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::perf::text::Unit;
use crate::perf::{
    Amount, Client, DATAGRAM_BYTES, DEFAULT_DATAGRAM_RATE, DEFAULT_PORT, Direction, Error, MAX_BLOCK_BYTES,
    MAX_BURST, MAX_MSS_BYTES, MAX_STREAMS, MAX_WINDOW_BYTES, Parameters, Progress, Protocol, Server,
};
use clap::Args;
use polypath_config::Policies;
use polypath_mptcp::{ConnectionConfig, LiaOnSharedAccess};
use polypath_stack::Engine;
use polypath_stack::engine::ConnectOptions;
use tokio::signal::unix::{SignalKind, signal};

use super::engine::{EngineArguments, Task};
use super::live::LiveArguments;
use super::network::{Interruption, Signalled, block_on, block_on_saving, is_given, resolve};
use super::ports::cannot_listen;
use super::shares::Begun;
use super::transfer::{Patience, seconds};
use super::watch::Telling;
use super::{Failure, chosen, complain};
use output::{Form, Output};

/// How long a client sends.
const DEFAULT_TIME: Duration = Duration::from_secs(10);

#[derive(Args, Clone, Debug)]
#[command(group(clap::ArgGroup::new("end").required(true).args(["client", "server"])))]
pub(super) struct Arguments {
    /// Measure to the server at HOST, which runs `polypath perf -s` or `iperf3 -s`
    #[arg(short = 'c', long, value_name = "HOST")]
    client: Option<String>,
    /// Wait for clients that run `polypath perf -c` or `iperf3 -c`
    #[arg(short = 's', long)]
    server: bool,
    /// Port of the server
    #[arg(short = 'p', long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Address to listen at, or to connect from
    #[arg(short = 'B', long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Server: end after one client
    #[arg(short = '1', long, requires = "server")]
    one_off: bool,
    /// Server: go to the background once it listens
    #[arg(short = 'D', long, requires = "server")]
    daemon: bool,
    /// Server: write the number of the process into FILE
    #[arg(long, value_name = "FILE", requires = "server")]
    pidfile: Option<PathBuf>,
    /// Only IPv4
    #[arg(short = '4', long, conflicts_with = "version6")]
    version4: bool,
    /// Only IPv6
    #[arg(short = '6', long)]
    version6: bool,
    #[command(flatten)]
    test: TestArguments,
    #[command(flatten)]
    report: ReportArguments,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    live: LiveArguments,
    #[command(flatten)]
    engine: EngineArguments,
}

/// What the client asks for.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Test (client)")]
struct TestArguments {
    /// Datagrams instead of connections; they go over the system's sockets, whatever the engine
    #[arg(short = 'u', long)]
    udp: bool,
    /// Seconds to send; 0 until interrupted [default: 10]
    #[arg(short = 't', long, value_name = "SECONDS", value_parser = seconds)]
    time: Option<Duration>,
    /// Bytes to send instead, with K, M, G or T for multiples of 1024
    #[arg(short = 'n', long, value_name = "BYTES", value_parser = |text: &str| amount(text, 1024), conflicts_with = "time")]
    bytes: Option<u64>,
    /// Blocks to send instead, with K, M, G or T for multiples of 1024
    #[arg(short = 'k', long, value_name = "BLOCKS", value_parser = |text: &str| amount(text, 1024), conflicts_with_all = ["time", "bytes"])]
    blockcount: Option<u64>,
    /// Seconds at the beginning that do not count [default: 0]
    #[arg(short = 'O', long, value_name = "SECONDS", value_parser = seconds)]
    omit: Option<Duration>,
    /// Connections side by side [default: 1]
    #[arg(short = 'P', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_STREAMS)))]
    parallel: Option<u32>,
    /// The server sends
    #[arg(short = 'R', long, conflicts_with = "bidir")]
    reverse: bool,
    /// Both send, on connections of their own
    #[arg(long)]
    bidir: bool,
    /// Bytes written or read at once, with K or M for multiples of 1024 [default: 128K; with -u what fits into a packet]
    #[arg(short = 'l', long, value_name = "BYTES", value_parser = |text: &str| amount(text, 1024))]
    length: Option<u64>,
    /// Bits per second that each connection sends at most, with K, M, G or T for multiples of 1000; /N sends N blocks in a row; 0
    /// for no limit [default: none; with -u 1048576]
    #[arg(short = 'b', long, value_name = "RATE[/N]", value_parser = bitrate)]
    bitrate: Option<(u64, u32)>,
    /// Congestion control of both ends; with an engine of ours, of this end's sending
    #[arg(short = 'C', long, value_name = "NAME")]
    congestion: Option<String>,
    /// Multipath TCP, as it is by default; iperf3's server notes it
    #[arg(short = 'm', long, conflicts_with = "udp")]
    mptcp: bool,
    /// Bytes of the send and the receive buffer, with K or M for multiples of 1024
    #[arg(short = 'w', long, value_name = "BYTES", value_parser = |text: &str| amount(text, 1024))]
    window: Option<u64>,
    /// Bytes of the largest segment
    #[arg(short = 'M', long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(88..=i64::from(MAX_MSS_BYTES)), conflicts_with = "udp")]
    set_mss: Option<u16>,
    /// Small pieces leave at once
    #[arg(short = 'N', long, conflicts_with = "udp")]
    no_delay: bool,
    /// Type of service of packets: decimal, 0x with hexadecimal or 0 with octal digits (engines kernel and tcp)
    #[arg(short = 'S', long, value_name = "N", value_parser = type_of_service)]
    tos: Option<u8>,
    /// Send without a copy: sendfile(2) on the kernel's sockets, shared buffers in our stack
    #[arg(short = 'Z', long, conflicts_with = "udp")]
    zerocopy: bool,
    /// Counters in datagrams have 64 bits: for long tests at high rates
    #[arg(long)]
    udp_counters_64bit: bool,
    /// Text for the reports of both ends
    #[arg(long, value_name = "TEXT")]
    extra_data: Option<String>,
    /// Show what the server prints, too
    #[arg(long)]
    get_server_output: bool,
    /// Milliseconds to wait for a connection
    #[arg(long, value_name = "MS")]
    connect_timeout: Option<u64>,
}

/// How results are written.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Report")]
struct ReportArguments {
    /// Seconds between reports; 0 for none
    #[arg(short = 'i', long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Print the result as JSON, with iperf3's names
    #[arg(short = 'J', long)]
    json: bool,
    /// Print JSON as it comes: a line {"event":…,"data":…} for the start, each interval and the end
    #[arg(long, conflicts_with = "json")]
    json_stream: bool,
    /// Write rates in k, m, g, t (bits) or K, M, G, T (bytes)
    #[arg(short = 'f', long, value_name = "UNIT", value_parser = unit)]
    format: Option<Unit>,
    /// Begin every line with this text
    #[arg(short = 'T', long, value_name = "TEXT")]
    title: Option<String>,
    /// Append the report to FILE instead of printing it
    #[arg(long, value_name = "FILE")]
    logfile: Option<PathBuf>,
    /// Print each line at once, as it is always done
    #[arg(long)]
    forceflush: bool,
}

impl ReportArguments {
    fn output(&self) -> Result<Output, Failure> {
        let form = match (self.json, self.json_stream) {
            (true, _) => Form::Json,
            (_, true) => Form::JsonStream,
            _ => Form::Text,
        };
        Output::new(form, self.format.unwrap_or_default(), self.title.as_deref(), self.logfile.as_deref())
    }
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let engine = arguments.engine.configured(None, policies)?;
    let arguments = &Arguments { engine, ..arguments.clone() };
    if arguments.daemon && !daemon::is_in_background() {
        return daemon::start();
    }
    let mut output = arguments.report.output()?;
    let result = match &arguments.client {
        Some(host) => {
            let measured = async |interruption: &Interruption| {
                client(arguments, policies, host, interruption, &mut output).await
            };
            block_on_saving(measured)
        }
        None => block_on(server(arguments, policies, &mut output)),
    };
    if let Err(Failure::Input(message) | Failure::Run(message)) = &result {
        output.fail(message)?;
    }
    result
}

async fn client(
    arguments: &Arguments,
    policies: &Policies,
    host: &str,
    interruption: &Interruption,
    output: &mut Output,
) -> Result<(), Failure> {
    let parameters = parameters(arguments)?;
    let task = arguments.engine.connecting([host]).await;
    let is_quiet = output.form() != Form::Text;
    let engine = arguments.engine.start(policies, &Task { is_quiet, ..task }).await?;
    let _live = arguments.live.start("polypath perf", &engine)?;
    if let (Engine::Kernel(kernel), true) = (&engine, parameters.wants_mptcp)
        && kernel.is_plain_tcp()
    {
        return Err(Failure::input(
            "--mptcp: the engine is plain TCP; expected --engine kernel, tun or udp with it",
        ));
    }
    let connect = connect_options(arguments, policies, &engine)?;
    let family = |address: &SocketAddr| {
        !(arguments.version4 && address.is_ipv6() || arguments.version6 && address.is_ipv4())
    };
    let server = resolve(host, arguments.port, family).await?;
    let is_udp = parameters.protocol == Protocol::Udp;
    tell_of_datagrams(&engine, is_udp);
    let draining = engine.clone();
    let telling = if is_quiet { Telling::Silent } else { Telling::Line };
    let begun = Begun::connecting(&engine, "server", arguments.engine.asked(), telling);
    let begun = begun.reaching(Some(server.to_string()));
    let client = Client { server_name: host.into(), connect, ..Client::new(engine, server, parameters) };
    let client = Client { progress_limit: arguments.patience.limit(), ..client };
    let measure = async |signal: Signalled| {
        let report = client.run(signal.wait(), |progress| output.show(&progress)).await;
        draining.drain(Duration::from_secs(1)).await;
        report
    };
    let report = interruption.hold(measure).await.map_err(failure)?;
    output.finish(&report)?;
    // Datagrams are the system's: the paths carried the control connection alone, and its shares say nothing of the test.
    if report.error.is_some() {
        begun.tell_of_failure(&draining, is_quiet || is_udp);
    } else {
        begun.tell(&draining, is_quiet || is_udp);
    }
    match report.error {
        Some(error) if output.form() == Form::Text => Err(Failure::Run(error)),
        // It is in the report.
        Some(_) => Err(Failure::Exit(1)),
        None => output.say("\npolypath perf Done."),
    }
}

/// Our stack carries connections alone.
fn tell_of_datagrams(engine: &Engine, is_udp: bool) {
    if is_udp && matches!(engine, Engine::Stack(_)) {
        complain("UDP goes over the system's sockets: our stack carries the control connection alone");
    }
}

async fn server(arguments: &Arguments, policies: &Policies, output: &mut Output) -> Result<(), Failure> {
    arguments.test.refuse_at_server()?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::run)?;
    let task = Task::listening(arguments.bind.unwrap_or(Ipv6Addr::UNSPECIFIED.into()), arguments.port);
    let is_quiet = output.form() != Form::Text;
    let engine = arguments.engine.start(policies, &Task { is_quiet, ..task }).await?;
    let _live = arguments.live.start("polypath perf", &engine)?;
    let mut server = listen(arguments, &engine).await?;
    server.set_progress_limit(arguments.patience.limit());
    server.set_interval(Some(arguments.report.interval).filter(is_given));
    server.set_json(output.form() != Form::Text);
    let _pid_file = daemon::detach(arguments.pidfile.as_deref())?;
    for test in 1.. {
        let rule = "-----------------------------------------------------------";
        let listening = format!("Server listening on {} (test #{test})", server.local_addr().port());
        output.say(&format!("{rule}\n{listening}\n{rule}"))?;
        output.reset();
        let show = |progress: Progress<'_>| {
            if let Progress::Started(start) = &progress {
                tell_of_datagrams(&engine, start.test_start.protocol == "UDP");
            }
            output.show(&progress);
        };
        let result = tokio::select! {
            result = server.run_one(show) => result,
            // As iperf3's server does.
            Some(()) = interrupt.recv() => return Err(Failure::run("interrupt - the server has terminated")),
        };
        match result {
            Ok(report) => {
                output.finish(&report)?;
                if let (Some(error), Form::Text) = (&report.error, output.form()) {
                    complain(error);
                }
            }
            Err(error @ Error::Listen(_)) => return Err(failure(error)),
            Err(error) if arguments.one_off => return Err(failure(error)),
            Err(error) => {
                output.fail(&error.to_string())?;
                if output.form() == Form::Text {
                    complain(&error.to_string());
                }
            }
        }
        if arguments.one_off {
            break;
        }
    }
    Ok(())
}

/// Without a choice, at all addresses: of both families, where there are both.
async fn listen(arguments: &Arguments, engine: &Engine) -> Result<Server, Failure> {
    let v4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let v6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let at = |address| SocketAddr::new(address, arguments.port);
    match (arguments.bind, arguments.version4, arguments.version6) {
        (Some(address), ..) => Server::bind(engine, at(address)).await,
        (None, true, _) => Server::bind(engine, at(v4)).await,
        (None, _, true) => Server::bind(engine, at(v6)).await,
        _ => match Server::bind(engine, at(v6)).await {
            Err(Error::Listen(error)) if error.kind() != io::ErrorKind::AddrInUse => {
                Server::bind(engine, at(v4)).await
            }
            result => result,
        },
    }
    .map_err(|error| match error {
        Error::Listen(error) => cannot_listen(arguments.port, error.kind(), error),
        error => failure(error),
    })
}

/// What our stack takes from the options of a connection: congestion control, buffers and segments.
fn connect_options(
    arguments: &Arguments,
    policies: &Policies,
    engine: &Engine,
) -> Result<ConnectOptions, Failure> {
    let test = &arguments.test;
    let config = match engine {
        Engine::Stack(stack) => {
            if test.tos.is_some_and(|tos| tos > 0) {
                return Err(Failure::input(
                    "--tos: our stack has no type of service; expected --engine kernel or tcp with it",
                ));
            }
            let mut config = ConnectionConfig::clone(&stack.connection_config());
            if let Some(name) = &test.congestion {
                config.congestion = chosen(policies, "--congestion", name)?;
                config.lia_on_shared_access = LiaOnSharedAccess::Never;
            }
            let tcp = Arc::make_mut(&mut config.tcp);
            if let Some(bytes) = test.window {
                (tcp.send_buffer_bytes, tcp.receive_buffer_bytes) = (bytes, bytes);
            }
            if let Some(bytes) = test.set_mss {
                // With the headers of IPv4 and TCP.
                tcp.mtu_bytes = tcp.mtu_bytes.min(bytes + 40);
                tcp.min_mtu_bytes = tcp.min_mtu_bytes.min(tcp.mtu_bytes);
            }
            let is_own = test.congestion.is_some() || test.window.is_some() || test.set_mss.is_some();
            is_own.then(|| Arc::new(config))
        }
        _ => None,
    };
    Ok(ConnectOptions {
        local: arguments.bind.map(|address| SocketAddr::new(address, 0)),
        config,
        timeout: test.connect_timeout.map(Duration::from_millis),
        ..ConnectOptions::default()
    })
}

impl TestArguments {
    /// What is the client's to choose.
    fn refuse_at_server(&self) -> Result<(), Failure> {
        let given = [
            ("--udp", self.udp),
            ("--time", self.time.is_some()),
            ("--bytes", self.bytes.is_some()),
            ("--blockcount", self.blockcount.is_some()),
            ("--omit", self.omit.is_some()),
            ("--parallel", self.parallel.is_some()),
            ("--reverse", self.reverse),
            ("--bidir", self.bidir),
            ("--length", self.length.is_some()),
            ("--bitrate", self.bitrate.is_some()),
            ("--congestion", self.congestion.is_some()),
            ("--mptcp", self.mptcp),
            ("--window", self.window.is_some()),
            ("--set-mss", self.set_mss.is_some()),
            ("--no-delay", self.no_delay),
            ("--tos", self.tos.is_some()),
            ("--zerocopy", self.zerocopy),
            ("--udp-counters-64bit", self.udp_counters_64bit),
            ("--connect-timeout", self.connect_timeout.is_some()),
            ("--extra-data", self.extra_data.is_some()),
            ("--get-server-output", self.get_server_output),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => {
                Err(Failure::input(format!("{option} is the client's choice; expected it with --client")))
            }
            None => Ok(()),
        }
    }

    fn block_bytes(&self) -> Result<Option<usize>, Failure> {
        let Some(length) = self.length else { return Ok(None) };
        let (bounds, expected) = if self.udp {
            (DATAGRAM_BYTES, "expected 16 to 65507 with --udp")
        } else {
            (1..=MAX_BLOCK_BYTES, "expected 1 to 1M")
        };
        let bytes = usize::try_from(length).ok().filter(|bytes| bounds.contains(bytes));
        bytes.map(Some).ok_or_else(|| Failure::input(format!("--length: {expected}")))
    }

    fn rate_limit(&self) -> Option<u64> {
        let default = self.udp.then_some(DEFAULT_DATAGRAM_RATE);
        self.bitrate.map_or(default, |(rate, _)| Some(rate).filter(|rate| *rate > 0))
    }
}

fn parameters(arguments: &Arguments) -> Result<Parameters, Failure> {
    let test = &arguments.test;
    if test.window.is_some_and(|bytes| !(1..=MAX_WINDOW_BYTES).contains(&bytes)) {
        return Err(Failure::input("--window: expected 1 to 512M"));
    }
    let given = |text: &Option<String>| text.clone();
    Ok(Parameters {
        protocol: if test.udp { Protocol::Udp } else { Protocol::Tcp },
        streams: test.parallel.unwrap_or(1),
        direction: match (test.reverse, test.bidir) {
            (true, _) => Direction::Download,
            (_, true) => Direction::Both,
            _ => Direction::Upload,
        },
        block_bytes: test.block_bytes()?,
        amount: match (test.bytes, test.blockcount) {
            (Some(bytes), _) => Amount::Bytes(bytes),
            (_, Some(blocks)) => Amount::Blocks(blocks),
            _ => Amount::Time(test.time.unwrap_or(DEFAULT_TIME)),
        },
        omit: test.omit.unwrap_or_default(),
        interval: Some(arguments.report.interval).filter(is_given),
        rate_limit: test.rate_limit(),
        burst: test.bitrate.map_or(1, |(_, burst)| burst),
        congestion: given(&test.congestion).filter(|_| !test.udp),
        window_bytes: test.window,
        mss_bytes: test.set_mss,
        no_delay: test.no_delay,
        tos: test.tos.unwrap_or(0),
        has_wide_counters: test.udp_counters_64bit,
        is_zero_copy: test.zerocopy,
        wants_mptcp: test.mptcp,
        wants_server_output: test.get_server_output,
        title: given(&arguments.report.title),
        extra_data: given(&test.extra_data),
    })
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Parameters(_) | Error::Congestion { .. } | Error::Option { .. } => Failure::input(error),
        _ => Failure::run(error),
    }
}

/// A number with a prefix.
fn amount(text: &str, base: u64) -> Result<u64, String> {
    let expected = || "expected a number, such as 500 or 1.5M".to_string();
    let letter = text.chars().last().filter(char::is_ascii_alphabetic);
    let power = match letter.map(|letter| letter.to_ascii_lowercase()) {
        None => 0,
        Some(letter) => "kmgt".find(letter).ok_or_else(expected)? as u32 + 1,
    };
    let number: f64 = text.trim_end_matches(char::is_alphabetic).parse().map_err(|_| expected())?;
    let value = number * base.pow(power) as f64;
    if (0.0..1e18).contains(&value) { Ok(value as u64) } else { Err(expected()) }
}

/// A rate, and after a slash how many blocks go in a row.
fn bitrate(text: &str) -> Result<(u64, u32), String> {
    let (rate, burst) = text.split_once('/').unwrap_or((text, "1"));
    let burst = burst.parse().ok().filter(|burst| (1..=MAX_BURST).contains(burst));
    let burst = burst.ok_or_else(|| format!("expected 1 to {MAX_BURST} blocks after the slash"))?;
    Ok((amount(rate, 1000)?, burst))
}

/// In C's notation, as iperf3 has it.
fn type_of_service(text: &str) -> Result<u8, String> {
    let parsed = match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(digits), _) => u8::from_str_radix(digits, 16),
        (_, Some(digits)) if !digits.is_empty() => u8::from_str_radix(digits, 8),
        _ => text.parse(),
    };
    parsed.map_err(|_| "expected 0 to 255, such as 16, 0x10 or 020".into())
}

fn unit(text: &str) -> Result<Unit, String> {
    let mut letters = text.chars();
    let unit = letters.next().and_then(Unit::from_letter).filter(|_| letters.next().is_none());
    unit.ok_or_else(|| "expected one of k, m, g, t, K, M, G, T".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_prefixes() {
        assert_eq!(
            (amount("1.5M", 1000), amount("2k", 1024), amount("7", 10)),
            (Ok(1_500_000), Ok(2048), Ok(7))
        );
        assert_eq!(bitrate("10M/5"), Ok((10_000_000, 5)));
        assert!(bitrate("10M/0").is_err() && bitrate("10M/x").is_err());
        assert_eq!(["16", "0x10", "020", "0"].map(type_of_service), [Ok(16), Ok(16), Ok(16), Ok(0)]);
        assert!(type_of_service("256").is_err() && type_of_service("-1").is_err());
        for wrong in ["", "M", "-1", "1X", "1e30", "NaN"] {
            assert!(amount(wrong, 1000).is_err(), "{wrong}");
        }
    }
}
