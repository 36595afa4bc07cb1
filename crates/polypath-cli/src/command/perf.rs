//! `polypath perf`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::perf::text::{Unit, Writer};
use crate::perf::{
    Amount, Client, DEFAULT_PORT, Direction, Error, MAX_BLOCK_BYTES, MAX_STREAMS, Parameters, Progress,
    Report, Server,
};
use clap::Args;
use polypath_config::Policies;
use polypath_mptcp::{ConnectionConfig, LiaOnSharedAccess};
use polypath_stack::Engine;
use polypath_stack::engine::ConnectOptions;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::engine::{EngineArguments, Task};
use super::network::{Interruption, Signalled, block_on, block_on_saving, is_given, resolve};
use super::shares::Begun;
use super::transfer::{Patience, seconds};
use super::{Failure, chosen, complain, print_json, print_line};

#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("end").required(true).args(["client", "server"])))]
pub(super) struct Arguments {
    /// Measure to the server at HOST, which runs `polypath perf -s`
    #[arg(short = 'c', long, value_name = "HOST")]
    client: Option<String>,
    /// Wait for clients that run `polypath perf -c`
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
    /// Seconds to send
    #[arg(short = 't', long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    time: Duration,
    /// Bytes to send instead, with K, M, G or T for multiples of 1024
    #[arg(short = 'n', long, value_name = "BYTES", value_parser = |text: &str| amount(text, 1024), conflicts_with = "time")]
    bytes: Option<u64>,
    /// Seconds between reports; 0 for none
    #[arg(short = 'i', long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Connections side by side
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_STREAMS)))]
    parallel: u32,
    /// The server sends
    #[arg(short = 'R', long, conflicts_with = "bidir")]
    reverse: bool,
    /// Both send, on connections of their own
    #[arg(long)]
    bidir: bool,
    /// Bytes written or read at once, with K or M for multiples of 1024 [default: 128K]
    #[arg(short = 'l', long, value_name = "BYTES", value_parser = |text: &str| amount(text, 1024))]
    length: Option<u64>,
    /// Bits per second that each connection sends at most, with K, M, G or T for multiples of 1000
    #[arg(short = 'b', long, value_name = "RATE", value_parser = |text: &str| amount(text, 1000))]
    bitrate: Option<u64>,
    /// Seconds at the beginning that do not count
    #[arg(short = 'O', long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    omit: Duration,
    /// Print the result as JSON, with iperf3's names
    #[arg(short = 'J', long)]
    json: bool,
    /// Write rates in k, m, g, t (bits) or K, M, G, T (bytes)
    #[arg(short = 'f', long, value_name = "UNIT", value_parser = unit)]
    format: Option<Unit>,
    /// Only IPv4
    #[arg(short = '4', long, conflicts_with = "version6")]
    version4: bool,
    /// Only IPv6
    #[arg(short = '6', long)]
    version6: bool,
    /// Milliseconds to wait for a connection
    #[arg(long, value_name = "MS")]
    connect_timeout: Option<u64>,
    /// Congestion control of both ends; with an engine of ours, of this end's sending
    #[arg(short = 'C', long, value_name = "NAME")]
    congestion: Option<String>,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    engine: EngineArguments,
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let result = match &arguments.client {
        Some(host) => {
            block_on_saving(async |interruption| client(arguments, policies, host, interruption).await)
        }
        None => block_on(server(arguments, policies)),
    };
    if let (true, Err(Failure::Input(message) | Failure::Run(message))) = (arguments.json, &result) {
        // Scripts look for it where iperf3 says it.
        print_json(&json!({ "error": message }))?;
    }
    result
}

async fn client(
    arguments: &Arguments,
    policies: &Policies,
    host: &str,
    interruption: &Interruption,
) -> Result<(), Failure> {
    let task = arguments.engine.connecting([host]).await;
    let engine = arguments.engine.start(policies, Task { is_quiet: arguments.json, ..task }).await?;
    let connect = connect_options(arguments, policies, &engine)?;
    let family = |address: &SocketAddr| {
        !(arguments.version4 && address.is_ipv6() || arguments.version6 && address.is_ipv4())
    };
    let server = resolve(host, arguments.port, family).await?;
    let draining = engine.clone();
    let begun = Begun::new(&engine, "server");
    let client =
        Client { server_name: host.into(), connect, ..Client::new(engine, server, parameters(arguments)?) };
    let client = Client { progress_limit: arguments.patience.limit(), ..client };
    let mut printer = Printer::new(arguments);
    let measure = async |signal: Signalled| {
        let report = client.run(signal.wait(), |progress| printer.show(&progress)).await;
        draining.drain(Duration::from_secs(1)).await;
        report
    };
    let report = interruption.hold(measure).await.map_err(failure)?;
    printer.finish(&report)?;
    begun.tell(&draining, arguments.json);
    match report.error {
        // It is in the report.
        Some(_) if arguments.json => Err(Failure::Exit(1)),
        Some(error) => Err(Failure::Run(error)),
        None if arguments.json => Ok(()),
        None => print_line("\npolypath perf Done."),
    }
}

