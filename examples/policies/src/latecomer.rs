use polypath_link::middlebox::{Direction, Kind, Middlebox, Outputs};
use polypath_units::{Duration, Instant};
use polypath_wire::Packet;

/// The box by name, which takes half a second.
pub const LATECOMER: Kind = Kind::new("latecomer", |_| Box::new(Latecomer::new(Duration::from_millis(500))));

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
