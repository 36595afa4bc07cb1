use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_units::{Duration, Instant};
use polypath_wire::Endpoint;

use super::{LocalEndpoint, PathAction, PathEvent, PathManager, PathView};

/// What `ip mptcp endpoint` and `ip mptcp limits` say: announces `signal` endpoints, opens a subflow from each `subflow`
/// endpoint to the initial address and to each announced one (from all of them with `fullmesh`, else from the first),
/// and opens again, with backoff, what was lost.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    lost: Vec<Lost>,
}

/// A pair whose subflow ended.
#[derive(Clone, Copy, Debug)]
struct Lost {
    local: IpAddr,
    remote: Endpoint,
    attempts: u32,
    retry_at: Instant,
}

/// Wait before the first attempt to re-establish; doubles up to [`MAX_RETRY`].
const FIRST_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(60);

/// Attempts after which a pair that never worked is given up.
const MAX_ATTEMPTS: u32 = 6;

/// Pairs that are remembered: bounded, since the peer can announce any number of addresses.
const MAX_LOST: usize = 32;

impl PathManager for Endpoints {
    fn name(&self) -> &'static str {
        "endpoints"
    }

    fn handle_event(&mut self, event: &PathEvent, view: &PathView<'_>, actions: &mut Vec<PathAction>) {
        match *event {
            PathEvent::Established => {
                announce(view, view.endpoints.iter(), actions);
                self.open_missing(view, actions);
            }
            PathEvent::Announced(_) => self.open_missing(view, actions),
            PathEvent::LocalAdded(addr) => {
                self.lost.retain(|lost| lost.local != addr);
                announce(view, view.endpoints.iter().filter(|endpoint| endpoint.addr == addr), actions);
                self.open_missing(view, actions);
            }
            PathEvent::Withdrawn { id } => {
                let gone = view.subflows.iter().filter(|subflow| subflow.remote_id == id);
                actions.extend(gone.map(|subflow| PathAction::Close { subflow: subflow.id }));
            }
            PathEvent::LocalRemoved(addr) => {
                let id =
                    view.endpoints.iter().find(|endpoint| endpoint.addr == addr).map(|endpoint| endpoint.id);
                let gone = view.subflows.iter().filter(|subflow| subflow.local == addr);
                let id = id.or_else(|| gone.clone().map(|subflow| subflow.local_id).next());
                actions.extend(id.map(|id| PathAction::Withdraw { id }));
            }
            PathEvent::SubflowEstablished { subflow } => {
                if let Some(up) = view.subflows.iter().find(|summary| summary.id == subflow) {
                    self.lost.retain(|lost| (lost.local, lost.remote) != (up.local, up.remote));
                }
            }
            PathEvent::SubflowClosed { local, remote, was_established } => {
                self.remember(view, local, remote, was_established, actions);
            }
            PathEvent::Wake => self.open_missing(view, actions),
        }
    }
}

fn announce<'a>(
    view: &PathView<'_>,
    endpoints: impl Iterator<Item = &'a LocalEndpoint>,
    actions: &mut Vec<PathAction>,
) {
    let initial = (view.initial_local, None);
    for endpoint in endpoints.filter(|endpoint| endpoint.signal && (endpoint.addr, endpoint.port) != initial)
    {
        actions.push(PathAction::Announce { id: endpoint.id, addr: endpoint.addr, port: endpoint.port });
    }
}

