//! What a command that carries connections offers of itself: a socket for `polypath ss` and the others, and figures.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use polypath_control::{ConnectionReport, EventReport, FiguresReport, Observed, offer_as, process_name};
use polypath_mptcp::SubflowInfo;
use polypath_netsetup::abilities::Interfaces;
use polypath_stack::Engine;
use polypath_stack::engine::KernelEngine;
use polypath_system::{Namespace, runtime_directory};
use tokio::sync::broadcast;

use super::{complain, does_harm};

/// As long as the kernel's names of programs.
const MOST_LETTERS: usize = 15;

/// Whoever can be asked in this process, and whose connections it has.
#[derive(Clone)]
pub(super) struct Offered {
    pub(super) observed: Arc<dyn Observed>,
    pub(super) program: String,
}

impl Offered {
    /// An engine; `program` is what runs on it, if that is not this command itself.
    pub(super) fn new(engine: &Engine, program: Option<&OsStr>) -> Self {
        let observed: Arc<dyn Observed> = match engine {
            Engine::Kernel(engine) => Arc::new(KernelFigures::new(engine.clone())),
            Engine::Stack(stack) => Arc::new(stack.downgrade()),
            _ => Arc::new(KernelFigures::new(KernelEngine::new())),
        };
        Self { observed, program: program.map_or_else(process_name, short_name) }
    }

    /// Lets other commands ask. Must be called within a tokio runtime.
    pub(super) fn offer(&self, engine: &Engine) {
        let offered = runtime_directory()
            .and_then(|directory| offer_as(self.observed.clone(), &directory, self.program.clone()));
        // What carries data need not be seen. The kernel has its own tools besides.
        if let (Err(error), Engine::Stack(_)) = (offered, engine) {
            complain(&format!("`polypath ss` won't show this process: {error}"));
        }
    }
}

/// The name of a program as the kernel would have it in `ps` and `top`.
fn short_name(program: &OsStr) -> String {
    let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    name.chars().map(|letter| if does_harm(letter) { '?' } else { letter }).take(MOST_LETTERS).collect()
}

/// The kernel's connections in figures. The kernel itself shows them one by one, and tells of events.
struct KernelFigures {
    engine: KernelEngine,
    /// Nothing is ever sent, but as long as it is there, whoever listens waits.
    silence: broadcast::Sender<EventReport>,
}

impl KernelFigures {
    fn new(engine: KernelEngine) -> Self {
        Self { engine, silence: broadcast::Sender::new(1) }
    }
}

impl Observed for KernelFigures {
    fn connections(&self) -> Vec<ConnectionReport> {
        Vec::new()
    }

    fn subscribe(&self) -> broadcast::Receiver<EventReport> {
        self.silence.subscribe()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn figures(&self) -> FiguresReport {
        let (connections, subflows) = self.engine.open();
        let subflows: Vec<&SubflowInfo> = subflows.iter().collect();
        let mut report = FiguresReport::new(self.engine.figures(), connections, &subflows);
        // What can't be read has no names.
        let interfaces = Namespace::current().and_then(|namespace| Interfaces::look(&namespace));
        let interfaces = interfaces.unwrap_or_default();
        for path in &mut report.paths {
            let name = interfaces.name_of(path.address).map(str::to_string);
            path.interface = name.or_else(|| path.address.is_loopback().then(|| "lo".into()));
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn names_are_short_and_harmless() {
        for (program, name) in [
            ("curl", "curl"),
            ("/usr/bin/curl", "curl"),
            ("./a-program-of-a-long-name", "a-program-of-a-"),
            ("\u{1b}[2J\n\u{202e}", "?[2J??"),
            ("/", "/"),
        ] {
            assert_eq!(short_name(program.as_ref()), name);
        }
    }

    #[tokio::test]
    async fn the_kernel_s_connections_have_figures_by_direction() {
        let engine = Engine::Kernel(KernelEngine::plain_tcp());
        let offered = Offered::new(&engine, Some("curl".as_ref()));
        let listener = engine.listen(([127, 0, 0, 1], 0).into()).await.expect("a listener");
        let at = listener.local_addr().expect("its address");
        let client = KernelEngine::plain_tcp();
        let options = polypath_stack::engine::ConnectOptions::default();
        let (sent, accepted) = tokio::join!(client.connect(at, &options), listener.accept());
        let (mut sent, (mut accepted, _)) = (sent.expect("a connection"), accepted.expect("the same"));
        sent.write_all(&[7; 1000]).await.expect("room");
        accepted.read_exact(&mut [0; 1000]).await.expect("the bytes");
        accepted.write_all(&[7; 10]).await.expect("room");
        sent.read_exact(&mut [0; 10]).await.expect("the bytes");
        assert_eq!(offered.observed.figures().connections, 1);
        drop(accepted);
        let figures = offered.observed.figures();
        let path = &figures.paths[0];
        assert_eq!((figures.connections, figures.paths.len(), path.interface.as_deref()), (0, 1, Some("lo")));
        assert_eq!((path.sent_bytes, path.received_bytes, path.subflows), (10, 1000, 1));
        assert_eq!((path.now.subflows, offered.program.as_str()), (0, "curl"));
    }
}