async fn server(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::run)?;
    let task = Task::listening(arguments.bind.unwrap_or(Ipv6Addr::UNSPECIFIED.into()));
    let engine = arguments.engine.start(policies, Task { is_quiet: arguments.json, ..task }).await?;
    let mut server = listen(arguments, &engine).await?;
    server.set_progress_limit(arguments.patience.limit());
    for test in 1.. {
        if !arguments.json {
            let rule = "-----------------------------------------------------------";
            let listening = format!("Server listening on {} (test #{test})", server.local_addr().port());
            print_line(&format!("{rule}\n{listening}\n{rule}"))?;
        }
        let mut printer = Printer::new(arguments);
        let result = tokio::select! {
            result = server.run_one(|progress| printer.show(&progress)) => result,
            // As iperf3's server does.
            Some(()) = interrupt.recv() => return Err(Failure::run("interrupt - the server has terminated")),
        };
        match result {
            Ok(report) => printer.finish(&report)?,
            Err(error @ Error::Listen(_)) => return Err(failure(error)),
            Err(error) if arguments.one_off => return Err(failure(error)),
            Err(error) if arguments.json => print_json(&json!({ "error": error.to_string() }))?,
            Err(error) => complain(&error.to_string()),
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
    .map_err(failure)
}

/// A choice of congestion control is the only thing in which a connection differs from the engine's others.
fn connect_options(
    arguments: &Arguments,
    policies: &Policies,
    engine: &Engine,
) -> Result<ConnectOptions, Failure> {
    let config = match (&arguments.congestion, engine) {
        (Some(name), Engine::Stack(stack)) => {
            let congestion = chosen(policies, "--congestion", name)?;
            let config = ConnectionConfig::clone(&stack.connection_config());
            Some(Arc::new(ConnectionConfig {
                congestion,
                lia_on_shared_access: LiaOnSharedAccess::Never,
                ..config
            }))
        }
        _ => None,
    };
    Ok(ConnectOptions {
        local: arguments.bind.map(|address| SocketAddr::new(address, 0)),
        config,
        timeout: arguments.connect_timeout.map(Duration::from_millis),
    })
}

fn parameters(arguments: &Arguments) -> Result<Parameters, Failure> {
    let block_bytes = arguments.length.unwrap_or(128 << 10);
    let block_bytes = usize::try_from(block_bytes).ok().filter(|bytes| (1..=MAX_BLOCK_BYTES).contains(bytes));
    Ok(Parameters {
        streams: arguments.parallel,
        direction: match (arguments.reverse, arguments.bidir) {
            (true, _) => Direction::Download,
            (_, true) => Direction::Both,
            _ => Direction::Upload,
        },
        block_bytes: block_bytes.ok_or_else(|| Failure::input("--length: expected 1 to 1M"))?,
        amount: arguments.bytes.map_or(Amount::Time(arguments.time), Amount::Bytes),
        omit: arguments.omit,
        interval: Some(arguments.interval).filter(is_given),
        rate_limit: arguments.bitrate.filter(|rate| *rate > 0),
        congestion: arguments.congestion.clone(),
    })
}

/// Lines as they come, or nothing until the end.
struct Printer {
    unit: Unit,
    is_json: bool,
    writer: Option<Writer>,
}

impl Printer {
    fn new(arguments: &Arguments) -> Self {
        Self { unit: arguments.format.unwrap_or_default(), is_json: arguments.json, writer: None }
    }

    fn show(&mut self, progress: &Progress<'_>) {
        if self.is_json {
            return;
        }
        let text = match progress {
            Progress::Started(start) => self.writer.insert(Writer::new(start, self.unit)).start(start),
            Progress::Interval(interval) => match &self.writer {
                Some(writer) => writer.interval(interval),
                None => return,
            },
        };
        // A reader that has gone is noticed at the end.
        let _ = print_line(&text);
    }

    fn finish(&self, report: &Report) -> Result<(), Failure> {
        match &self.writer {
            _ if self.is_json => print_json(report),
            Some(writer) => print_line(&writer.end(report)),
            None => Ok(()),
        }
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Parameters(_) | Error::Congestion { .. } => Failure::input(error),
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
        for wrong in ["", "M", "-1", "1X", "1e30", "NaN"] {
            assert!(amount(wrong, 1000).is_err(), "{wrong}");
        }
    }
}
