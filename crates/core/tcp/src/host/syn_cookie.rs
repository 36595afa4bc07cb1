//! SYN cookies: while a listener has its fill of half-open connections, a SYN is answered and forgotten (RFC 4987 §3.6).
//!
//! # What comes back
//! The third ACK acknowledges our initial sequence number, so that number holds what is to be known again:
//!
//! ```text
//! initial sequence number = upper 32 bits of hash(secret, 4-tuple, client's number, epoch)
//!                           XOR (class of the segment size: 3 bits, SACK: 1 bit, window scale: 4 bits)
//! ```
//!
//! The scale is exact; segments are at most as large as their class. Timestamps were negotiated if the third ACK has them.
//!
//! # What it is worth
//! A cookie holds for one to two epochs of 64 s. Of the 2³² numbers that a stranger may guess, 2⁹ are good, and only while
//! cookies are in use: one in eight million. Timestamps make that no harder, as who guesses leaves them out.
//!
//! # What it costs
//! Nobody sends a SYN/ACK again, so a lost one waits for the client's SYN. A client whose third ACK was lost is known again by
//! its first data, or by nothing if the server is to speak first. Hence cookies only where there is no room for state.

use core::net::IpAddr;

use polypath_units::{Duration, Instant};
use polypath_wire::{FourTuple, Segment, SeqNumber, TcpFlags, TcpOption};
use rand_core::Rng;

use super::secrets::TupleHash;

/// How long a secret number is given out; it is believed for another.
const EPOCH_SECS: u64 = 64;

/// For how long after the last cookie third ACKs are looked for.
const LIFE: Duration = Duration::from_secs(2 * EPOCH_SECS);

/// Segment sizes that a cookie can name: 536 and 1220 are the defaults of RFC 9293 §3.7.1, 1440 and 1460 those of Ethernet.
const MSS_CLASSES: [u16; 8] = [64, 536, 1220, 1340, 1400, 1440, 1460, 8960];

/// Window scale of a SYN without that option.
const NO_SCALE: u8 = 15;

/// What a hash is for.
const PURPOSE_ISN: u8 = 0;
const PURPOSE_SECRET: u8 = 1;

/// Makes and knows SYN cookies.
#[derive(Clone, Debug)]
pub struct SynCookies {
    hash: TupleHash,
    /// Third ACKs with a cookie are believed until then.
    believed_until: Instant,
}

impl SynCookies {
    /// Takes a secret from `random`.
    #[must_use]
    pub fn new(random: &mut impl Rng) -> Self {
        Self { hash: TupleHash::new(random), believed_until: Instant::ZERO }
    }

    /// The initial sequence number of the answer to `syn`. From now on third ACKs may bring it back.
    #[must_use]
    pub fn isn(&mut self, now: Instant, tuple: &FourTuple, syn: &Segment) -> SeqNumber {
        self.believed_until = now + LIFE;
        self.cookie(now, tuple, syn)
    }

    /// The initial sequence number of a connection that is held half-open while cookies are in use: what a cookie would be, so
    /// that whichever answer the client acknowledges is right if its SYN came twice.
    #[must_use]
    pub(crate) fn isn_in_use(&self, now: Instant, tuple: &FourTuple, syn: &Segment) -> Option<SeqNumber> {
        self.are_in_use(now).then(|| self.cookie(now, tuple, syn))
    }

    fn cookie(&self, now: Instant, tuple: &FourTuple, syn: &Segment) -> SeqNumber {
        let options = SynOptions::of(tuple, syn).to_bits();
        SeqNumber(self.pad(tuple, syn.seq, epoch(now)) ^ u32::from(options))
    }

    /// 64 bits that nobody can guess and that the acknowledgment gives again: for a key in the SYN/ACK.
    #[must_use]
    pub fn secret(&self, now: Instant, tuple: &FourTuple, syn: &Segment) -> u64 {
        self.secret_of(tuple, syn.seq, epoch(now))
    }

    /// Cookies were given out of late.
    #[must_use]
    pub(crate) fn are_in_use(&self, now: Instant) -> bool {
        now < self.believed_until
    }

