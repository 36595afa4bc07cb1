//! The choice of engine, as every command that opens connections offers it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use polypath_config::{Policies, PolicyKind};
use polypath_congestion as congestion;
use polypath_mptcp::{ConnectionConfig, JudgePaths, LiaOnSharedAccess, path_manager, scheduler};
use polypath_netsetup::abilities::Abilities;
use polypath_netsetup::uplinks::{UplinkError, UplinkOptions};
use polypath_netsetup::{GuardianCommand, NetworkSetup, SetupError, SetupOptions};
use polypath_stack::engine::{Keepalive, KernelEngine};
use polypath_stack::udp::{UdpError, UdpOptions, UdpPath};
use polypath_stack::{Engine, Stack, UplinkPreference, udp};
use polypath_system::Namespace;
use polypath_units::named::Named;

use super::choice::{self, Carrier, Choice, Wanted, choose};
use super::configuration::{self, Origin};
use super::engine_names::{Kind, parse_announced};
use super::interfaces::{self, Asked, Budget, Interface, InterfaceList, parse_interfaces};
use super::metrics::{MetricsArguments, OwnProxy};
use super::offered::Offered;
use super::words::and;
use super::{Failure, chosen, complain, log, network, print_line, readiness};

/// Seconds of silence after which a peer is probed.
const DEFAULT_KEEPALIVE: u32 = 60;

/// What carries the connections.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Engine")]
pub(super) struct EngineArguments {
    /// What carries the connections [default: auto]
    #[arg(long, value_enum)]
    engine: Option<Kind>,
    /// Interfaces to use (engines tun and udp); all with an address and a default route if none is named
    ///
    /// What is wanted of one follows its name: `wlan0,priority=1` (the smaller, the more do handovers prefer it),
    /// `wwan0,backup,budget=2GB` (a backup once so much went over it; `hard` with it: used no more). `metered` is a backup, too.
    #[arg(short = 'I', long = "interface", value_name = "NAME[,...]", value_parser = parse_interfaces)]
    interfaces: Vec<InterfaceList>,
    /// Interfaces to use only when no other works (engines tun and udp)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    backup: Vec<String>,
    /// Which path gets data (engines tun and udp) [default: default]
    #[arg(long, value_name = "NAME")]
    scheduler: Option<String>,
    /// Which paths are opened, and which one takes over (engines tun and udp) [default: endpoints]
    #[arg(long, value_name = "NAME")]
    path_manager: Option<String>,
    /// How each path's rate follows from acknowledgments and losses (engines tun and udp) [default: cubic, and lia for a further
    /// subflow over the same access link]
    #[arg(long, value_name = "NAME")]
    congestion_control: Option<String>,
    /// Whose paths to judge when they send to us: one that holds up the rest is set aside; foreign senders are such as kernels (engine tun;
    /// engine udp has peers of our kind only) [default: never]
    #[arg(long, value_name = "never|foreign|always", value_parser = parse_judge)]
    judge_paths: Option<JudgePaths>,
    /// Where else peers reach this end, such as a router's address from which connections are passed on, for example
    /// 192.0.2.1 or, with engine tun, 192.0.2.1:8080 (engine udp: the port is that of --udp-port); repeatable. Without it, the uplinks' own addresses (engine tun) or
    /// those of the interfaces that are named (engine udp) are announced
    #[arg(long, value_name = "ADDRESS[:PORT]", value_delimiter = ',', value_parser = parse_announced)]
    announce: Vec<(IpAddr, Option<u16>)>,
    /// UDP port at which Polypath ends are reached (engine udp) [default: 6824]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    udp_port: Option<u16>,
    /// Probe a peer that has been silent for so long, and give it up if it answers nothing for a minute more; 0 for never
    /// [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=32_767))]
    keepalive: Option<u32>,
    /// Take settings from FILE only [default: polypath.toml here, in ~/.config/polypath and in /etc/polypath: of each setting
    /// the first counts, and options count before files]
    #[arg(long, value_name = "FILE", conflicts_with = "no_config")]
    config: Option<PathBuf>,
    /// Take settings from no file
    #[arg(long)]
    no_config: bool,
    /// Our own stack's options that a file has, not the command line: they do without.
    #[arg(skip)]
    from_files: Vec<&'static str>,
    /// Where in which file each of our own stack's settings stands: file and key, by the option's name.
    #[arg(skip)]
    origins: BTreeMap<&'static str, Origin>,
    /// What runs on the engine, if that is not this command itself.
    #[arg(skip)]
    program: Option<OsString>,
    /// Show what would be set up, as the commands that a person would type, and end (engine tun)
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    metrics: MetricsArguments,
}

