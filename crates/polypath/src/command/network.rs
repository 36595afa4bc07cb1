//! What commands on real networks have in common.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::Failure;

/// Runs a command's work on a runtime of one thread: what connections need, and fastest for few of them. SIGTERM and
/// SIGHUP end it, and what an engine has set up is taken down; commands decide for themselves about SIGINT.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    block_on_until(&[SignalKind::terminate(), SignalKind::hangup()], work)
}

/// As [`block_on`], for commands that SIGINT just ends.
pub(super) fn block_on_interruptibly<T>(
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    block_on_until(&[SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()], work)
}

fn block_on_until<T>(
    signals: &[SignalKind],
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Run(format!("can't start the runtime: {error}")))?;
    runtime.block_on(async {
        let mut handlers = signals
            .iter()
            .map(|kind| signal(*kind).map(|handler| (*kind, handler)))
            .collect::<io::Result<Vec<_>>>()
            .map_err(|error| Failure::Run(format!("can't handle signals: {error}")))?;
        let ended = std::future::poll_fn(|cx| {
            let fired = handlers
                .iter_mut()
                .find_map(|(kind, handler)| handler.poll_recv(cx).is_ready().then_some(*kind));
            fired.map_or(Poll::Pending, Poll::Ready)
        });
        tokio::select! {
            result = work => result,
            // As a shell says that a signal ended a program.
            kind = ended => Err(Failure::Exit(u8::try_from(128 + kind.as_raw_value()).unwrap_or(u8::MAX))),
        }
    })
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

/// Zero stands for none.
pub(super) fn is_given(time: &Duration) -> bool {
    !time.is_zero()
}