impl Endpoints {
    /// Opens a subflow for each wanted pair of addresses that has none, up to the limit. Only the client opens: a server
    /// is mostly behind nothing, a client behind a NAT.
    fn open_missing(&mut self, view: &PathView<'_>, actions: &mut Vec<PathAction>) {
        if !view.is_client || !view.may_join {
            return;
        }
        // With the initial subflow gone, its place is free for another.
        let mut free = (usize::from(view.limits.subflows) + 1).saturating_sub(view.subflows.len());
        let mut opened: Vec<(IpAddr, Endpoint)> = Vec::new();
        for (local, remote) in wanted(view) {
            let pair = (local.addr, remote);
            let exists = view.subflows.iter().any(|subflow| (subflow.local, subflow.remote) == pair);
            let waits =
                self.lost.iter().any(|lost| (lost.local, lost.remote) == pair && lost.retry_at > view.now);
            if free == 0 || exists || waits || opened.contains(&pair) {
                continue;
            }
            free -= 1;
            opened.push(pair);
            actions.push(PathAction::Open {
                local: local.addr,
                local_id: local.id,
                remote,
                backup: local.backup,
            });
        }
        if let Some(next) = self.lost.iter().map(|lost| lost.retry_at).filter(|at| *at > view.now).min() {
            actions.push(PathAction::WakeAt(next));
        }
    }

    fn remember(
        &mut self,
        view: &PathView<'_>,
        local: IpAddr,
        remote: Endpoint,
        was_established: bool,
        actions: &mut Vec<PathAction>,
    ) {
        let known = self.lost.iter().position(|lost| (lost.local, lost.remote) == (local, remote));
        let attempts = match known {
            Some(at) if !was_established => self.lost.swap_remove(at).attempts + 1,
            Some(at) => {
                self.lost.swap_remove(at);
                0
            }
            None => u32::from(!was_established),
        };
        let wait = Duration::from_nanos(FIRST_RETRY.as_nanos() << attempts.min(6));
        let retry_at = match attempts {
            MAX_ATTEMPTS.. => Instant::FAR_FUTURE,
            _ => view.now + if wait > MAX_RETRY { MAX_RETRY } else { wait },
        };
        if self.lost.len() < MAX_LOST {
            self.lost.push(Lost { local, remote, attempts, retry_at });
        }
        if view.is_client && view.may_join && retry_at != Instant::FAR_FUTURE {
            actions.push(PathAction::WakeAt(retry_at));
        }
    }
}

