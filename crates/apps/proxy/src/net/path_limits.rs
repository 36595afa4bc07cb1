//! Limits of paths where connections are of our own stack: they are set there, and hold back packets of subflows instead of bytes of connections.

use polypath_stack::Engine;
use polypath_stack::stack::{
    LimitedWays, PathLimit, PathLimitSet, PathLimitState, SeenSubflow, Stack, TooManyLimits,
};

use super::clock::now;
use super::entrance::Proxy;
use crate::throttle::{Direction, Limit, PathSeen};

/// Why a limit can't be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitRefused {
    /// It is of a path of the kernel's Multipath TCP.
    #[error(
        "a limit of a path: expected engine tun or udp, which are Polypath's own stack, or tcp, whose connections have one path each; of Multipath TCP of the kernel it is not possible"
    )]
    PathOfKernel,
    /// It is of a path of our own stack, and says this besides.
    #[error("a limit of a path has a rate for all that it is of together: expected no {0} beside the path")]
    MoreThanRate(&'static str),
    /// There are too many of paths.
    #[error(transparent)]
    TooMany(#[from] TooManyLimits),
}

impl Proxy {
    /// Whether a limit can be set, unless there are too many by then.
    pub fn check_limit(&self, limit: &Limit) -> Result<(), LimitRefused> {
        match self.engine() {
            _ if !limit.flows.names_paths() => Ok(()),
            Engine::Stack(_) => match said_besides(limit) {
                Some(what) => Err(LimitRefused::MoreThanRate(what)),
                None => Ok(()),
            },
            Engine::Kernel(engine) if engine.is_plain_tcp() => Ok(()),
            _ => Err(LimitRefused::PathOfKernel),
        }
    }

    /// Whether so many limits can be beside each other.
    pub fn check_number(&self, limits: &[Limit]) -> Result<(), LimitRefused> {
        let of_paths = limits.iter().filter(|limit| limit.flows.names_paths()).count();
        match self.path_limit_set() {
            Some(_) if of_paths > Stack::MOST_PATH_LIMITS => Err(TooManyLimits.into()),
            _ => Ok(()),
        }
    }

    /// Sets a limit, from now on, also for those within. One of the same name is changed.
    pub fn set_limit(&self, limit: Limit) -> Result<(), LimitRefused> {
        self.check_limit(&limit)?;
        match self.path_limit_set() {
            Some(set) if limit.flows.names_paths() => {
                let name = limit.name.clone();
                set.set(&name, self.path_limit(limit))?;
                self.throttle().remove(&name);
            }
            set => {
                set.map(|set| set.remove(&limit.name));
                self.throttle().set(now(), limit);
            }
        }
        Ok(())
    }

    /// Removes a limit, and says whether there was one.
    pub fn remove_limit(&self, name: &str) -> bool {
        let was_of_path = self.path_limit_set().is_some_and(|set| set.remove(name));
        self.throttle().remove(name) || was_of_path
    }

    /// The limits of paths of our own stack, and what they do.
    #[must_use]
    pub fn path_limits(&self) -> Vec<PathLimitState> {
        self.path_limit_set().map(PathLimitSet::states).unwrap_or_default()
    }

    fn path_limit(&self, limit: Limit) -> PathLimit {
        let (owners, settings) = (self.owners().clone(), self.settings().clone());
        PathLimit::new(limit.rate.unwrap_or_default(), move |subflow: &SeenSubflow| {
            let (local, remote) = (subflow.ends.local.addr, subflow.ends.remote.addr);
            let path = PathSeen { interface: subflow.path_name.as_deref(), local, remote };
            let owner = owners.of(subflow.owner.as_ref());
            if limit.holds_for_path(&path, owner, settings.get().surroundings.minute()) {
                ways(limit.flows.direction, subflow.is_client)
            } else {
                LimitedWays::default()
            }
        })
    }
}

/// What a limit says that is not possible of packets.
fn said_besides(limit: &Limit) -> Option<&'static str> {
    let said = [
        (limit.is_of_each_client, "per-client"),
        (limit.burst.is_some(), "burst"),
        (limit.budget.is_some(), "budget"),
    ];
    said.into_iter().find_map(|(is_said, what)| is_said.then_some(what))
}

/// A connection that the stack opened leads to a server.
fn ways(direction: Option<Direction>, is_client: bool) -> LimitedWays {
    let is_meant = |its: Direction| direction.is_none_or(|direction| direction == its);
    let (up, down) = (is_meant(Direction::Up), is_meant(Direction::Down));
    if is_client {
        LimitedWays { sent: up, received: down }
    } else {
        LimitedWays { sent: down, received: up }
    }
}

#[cfg(test)]
mod tests {
    use polypath_units::{BitRate, Duration};

    use super::*;
    use crate::throttle::Budget;

    #[test]
    fn up_is_to_servers_and_down_to_clients() {
        let (sent, received) = ((true, false), (false, true));
        for (direction, is_client, expected) in [
            (None, true, (true, true)),
            (None, false, (true, true)),
            (Some(Direction::Up), true, sent),
            (Some(Direction::Down), true, received),
            (Some(Direction::Up), false, received),
            (Some(Direction::Down), false, sent),
        ] {
            let ways = ways(direction, is_client);
            assert_eq!((ways.sent, ways.received), expected, "{direction:?} {is_client}");
        }
    }

    #[test]
    fn a_limit_of_packets_has_a_rate_alone() {
        let mut limit = Limit::new("lte");
        limit.rate = Some(BitRate::from_mbps(5));
        limit.flows.paths = vec!["wwan0".parse().unwrap()];
        limit.flows.peers = vec!["192.0.2.0/24".parse().unwrap()];
        limit.flows.hosts = vec!["example.org".parse().unwrap()];
        limit.flows.direction = Some(Direction::Down);
        assert_eq!(said_besides(&limit), None);
        let changes: [fn(&mut Limit); 3] = [
            |limit| limit.is_of_each_client = true,
            |limit| limit.burst = Some(1),
            |limit| {
                let period = Duration::from_secs(1);
                limit.budget = Some(Budget { octets: 1, period, then: BitRate::ZERO });
            },
        ];
        for (change, what) in changes.into_iter().zip(["per-client", "burst", "budget"]) {
            let mut limit = limit.clone();
            change(&mut limit);
            assert_eq!(said_besides(&limit), Some(what));
        }
    }
}
