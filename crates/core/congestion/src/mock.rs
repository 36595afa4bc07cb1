use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;

use polypath_units::{BitRate, Instant};

use crate::{Ack, Config, Controller, FlowView, Flows, Policy};

/// One call that a [`Mock`] received.
#[derive(Clone, Debug)]
pub enum Call {
    /// [`Controller::on_ack`].
    Ack(Ack),
    /// [`Controller::on_congestion`].
    Congestion {
        /// When.
        now: Instant,
        /// Bytes in flight, as told.
        in_flight_bytes: u64,
    },
    /// [`Controller::on_timeout`].
    Timeout {
        /// When.
        now: Instant,
        /// Bytes in flight, as told.
        in_flight_bytes: u64,
    },
    /// [`Controller::on_spurious`].
    Spurious(Instant),
    /// [`Controller::on_recovery_end`].
    RecoveryEnd(Instant),
    /// [`Controller::on_idle_restart`].
    IdleRestart(Instant),
    /// [`Controller::on_mss`], in bytes.
    Mss(u32),
    /// [`Controller::set_window`].
    SetWindow {
        /// The window in bytes.
        window_bytes: u64,
        /// The threshold in bytes, if it was set.
        ssthresh_bytes: Option<u64>,
    },
}

/// A controller for tests of what owns one: it writes down every call and decides nothing. Its window changes only by
/// [`Controller::set_window`] and its public fields. The record grows without bound.
#[derive(Clone, Debug)]
pub struct Mock {
    /// Every call so far, oldest first.
    pub calls: Vec<Call>,
    /// The subflows as shown by the last call that showed them.
    pub flows: Vec<FlowView>,
    /// What [`Controller::window_bytes`] says.
    pub window_bytes: u64,
    /// What [`Controller::ssthresh_bytes`] says.
    pub ssthresh_bytes: u64,
    /// What [`Controller::pacing_rate`] says.
    pub pacing_rate: Option<BitRate>,
    /// What [`Controller::steers_recovery`] says.
    pub steers_recovery: bool,
}

impl Mock {
    /// The algorithm, to be handed where one is chosen. Not in the table of names.
    pub const ALGORITHM: Policy = Policy::new("mock", |config| Box::new(Self::new(config)));

    /// One with the initial window and an empty record.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            calls: Vec::new(),
            flows: Vec::new(),
            window_bytes: u64::from(config.initial_window_packets) * u64::from(config.mss_bytes),
            ssthresh_bytes: u64::MAX,
            pacing_rate: None,
            steers_recovery: false,
        }
    }

    /// The mock behind the trait, if it is one.
    #[must_use]
    pub fn of(controller: &dyn Controller) -> Option<&Self> {
        let any: &dyn Any = controller;
        any.downcast_ref()
    }

    /// The mock behind the trait, if it is one, to be changed.
    #[must_use]
    pub fn of_mut(controller: &mut dyn Controller) -> Option<&mut Self> {
        let any: &mut dyn Any = controller;
        any.downcast_mut()
    }

    fn see(&mut self, flows: &Flows<'_>) {
        self.flows.clear();
        self.flows.extend_from_slice(flows.all);
    }
}

impl Controller for Mock {
    fn name(&self) -> &'static str {
        Self::ALGORITHM.name()
    }

    fn on_ack(&mut self, ack: &Ack, flows: &Flows<'_>) {
        self.see(flows);
        self.calls.push(Call::Ack(*ack));
    }

    fn on_congestion(&mut self, now: Instant, in_flight_bytes: u64, flows: &Flows<'_>) {
        self.see(flows);
        self.calls.push(Call::Congestion { now, in_flight_bytes });
    }

    fn on_timeout(&mut self, now: Instant, in_flight_bytes: u64, flows: &Flows<'_>) {
        self.see(flows);
        self.calls.push(Call::Timeout { now, in_flight_bytes });
    }

    fn on_spurious(&mut self, now: Instant) {
        self.calls.push(Call::Spurious(now));
    }

    fn on_recovery_end(&mut self, now: Instant) {
        self.calls.push(Call::RecoveryEnd(now));
    }

    fn steers_recovery(&self) -> bool {
        self.steers_recovery
    }

    fn on_idle_restart(&mut self, now: Instant) {
        self.calls.push(Call::IdleRestart(now));
    }

    fn on_mss(&mut self, mss_bytes: u32) {
        self.calls.push(Call::Mss(mss_bytes));
    }

    fn set_window(&mut self, window_bytes: u64, ssthresh_bytes: Option<u64>) {
        self.calls.push(Call::SetWindow { window_bytes, ssthresh_bytes });
        self.window_bytes = window_bytes;
        self.ssthresh_bytes = ssthresh_bytes.unwrap_or(self.ssthresh_bytes);
    }

    fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    fn ssthresh_bytes(&self) -> u64 {
        self.ssthresh_bytes
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        self.pacing_rate
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_calls_behind_the_trait() {
        let mut controller = Mock::ALGORITHM.build_for(&Config::default());
        controller.on_mss(1400);
        controller.on_timeout(Instant::from_millis(3), 77, &Flows::single(&FlowView::default()));
        let mock = Mock::of(&*controller).expect("a mock");
        assert!(matches!(
            mock.calls[..],
            [Call::Mss(1400), Call::Timeout { in_flight_bytes: 77, now }] if now == Instant::from_millis(3)
        ));
        assert_eq!(mock.flows.len(), 1);
        Mock::of_mut(&mut *controller).expect("a mock").window_bytes = 5;
        assert_eq!(controller.clone().window_bytes(), 5);
        assert!(Mock::of(&*crate::RENO.build_for(&Config::default())).is_none());
    }
}
