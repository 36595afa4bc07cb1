//! `polypath reorder`.

mod live;
mod page;
mod words;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use polypath_config::quantity::parse_span;
use polypath_units::Duration;

use super::network::block_on;
use super::{Failure, check_writable, print_json, print_line, write_file};
use crate::reorder::{Comparing, Numbers, Outcome, compare, examine};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// A capture (pcapng or pcap) of the receiver, or of the sender if another one follows; - for standard input
    #[arg(value_name = "CAPTURE", required_unless_present = "tunnel")]
    capture: Option<PathBuf>,
    /// The capture of the receiver: packets are found again by what they are, and the first capture says in which order they were sent
    #[arg(value_name = "RECEIVED")]
    received: Option<PathBuf>,
    /// Where a single capture has the order of sending: tcp, mptcp (data of all subflows), ip-id, rtp, or payload-u32@BYTES, a
    /// counter in UDP packets behind so many bytes (also u16, u64); payload-u32@8 for iperf3 [default: tcp]
    #[arg(long, value_name = "WHERE", conflicts_with_all = ["received", "tunnel"])]
    sequence: Option<Numbers>,
    /// Look only at packets to this address
    #[arg(long, value_name = "ADDRESS", conflicts_with = "tunnel")]
    to: Option<IpAddr>,
    /// Addresses and ports change between the two captures: packets are compared without them
    #[arg(long, requires = "received")]
    translated: bool,
    /// Instead of captures: what comes out of this tunnel of this host while it runs, by its interface
    #[arg(long, value_name = "NAME", conflicts_with = "capture")]
    tunnel: Option<String>,
    /// What comes from this peer, by its name or key; none is needed where the tunnel has only one
    #[arg(long, value_name = "PEER", requires = "tunnel")]
    peer: Option<String>,
    /// How long, such as 1min, or until SIGINT
    #[arg(long, value_name = "TIME", value_parser = parse_span, default_value = "10s", requires = "tunnel")]
    duration: Duration,
    /// A packet that is later than by so many others counts as lost
    #[arg(long, value_name = "PACKETS", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    window: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a page to FILE, with the densities as pictures
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(file) = &arguments.report {
        check_writable(file)?;
    }
    let Some(capture) = &arguments.capture else { return run_live(arguments) };
    let outcome = outcome(arguments, capture)?;
    if let Some(file) = &arguments.report {
        write_file(file, page::page(&outcome))?;
    }
    if arguments.json {
        print_json(&outcome)?;
    } else {
        print_line(words::words(&outcome).trim_end())?;
    }
    // What was read is told; that there was more must not be missed.
    let broken = outcome.captures.iter().find_map(|capture| Some((&capture.file, capture.broken.as_ref()?)));
    broken.map_or(Ok(()), |(file, broken)| {
        Err(Failure::Run(format!("{file}: {broken}; the figures are of what stands before")))
    })
}

fn run_live(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { tunnel, peer, duration, window, .. } = arguments;
    let tunnel = tunnel.as_deref().unwrap_or_default();
    let found = block_on(live::find(tunnel, peer.as_deref(), *duration, *window))?;
    if let Some(file) = &arguments.report {
        write_file(file, page::live_page(&found))?;
    }
    if arguments.json {
        print_json(&found)?;
    } else {
        print_line(words::live_words(&found).trim_end())?;
    }
    let broken =
        found.broken.map(|broken| Failure::Run(format!("{broken}; the figures are of what came before")));
    broken.map_or(Ok(()), Err)
}

fn outcome(arguments: &Arguments, capture: &Path) -> Result<Outcome, Failure> {
    let Arguments { received, to, window, .. } = arguments;
    let Some(received) = received else {
        let numbers = arguments.sequence.unwrap_or(Numbers::Tcp);
        return examine(capture, numbers, *to, *window).map_err(Failure::input);
    };
    if [capture, received].into_iter().any(|path| path == Path::new("-")) {
        return Err(Failure::input("-: of two captures, each is read several times; expected two files"));
    }
    let comparing = Comparing { is_translated: arguments.translated, to: *to, window: *window };
    compare(capture, received, comparing).map_err(Failure::input)
}
