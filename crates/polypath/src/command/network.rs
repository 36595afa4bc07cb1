//! What commands on real networks have in common.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use super::Failure;

/// Runs a command's work on a runtime of one thread: what connections need, and fastest for few of them.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::Run(format!("can't start the runtime: {error}")))?.block_on(work)
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
