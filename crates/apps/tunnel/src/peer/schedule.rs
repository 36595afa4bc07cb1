//! Which path takes the next packet.

use polypath_units::{Duration, Instant};

use super::link::Link;
use crate::queue::Behind;

/// A path that is slower by so many times is worth its capacity only if that is so much, as a part of the better path's, for each of them.
const WORTH: f64 = 0.004;

/// A path and its number.
type Numbered<'a> = (usize, &'a Link);

/// What a path would take for a packet that leaves now.
fn one_way(link: &Link) -> Duration {
    link.sender.srtt() / 2
}

/// The path of least delay for an urgent packet, of those that are not flooded with them.
pub(super) fn for_urgent<'a>(now: Instant, links: impl Iterator<Item = Numbered<'a>>) -> Option<usize> {
    links
        .filter(|(_, link)| link.sender.urgent_at().is_some_and(|at| at <= now))
        .min_by_key(|(_, link)| one_way(link))
        .map(|(at, _)| at)
}

/// When [`for_urgent`] may find a path, if no acknowledgment comes before.
pub(super) fn next_urgent<'a>(links: impl Iterator<Item = Numbered<'a>>) -> Option<Instant> {
    links.filter_map(|(_, link)| link.sender.urgent_at()).min()
}

/// The path for the next packet of what waits, or `None` if it is better to wait.
pub(super) fn for_waiting<'a>(
    now: Instant,
    links: impl Iterator<Item = Numbered<'a>> + Clone,
    waiting_bytes: u64,
) -> Option<usize> {
    let (best, others) = candidates(links, waiting_bytes)?;
    if best.1.sender.is_open(now) {
        return Some(best.0);
    }
    others
        .filter(|(_, link)| link.sender.is_open(now))
        .min_by_key(|(_, link)| one_way(link))
        .map(|(at, _)| at)
}

/// When [`for_waiting`] may find a path, if no acknowledgment comes before.
pub(super) fn next_chance<'a>(
    links: impl Iterator<Item = Numbered<'a>> + Clone,
    waiting_bytes: u64,
) -> Option<Instant> {
    let (best, others) = candidates(links, waiting_bytes)?;
    let all = std::iter::once(best).chain(others);
    all.filter(|(_, link)| link.sender.window_left_bytes() > 0)
        .map(|(_, link)| link.sender.paced_until())
        .min()
}

/// The fastest path, and those others on which a packet would come earlier than over the fastest, once that has sent what waits (ECF, Lim
/// et al., CoNEXT 2017, without its hysteresis).
fn candidates<'a>(
    links: impl Iterator<Item = Numbered<'a>> + Clone,
    waiting_bytes: u64,
) -> Option<(Numbered<'a>, impl Iterator<Item = Numbered<'a>>)> {
    let best = links.clone().min_by_key(|(_, link)| one_way(link))?;
    let by_best = best.1.sender.pacing_rate().time_to_send(waiting_bytes) + one_way(best.1);
    let others = links
        .filter(move |&(at, link)| at != best.0 && one_way(link) <= by_best && is_worth_it(best.1, link));
    Some((best, others))
}

fn is_worth_it(best: &Link, link: &Link) -> bool {
    // Nobody knows the rate of a path that never had much to carry.
    if !link.sender.knows_rate() {
        return true;
    }
    let Some(rtt) = link.sender.min_rtt() else { return true };
    // A queue on the better path is a reason to use the other one.
    let longer = rtt.as_secs_f64() / best.sender.srtt().as_secs_f64().max(0.001);
    let more = link.sender.pacing_rate().as_bps() as f64 / best.sender.pacing_rate().as_bps().max(1) as f64;
    more >= WORTH * (longer - 1.0)
}

/// What is behind the queue: the paths that are worth it.
pub(super) fn behind<'a>(links: impl Iterator<Item = Numbered<'a>> + Clone) -> Behind {
    let Some((_, best)) = links.clone().min_by_key(|(_, link)| one_way(link)) else {
        return Behind::default();
    };
    let least = one_way(best);
    let most = links.filter(|(_, link)| is_worth_it(best, link)).map(|(_, link)| one_way(link)).max();
    let most = most.unwrap_or(least);
    Behind { skew: most - least, rtt: most * 2 }
}
