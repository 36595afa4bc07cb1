//! Schedules over links of fixed rates, with slow start: how much of what the links could carry is used.

use std::collections::VecDeque;

use polypath_units::{Duration, Instant};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use crate::playback::History;

use super::{PathId, Ranges, RequestId, Rest, Schedule, Sizing};

/// One step of the links' time.
const STEP: Duration = Duration::from_micros(500);
/// What TCP sends before the first acknowledgment (RFC 6928).
const INITIAL_WINDOW_BYTES: f64 = 14_480.0;

#[derive(Clone, Debug)]
struct Link {
    bytes_per_second: f64,
    round_trip: Duration,
    /// Nothing comes in these times.
    outages: Vec<(Instant, Instant)>,
    /// Nothing comes any more from then on by connections of before.
    forgets_at: Option<Instant>,
}

impl Link {
    fn new(kilobytes_per_second: f64, round_trip_millis: u64) -> Self {
        Self {
            bytes_per_second: kilobytes_per_second * 1e3,
            round_trip: Duration::from_millis(round_trip_millis),
            outages: Vec::new(),
            forgets_at: None,
        }
    }
}

/// A connection: what the server has still to send, and what is on its way.
#[derive(Debug)]
struct Connection {
    link: Link,
    opens_at: Instant,
    is_open: bool,
    window_bytes: f64,
    credit_bytes: f64,
    /// When the server has it, and how many bytes; `None` until the end of the file.
    asked: VecDeque<(Instant, RequestId, u64)>,
    coming: VecDeque<(Instant, RequestId, u64, bool)>,
}

impl Connection {
    fn new(link: Link, now: Instant) -> Self {
        let opens_at = now + link.round_trip;
        Self {
            link,
            opens_at,
            is_open: false,
            window_bytes: INITIAL_WINDOW_BYTES,
            credit_bytes: 0.0,
            asked: VecDeque::new(),
            coming: VecDeque::new(),
        }
    }

    fn reconnect(&mut self, now: Instant) {
        *self = Self::new(self.link.clone(), now);
    }

    /// The server sends what its window lets it.
    fn serve(&mut self, now: Instant) {
        let round_trip = self.link.round_trip.as_secs_f64().max(1e-4);
        let (rate, step) = (self.link.bytes_per_second, STEP.as_secs_f64());
        if self.asked.front().is_none_or(|(at, ..)| *at > now) {
            self.credit_bytes = 0.0;
            return;
        }
        let now_rate = rate.min(self.window_bytes / round_trip);
        self.credit_bytes += now_rate * step;
        if now_rate < rate {
            self.window_bytes *= 2_f64.powf(step / round_trip);
        }
        while let Some((at, id, left)) = self.asked.front_mut()
            && *at <= now
            && self.credit_bytes >= 1.0
        {
            let bytes = (*left).min(self.credit_bytes as u64);
            self.credit_bytes -= bytes as f64;
            *left -= bytes;
            let arrives = now + self.link.round_trip / 2;
            let blocked = self.link.outages.iter().find(|(from, to)| (*from..*to).contains(&arrives));
            // What the link loses, TCP sends again.
            let arrives = blocked.map_or(arrives, |(_, to)| *to + self.link.round_trip);
            let is_forgotten = self.link.forgets_at.is_some_and(|at| self.opens_at < at && arrives >= at);
            let arrives = if is_forgotten { Instant::from_secs(1_000_000) } else { arrives };
            let arrives = self.coming.back().map_or(arrives, |(before, ..)| arrives.max(*before));
            self.coming.push_back((arrives, *id, bytes, *left == 0));
            if *left > 0 {
                break;
            }
            self.asked.pop_front();
        }
    }
}

/// What a download was like.
struct Outcome {
    took: Duration,
    asked: usize,
    superfluous_bytes: u64,
    history: History,
}

fn download(links: &[Link], total: u64, sizing: Sizing) -> Outcome {
    let mut now = Instant::from_secs(1);
    let start = now;
    let mut schedule = Schedule::new(sizing, Ranges::new());
    let ids: Vec<PathId> = links.iter().map(|_| schedule.add_path(now)).collect();
    for id in &ids {
        schedule.handle_closed(now, *id);
    }
    let mut connections: Vec<_> = links.iter().map(|link| Connection::new(link.clone(), now)).collect();
    let (mut asked, mut superfluous_bytes, mut history) = (0, 0, History::new(start));
    while !schedule.is_complete() {
        now += STEP;
        assert!(now.since(start) < Duration::from_secs(3000), "{schedule:?}");
        for (id, connection) in ids.iter().zip(&mut connections) {
            if !connection.is_open && now >= connection.opens_at {
                connection.is_open = true;
                schedule.handle_opened(now, *id);
                schedule.note_round_trip(*id, connection.link.round_trip);
            }
            connection.serve(now);
            while let Some((at, request, bytes, _)) = connection.coming.front().copied()
                && at <= now
            {
                connection.coming.pop_front();
                schedule.handle_head(now, *id, request);
                if schedule.total_bytes().is_none() {
                    schedule.set_total_bytes(total);
                }
                let came = schedule.handle_bytes(now, *id, request, bytes);
                if let Some(came) = &came {
                    history.note(now, came.range.clone());
                }
                if came.is_some_and(|came| came.rest == Rest::Superfluous) && !schedule.is_complete() {
                    superfluous_bytes += connection.coming.iter().map(|(_, _, bytes, _)| bytes).sum::<u64>();
                    connection.reconnect(now);
                }
            }
        }
        if schedule.poll_timeout().is_some_and(|at| at <= now) {
            schedule.handle_timeout(now);
            while let Some(gone) = schedule.poll_gone(now) {
                connections[gone.index()].reconnect(now);
            }
        }
        for (id, connection) in ids.iter().zip(&mut connections) {
            while connection.is_open
                && let Some(request) = schedule.poll_request(now, *id)
            {
                asked += 1;
                let end = request.end.unwrap_or(total).min(total);
                connection.asked.push_back((
                    now + connection.link.round_trip / 2,
                    request.id,
                    end - request.start,
                ));
            }
        }
    }
    Outcome { took: now.since(start), asked, superfluous_bytes, history }
}