/// Policies that were named.
struct ChosenPolicies {
    scheduler: Option<scheduler::Policy>,
    path_manager: Option<path_manager::Policy>,
    congestion: Option<congestion::Policy>,
}

fn optional<K: PolicyKind>(
    policies: &Policies,
    option: &str,
    name: Option<&str>,
) -> Result<Option<Named<K>>, Failure> {
    name.map(|name| chosen(policies, option, name)).transpose()
}

impl EngineArguments {
    /// With what the configuration has for what the command line leaves open, for this program if one is run.
    pub(super) fn configured(&self, program: Option<&OsStr>, policies: &Policies) -> Result<Self, Failure> {
        let mut merged = Self { program: program.map(OsStr::to_os_string), ..self.clone() };
        if self.no_config {
            return Ok(merged);
        }
        let files = configuration::load(self.config.as_deref(), policies)?;
        let settings = configuration::settings(&files, program.map(Path::new));
        merged.engine = self.engine.or(settings.engine);
        merged.origins = settings.origins;
        merged.keepalive = self.keepalive.or(settings.keepalive);
        merged.udp_port = self.udp_port.or(settings.udp_port);
        if matches!(merged.engine(), Kind::Kernel | Kind::Tcp) {
            return Ok(merged);
        }
        if let Some(interfaces) =
            settings.interfaces.filter(|_| self.interfaces.is_empty() && self.backup.is_empty())
        {
            merged.interfaces = vec![InterfaceList(interfaces)];
            merged.from_files.push("--interface");
        }
        let from_files = &mut merged.from_files;
        let mut take = |option, own: &mut Option<String>, theirs: Option<String>| {
            if own.is_none() && theirs.is_some() {
                *own = theirs;
                from_files.push(option);
            }
        };
        take("--scheduler", &mut merged.scheduler, settings.scheduler);
        take("--path-manager", &mut merged.path_manager, settings.path_manager);
        take("--congestion-control", &mut merged.congestion_control, settings.congestion_control);
        if let Some(judge) = settings.judge_paths.filter(|_| self.judge_paths.is_none()) {
            merged.judge_paths = Some(judge.into());
            merged.from_files.push("--judge-paths");
        }
        if let Some(announce) = settings.announce.filter(|_| self.announce.is_empty()) {
            merged.announce = announce;
            merged.from_files.push("--announce");
        }
        Ok(merged)
    }

