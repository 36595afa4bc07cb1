//! `polypath bench proxy`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;

use crate::bench::proxy::{self, ProxyConfig, ProxyResult, Row, Service, System};
use crate::command::{Failure, complain, print_json, print_line};

#[derive(Args, Debug)]
#[command(after_long_help = SCHEMA)]
pub(crate) struct Arguments {
    /// How often each is measured, by turns; medians count
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of each transfer, and of requests of each size
    #[arg(long, default_value_t = 3.0, value_parser = super::parse_seconds)]
    seconds: f64,
    /// Proxies, separated by commas; all that are there by default. `direct`, without any, is always among them
    #[arg(long, value_delimiter = ',', value_parser = parse_system)]
    systems: Vec<System>,
    /// What they are asked for, separated by commas: forward, connect, socks; all of it by default
    #[arg(long, value_delimiter = ',', value_parser = parse_service)]
    services: Vec<Service>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const SCHEMA: &str = "\
Three hosts in a row: clients, a proxy, a server; one proxy at a time, and none (`direct`: the host in the middle forwards packets). Services are a forwarded port (`forward`), HTTP's CONNECT (`connect`) and SOCKS 5 (`socks`). Ours is \
`polypath-tcp` (TCP at both sides), `polypath-kernel` (the kernel's Multipath TCP towards the server) and `polypath-tun` (our own stack towards the server); clients come by TCP. nginx (module stream) and HAProxy forward ports, Squid does CONNECT, Dante \
and microsocks SOCKS.\n\n\
Delays are those of connections that are opened one after the other, less the median of what they take without a proxy: from the client's call of connect until the server has accepted (`syn`); from that call until the server's answer \
to the client's first bytes is there, with all that CONNECT and SOCKS need before (`first-byte`); and the same question again on that connection (`echo`). Throughput is what the server sends over one connection and over a hundred. \
Processor time is that of the proxy's processes, and of the whole machine, for 1e9 bytes of one connection. Requests are answered with 1000 and with 100 000 bytes, each on a connection of its own, by 32 clients at a time. Memory is how much more the proxy's processes have (shared pages \
count once) with 1000 idle connections that a byte went over each way, for each of them; the kernel's is not in it.\n\n\
JSON: rows: name, service, figure, system (which of ours), ours, peers (a median by name), spreads (median, min, max by name), bound, held; direct (a spread by figure, delays in full), rounds, seconds, exchanges (connections of which delays were measured, in each round), \
skipped (why, by name), failures. The bound is the best of the others, and of delays nginx's figure where it takes part; polypath-tun may be twice as bad. Where one of the two is missing, ours, bound and held are null.";

fn parse_system(text: &str) -> Result<System, String> {
    System::ALL.into_iter().find(|system| system.name() == text).ok_or_else(|| {
        let names: Vec<&str> = System::ALL.iter().map(|system| system.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

fn parse_service(text: &str) -> Result<Service, String> {
    Service::ALL.into_iter().find(|service| service.name() == text).ok_or_else(|| {
        let names: Vec<&str> = Service::ALL.iter().map(|service| service.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let wanted = if arguments.systems.is_empty() { &System::ALL[..] } else { &arguments.systems };
    let services = if arguments.services.is_empty() { &Service::ALL[..] } else { &arguments.services };
    let (mut systems, mut skipped) = (Vec::new(), BTreeMap::new());
    for system in wanted {
        match system.find() {
            Ok(program) => systems.push((*system, program)),
            Err(why) => {
                complain(&format!("SKIPPED {system}: {why}"));
                skipped.insert(system.name(), why);
            }
        }
    }
    let config = ProxyConfig {
        rounds: arguments.rounds,
        length: Duration::from_secs_f64(arguments.seconds),
        systems,
        services: services.to_vec(),
    };
    let bar = super::progress(proxy::steps(&config));
    let result = proxy::run(&config, skipped, |message| {
        bar.set_message(message);
        bar.inc(1);
    });
    bar.finish_and_clear();
    let result = result.map_err(Failure::run)?;
    for failure in &result.failures {
        complain(failure);
    }
    if arguments.json { print_json(&result) } else { print_table(&result) }
}

fn print_table(result: &ProxyResult) -> Result<(), Failure> {
    print_line(&format!(
        "Medians of {}, {} s each; delays of {} connections, beyond those without a proxy",
        result.rounds, result.seconds, result.exchanges
    ))?;
    for (figure, spread) in &result.direct {
        print_line(&format!("{:<56}{:>12}", format!("direct {figure}"), number(spread.median)))?;
    }
    result.rows.iter().try_for_each(|row| print_line(&line(row)))
}

fn line(row: &Row) -> String {
    let ours = row.ours.map_or("-".to_string(), number);
    let peers: Vec<String> =
        row.peers.iter().map(|(name, value)| format!("{name} {}", number(*value))).collect();
    let verdict = match row.held {
        Some(true) => "; held",
        Some(false) => "; not held",
        None => "",
    };
    format!("{:<56}{ours:>12}  {}{verdict}", row.name, peers.join(", "))
}

/// Three digits at least, as figures differ a lot in size.
fn number(value: f64) -> String {
    if value.abs() < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for system in System::ALL {
            assert_eq!(parse_system(system.name()), Ok(system));
        }
        for service in Service::ALL {
            assert_eq!(parse_service(service.name()), Ok(service));
        }
        assert!(parse_system("relayd").is_err_and(|message| message.contains("polypath-kernel")));
    }

    #[test]
    fn numbers_have_the_digits_that_matter() {
        assert_eq!(
            (number(5.5), number(11_130.4), number(-0.25)),
            ("5.50".into(), "11130".into(), "-0.25".into())
        );
    }
}