/// Of what the links could carry from the first moment on.
fn share(links: &[Link], total: u64, sizing: Sizing) -> f64 {
    let sum: f64 = links.iter().map(|link| link.bytes_per_second).sum();
    let outcome = download(links, total, sizing);
    let share = total as f64 / sum / outcome.took.as_secs_f64();
    println!(
        "{total} bytes: {:.3} of the sum in {:?}, {} requests, {} bytes too many",
        share, outcome.took, outcome.asked, outcome.superfluous_bytes
    );
    share
}

#[test]
fn two_paths_bring_what_both_can() {
    let wlan = Link::new(600.0, 10);
    let hspa = Link::new(300.0, 210);
    let pairs = [
        ([wlan.clone(), hspa.clone()], 0.985),
        ([Link::new(2500.0, 20), Link::new(1250.0, 60)], 0.985),
        ([Link::new(12500.0, 10), Link::new(625.0, 300)], 0.97),
    ];
    for (links, least) in pairs {
        for (sizing, cost) in [(Sizing::for_files(), 0.0), (Sizing::in_order(), 0.02)] {
            let share = share(&links, 50_000_000, sizing);
            assert!(share > least - cost, "{links:?}: {share}");
        }
    }
}

#[test]
fn two_paths_are_not_slower_than_the_better_one() {
    let mut random = Pcg64::seed_from_u64(6);
    let mut uniform = |low: f64, high: f64| {
        let part = random.next_u32() as f64 / f64::from(u32::MAX);
        (low.ln() + part * (high / low).ln()).exp()
    };
    let mut gains = Vec::new();
    while gains.len() < 100 {
        let links = [(); 2].map(|()| Link::new(uniform(60.0, 12_500.0), uniform(2.0, 400.0) as u64));
        let total = uniform(1e6, 100e6) as u64;
        let alone = links
            .iter()
            .map(|link| download(std::slice::from_ref(link), total, Sizing::for_files()).took)
            .min()
            .expect("two");
        if alone > Duration::from_secs(200) {
            continue;
        }
        let both = download(&links, total, Sizing::for_files());
        let gain = alone.as_secs_f64() / both.took.as_secs_f64();
        println!(
            "{gain:.3} {links:?} {total}: {alone:?} {:?} {} {}",
            both.took, both.asked, both.superfluous_bytes
        );
        gains.push(gain);
    }
    let slower = gains.iter().filter(|gain| **gain < 0.97).count();
    assert!(slower <= 2 && gains.iter().all(|gain| *gain > 0.85), "{gains:?}");
}

/// K Fig. 6.7: at the rate that fixed segments sustain, a player of ours begins sooner and holds less.
#[test]
fn a_player_waits_less_than_with_segments_of_any_fixed_size() {
    let links = [Link::new(600.0, 10), Link::new(300.0, 210)];
    let ours = download(&links, 25_200_000, Sizing::in_order()).history;
    for segment_bytes in [1_000, 10_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 3_000_000, 12_000_000]
    {
        for pipelined in [1, 2] {
            let theirs = download(&links, 25_200_000, Sizing::Fixed { segment_bytes, pipelined }).history;
            let theirs = theirs.playback(None).expect("a playback");
            let ours = ours.playback(Some(theirs.bytes_per_second)).expect("a playback");
            println!(
                "{segment_bytes} x{pipelined}: {:.0} KB/s, {:?} {} B; ours {:?} {} B",
                theirs.bytes_per_second / 1e3,
                theirs.startup_latency,
                theirs.required_buffer_bytes,
                ours.startup_latency,
                ours.required_buffer_bytes
            );
            assert!(
                ours.startup_latency < theirs.startup_latency,
                "{segment_bytes} {pipelined} {ours:?} {theirs:?}"
            );
        }
    }
}

/// From and to seconds after the begin.
fn away(link: &Link, from: u64, to: u64) -> Link {
    let at = |seconds| Instant::from_secs(1) + Duration::from_secs(seconds);
    Link { outages: vec![(at(from), at(to))], ..link.clone() }
}

#[test]
fn a_path_that_is_away_costs_no_more_than_what_it_would_have_brought() {
    let (wlan, hspa) = (Link::new(600.0, 10), Link::new(300.0, 210));
    let both = download(&[wlan.clone(), hspa.clone()], 20_000_000, Sizing::for_files()).took;
    for (links, lost_seconds) in [
        // Twenty seconds of 300 of 900 KB/s, of 600, and of all.
        ([wlan.clone(), away(&hspa, 3, 23)], 7.0),
        ([away(&wlan, 3, 23), hspa.clone()], 13.5),
        ([away(&wlan, 3, 23), away(&hspa, 3, 23)], 20.0),
    ] {
        let took = download(&links, 20_000_000, Sizing::for_files()).took;
        let lost = took.saturating_sub(both).as_secs_f64();
        assert!(lost < lost_seconds + 3.0, "{links:?}: {lost} s");
    }
}

#[test]
fn a_connection_that_nobody_knows_of_any_more_is_made_anew() {
    let forgets_at = Some(Instant::from_secs(4));
    let links = [600.0, 300.0].map(|rate| Link { forgets_at, ..Link::new(rate, 50) });
    let took = download(&links, 20_000_000, Sizing::for_files()).took;
    assert!(took < Duration::from_secs(23 + 13), "{took:?}");
}
