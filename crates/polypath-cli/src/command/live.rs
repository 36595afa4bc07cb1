//! `--live`, as long transfers offer it.

use std::io::{self, IsTerminal};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clap::Args;
use polypath_control::{Answer, Observed};
use polypath_stack::{Engine, WeakStack};
use polypath_system::console;

use super::{Failure, complain, harmless};
use crate::live::{Sample, Sampler, Samples, Screen, View, has_terminal, line};

/// Between two samples.
const INTERVAL: Duration = Duration::from_secs(1);

/// A view of what happens.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Live view")]
pub(super) struct LiveArguments {
    /// Show each path while it runs: rate, round-trip time, what was sent again, state; q closes the view, and the transfer goes
    /// on; Ctrl-C ends both. Without a terminal, a line each second on standard error (engines tun and udp)
    #[arg(long)]
    live: bool,
}

/// A view that ends with this.
#[derive(Debug)]
pub(super) enum Live {
    /// Nothing is shown.
    Off,
    /// Something is drawn on the terminal, so that nothing else should be.
    Drawn { _screen: Screen },
    /// Lines on standard error.
    Lines { _end: mpsc::Sender<()> },
}

impl Live {
    /// The terminal is taken.
    pub(super) const fn is_drawn(&self) -> bool {
        matches!(self, Self::Drawn { .. })
    }
}

impl LiveArguments {
    /// Shows an engine's connections from now on.
    pub(super) fn start(&self, title: &str, engine: &Engine) -> Result<Live, Failure> {
        self.start_on(title, engine, has_terminal() && io::stderr().is_terminal())
    }

    /// As [`LiveArguments::start`], for commands that run a program which may use the terminal.
    pub(super) fn start_beside(&self, title: &str, engine: &Engine) -> Result<Live, Failure> {
        let is_used = io::stdout().is_terminal() || io::stderr().is_terminal();
        self.start_on(title, engine, has_terminal() && !is_used)
    }

    /// For commands that have none for now.
    pub(super) fn refuse(&self, what: &str) -> Result<(), Failure> {
        match self.live {
            true => Err(Failure::Input(format!("--live: {what} have no such view; expected none"))),
            false => Ok(()),
        }
    }

    fn start_on(&self, title: &str, engine: &Engine, is_free: bool) -> Result<Live, Failure> {
        if !self.live {
            return Ok(Live::Off);
        }
        let Engine::Stack(stack) = engine else {
            complain(
                "--live shows connections of our own stack (--engine tun or udp); `ss -Mti` shows the kernel's",
            );
            return Ok(Live::Off);
        };
        let sampler = sampler(stack.downgrade());
        if !is_free {
            return Ok(lines(sampler));
        }
        let screen = Screen::open(title, INTERVAL, sampler);
        let screen =
            screen.map_err(|error| Failure::Run(format!("--live: the terminal can't be used: {error}")))?;
        Ok(Live::Drawn { _screen: screen })
    }
}

/// What a stack of this process says.
fn sampler(stack: WeakStack) -> Sampler {
    let process = std::env::args().next().unwrap_or_default();
    let process = process.rsplit('/').next().unwrap_or_default().to_string();
    Box::new(move || {
        let connections = Observed::connections(&stack);
        let answer =
            Answer { process: process.clone(), pid: std::process::id(), connections, ..Answer::default() };
        Samples { stacks: vec![Sample { socket: String::new(), answer }], ..Samples::default() }
    })
}

fn lines(mut sampler: Sampler) -> Live {
    let (end, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let (started, mut view) = (Instant::now(), View::default());
        view.handle_samples(started.elapsed(), &sampler().stacks);
        while ended.recv_timeout(INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
            view.handle_samples(started.elapsed(), &sampler().stacks);
            if let Some(line) = line(&view.report()) {
                console::tell(harmless(&line));
            }
        }
    });
    Live::Lines { _end: end }
}
