use polypath_congestion::{Ack, Algorithm, Config, Controller, Flows};
use polypath_units::Instant;

/// A congestion control: a window of so many segments, whatever happens.
pub const STEADY: Algorithm = Algorithm::new("steady", |config| Box::new(Steady::new(config)));

/// Segments in flight.
const WINDOW_PACKETS: u64 = 30;

#[derive(Clone, Debug)]
struct Steady {
    mss_bytes: u64,
}

impl Steady {
    fn new(config: &Config) -> Self {
        Self { mss_bytes: config.mss_bytes.into() }
    }
}

impl Controller for Steady {
    fn name(&self) -> &'static str {
        STEADY.name()
    }

    fn on_ack(&mut self, _: &Ack, _: &Flows<'_>) {}

    fn on_congestion(&mut self, _: Instant, _: u64, _: &Flows<'_>) {}

    fn on_timeout(&mut self, _: Instant, _: u64, _: &Flows<'_>) {}

    fn on_spurious(&mut self, _: Instant) {}

    fn on_idle_restart(&mut self, _: Instant) {}

    fn on_mss(&mut self, mss_bytes: u32) {
        self.mss_bytes = mss_bytes.into();
    }

    fn set_window(&mut self, _: u64, _: Option<u64>) {}

    fn window_bytes(&self) -> u64 {
        WINDOW_PACKETS * self.mss_bytes
    }

    fn ssthresh_bytes(&self) -> u64 {
        self.window_bytes()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
