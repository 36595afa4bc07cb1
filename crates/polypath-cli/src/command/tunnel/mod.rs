//! `polypath tunnel`.

mod add_peer;
mod budgets;
mod changes;
mod control;
mod dscp;
mod endpoints;
mod file;
mod follower;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod lookups;
mod make;
mod pinned;
mod qr_code;
pub(super) mod recording;
mod routes;
mod rule_text;
mod running;
mod secret_file;
mod status;
mod up;
mod uplinks;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Failure;

#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Write the file of a new end, with a key of its own; without a file, print a key and its public half
    Keygen(make::KeygenArguments),
    /// Add a peer to a server's file, and print the file for the peer
    AddPeer(add_peer::Arguments),
    /// Make the tunnel, and carry packets until SIGINT, SIGTERM or `polypath tunnel down`
    #[command(after_long_help = FILE_FORMAT)]
    Up {
        /// The tunnel's file
        #[arg(value_name = "CONFIG.toml")]
        file: PathBuf,
        /// Say nothing but mistakes
        #[arg(long, short)]
        quiet: bool,
    },
    /// Show the tunnels of this machine: their peers and paths
    Status {
        /// Only this tunnel, by its interface
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Have a running tunnel take its file again: peers, rules and uplinks; sessions of others go on
    Reload {
        /// Which one, by its interface; none is needed where only one runs
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// End a tunnel, and take down what one that was killed has left
    Down {
        /// Which one, by its interface; none is needed where only one runs
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
}

const FILE_FORMAT: &str = "\
The file:\n\n\
  [interface]\n  \
  private-key = \"…\"             # of `polypath tunnel keygen`\n  \
  addresses = [\"10.99.0.2/24\"]  # inside the tunnel\n  \
  name = \"polypath-vpn\"         # the device [default: polypath-vpn]\n  \
  listen-port = 51820           # of who is called; callers need none\n  \
  mtu = 1400                    # inside [default: 1400]\n\n  \
  [uplinks]                     # [default: all that lead to the peer]\n  \
  interfaces = [\"wlan0\", \"wwan0,backup,priority=1,budget=500MB/day,hard\"]\n\n  \
  [forward]                     # what passes through this host\n  \
  lan = [\"eth1\"]                # hosts there use the tunnel\n  \
  internet = true               # peers leave by this host\n  \
  masquerade = true             # with its address [default: true]\n\n  \
  [[peers]]\n  \
  public-key = \"…\"\n  \
  endpoints = [\"vpn.example.org:51820\"]\n  \
  allowed-ips = [\"10.99.0.0/24\"]\n\n  \
  [[rules]]                     # the first that fits counts\n  \
  ports = \"5000-5100\"           # or protocol, dscp, network\n  \
  policy = \"low-latency\"        # aggregate, low-latency, redundant, pinned:0\n  \
  fec = true                    # rebuild what paths lose; with the first two";

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.what {
        What::Keygen(arguments) => make::keygen(arguments),
        What::AddPeer(arguments) => add_peer::run(arguments),
        What::Up { file, quiet } => up::run(file, *quiet),
        What::Status { name, json } => status::run(name.as_deref(), *json),
        What::Reload { name } => status::reload(name.as_deref()),
        What::Down { name } => status::down(name.as_deref()),
    }
}