/// The pairs of addresses that should carry a subflow, most wanted first.
fn wanted<'a>(view: &'a PathView<'_>) -> impl Iterator<Item = (LocalEndpoint, Endpoint)> + 'a {
    let initial = LocalEndpoint { fullmesh: false, ..LocalEndpoint::subflow(view.initial_local, 0) };
    let known = view.endpoints.iter().copied().filter(|endpoint| endpoint.subflow);
    // The initial pair counts as wanted too: if its subflow dies, it is to come back.
    let initial_is_listed = view.endpoints.iter().any(|endpoint| endpoint.addr == view.initial_local);
    let to_initial = known
        .clone()
        .chain((!initial_is_listed).then_some(initial))
        .filter(|_| !view.no_join_initial)
        .map(|local| (local, view.initial_remote));
    let to_announced =
        view.announced.iter().take(usize::from(view.limits.add_addr_accepted)).flat_map(move |remote| {
            let target = Endpoint::new(remote.addr, remote.port.unwrap_or(view.initial_remote.port));
            let mesh = known.clone().filter(|local| local.fullmesh);
            let any_mesh = mesh.clone().next().is_some();
            mesh.chain((!any_mesh).then_some(initial)).map(move |local| (local, target))
        });
    to_initial.chain(to_announced).filter(|(local, remote)| local.addr.is_ipv4() == remote.addr.is_ipv4())
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, RemoteAddress, SubflowSummary};
    use super::*;
    use core::net::Ipv4Addr;

    fn addr(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
    }

    fn initial_subflow() -> SubflowSummary {
        SubflowSummary {
            id: 0,
            local: addr(1),
            local_id: 0,
            remote: Endpoint::new(addr(100), 80),
            remote_id: 0,
            established: true,
            backup: false,
        }
    }

    fn view<'a>(endpoints: &'a [LocalEndpoint], subflows: &'a [SubflowSummary]) -> PathView<'a> {
        PathView {
            now: Instant::ZERO,
            is_client: true,
            may_join: true,
            initial_local: addr(1),
            initial_remote: Endpoint::new(addr(100), 80),
            no_join_initial: false,
            endpoints,
            limits: Limits::default(),
            subflows,
            announced: &[],
        }
    }

    fn after(event: PathEvent, view: &PathView<'_>) -> Vec<PathAction> {
        let mut actions = Vec::new();
        Endpoints::default().handle_event(&event, view, &mut actions);
        actions
    }

    #[test]
    fn client_opens_one_subflow_from_each_other_address() {
        let endpoints = [LocalEndpoint::subflow(addr(1), 1), LocalEndpoint::subflow(addr(2), 2).backup()];
        let subflows = [initial_subflow()];
        let open = PathAction::Open {
            local: addr(2),
            local_id: 2,
            remote: Endpoint::new(addr(100), 80),
            backup: true,
        };
        assert_eq!(after(PathEvent::Established, &view(&endpoints, &subflows)), [open]);
        let mut no_more = view(&endpoints, &subflows);
        no_more.limits.subflows = 0;
        assert_eq!(after(PathEvent::Established, &no_more), []);
        let mut server = view(&endpoints, &subflows);
        server.is_client = false;
        assert_eq!(after(PathEvent::Established, &server), []);
    }

    #[test]
    fn server_announces_its_other_addresses_and_the_client_meshes() {
        let endpoints = [LocalEndpoint::signal(addr(1), 1), LocalEndpoint::signal(addr(2), 2)];
        let subflows = [initial_subflow()];
        let mut server = view(&endpoints, &subflows);
        server.is_client = false;
        let announce = PathAction::Announce { id: 2, addr: addr(2), port: None };
        assert_eq!(after(PathEvent::Established, &server), [announce]);

        let endpoints = [LocalEndpoint::subflow(addr(1), 1), LocalEndpoint::subflow(addr(2), 2)];
        let announced = [RemoteAddress { id: 9, addr: addr(101), port: Some(81) }];
        let mut client = view(&endpoints, &subflows);
        client.announced = &announced;
        client.no_join_initial = true;
        let remote = Endpoint::new(addr(101), 81);
        let open = |local, local_id| PathAction::Open { local, local_id, remote, backup: false };
        assert_eq!(after(PathEvent::Announced(announced[0]), &client), [open(addr(1), 1), open(addr(2), 2)]);
    }

    #[test]
    fn a_lost_path_is_tried_again_with_backoff() {
        let endpoints = [LocalEndpoint::subflow(addr(2), 2)];
        let subflows = [initial_subflow()];
        let mut manager = Endpoints::default();
        let mut view = view(&endpoints, &subflows);
        let lost = |was_established| PathEvent::SubflowClosed {
            local: addr(2),
            remote: Endpoint::new(addr(100), 80),
            was_established,
        };
        let mut actions = Vec::new();
        manager.handle_event(&lost(true), &view, &mut actions);
        assert_eq!(actions, [PathAction::WakeAt(Instant::from_secs(1))]);
        manager.handle_event(&PathEvent::Wake, &view, &mut actions);
        assert_eq!(actions.len(), 2, "too early to open: only the same wake-up again");
        view.now = Instant::from_secs(1);
        actions.clear();
        manager.handle_event(&PathEvent::Wake, &view, &mut actions);
        assert!(matches!(actions[..], [PathAction::Open { .. }]));
        actions.clear();
        manager.handle_event(&lost(false), &view, &mut actions);
        assert_eq!(actions, [PathAction::WakeAt(Instant::from_secs(3))]);
    }

    #[test]
    fn withdrawn_addresses_close_their_subflows() {
        let endpoints = [LocalEndpoint::subflow(addr(1), 1)];
        let subflows = [initial_subflow()];
        assert_eq!(
            after(PathEvent::Withdrawn { id: 0 }, &view(&endpoints, &subflows)),
            [PathAction::Close { subflow: 0 }]
        );
        assert_eq!(
            after(PathEvent::LocalRemoved(addr(1)), &view(&endpoints, &subflows)),
            [PathAction::Withdraw { id: 1 }]
        );
    }
}
