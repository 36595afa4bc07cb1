use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_units::{BitRate, Duration, Instant};

use crate::impairment::{self, Jitter, Reordering};
use crate::queue::{self, QueueLimit};

/// What one direction of a line does to packets. The default passes everything at once.
///
/// Probabilities are of 0 to 1; what is outside counts as the nearest, not-a-number as 0.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Rate of the transmitter, counting IP packets (header included). `None` is unlimited; zero lets nothing
    /// pass and keeps what is there.
    pub rate: Option<BitRate>,
    /// Propagation delay: from the last bit sent to the last bit received.
    pub delay: Duration,
    /// Random variation of the delay.
    pub jitter: Jitter,
    /// Loss on the line. A lost packet has used the transmitter.
    pub loss: Loss,
    /// How much may wait for the transmitter. Default 1000 packets.
    pub queue: QueueLimit,
    /// What decides about waiting packets. Default drop-tail.
    pub discipline: queue::Policy,
    /// Probability that a packet arrives twice. The copy uses no capacity.
    pub duplicate: f64,
    /// Packets that others overtake.
    pub reorder: Reordering,
    /// What else happens to packets, by name: behind loss, jitter, reordering and duplication, in this order. Of two with one name
    /// the later one counts.
    pub impairments: Vec<impairment::Policy>,
    /// Longest IP packet in bytes; `None` is unlimited. A longer one with "don't fragment" is dropped and its
    /// sender told (RFC 1191, RFC 8201). A longer one without passes whole, in place of its fragments.
    pub mtu_bytes: Option<u32>,
    /// Nobody is told about a packet that is too long: a path-MTU black hole (RFC 2923 §2.1).
    pub mtu_black_hole: bool,
    /// Source of "packet too big" messages. Default (`None`): the address that the packet was sent to.
    pub icmp_source: Option<IpAddr>,
    /// What becomes of packets when the link goes down.
    pub on_down: OnDown,
    /// The link is down at the start.
    pub down: bool,
    /// Changes by time; those of the same time in their order here.
    pub schedule: Vec<(Instant, Change)>,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            rate: None,
            delay: Duration::ZERO,
            jitter: Jitter::NONE,
            loss: Loss::None,
            queue: Self::QUEUE,
            discipline: queue::Policy::default(),
            duplicate: 0.0,
            reorder: Reordering::NONE,
            impairments: Vec::new(),
            mtu_bytes: None,
            mtu_black_hole: false,
            icmp_source: None,
            on_down: OnDown::Flush,
            down: false,
            schedule: Vec::new(),
        }
    }
}

impl LinkConfig {
    /// How much may wait for the transmitter if nobody says.
    pub const QUEUE: QueueLimit = QueueLimit::Packets(1000);

    /// A line with a rate, a delay and a queue, and nothing wrong with it.
    pub fn new(rate: BitRate, delay: Duration, queue: QueueLimit) -> Self {
        Self { rate: Some(rate), delay, queue, ..Self::default() }
    }
}

/// Loss on the line.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Loss {
    /// Nothing is lost.
    #[default]
    None,
    /// Each packet on its own, with this probability.
    Random(f64),
    /// The Gilbert-Elliott model: two states, with a loss probability each; starts in the good one. A packet
    /// is lost or not by the present state, then the state may change.
    GilbertElliott {
        /// Probability of going from good to bad, at each packet.
        p: f64,
        /// Probability of going from bad to good, at each packet.
        r: f64,
        /// Loss in the bad state: the model's 1-h.
        bad_loss: f64,
        /// Loss in the good state: the model's 1-k.
        good_loss: f64,
    },
}

/// What becomes of packets when a link goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnDown {
    /// All that wait or are under way are dropped, and so are those that come while it is down: a cut cable.
    #[default]
    Flush,
    /// What was sent arrives; the transmitter stops where it is, packets wait within the queue's limit, and
    /// it goes on when the link is up again: a phone in a tunnel.
    Hold,
}

/// A change of a link while it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// New rate. What remains of the packet being sent goes at the new rate.
    Rate(Option<BitRate>),
    /// New propagation delay, for packets whose transmission starts from now on. They do not overtake those
    /// under way.
    Delay(Duration),
    /// New jitter.
    Jitter(Jitter),
    /// New loss; a Gilbert-Elliott model starts in its good state.
    Loss(Loss),
    /// New duplication probability.
    Duplicate(f64),
    /// New reordering.
    Reorder(Reordering),
    /// New queue limit. What waits already may stay.
    Queue(QueueLimit),
    /// New MTU in bytes.
    Mtu(Option<u32>),
    /// The link comes back.
    Up,
    /// The link goes down; see [`OnDown`].
    Down,
    /// Another impairment begins; one of the same name ends with that.
    Begin(impairment::Policy),
    /// The impairment of this name ends, whatever its numbers.
    End(impairment::Policy),
    /// The random generator starts again from the link's seed: what runs after a warm-up has the luck of what runs without.
    RestartRandom,
}
