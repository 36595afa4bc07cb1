//! The subcommands that a build for a first look leaves out: those on real networks, the laboratory and the benchmarks.

use clap::Subcommand;
use polypath_config::Policies;

use super::{
    Failure, bench, completions, cp, doctor, emulate, enable, engine, get, history, lab, man, metrics,
    monitor, path, perf, preload, proxy, reorder, run, schema, serve, service_end, ss, stream, top, tunnel,
};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Emulate links in real time between real interfaces (Linux, CAP_NET_RAW)
    ///
    /// Rate, delay, queue, loss, middleboxes and changes by time, between two interfaces each: virtual or physical.
    Emulate(emulate::Arguments),
    /// Measure the stack and the simulator
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Tell how far out of order the packets of captures came, by the metrics of RFC 4737 and RFC 5236
    ///
    /// Reads pcapng and pcap. One capture, of the receiver, has the order of sending in its sequence numbers; with another of
    /// the sender, packets are found again by what they are, and losses and copies are known.
    Reorder(reorder::Arguments),
    /// Run experiments that are described in TOML files, and compare their results
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Measure throughput to another `polypath perf`, with iperf3's flags and JSON
    Perf(Box<perf::Arguments>),
    /// Serve the files of a directory over HTTP
    Serve(serve::Arguments),
    /// Download files over HTTP
    Get(Box<get::Arguments>),
    /// Watch an adaptive stream (DASH, HLS) over all interfaces at once, with any player
    ///
    /// Segments come in parts over each interface, by the system's TCP, from any server that has ranges. A local server offers
    /// them as HLS to any player, and a page that plays them.
    Stream(Box<stream::Arguments>),
    /// Copy files to or from a `polypath serve`
    Cp(cp::Arguments),
    /// Show the connections of the stacks that run here, in the words of `ss -M`
    Ss(ss::Arguments),
    /// Show what happens to connections, in the words of `ip mptcp monitor`
    Monitor(monitor::Arguments),
    /// Offer the figures of all stacks of this host to Prometheus
    Metrics(metrics::Arguments),
    /// Show what interfaces have carried, as `polypath metrics` has recorded it
    History(history::Arguments),
    /// Change paths, scheduler and limits of stacks that run here, in the words of `ip mptcp`
    Path(path::Arguments),
    /// Carry IP packets to another machine over several paths: a VPN that bonds (Linux, root)
    Tunnel(tunnel::Arguments),
    /// Give Multipath TCP to programs, clients and servers that lack it: SOCKS, HTTP, forwarded ports, TCP Convert
    Proxy(Box<proxy::Arguments>),
    /// Show rates, round-trip times and losses of each path of all stacks and proxies that run here, as they change
    Top(top::Arguments),
    /// Tell why a path is used or not, and what to do about it
    ///
    /// Looks at this host and its interfaces and, with a peer, at what the network makes of connections to it. Changes
    /// nothing. Exit code 1 if something stands in the way.
    Doctor(doctor::Arguments),
    /// Print the JSON schema of a kind of file, for editors and checks
    Schema(schema::Arguments),
    /// Run a program whose TCP connections go over Multipath TCP, on all uplinks
    ///
    /// The program needs no change and no setting. It gets a network of its own, in which every TCP connection ends at
    /// Polypath and is carried on by the engine; UDP, DNS and ping pass. With engines kernel and udp it needs no root
    /// where user namespaces are allowed and all may open /dev/net/tun (mode 0666).
    Run(run::Arguments),
    /// Run a dynamically linked program with Multipath TCP sockets of the kernel in place of its TCP sockets
    ///
    /// With --engine tun or udp the sockets stay the kernel's, and a process beside the program carries their connections on
    /// our own stack. It ends, and takes down what it set up, when the program and all that it started have ended, what they
    /// wrote is delivered, and their peers have been told. TCP Fast Open connects first, and TCP_FASTOPEN_CONNECT is refused
    /// (EOPNOTSUPP).
    Preload(preload::Arguments),
    /// Have a systemd service started so that its connections go over Multipath TCP
    ///
    /// Writes a drop-in, UNIT.d/polypath.conf, in which `polypath preload` starts the program in place, with its ports and
    /// capabilities as they are; `polypath run` starts what is statically linked. Nothing else is changed.
    Enable(enable::Arguments),
    /// Have a systemd service started as it was before `polypath enable`
    Disable(enable::DisableArguments),
    /// Print completions for a shell
    Completions(completions::Arguments),
    /// Write the manual pages, one for each command
    Man(man::Arguments),
    #[command(name = run::INSIDE, hide = true)]
    RunInside(run::InsideArguments),
    #[command(name = preload::KEEPER, hide = true)]
    PreloadKeeper,
    #[command(name = engine::GUARDIAN, hide = true)]
    SetUpGuardian(engine::GuardianArguments),
    #[command(name = service_end::SERVICE_END, hide = true)]
    ServiceEnd(service_end::Arguments),
}

impl Command {
    pub(super) fn run(self, policies: &Policies) -> Result<(), Failure> {
        match self {
            Self::Emulate(arguments) => emulate::run(&arguments, policies),
            Self::Bench(bench) => bench::run(&bench, policies),
            Self::Reorder(arguments) => reorder::run(&arguments),
            Self::Lab(lab) => lab::run(&lab, policies),
            Self::Perf(arguments) => perf::run(&arguments, policies),
            Self::Serve(arguments) => serve::run(&arguments, policies),
            Self::Get(arguments) => get::run(&arguments, policies),
            Self::Stream(arguments) => stream::run(&arguments, policies),
            Self::Cp(arguments) => cp::run(&arguments, policies),
            Self::Ss(arguments) => ss::run(&arguments),
            Self::Monitor(arguments) => monitor::run(&arguments),
            Self::History(arguments) => history::run(&arguments),
            Self::Metrics(arguments) => metrics::run(&arguments),
            Self::Path(arguments) => path::run(&arguments),
            Self::Proxy(arguments) => proxy::run(&arguments, policies),
            Self::Tunnel(arguments) => tunnel::run(&arguments),
            Self::Top(arguments) => top::run(&arguments),
            Self::Doctor(arguments) => doctor::run(&arguments),
            Self::Schema(arguments) => schema::run(&arguments, policies),
            Self::Run(arguments) => run::run(&arguments, policies),
            Self::Preload(arguments) => preload::run(&arguments),
            Self::Enable(arguments) => enable::run(&arguments, policies),
            Self::Disable(arguments) => enable::disable(&arguments),
            Self::Completions(arguments) => completions::run(&arguments, policies),
            Self::Man(arguments) => man::run(&arguments, policies),
            Self::RunInside(arguments) => run::run_inside(arguments),
            Self::PreloadKeeper => preload::keep(),
            Self::SetUpGuardian(arguments) => engine::guard(&arguments),
            Self::ServiceEnd(arguments) => service_end::run(&arguments),
        }
    }
}
