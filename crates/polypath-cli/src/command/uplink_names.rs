//! Which interface an address of this machine belongs to, for those who ask again and again.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use polypath_netsetup::abilities::Interfaces;
use polypath_system::Namespace;

/// How often an address that nobody knows has the system asked.
const PAUSE: Duration = Duration::from_secs(1);

/// Names of interfaces, as far as they were looked up.
#[derive(Debug, Default)]
pub(super) struct UplinkNames(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    interfaces: Interfaces,
    looked_at: Option<Instant>,
}

impl UplinkNames {
    /// The interface that has this address; none for the loopback interface's.
    pub(super) fn name_of(&self, addr: IpAddr) -> Option<String> {
        let addr = addr.to_canonical();
        if addr.is_loopback() {
            return None;
        }
        let mut known = self.lock();
        if known.interfaces.name_of(addr).is_none() && known.looked_at.is_none_or(|at| at.elapsed() >= PAUSE)
        {
            known.looked_at = Some(Instant::now());
            drop(known);
            // What can't be read has no names. Other threads ask meanwhile.
            let found = Namespace::current().and_then(|namespace| Interfaces::look(&namespace));
            known = self.lock();
            known.interfaces = found.unwrap_or_default();
        }
        known.interfaces.name_of(addr).map(str::to_string)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