    /// The SYN that a third ACK follows, as far as the cookie in it tells, and the secret of then; `None` if the cookie is not
    /// ours. `clock` is what our timestamps show now.
    #[must_use]
    pub(crate) fn check(
        &self,
        now: Instant,
        tuple: &FourTuple,
        ack: &Segment,
        clock: u32,
    ) -> Option<(Segment, u64)> {
        if ack.options.timestamps.is_some() && !self.is_echo_recent(ack, clock) {
            return None;
        }
        let (isn, peer_isn) = (ack.ack.sub(1), ack.seq.sub(1));
        let current = epoch(now);
        [current, current.wrapping_sub(1)].into_iter().find_map(|epoch| {
            let options = u8::try_from(self.pad(tuple, peer_isn, epoch) ^ isn.0).ok()?;
            Some((SynOptions::from_bits(options).to_syn(ack), self.secret_of(tuple, peer_isn, epoch)))
        })
    }

    /// True if a segment echoes a timestamp that left while cookies of now were given out. `clock` is what our timestamps show now.
    #[must_use]
    pub(crate) fn is_echo_recent(&self, segment: &Segment, clock: u32) -> bool {
        echo_age(segment, clock).is_some_and(|age| age <= LIFE)
    }

    fn pad(&self, tuple: &FourTuple, peer_isn: SeqNumber, epoch: u32) -> u32 {
        (self.hash.hash(PURPOSE_ISN, tuple, [peer_isn.0, epoch, 0, 0]) >> 32) as u32
    }

    fn secret_of(&self, tuple: &FourTuple, peer_isn: SeqNumber, epoch: u32) -> u64 {
        self.hash.hash(PURPOSE_SECRET, tuple, [peer_isn.0, epoch, 0, 0])
    }
}

/// How long ago the timestamp left that a segment echoes. `clock` is what our timestamps show now.
#[must_use]
pub fn echo_age(segment: &Segment, clock: u32) -> Option<Duration> {
    let echo = segment.options.timestamps?.echo;
    Some(Duration::from_millis(clock.wrapping_sub(echo).into()))
}

/// Which epoch of [`SynCookies`] it is.
fn epoch(now: Instant) -> u32 {
    (now.as_millis() / (1000 * EPOCH_SECS)) as u32
}

/// What a SYN says of its sender and its third ACK does not repeat, in a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynOptions {
    /// Largest segment that it takes, as an index of the sizes that a cookie can name.
    mss_class: u8,
    sack: bool,
    /// [`NO_SCALE`] for none.
    scale: u8,
}

impl SynOptions {
    /// Those of a SYN. The segment size is rounded down to one of eight.
    #[must_use]
    pub fn of(tuple: &FourTuple, syn: &Segment) -> Self {
        let (mut mss, mut sack, mut scale) = (default_mss(tuple), false, NO_SCALE);
        for option in &syn.options.rest {
            match option {
                TcpOption::Mss(bytes) => mss = *bytes,
                TcpOption::SackPermitted => sack = true,
                TcpOption::WindowScale(shift) => scale = (*shift).min(14),
                _ => {}
            }
        }
        let mss_class = MSS_CLASSES.iter().rposition(|class| *class <= mss).unwrap_or(0) as u8;
        Self { mss_class, sack, scale }
    }

    /// Segment size in the upper three bits, then SACK, then the window scale.
    #[must_use]
    pub const fn to_bits(self) -> u8 {
        self.mss_class << 5 | (self.sack as u8) << 4 | self.scale
    }

    /// The reverse of [`SynOptions::to_bits`]: every byte means something.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self { mss_class: bits >> 5, sack: bits & 0x10 != 0, scale: bits & 0x0f }
    }

    /// The SYN that came before `ack`, with the timestamps of `ack` and without the options of any other protocol.
    #[must_use]
    pub fn to_syn(self, ack: &Segment) -> Segment {
        let mut syn = Segment {
            seq: ack.seq.sub(1),
            flags: TcpFlags::SYN,
            window: ack.window,
            src_port: ack.src_port,
            dst_port: ack.dst_port,
            ..Segment::default()
        };
        let options = &mut syn.options;
        options.timestamps = ack.options.timestamps;
        let mss = MSS_CLASSES.get(usize::from(self.mss_class)).copied().unwrap_or(536);
        options.rest.push(TcpOption::Mss(mss));
        if self.sack {
            options.rest.push(TcpOption::SackPermitted);
        }
        if self.scale != NO_SCALE {
            options.rest.push(TcpOption::WindowScale(self.scale));
        }
        syn
    }
}

/// Largest segment of a peer that does not say (RFC 9293 §3.7.1).
fn default_mss(tuple: &FourTuple) -> u16 {
    match tuple.remote.addr {
        IpAddr::V4(_) => 536,
        IpAddr::V6(_) => 1220,
    }
}
