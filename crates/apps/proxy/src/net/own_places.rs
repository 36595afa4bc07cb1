//! Where the proxy itself lets clients in. It leads nobody there: who came back to it would be on this host by what it sees, and rules and limits of the
//! client would hold no more.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::leg::Leg;

/// Where clients enter, and how many times each is listened at. Copies are of the same.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnPlaces(Arc<Mutex<BTreeMap<SocketAddr, u32>>>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Entered<'a> {
    own: &'a OwnPlaces,
    at: SocketAddr,
}

impl OwnPlaces {
    pub(super) fn listens(&self, at: SocketAddr) -> Entered<'_> {
        let at = SocketAddr::new(at.ip().to_canonical(), at.port());
        *self.lock().entry(at).or_default() += 1;
        Entered { own: self, at }
    }

    /// Whether the connection that was opened came to an entrance of this proxy.
    pub(super) fn leads_back(&self, opened: &Leg) -> bool {
        let Ok(peer) = opened.peer_addr() else { return false };
        let to = peer.ip().to_canonical();
        let is_entrance = self.lock().keys().any(|at| is_at(*at, to, peer.port()));
        // A host that goes to one of its own addresses comes from it, too.
        is_entrance
            && (to.is_loopback() || opened.local_addr().is_ok_and(|local| local.ip().to_canonical() == to))
    }

    /// Whether a connection to there would come to an entrance of this proxy, as far as that can be told before there is one.
    pub(super) fn are_at(&self, place: SocketAddr) -> bool {
        let to = place.ip().to_canonical();
        let is_own = |at: &SocketAddr| is_at(*at, to, place.port()) && (at.ip() == to || to.is_loopback());
        self.lock().keys().any(is_own)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether who listens there hears of what goes to this address of the host.
fn is_at(at: SocketAddr, to: IpAddr, port: u16) -> bool {
    let hears_all = at.ip().is_unspecified() && (at.is_ipv6() || to.is_ipv4());
    at.port() == port && (at.ip() == to || hears_all)
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut listening = self.own.lock();
        if let Some(times) = listening.get_mut(&self.at) {
            *times -= 1;
            if *times == 0 {
                listening.remove(&self.at);
            }
        }
    }
}
