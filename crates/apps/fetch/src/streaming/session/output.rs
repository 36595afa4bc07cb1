//! What is told of a stream under way, and segments as they are handed on.

use polypath_units::Instant;

use super::state::{InitTold, Session};
use crate::manifest::Resource;
use crate::stream::Event;
use crate::streaming::error::StreamError;
use crate::streaming::inits::Need;
use crate::streaming::options::{Fetched, Now, Summary, Told};
use crate::streaming::small::Small;

impl Session<'_> {
    pub(super) fn note_events(&mut self, told: &mut impl FnMut(Told)) -> Result<(), StreamError> {
        while let Some(event) = self.stream.poll_event() {
            match event {
                Event::Chosen { unit, quality } => {
                    let Some(place) = self.units.place(unit) else { continue };
                    let Some((chosen, segment)) = place.choices.get(quality) else { continue };
                    if segment.resource().url().origin() != self.server.origin() {
                        let url = Box::new(segment.resource().url().clone());
                        return Err(StreamError::OtherServer { url, first: Box::new(self.server.clone()) });
                    }
                    let (bit_rate, init) = (chosen.bit_rate(), segment.init().cloned());
                    if place.is_main {
                        told(Told::Chosen {
                            quality,
                            bit_rate,
                            throughput: self.stream.throughput(),
                            lead: self.stream.player().lead(),
                        });
                    }
                    if let Some(init) = init {
                        self.need(&init);
                    }
                }
                Event::Complete { unit, quality, bytes } => {
                    let mut there = self.coming.remove(&unit).unwrap_or_default();
                    // A server without ranges may have sent more.
                    there.bytes.truncate(bytes as usize);
                    self.refused.remove(&unit);
                    self.restarts.remove(&unit);
                    there.facts.into_iter().for_each(|facts| self.trust.note_complete(facts));
                    if let Some(place) = self.units.remove(unit) {
                        self.complete.push_back((place, quality, there.bytes.freeze()));
                    }
                }
                Event::LeftOut { unit } => {
                    self.coming.remove(&unit);
                    self.refused.remove(&unit);
                    self.restarts.remove(&unit);
                    if self.units.remove(unit).is_some_and(|place| place.is_main) {
                        self.summary.left_out += 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// What a segment needs: it is fetched when the first segment that needs it is chosen, and once more if it was let go since.
    fn need(&mut self, resource: &Resource) -> Need {
        let need = self.inits.need(resource);
        if need == Need::Missing {
            let (resource, fetcher, init_told) = (resource.clone(), self.fetcher(), self.init_told.clone());
            tokio::spawn(async move {
                let gone = init_told.clone();
                tokio::select! {
                    fetched = fetcher.fetch_resource(&resource, Small::check_media) => {
                        // Nobody may be left to hear it.
                        let _ = init_told.send((resource, fetched));
                    }
                    () = gone.closed() => {}
                }
            });
        }
        need
    }

    pub(super) fn handle_init(&mut self, (resource, fetched): InitTold) -> Result<(), StreamError> {
        self.inits.insert(resource, fetched?.bytes);
        Ok(())
    }

    /// Hands on what is complete, with what a player needs before it.
    pub(super) fn hand_on(&mut self, told: &mut impl FnMut(Told)) {
        while let Some((place, quality, bytes)) = self.complete.pop_front() {
            let Some((chosen, segment)) = place.choices.get(quality).cloned() else { continue };
            let init = match segment.init().map(|resource| self.need(resource)) {
                None => None,
                Some(Need::There(init)) => Some(init),
                Some(Need::Coming | Need::Missing) => {
                    self.complete.push_front((place, quality, bytes));
                    return;
                }
            };
            if place.is_main
                && let Some(count) = self.summary.segments.get_mut(quality)
            {
                *count += 1;
            }
            let fetched = Fetched { track: place.track, quality: chosen, segment, init, bytes };
            told(Told::Segment(Box::new(fetched)));
        }
    }

    pub(super) fn note_state(&mut self, told: &mut impl FnMut(Told)) {
        let state = self.stream.player().state();
        if state != self.state {
            self.state = state;
            told(Told::Player(state));
        }
    }

    pub(super) fn tell_now(&mut self, told: &mut impl FnMut(Told)) {
        self.stream.handle_timeout(self.now());
        let player = self.stream.player();
        let live = self.units.begin().filter(|_| self.presentation.is_live());
        let behind_live = live.map(|begin| self.presentation.end().saturating_sub(begin + player.position()));
        told(Told::Now(Now {
            state: player.state(),
            lead: player.lead().into(),
            played: player.position().into(),
            stalls: player.stalls(),
            stalled_for: player.stalled_for().into(),
            throughput: self.stream.throughput(),
            behind_live: behind_live.map(Into::into),
        }));
    }

    pub(in crate::streaming) fn summary(mut self) -> Summary {
        let player = self.stream.player();
        self.summary.path_bytes = self.paths.iter().map(|path| path.bytes).collect();
        self.summary.startup = player.began().map(|at| at.since(Instant::ZERO).into());
        self.summary.is_whole = self.stream.is_whole();
        self.summary.stalls = player.stalls();
        self.summary.stalled_for = player.stalled_for().into();
        self.summary.played = player.position().into();
        self.summary
    }
}
