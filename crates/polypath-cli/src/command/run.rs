//! `polypath run`: any program, in a network whose TCP connections go over Multipath TCP.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use clap::Args;
use polypath_config::Policies;
use polypath_sandbox::{Enclosure, Inside, Launch, Publish, RunError, enter_and_execute};

use super::datagrams::DatagramLook;
use super::engine::{EngineArguments, Task};
use super::live::LiveArguments;
use super::ports::cannot_listen;
use super::shares::Begun;
use super::watch::Telling;
use super::{Failure, complain, log, network};

#[derive(Clone, Debug, Args)]
pub(super) struct Arguments {
    /// Reach the program from outside: its TCP port PORT becomes HOSTPORT at ADDR (all addresses of both
    /// families and 127.0.0.1 if none is named). UDP ports can't be published
    #[arg(short, long, value_name = "[ADDR:]HOSTPORT[:PORT]", value_parser = parse_publish)]
    publish: Vec<Publish>,
    /// An address by which the program reaches this host's loopback interface, for example 10.0.2.2
    #[arg(long, value_name = "ADDR")]
    host_loopback: Vec<IpAddr>,
    /// Largest packet between the program and Polypath, in bytes; it says nothing of the paths
    #[arg(long, value_name = "BYTES", default_value_t = 65_520, value_parser = clap::value_parser!(u16).range(1280..=65_520))]
    mtu: u16,
    /// Show nothing but failures, and what the program shows
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    live: LiveArguments,
    #[command(flatten)]
    engine: EngineArguments,
}

/// What the process that becomes the program is told.
#[derive(Debug, Args)]
pub(super) struct InsideArguments {
    #[arg(long)]
    channel: i32,
    #[arg(long)]
    mtu: u16,
    #[arg(long)]
    resolver: Vec<IpAddr>,
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// The subcommand of [`InsideArguments`].
pub(super) const INSIDE: &str = "run-inside";

/// `[ADDR:]HOSTPORT[:PORT]`, where an IPv6 address is in brackets.
fn parse_publish(text: &str) -> Result<Publish, String> {
    let expected =
        || format!("'{text}' is no port to publish; expected [ADDR:]HOSTPORT[:PORT], such as 8080:80");
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0).ok_or_else(expected);
    // As container tools have it.
    let given = match text.rsplit_once('/') {
        Some((_, "udp")) => {
            return Err(format!(
                "'{text}': UDP ports can't be published; expected one of TCP, such as 8080:80"
            ));
        }
        Some((given, "tcp")) => given,
        _ => text,
    };
    let (addr, ports) = match given.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        Some((addr, ports)) => (Some(addr), ports),
        None => match given.split_once(':') {
            Some((addr, ports)) if addr.parse::<Ipv4Addr>().is_ok() => (Some(addr), ports),
            _ => (None, given),
        },
    };
    let addr = addr.map(str::parse).transpose().map_err(|_| expected())?;
    let (outside, inside) = ports.split_once(':').unwrap_or((ports, ports));
    Ok(Publish { addr, outside: port(outside)?, inside: port(inside)? })
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let Some((program, rest)) = arguments.command.split_first() else {
        return Err(Failure::input("no command to run"));
    };
    let arguments =
        &Arguments { engine: arguments.engine.configured(Some(program), policies)?, ..arguments.clone() };
    let ports: Vec<u16> = arguments.publish.iter().map(|publish| publish.outside).collect();
    arguments.engine.end_if_dry(&ports)?;
    let enclosure = Enclosure {
        arguments: rest.to_vec(),
        mtu_bytes: arguments.mtu,
        host_loopback: arguments.host_loopback.clone(),
        publish: arguments.publish.clone(),
        ..Enclosure::new(program)
    };
    let resolvers = enclosure.resolvers.clone();
    let inside = |channel: i32| {
        let mut command = Command::new("/proc/self/exe");
        command.args(log::options_for_helpers());
        command.arg(INSIDE).arg(format!("--channel={channel}")).arg(format!("--mtu={}", arguments.mtu));
        command.args(resolvers.iter().map(|resolver| format!("--resolver={resolver}")));
        command.arg("--").args(&arguments.command);
        command
    };
    let launch = Launch::prepare(enclosure, inside).map_err(failure)?;
    let ended = network::block_on(async {
        let task = Task {
            listens: !arguments.publish.is_empty(),
            is_quiet: arguments.quiet,
            runs_program: true,
            ..Task::default()
        };
        let engine = arguments.engine.start(policies, &task).await?;
        let telling = if arguments.quiet { Telling::Silent } else { Telling::Line };
        let begun = Begun::connecting(&engine, "peer", arguments.engine.asked(), telling);
        let begun = if arguments.publish.is_empty() { begun } else { begun.of_server() };
        let _live = arguments.live.start_beside("polypath run", &engine)?;
        let _look = (!arguments.quiet).then(|| DatagramLook::start(launch.pid(), &arguments.publish));
        let ended = launch.run(engine.clone()).await.map_err(failure);
        match &ended {
            Ok(ended) if ended.exit_code() == 0 => begun.tell(&engine, arguments.quiet),
            _ => begun.tell_of_failure(&engine, arguments.quiet),
        }
        ended
    })?;
    match ended.exit_code() {
        0 => Ok(()),
        code => Err(Failure::Exit(code)),
    }
}

fn failure(error: RunError) -> Failure {
    let code = match error {
        RunError::Signalled(ended) => return Failure::Exit(ended.exit_code()),
        RunError::NotFound(_) => 127,
        RunError::NotExecutable(..) => 126,
        RunError::Publish { port, error: ref refused } => return cannot_listen(port, refused.kind(), &error),
        _ => return Failure::run(error),
    };
    complain(&error.to_string());
    Failure::Exit(code)
}

/// Becomes the program; returns only if that failed, which the process outside reports.
pub(super) fn run_inside(arguments: InsideArguments) -> Result<(), Failure> {
    let channel = polypath_sandbox::channel(arguments.channel).map_err(Failure::run)?;
    let inside =
        Inside { mtu_bytes: arguments.mtu, resolvers: arguments.resolver, command: arguments.command };
    enter_and_execute(channel, &inside);
    Err(Failure::Exit(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_to_publish_are_read_as_people_write_them() {
        let publish = |addr: Option<&str>, outside, inside| Publish {
            addr: addr.map(|addr| addr.parse().unwrap()),
            outside,
            inside,
        };
        assert_eq!(parse_publish("8080:80"), Ok(publish(None, 8080, 80)));
        assert_eq!(parse_publish("5201"), Ok(publish(None, 5201, 5201)));
        assert_eq!(parse_publish("192.0.2.1:8080:80"), Ok(publish(Some("192.0.2.1"), 8080, 80)));
        assert_eq!(parse_publish("[::]:8080:80"), Ok(publish(Some("::"), 8080, 80)));
        assert_eq!(parse_publish("8080:80/tcp"), Ok(publish(None, 8080, 80)));
        let udp = parse_publish("5300:53/udp").unwrap_err();
        assert!(udp.contains("UDP ports can't be published; expected one of TCP"), "{udp}");
        for wrong in ["", "0", "80:0", "x:80", "1:2:3:4", "[::1]80", "70000"] {
            assert!(parse_publish(wrong).is_err(), "{wrong}");
        }
    }
}
