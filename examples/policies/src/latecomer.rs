use std::error::Error;
use std::fmt;
use std::str::FromStr;

use polypath::link::middlebox::{Direction, Middlebox, Outputs, Policy};
use polypath::units::{Duration, Instant};
use polypath::wire::Packet;

/// The box by name, with a parameter that only it knows how to read: `latecomer`, which takes half a second, `latecomer:2s`.
#[must_use]
pub fn latecomer() -> Policy {
    let default = StartUp(Duration::from_millis(500));
    Policy::with_own_parameter("latecomer", ("time", default), str::parse::<StartUp>, |_, takes| {
        Box::new(Latecomer::new(takes.0))
    })
}

/// How long it takes to start up.
#[derive(Clone, Copy, Debug)]
struct StartUp(Duration);

impl fmt::Display for StartUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0.as_millis())
    }
}

/// A text that is no such time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WrongTime {
    Unit,
    Number,
}

impl fmt::Display for WrongTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unit => "no unit; a time is such as 500ms or 2s",
            Self::Number => "no whole number before the unit",
        })
    }
}

impl Error for WrongTime {}

impl FromStr for StartUp {
    type Err = WrongTime;

    fn from_str(text: &str) -> Result<Self, WrongTime> {
        let (digits, factor) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
            (Some(digits), _) => (digits, 1),
            (None, Some(digits)) => (digits, 1000),
            (None, None) => return Err(WrongTime::Unit),
        };
        let number: u32 = digits.trim().parse().map_err(|_| WrongTime::Number)?;
        Ok(Self(Duration::from_millis(u64::from(number) * factor)))
    }
}

/// A middlebox: lets nothing pass until it has been there for a while, as a firewall that starts up.
#[derive(Debug)]
pub struct Latecomer {
    ready_at: Instant,
}

impl Latecomer {
    /// One that lets packets pass from then on.
    #[must_use]
    pub fn new(takes: Duration) -> Self {
        Self { ready_at: Instant::ZERO + takes }
    }
}

impl Middlebox for Latecomer {
    fn name(&self) -> &'static str {
        "latecomer"
    }

    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: Packet, out: &mut Outputs) {
        if now >= self.ready_at {
            out.push(direction, packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use polypath::Policies;
    use polypath::link::middlebox::Middleboxes;

    use super::*;

    #[test]
    fn the_time_is_what_was_written_or_half_a_second() {
        let policies = Policies::default().with(latecomer());
        let ready_at = |text| format!("{:?}", policies.find::<Middleboxes>(text).expect(text).build_for(&1));
        let made = |takes| format!("{:?}", Latecomer::new(takes));
        assert_eq!(ready_at("latecomer"), made(Duration::from_millis(500)));
        assert_eq!(ready_at("latecomer:20ms"), made(Duration::from_millis(20)));
        assert_eq!(ready_at("latecomer:2s"), made(Duration::from_secs(2)));
        assert_eq!(policies.find::<Middleboxes>("latecomer:2s").unwrap().to_string(), "latecomer:2000ms");
    }

    #[test]
    fn a_wrong_time_is_an_error_of_its_own_type() {
        let policies = Policies::default().with(latecomer());
        for (text, why) in [
            ("", WrongTime::Unit),
            ("5", WrongTime::Unit),
            ("fives", WrongTime::Number),
            ("-1s", WrongTime::Number),
        ] {
            let error = policies.find::<Middleboxes>(&format!("latecomer:{text}")).unwrap_err();
            assert_eq!(error.parameter_error().and_then(|error| error.downcast_ref()), Some(&why), "{text}");
            assert!(
                error.to_string().ends_with(&format!(": {why}; expected latecomer[:time, 500ms by default]"))
            );
        }
    }
}
