//! A player that plays a stream while it comes: when it begins, and when it has to wait.

use polypath_units::{Duration, Instant};

/// How a player treats what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffering {
    /// How much is fetched in advance of what is played, at most. A segment more may be under way.
    pub capacity: Duration,
    /// It begins when so much is there.
    pub startup: Duration,
    /// It goes on after a stall when so much is there.
    pub after_stall: Duration,
}

/// What the player does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It did not begin yet.
    Starting,
    /// It plays.
    Playing,
    /// It waits in the middle.
    Stalled,
    /// All was played.
    Ended,
}

/// The player. Time comes in with each call.
#[derive(Clone, Debug)]
pub struct Player {
    buffering: Buffering,
    state: State,
    /// What was played, and what is there, from the beginning of the stream.
    position: Duration,
    ready: Duration,
    is_complete: bool,
    now: Instant,
    began: Option<Instant>,
    stalls: u32,
    stalled_for: Duration,
}

impl Player {
    /// A player that has nothing yet.
    #[must_use]
    pub fn new(now: Instant, buffering: Buffering) -> Self {
        Self {
            buffering,
            state: State::Starting,
            position: Duration::default(),
            ready: Duration::default(),
            is_complete: false,
            now,
            began: None,
            stalls: 0,
            stalled_for: Duration::default(),
        }
    }

    /// Time passes.
    pub fn advance(&mut self, now: Instant) {
        let passed = now.since(self.now);
        self.now = now;
        match self.state {
            State::Playing => {
                let rest = self.ready.saturating_sub(self.position);
                if passed < rest {
                    self.position += passed;
                    return;
                }
                self.position = self.ready;
                if self.is_complete {
                    self.state = State::Ended;
                } else {
                    self.state = State::Stalled;
                    self.stalls += 1;
                    self.stalled_for += passed.saturating_sub(rest);
                }
            }
            State::Stalled => self.stalled_for += passed,
            State::Starting | State::Ended => {}
        }
    }

    /// The next segment is there.
    pub fn handle_segment(&mut self, now: Instant, duration: Duration) {
        self.advance(now);
        self.ready += duration;
        self.begin();
    }

    /// Nothing follows.
    pub fn handle_complete(&mut self, now: Instant) {
        self.advance(now);
        self.is_complete = true;
        self.begin();
    }

    fn begin(&mut self) {
        let needed = match self.state {
            State::Starting => self.buffering.startup,
            State::Stalled => self.buffering.after_stall,
            State::Playing | State::Ended => return,
        };
        if self.is_complete && self.ready == self.position {
            self.state = State::Ended;
        } else if self.lead() >= needed || self.is_complete {
            self.state = State::Playing;
            self.began.get_or_insert(self.now);
        }
    }

    /// What it does.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// How much was played.
    #[must_use]
    pub const fn position(&self) -> Duration {
        self.position
    }

    /// What is there and not played.
    #[must_use]
    pub const fn lead(&self) -> Duration {
        self.ready.saturating_sub(self.position)
    }

    /// When it will have played so much more, if it plays and need not wait.
    #[must_use]
    pub fn passes(&self, span: Duration) -> Option<Instant> {
        (self.state == State::Playing).then(|| self.now + span)
    }

    /// When it began.
    #[must_use]
    pub const fn began(&self) -> Option<Instant> {
        self.began
    }

    /// How often it had to wait in the middle.
    #[must_use]
    pub const fn stalls(&self) -> u32 {
        self.stalls
    }

    /// How long it waited in the middle, in all.
    #[must_use]
    pub const fn stalled_for(&self) -> Duration {
        self.stalled_for
    }

    /// How it treats what comes.
    #[must_use]
    pub const fn buffering(&self) -> Buffering {
        self.buffering
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const BUFFERING: Buffering =
        Buffering { capacity: Duration::from_secs(4), startup: Duration::from_secs(2), after_stall: SECOND };

    fn at(millis: u64) -> Instant {
        Instant::from_secs(100) + Duration::from_millis(millis)
    }

    #[test]
    fn it_begins_waits_goes_on_and_ends() {
        let mut player = Player::new(at(0), BUFFERING);
        player.handle_segment(at(500), SECOND);
        assert_eq!(player.state(), State::Starting);
        player.handle_segment(at(900), SECOND);
        assert_eq!((player.state(), player.began()), (State::Playing, Some(at(900))));
        player.advance(at(1900));
        assert_eq!((player.position(), player.lead()), (SECOND, SECOND));
        // It has nothing from 2.9 s on, until 3.4.
        player.handle_segment(at(3400), SECOND);
        assert_eq!(
            (player.state(), player.stalls(), player.stalled_for()),
            (State::Playing, 1, Duration::from_millis(500))
        );
        player.handle_complete(at(3500));
        player.advance(at(5000));
        assert_eq!((player.state(), player.position(), player.stalls()), (State::Ended, SECOND * 3, 1));
    }

    #[test]
    fn a_short_stream_begins_when_it_is_there() {
        let mut player = Player::new(at(0), BUFFERING);
        player.handle_segment(at(500), SECOND);
        player.handle_complete(at(500));
        assert_eq!(player.state(), State::Playing);
        let mut empty = Player::new(at(0), BUFFERING);
        empty.handle_complete(at(1));
        assert_eq!(empty.state(), State::Ended);
    }
}
