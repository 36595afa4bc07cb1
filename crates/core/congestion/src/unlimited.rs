use alloc::boxed::Box;

use polypath_units::Instant;

use crate::{Ack, Config, Controller, Flows, Policy};

/// No congestion control at all: the receiver's window alone limits. For tests and for links that are the sender's own;
/// not in the table of names, because on a shared network it does harm.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl Unlimited {
    /// The algorithm, to be handed where one is chosen.
    pub const ALGORITHM: Policy = Policy::new("unlimited", |_: &Config| Box::new(Self));
}

impl Controller for Unlimited {
    fn name(&self) -> &'static str {
        Self::ALGORITHM.name()
    }

    fn on_ack(&mut self, _ack: &Ack, _flows: &Flows<'_>) {}

    fn on_congestion(&mut self, _now: Instant, _in_flight_bytes: u64, _flows: &Flows<'_>) {}

    fn on_timeout(&mut self, _now: Instant, _in_flight_bytes: u64, _flows: &Flows<'_>) {}

    fn on_spurious(&mut self, _now: Instant) {}

    fn on_idle_restart(&mut self, _now: Instant) {}

    fn on_mss(&mut self, _mss_bytes: u32) {}

    fn set_window(&mut self, _window_bytes: u64, _ssthresh_bytes: Option<u64>) {}

    fn window_bytes(&self) -> u64 {
        u64::MAX
    }

    fn ssthresh_bytes(&self) -> u64 {
        u64::MAX
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_limits_it() {
        let mut controller = Unlimited::ALGORITHM.build_for(&Config::default());
        controller.set_window(1, Some(1));
        assert_eq!(controller.window_bytes(), u64::MAX);
        assert_eq!(crate::Policy::by_name("unlimited"), None);
    }
}