    /// Says at once what is the matter with interfaces that were named.
    fn look_at_named(&self, task: &Task) -> Result<(), Failure> {
        let names: Vec<String> = self.named_interfaces().into_iter().map(|named| named.name).collect();
        if names.is_empty() {
            return Ok(());
        }
        let origin = self.origins.get("interfaces").filter(|_| self.from_files.contains(&"--interface"));
        let place = origin.map_or(String::new(), |origin| format!("{origin}: "));
        let wanted = readiness::Wanted {
            named: names,
            peers: &task.peers,
            is_for_anybody: task.runs_program && !task.listens,
            has_all_tables: self.engine() == Kind::Udp,
        };
        match readiness::look(&wanted) {
            Ok(lines) => lines.iter().for_each(|line| task.tell(&format!("{place}{line}"))),
            Err(Failure::Input(message)) => return Err(Failure::Input(format!("{place}{message}"))),
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// Says which settings of files an engine has no use for.
    fn tell_what_is_left_out(&self, engine: &str, task: &Task) {
        let is_left_out = |name: &str| match engine {
            "kernel" | "tcp" => true,
            "tun" => name == "udp-port",
            _ => false,
        };
        let left_out = self.origins.iter().filter(|(name, _)| is_left_out(name));
        let (of_udp, of_ours): (Vec<_>, Vec<_>) = left_out.partition(|(name, _)| **name == "udp-port");
        for (origins, expected) in [(of_ours, "engine tun or udp"), (of_udp, "engine udp")] {
            let mut files: Vec<(&str, Vec<&Origin>)> = Vec::new();
            for (_, origin) in origins {
                match files.iter_mut().find(|(known, _)| *known == origin.file) {
                    Some((_, origins)) => origins.push(origin),
                    None => files.push((&origin.file, vec![origin])),
                }
            }
            for (_, origins) in files {
                let settings = Origin::together(&origins);
                task.tell(&format!(
                    "{settings} left out: engine {engine} has no such option; expected {expected} with it"
                ));
            }
        }
    }

    /// Where else peers reach this end.
    pub(super) fn announced(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.announce.iter().map(|(address, _)| *address)
    }

    fn engine(&self) -> Kind {
        self.engine.unwrap_or_default()
    }

    /// Starts the engine. What it set up is taken down when the last clone of it is dropped.
    pub(super) async fn start(&self, policies: &Policies, task: &Task) -> Result<Engine, Failure> {
        let chosen = self.policies(policies)?;
        self.end_if_dry(&task.ports)?;
        clear_leftovers();
        let engine = match self.engine() {
            Kind::Auto => self.start_best(&chosen, task)?,
            Kind::Tun => self.start_tun(&chosen, task).map_err(|failure| self.explain(failure, task))?,
            Kind::Udp => self.start_udp(&chosen, task)?,
            Kind::Kernel => self.start_kernel(KernelEngine::new()),
            Kind::Tcp => self.start_kernel(KernelEngine::plain_tcp()),
        };
        self.tell_what_is_left_out(self.name_of(&engine), task);
        if let Engine::Stack(stack) = &engine {
            stack.set_schedulers(policies.registry().clone());
        }
        let offered = Offered::new(&engine, self.program.as_deref());
        offered.offer(&engine);
        self.metrics.offer(&offered, &task.proxy)?;
        Ok(engine)
    }

    /// What it is called, once it is chosen.
    pub(super) fn name_of(&self, engine: &Engine) -> &'static str {
        match engine {
            Engine::Kernel(engine) if engine.is_plain_tcp() => "tcp",
            Engine::Kernel(_) => "kernel",
            _ if self.engine() == Kind::Udp => "udp",
            _ => "tun",
        }
    }

    /// What a command does that connects to `hosts`: where they are is looked up where it matters.
    pub(super) async fn connecting<'a>(&self, hosts: impl IntoIterator<Item = &'a str>) -> Task {
        let (is_auto, is_named) = (self.engine() == Kind::Auto, !self.named_interfaces().is_empty());
        let mut task = Task { is_local: is_auto, ..Task::default() };
        for host in hosts.into_iter().filter(|_| is_auto || is_named) {
            let addresses = network::addresses(host).await;
            let is_here = !addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback);
            task.is_local = task.is_local && is_here;
            task.peers.push(addresses);
        }
        task
    }

    /// The best that the host allows, in one line on standard error.
    fn start_best(&self, chosen: &ChosenPolicies, task: &Task) -> Result<Engine, Failure> {
        let abilities = look()?;
        let first = self.choose_engine(&abilities, task, None)?;
        if first.carrier != Carrier::Tun {
            return Ok(self.start_chosen(&first, task));
        }
        let failed = match self.start_tun(chosen, task) {
            Ok(engine) => {
                task.tell(&first.line);
                return Ok(engine);
            }
            // Of what was asked for by name, nothing less will do.
            Err(failure) if self.option_of_ours().is_some() => return Err(failure),
            Err(Failure::Run(message)) => message,
            // No other engine mends a mistake, such as of an interface's name.
            Err(failure) => return Err(failure),
        };
        let second = self.choose_engine(&abilities, task, Some(&failed))?;
        Ok(self.start_chosen(&second, task))
    }

    fn choose_engine(
        &self,
        abilities: &Abilities,
        task: &Task,
        failed: Option<&str>,
    ) -> Result<Choice, Failure> {
        let ours = self.option_of_ours();
        let (command, mut asked) = (choice::typed(), self.asked());
        if !self.named_interfaces().is_empty() {
            asked = asked.among(&interfaces::links().map_err(Failure::run)?);
        }
        let wanted = Wanted {
            is_local: task.is_local && ours.is_none(),
            listens: task.listens,
            failed,
            command: &command,
            runs_program: task.runs_program,
            asked: &asked,
        };
        let choice = choose(abilities, &wanted);
        match (ours, &choice.obstacle) {
            (Some(option), Some(obstacle)) => {
                Err(Failure::Run(format!("{option} is for our own stack, which can't start: {obstacle}")))
            }
            (None, Some(obstacle)) => match self.wishes_of_files() {
                // Quietly doing without them may cost money.
                Some(wishes) => Err(Failure::Run(format!(
                    "{wishes} can't be kept without our own stack, which can't start: {obstacle}; \
                     --engine {} does without",
                    choice::name(choice.carrier)
                ))),
                None => Ok(choice),
            },
            _ => Ok(choice),
        }
    }

    /// What files want of interfaces that no other stack does, with the place where they say so.
    fn wishes_of_files(&self) -> Option<String> {
        let origin = self.origins.get("interfaces").filter(|_| self.from_files.contains(&"--interface"))?;
        let wishes: Vec<String> = self.named_interfaces().iter().filter_map(Interface::wishes).collect();
        let wishes: Vec<&str> = wishes.iter().map(String::as_str).collect();
        (!wishes.is_empty()).then(|| format!("{origin}: {}", and(&wishes)))
    }

    /// Where a program starts the engine, its first connection would be the one to find out.
    fn check_that_tun_can_start(&self, task: &Task) -> Result<(), Failure> {
        let (command, asked) = (choice::typed(), self.asked());
        let Task { listens, runs_program, .. } = *task;
        let wanted =
            Wanted { is_local: false, listens, failed: None, command: &command, runs_program, asked: &asked };
        match choose(&look()?, &wanted).obstacle {
            Some(obstacle) => Err(Failure::Run(format!("engine tun can't start: {obstacle}"))),
            None => Ok(()),
        }
    }

    /// With the command that mends it, where it is a right or a program that the stack lacks.
    fn explain(&self, failure: Failure, task: &Task) -> Failure {
        match (failure, self.check_that_tun_can_start(task)) {
            (Failure::Run(_), Err(lack @ Failure::Run(_))) => lack,
            (failure, _) => failure,
        }
    }

    fn start_chosen(&self, choice: &Choice, task: &Task) -> Engine {
        task.tell(&choice.line);
        self.start_kernel(match choice.carrier {
            Carrier::Tcp => KernelEngine::plain_tcp(),
            _ => KernelEngine::new(),
        })
    }

    fn start_kernel(&self, engine: KernelEngine) -> Engine {
        Engine::Kernel(engine.with_keepalive(self.keepalive()))
    }

    /// With a choice in place of `auto`, for programs that start the engine themselves.
    pub(super) fn decided(&self, task: &Task) -> Result<Self, Failure> {
        self.check()?;
        if self.engine() != Kind::Auto {
            if matches!(self.engine(), Kind::Tun | Kind::Udp) {
                self.look_at_named(task)?;
            }
            if self.engine() == Kind::Tun {
                self.check_that_tun_can_start(task)?;
            }
            let name = self.engine().to_possible_value();
            self.tell_what_is_left_out(name.as_ref().map_or("", |name| name.get_name()), task);
            return Ok(self.clone());
        }
        let choice = self.choose_engine(&look()?, task, None)?;
        if choice.carrier == Carrier::Tun {
            self.look_at_named(task)?;
        }
        task.tell(&choice.line);
        let engine = match choice.carrier {
            Carrier::Tun => Kind::Tun,
            Carrier::Kernel => Kind::Kernel,
            Carrier::Tcp => Kind::Tcp,
        };
        self.tell_what_is_left_out(choice::name(choice.carrier), task);
        // What a file wants of our own stack is not for the kernel's.
        let mut decided = Self { engine: Some(engine), ..self.clone() };
        if engine != Kind::Tun && self.option_of_ours().is_none() {
            (decided.interfaces, decided.scheduler, decided.path_manager) = (Vec::new(), None, None);
            (decided.congestion_control, decided.announce, decided.judge_paths) = (None, Vec::new(), None);
        }
        Ok(decided)
    }

    /// The choices in the words of `polypath_open`, for programs that start the engine themselves.
    pub(super) fn words(&self, is_reachable: bool) -> Result<String, Failure> {
        self.check()?;
        // The library that reads them knows ours alone.
        let chosen = self.policies(&Policies::default())?;
        if self.dry_run {
            return Err(Failure::input("--dry-run: expected a command that sets the network up itself"));
        }
        if self.metrics.is_given() {
            return Err(Failure::input(
                "--metrics: expected a command that starts the engine itself, such as run; `polypath metrics` shows all stacks",
            ));
        }
        if is_reachable && self.engine() != Kind::Udp {
            return Err(Failure::input("--reachable is for --engine udp; others can be reached anyway"));
        }
        let name = self.engine().to_possible_value().map(|value| value.get_name().to_string());
        if self.judge_paths.is_some() {
            let expected = "expected a command that opens connections itself";
            return Err(Failure::input(format!("--judge-paths: {expected}")));
        }
        let mut words = vec![format!("engine={}", name.unwrap_or_default())];
        let named = self.named_interfaces();
        if named.iter().any(|interface| interface.preference != UplinkPreference::default()) {
            let expected = "expected NAME or NAME,backup where the program starts the engine itself";
            return Err(Failure::input(format!("--interface: priorities and budgets; {expected}")));
        }
        if self.path_manager.is_some() {
            let expected = "expected a command that starts the engine itself, such as run";
            return Err(Failure::input(format!("--path-manager: {expected}")));
        }
        words.extend(named.iter().map(|interface| format!("interface={}", interface.name)));
        let backups = named.iter().filter(|interface| interface.is_backup);
        words.extend(backups.map(|interface| format!("backup={}", interface.name)));
        words.extend(chosen.scheduler.as_ref().map(|policy| format!("scheduler={policy}")));
        words.extend(self.announce.iter().map(|(addr, port)| match port {
            // Over UDP, its port is everybody's.
            Some(port) if self.engine() != Kind::Udp => {
                format!("announce={}", SocketAddr::new(*addr, *port))
            }
            _ => format!("announce={addr}"),
        }));
        match self.engine() {
            _ if self.keepalive() == Keepalive::default() => {}
            Kind::Tun | Kind::Udp => {
                words.push(format!("keepalive={}", self.keepalive.unwrap_or(DEFAULT_KEEPALIVE)))
            }
            Kind::Auto | Kind::Kernel | Kind::Tcp => {
                let expected = "expected engine tun or udp where the program opens its own sockets";
                return Err(Failure::input(format!("--keepalive: {expected}")));
            }
        }
        words.extend(chosen.congestion.as_ref().map(|control| format!("congestion={control}")));
        if self.engine() == Kind::Udp {
            words.push(format!("udp_port={}", self.udp_port.unwrap_or(udp::DEFAULT_PORT)));
            words.extend(is_reachable.then(|| "reachable".to_string()));
        }
        Ok(words.join(","))
    }

    /// An option on the command line that only our own stack has.
    fn option_of_ours(&self) -> Option<&'static str> {
        let choices = [
            ("--interface", !self.interfaces.is_empty()),
            ("--backup", !self.backup.is_empty()),
            ("--scheduler", self.scheduler.is_some()),
            ("--path-manager", self.path_manager.is_some()),
            ("--congestion-control", self.congestion_control.is_some()),
            ("--announce", !self.announce.is_empty()),
            ("--judge-paths", self.judge_paths.is_some()),
        ];
        let mut given = choices.iter().filter(|(_, given)| *given).map(|(option, _)| *option);
        given.find(|option| !self.from_files.contains(option))
    }

    /// Refuses choices that the engine hasn't.
    fn check(&self) -> Result<(), Failure> {
        let is_ours = matches!(self.engine(), Kind::Auto | Kind::Tun | Kind::Udp);
        if let Some(option) = self.option_of_ours().filter(|_| !is_ours) {
            return Err(Failure::input(format!(
                "{option} is for our own stack; expected --engine tun or udp with it (the kernel's is set up with `ip mptcp` and sysctl)"
            )));
        }
        if self.dry_run && !matches!(self.engine(), Kind::Auto | Kind::Tun) {
            return Err(Failure::input(
                "--dry-run: only --engine tun sets anything up; expected --engine tun with it",
            ));
        }
        let udp_port = self.udp_port.unwrap_or(udp::DEFAULT_PORT);
        let is_other = |port: Option<u16>| port.is_some_and(|port| port != udp_port);
        if let Some((addr, Some(port))) = self.announce.iter().find(|(_, port)| is_other(*port))
            && self.engine() == Kind::Udp
        {
            return Err(Failure::input(format!(
                "--announce {}: with --engine udp both ends have the same port (--udp-port); expected {addr} alone, or with \
                 port {udp_port}",
                SocketAddr::new(*addr, *port)
            )));
        }
        Ok(())
    }

    /// The kernel's own sockets were asked for.
    pub(super) fn is_of_kernel(&self) -> bool {
        matches!(self.engine(), Kind::Kernel | Kind::Tcp)
    }

    /// Connections are of the kernel's TCP.
    pub(super) fn is_tcp(&self) -> bool {
        matches!(self.engine(), Kind::Tcp)
    }

    /// The kernel's own sockets carry the connections within this machine.
    pub(super) fn is_kernel_within_the_machine(&self) -> bool {
        match self.engine() {
            Kind::Kernel | Kind::Tcp => true,
            Kind::Auto => self.option_of_ours().is_none(),
            Kind::Tun | Kind::Udp => false,
        }
    }

    /// With `--dry-run`, shows what would be set up and ends; for commands that do something before they start the engine.
    /// Connections are to be taken at `ports`.
    pub(super) fn end_if_dry(&self, ports: &[u16]) -> Result<(), Failure> {
        self.check()?;
        if !self.dry_run {
            return Ok(());
        }
        self.look_at_named(&Task::default())?;
        let namespace = Namespace::current().map_err(Failure::run)?;
        // Port 0 is one that is not known yet.
        let exposed_ports = ports.iter().copied().filter(|port| *port != 0).collect();
        let setup = SetupOptions { exposed_ports, ..self.setup() };
        let plan = NetworkSetup::dry_run(&namespace, "polypath0", &setup).map_err(setup_failure)?;
        print_line(&plan)?;
        Err(Failure::Exit(0))
    }

    fn start_udp(&self, chosen: &ChosenPolicies, task: &Task) -> Result<Engine, Failure> {
        self.look_at_named(task)?;
        let path = |interface: Interface| UdpPath {
            interface: Some(interface.name),
            is_backup: interface.is_backup,
            preference: interface.preference,
        };
        let namespace = Namespace::current().map_err(Failure::run)?;
        let mut options = UdpOptions {
            paths: self.named_interfaces().into_iter().map(path).collect(),
            is_reachable: task.listens,
            port: self.udp_port.unwrap_or(udp::DEFAULT_PORT),
            announced: self.announce.iter().map(|(addr, _)| *addr).collect(),
            ..UdpOptions::default()
        };
        self.choose(&mut options.connection, chosen);
        if self.interfaces.is_empty() {
            options.use_uplinks(&namespace).map_err(Failure::run)?;
        }
        Stack::udp(&namespace, &options).map(Engine::Stack).map_err(|error| match UdpError::of(&error) {
            Some(UdpError::PortInUse { .. }) => Failure::run(format!("{error} (--udp-port)")),
            _ => Failure::run(error),
        })
    }

    /// An error if something was chosen that is of no use for `what`, which has no engine.
    pub(super) fn refuse_choices(&self, what: &str) -> Result<(), Failure> {
        let chosen = [
            ("--engine", self.engine.is_some_and(|kind| kind != Kind::Auto)),
            ("--scheduler", self.scheduler.is_some()),
            ("--path-manager", self.path_manager.is_some()),
            ("--congestion-control", self.congestion_control.is_some()),
            ("--announce", !self.announce.is_empty()),
            ("--udp-port", self.udp_port.is_some()),
            ("--dry-run", self.dry_run),
        ];
        match chosen.iter().find(|(_, is_chosen)| *is_chosen) {
            Some((name, _)) => Err(Failure::Input(format!(
                "{name}: {what} use the system's TCP; expected a URL with http:// and no --ranges, or no {name}"
            ))),
            None => Ok(()),
        }
    }

    /// The interfaces that were named, and what each is for.
    fn named_interfaces(&self) -> Vec<Interface> {
        let mut named: Vec<Interface> = self.interfaces.iter().flat_map(|list| list.0.clone()).collect();
        for name in &self.backup {
            match named.iter_mut().find(|interface| interface.name == *name) {
                Some(interface) => interface.is_backup = true,
                None => named.push(Interface { is_backup: true, ..Interface::new(name) }),
            }
        }
        named
    }

    /// Which interfaces our own stack is to use.
    pub(super) fn asked(&self) -> Asked {
        let only = self.interfaces.iter().flat_map(|list| &list.0).map(|interface| interface.name.clone());
        let backups = self.named_interfaces().into_iter().filter(|interface| interface.is_backup);
        let budget = |interface: Interface| {
            let UplinkPreference { budget_bytes, is_budget_hard: is_hard, .. } = interface.preference;
            Some(Budget { name: interface.name, bytes: budget_bytes?, is_hard })
        };
        Asked {
            only: only.collect(),
            backups: backups.map(|interface| interface.name).collect(),
            budgets: self.named_interfaces().into_iter().filter_map(budget).collect(),
        }
    }

    fn keepalive(&self) -> Keepalive {
        let idle = Duration::from_secs(self.keepalive.unwrap_or(DEFAULT_KEEPALIVE).into());
        Keepalive::after(Some(idle).filter(|idle| !idle.is_zero()))
    }

    /// What the names among the choices stand for.
    fn policies(&self, policies: &Policies) -> Result<ChosenPolicies, Failure> {
        Ok(ChosenPolicies {
            scheduler: optional(policies, "--scheduler", self.scheduler.as_deref())?,
            path_manager: optional(policies, "--path-manager", self.path_manager.as_deref())?,
            congestion: optional(policies, "--congestion-control", self.congestion_control.as_deref())?,
        })
    }

    fn choose(&self, connection: &mut ConnectionConfig, chosen: &ChosenPolicies) {
        self.keepalive().choose(connection);
        if let Some(scheduler) = &chosen.scheduler {
            connection.scheduler = scheduler.clone();
        }
        if let Some(path_manager) = &chosen.path_manager {
            connection.path_manager = path_manager.clone();
        }
        connection.judge_paths = self.judge_paths.unwrap_or(connection.judge_paths);
        if let Some(congestion) = &chosen.congestion {
            connection.congestion = congestion.clone();
            connection.lia_on_shared_access = LiaOnSharedAccess::Never;
        }
    }

    fn setup(&self) -> SetupOptions {
        let named = self.named_interfaces();
        let uplinks = self.interfaces.iter().flat_map(|list| &list.0);
        let backups = named.iter().filter(|interface| interface.is_backup);
        SetupOptions {
            uplinks: uplinks.map(|interface| interface.name.clone()).collect(),
            backups: backups.map(|interface| interface.name.clone()).collect(),
            exposed_ports: Vec::new(),
            guardian: Some(guardian()),
        }
    }

    fn start_tun(&self, chosen: &ChosenPolicies, task: &Task) -> Result<Engine, Failure> {
        self.look_at_named(task)?;
        let named = self.named_interfaces().into_iter();
        let mut options = UplinkOptions {
            setup: self.setup(),
            preferences: named.map(|interface| (interface.name, interface.preference)).collect(),
            announced: self.announce.clone(),
            ..UplinkOptions::default()
        };
        self.choose(&mut options.connection, chosen);
        let namespace = Namespace::current().map_err(Failure::run)?;
        let stack = polypath_netsetup::uplinks::open(&namespace, options);
        stack.map(Engine::Stack).map_err(|error| match error {
            UplinkError::Setup(error) => setup_failure(error),
            error => Failure::run(error),
        })
    }
}

