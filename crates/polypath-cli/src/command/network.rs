//! What commands on real networks have in common.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;

use polypath_system::console;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::Failure;

/// Runs a command's work on a runtime of one thread: what connections need, and fastest for few of them. SIGTERM and
/// SIGHUP end it, and what an engine has set up is taken down; commands decide for themselves about SIGINT.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    block_on_until(&[SignalKind::terminate(), SignalKind::hangup()], work)
}

/// As [`block_on`], for commands to which SIGHUP may mean something else than their end.
pub(super) fn block_on_heeding<T>(
    hangup_ends: bool,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    if hangup_ends { block_on(work) } else { block_on_until(&[SignalKind::terminate()], work) }
}

/// As [`block_on`], for commands that SIGINT just ends.
pub(super) fn block_on_interruptibly<T>(
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    block_on_until(&[SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()], work)
}

/// As [`block_on`], for what a service manager ends: by whatever signal the service has for that.
pub(super) fn block_on_whatever_asked<T>(
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let signals =
        [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()];
    block_on_until(&signals, work)
}

/// As [`block_on_interruptibly`], for work that has something to save: while it holds the interruption, the first signal is its
/// own to deal with.
pub(super) fn block_on_saving<T>(
    work: impl AsyncFnOnce(&Interruption) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let interruption = Interruption(watch::Sender::new(Asked::default()));
    let signals = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()];
    in_runtime(async {
        let mut ended = ended_by(&signals)?;
        let listen = async {
            loop {
                let code = exit_code(std::future::poll_fn(|cx| ended.poll(cx)).await);
                interruption.0.send_modify(|asked| {
                    asked.times += 1;
                    asked.code = asked.code.or(Some(code));
                });
            }
        };
        let mut state = interruption.0.subscribe();
        let unheeded = state.wait_for(|asked| asked.times > usize::from(asked.is_held));
        tokio::select! {
            result = work(&interruption) => result,
            _ = unheeded => Err(interruption.exit()),
            never = listen => never,
        }
    })
}

/// Signals that ask for the end.
pub(super) struct Interruption(watch::Sender<Asked>);

#[derive(Default)]
struct Asked {
    times: usize,
    /// The exit code that the first one stands for.
    code: Option<u8>,
    is_held: bool,
}

impl Interruption {
    /// How the command ends after it.
    pub(super) fn exit(&self) -> Failure {
        Failure::Exit(self.0.borrow().code.unwrap_or(1))
    }

    /// Does something that ends by itself soon when the future is over that it is given: with the first signal.
    pub(super) async fn hold<T>(&self, work: impl AsyncFnOnce(Signalled) -> T) -> T {
        let hold = |is_held| self.0.send_modify(|asked| asked.is_held = is_held);
        hold(true);
        let result = work(Signalled(self.0.subscribe())).await;
        hold(false);
        result
    }
}

/// Whoever waits for a signal.
pub(super) struct Signalled(watch::Receiver<Asked>);

impl Signalled {
    pub(super) async fn wait(mut self) {
        if self.0.wait_for(|asked| asked.times > 0).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn block_on_until<T>(
    signals: &[SignalKind],
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    in_runtime(async {
        let mut ended = ended_by(signals)?;
        tokio::select! {
            result = work => result,
            kind = std::future::poll_fn(|cx| ended.poll(cx)) => Err(Failure::Exit(exit_code(kind))),
        }
    })
}

/// As [`block_on`], for a command that deals with all signals by itself.
pub(super) fn in_runtime<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    polypath_system::process::raise_descriptor_limit();
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Run(format!("can't start the runtime: {error}")))?;
    runtime.block_on(work)
}

/// Handlers of signals.
struct Handlers(Vec<(SignalKind, Signal)>);

fn ended_by(signals: &[SignalKind]) -> Result<Handlers, Failure> {
    let handlers = signals.iter().map(|kind| {
        console::wait_until(kind.as_raw_value())?;
        signal(*kind).map(|handler| (*kind, handler))
    });
    let handlers = handlers.collect::<io::Result<Vec<_>>>();
    handlers.map(Handlers).map_err(|error| Failure::Run(format!("can't handle signals: {error}")))
}

impl Handlers {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<SignalKind> {
        let mut fired = self.0.iter_mut();
        let fired = fired.find_map(|(kind, handler)| handler.poll_recv(cx).is_ready().then_some(*kind));
        fired.map_or(Poll::Pending, Poll::Ready)
    }
}

/// As a shell says that a signal ended a program.
fn exit_code(kind: SignalKind) -> u8 {
    u8::try_from(128 + kind.as_raw_value()).unwrap_or(u8::MAX)
}

/// The first address of a host that is acceptable.
pub(super) async fn resolve(
    host: &str,
    port: u16,
    is_acceptable: impl Fn(&SocketAddr) -> bool,
) -> Result<SocketAddr, Failure> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let mut addresses = tokio::net::lookup_host((bare, port))
        .await
        .map_err(|error| Failure::Run(format!("can't find the host \"{host}\": {error}")))?;
    addresses
        .find(is_acceptable)
        .ok_or_else(|| Failure::Run(format!("the host \"{host}\" has no address of the wanted family")))
}

/// The addresses of a host; none if it can't be found.
pub(super) async fn addresses(host: &str) -> Vec<IpAddr> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let Ok(addresses) = tokio::net::lookup_host((bare, 0)).await else { return Vec::new() };
    addresses.map(|addr| addr.ip().to_canonical()).collect()
}

/// Zero stands for none.
pub(super) fn is_given(time: &Duration) -> bool {
    !time.is_zero()
}
