use std::num::NonZeroU64;

use polypath::congestion::{Ack, Controller, Flows, Policy};
use polypath::units::Instant;

/// A congestion control with a parameter, which is of a type that the standard library reads: a window of so many segments, whatever
/// happens. `steady`, `steady:50`.
#[must_use]
pub fn steady() -> Policy {
    let default = NonZeroU64::MIN.saturating_add(29);
    Policy::with_own_parameter("steady", ("packets", default), str::parse, |config, packets| {
        Box::new(Steady { packets: *packets, mss_bytes: config.mss_bytes.into() })
    })
}

#[derive(Clone, Debug)]
struct Steady {
    packets: NonZeroU64,
    mss_bytes: u64,
}

impl Controller for Steady {
    fn name(&self) -> &'static str {
        "steady"
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
        self.packets.get() * self.mss_bytes
    }

    fn ssthresh_bytes(&self) -> u64 {
        self.window_bytes()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use polypath::Policies;
    use polypath::congestion::{Algorithms, Config};

    use super::*;

    fn find(text: &str) -> Result<Policy, String> {
        Policies::default().with(steady()).find::<Algorithms>(text).map_err(|error| error.to_string())
    }

    #[test]
    fn the_window_is_what_was_written_or_thirty_segments() {
        let window_bytes = |text| {
            let config = Config { mss_bytes: 1000, ..Config::default() };
            find(text).map(|known| known.build_for(&config).window_bytes())
        };
        assert_eq!(window_bytes("steady"), Ok(30_000));
        assert_eq!(window_bytes("steady:50"), Ok(50_000));
        assert_eq!(find("steady:50").map(|known| known.to_string()), Ok("steady:50".to_owned()));
    }

    #[test]
    fn what_is_no_window_is_refused_and_it_is_said_why() {
        let why = |text: &str, why: &str| {
            let wrong = format!("the congestion control of \"{text}\" has a wrong parameter");
            Err(format!("{wrong}: {why}; expected steady[:packets, 30 by default]"))
        };
        assert_eq!(find("steady:much").map(drop), why("steady:much", "invalid digit found in string"));
        assert_eq!(find("steady:0").map(drop), why("steady:0", "number would be zero for non-zero type"));
        assert_eq!(find("steady:").map(drop), why("steady:", "cannot parse integer from empty string"));
    }
}
