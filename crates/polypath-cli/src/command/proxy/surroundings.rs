//! What limits ask of this machine.

use std::net::IpAddr;

use chrono::{Local, Timelike};
use polypath_proxy::net::Surroundings;
use polypath_proxy::throttle::MinuteOfDay;
use polypath_system::memory;

use super::super::uplink_names::UplinkNames;

/// The names of its interfaces, and its hours.
#[derive(Debug)]
pub(super) struct Machine(pub(super) UplinkNames);

impl Surroundings for Machine {
    fn memory(&self) -> Option<u64> {
        memory::resident_bytes()
    }

    fn give_memory_back(&self) {
        memory::give_back();
    }

    fn interface_of(&self, local: IpAddr) -> Option<Box<str>> {
        self.0.name_of(local).map(Into::into)
    }

    fn minute(&self) -> MinuteOfDay {
        let now = Local::now();
        let of = |number: u32| u16::try_from(number).unwrap_or_default();
        MinuteOfDay::new(of(now.hour()), of(now.minute())).unwrap_or_default()
    }
}