/// What a command is to do with its engine.
#[derive(Clone, Debug, Default)]
pub(super) struct Task {
    /// It takes connections.
    pub(super) listens: bool,
    /// Where it takes them, as far as its engine is to know before.
    pub(super) ports: Vec<u16>,
    /// All of it happens on this machine's loopback interface.
    pub(super) is_local: bool,
    /// It runs a program of the user's.
    pub(super) runs_program: bool,
    /// The choice is not told.
    pub(super) is_quiet: bool,
    /// Addresses of each peer that it connects to, as far as they matter and are known.
    pub(super) peers: Vec<Vec<IpAddr>>,
    /// A proxy that runs over it, whose figures are offered with the engine's.
    pub(super) proxy: OwnProxy,
}

impl Task {
    /// What a command does that listens at an address.
    pub(super) fn listening(at: IpAddr, port: u16) -> Self {
        let is_local = at.to_canonical().is_loopback();
        Self { listens: true, ports: vec![port], is_local, ..Self::default() }
    }

    fn tell(&self, line: &str) {
        if !self.is_quiet {
            complain(line);
        }
    }
}

fn look() -> Result<Abilities, Failure> {
    Namespace::current().and_then(|namespace| Abilities::look(&namespace)).map_err(Failure::run)
}

/// The subcommand of a process that waits to take down what another one has set up.
pub(super) const GUARDIAN: &str = "set-up-guardian";

