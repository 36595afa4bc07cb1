//! Pairs of a local and a remote address that may carry a subflow.

use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_wire::Endpoint;

use super::{LocalEndpoint, PathView};

/// Where a subflow goes from, and where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) local: LocalEndpoint,
    pub(super) remote: Endpoint,
}

impl Pair {
    pub(super) fn addresses(&self) -> (IpAddr, Endpoint) {
        (self.local.addr, self.remote)
    }
}

/// What the flags of the endpoints ask for: a subflow from each `subflow` endpoint to the initial address and to each announced
/// one: from all of its family with `fullmesh` or else from one address, which Linux leaves to the routes. The initial address
/// stands for that here, and the best endpoint where it is of the other family. The best priority comes first.
pub(super) fn by_flags(view: &PathView<'_>) -> Vec<Pair> {
    let initial = LocalEndpoint { subflow: true, ..LocalEndpoint::new(view.initial_local, 0) };
    let known = view.endpoints.iter().copied().filter(|endpoint| endpoint.subflow);
    // The initial pair counts as wanted too: if its subflow dies, it is to come back.
    let own_initial = view.endpoint(view.initial_local).is_none().then_some(initial);
    let to_initial = known
        .clone()
        .chain(own_initial)
        .filter(|_| !view.no_join_initial)
        .map(|local| Pair { local, remote: view.initial_remote });
    let to_announced = announced(view).flat_map(|remote| {
        let is_of_family = move |addr: IpAddr| addr.is_ipv4() == remote.addr.is_ipv4();
        let of_family = known.clone().filter(move |local| is_of_family(local.addr));
        let mesh = of_family.clone().filter(|local| local.fullmesh);
        let first = Some(initial).filter(|_| is_of_family(view.initial_local));
        let one = first.or_else(|| of_family.min_by_key(|local| (local.backup, local.priority)));
        let alone = one.filter(|_| mesh.clone().next().is_none());
        mesh.chain(alone).map(move |local| Pair { local, remote })
    });
    in_order(to_initial.chain(to_announced))
}

/// Every local address with every remote one of its family. The best priority comes first.
pub(super) fn all(view: &PathView<'_>) -> Vec<Pair> {
    let initial = LocalEndpoint { subflow: true, ..LocalEndpoint::new(view.initial_local, 0) };
    let own_initial = view.endpoint(view.initial_local).is_none().then_some(initial);
    let locals = view.endpoints.iter().copied().chain(own_initial);
    let remotes = (!view.no_join_initial).then_some(view.initial_remote).into_iter().chain(announced(view));
    in_order(remotes.flat_map(|remote| locals.clone().map(move |local| Pair { local, remote })))
}

fn announced<'a>(view: &'a PathView<'_>) -> impl Iterator<Item = Endpoint> + 'a {
    let accepted = usize::from(view.limits.add_addr_accepted);
    let port = view.initial_remote.port;
    view.announced
        .iter()
        .take(accepted)
        .map(move |remote| Endpoint::new(remote.addr, remote.port.unwrap_or(port)))
}

fn in_order(pairs: impl Iterator<Item = Pair>) -> Vec<Pair> {
    let mut kept: Vec<Pair> = Vec::new();
    for pair in pairs {
        let is_one_family = pair.local.addr.is_ipv4() == pair.remote.addr.is_ipv4();
        if is_one_family && !kept.iter().any(|known| known.addresses() == pair.addresses()) {
            kept.push(pair);
        }
    }
    kept.sort_by_key(|pair| pair.local.priority);
    kept
}