/// What [`GUARDIAN`] is told.
#[derive(Debug, Args)]
pub(super) struct GuardianArguments {
    directory: PathBuf,
    parent: u32,
}

/// How this program becomes a guardian.
pub(super) fn guardian() -> GuardianCommand {
    let arguments = log::options_for_helpers().into_iter().chain([GUARDIAN.into()]);
    GuardianCommand { program: "/proc/self/exe".into(), arguments: arguments.collect() }
}

/// Waits for the end of the process that started this one.
pub(super) fn guard(arguments: &GuardianArguments) -> Result<(), Failure> {
    let GuardianArguments { directory, parent } = arguments;
    // It was started by a name that says nothing, which lists of processes would show.
    let _ = rustix::thread::set_name(c"polypath");
    polypath_netsetup::guard(directory, *parent).map_err(|error| {
        Failure::run(format!(
            "what process {parent} had set up before it was killed can't be taken down: {error}"
        ))
    })
}

/// Takes down what processes that were killed have left, whatever their engine. Only who may change the network has records.
pub(super) fn clear_leftovers() {
    tell_what_is_left(polypath_netsetup::clear());
}

/// The same, where a gateway of this device begins anew at once.
pub(super) fn clear_leftovers_before_gateway(device: &str) {
    tell_what_is_left(polypath_netsetup::clear_before_gateway(device));
}

fn tell_what_is_left(cleared: std::io::Result<()>) {
    if let Err(error) = cleared {
        complain(&format!("what an earlier process has set up can't be taken down: {error}"));
    }
}

fn setup_failure(error: SetupError) -> Failure {
    match error {
        SetupError::NoSuchInterface { .. } | SetupError::Loopback { .. } => Failure::input(error),
        error => Failure::run(error),
    }
}

fn parse_judge(name: &str) -> Result<JudgePaths, String> {
    JudgePaths::by_name(name).ok_or_else(|| "expected never, foreign or always".into())
}
