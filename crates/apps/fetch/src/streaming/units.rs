//! Which segments follow, as units of a stream.

use std::collections::HashMap;

use polypath_units::{BitRate, Duration};

use crate::manifest::{Presentation, Quality, Segment, TrackKind};
use crate::stream::{Unit, UnitNumber};

/// What a player of a live stream is behind it at first, in segments: the last ones are only just there.
const BEHIND_LIVE_SEGMENTS: usize = 3;

/// What one unit fetches.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) track: TrackKind,
    /// Whether it is the track whose quality is chosen.
    pub(super) is_main: bool,
    /// The qualities and their segments, in the order of the unit's rates.
    pub(super) choices: Vec<(Quality, Segment)>,
}

/// The units of a presentation, in the order in which they are played.
#[derive(Debug, Default)]
pub(super) struct Units {
    next_main: Option<u64>,
    next_audio: Option<u64>,
    pushed: u64,
    places: HashMap<UnitNumber, Place>,
}

impl Units {
    /// What the presentation has that was not there before.
    pub(super) fn next(&mut self, presentation: &Presentation) -> Vec<Unit> {
        let mut units = Vec::new();
        let main = presentation.main();
        let Some(longest) = main.qualities().iter().max_by_key(|quality| quality.segments().len()) else {
            return units;
        };
        if self.next_main.is_none() {
            let segments = longest.segments();
            let first =
                if presentation.is_live() { segments.len().saturating_sub(BEHIND_LIVE_SEGMENTS) } else { 0 };
            self.next_main = segments.get(first).map(Segment::number);
        }
        let Some(from) = self.next_main else { return units };
        for segment in longest.segments().iter().filter(|segment| segment.number() >= from) {
            let number = segment.number();
            let choices: Vec<(Quality, Segment)> = main
                .qualities()
                .iter()
                .filter_map(|quality| Some((quality.without_segments(), quality.segment(number)?.clone())))
                .collect();
            // In a live stream the others may list it a little later.
            if presentation.is_live() && choices.len() < main.qualities().len() {
                break;
            }
            let audio_rate = self.push_audio(presentation, segment, &mut units);
            self.push(&mut units, segment.duration(), main.kind(), (true, audio_rate), choices);
            self.next_main = Some(number + 1);
        }
        units
    }

    /// The sound that is played with a segment. Gives its rate.
    fn push_audio(&mut self, presentation: &Presentation, with: &Segment, units: &mut Vec<Unit>) -> BitRate {
        let Some(quality) = presentation.audio().and_then(|track| track.qualities().last()) else {
            return BitRate::ZERO;
        };
        let from = match self.next_audio {
            Some(number) => number,
            None => match quality.segment_at(with.start()) {
                Some(segment) => segment.number(),
                None => return quality.bit_rate(),
            },
        };
        let coming = quality.segments().iter().filter(|segment| segment.number() >= from);
        for segment in coming.take_while(|segment| segment.start() < with.end()) {
            let choices = vec![(quality.without_segments(), segment.clone())];
            // It plays along.
            self.push(units, Duration::default(), TrackKind::Audio, (false, BitRate::ZERO), choices);
            self.next_audio = Some(segment.number() + 1);
        }
        quality.bit_rate()
    }

    fn push(
        &mut self,
        units: &mut Vec<Unit>,
        duration: Duration,
        track: TrackKind,
        (is_main, beside): (bool, BitRate),
        choices: Vec<(Quality, Segment)>,
    ) {
        if choices.is_empty() {
            return;
        }
        let own = choices.first().map_or(duration, |(_, segment)| segment.duration());
        let rates = choices.iter().map(|(quality, segment)| {
            let bps = match (quality.bit_rate().as_bps(), segment.len_bytes()) {
                // The manifest doesn't say; the segments may.
                (0, Some(bytes)) => (bytes as f64 * 8.0 / own.as_secs_f64().max(1e-3)) as u64,
                (bps, _) => bps,
            };
            BitRate::from_bps((bps + beside.as_bps()).max(1))
        });
        let sizes: Option<Box<[u64]>> = choices.iter().map(|(_, segment)| segment.len_bytes()).collect();
        units.push(Unit { duration, rates: rates.collect(), sizes });
        self.places.insert(UnitNumber(self.pushed), Place { track, is_main, choices });
        self.pushed += 1;
    }

    /// What a unit fetches.
    pub(super) fn place(&self, unit: UnitNumber) -> Option<&Place> {
        self.places.get(&unit)
    }

    /// A unit is there, or left out.
    pub(super) fn remove(&mut self, unit: UnitNumber) -> Option<Place> {
        self.places.remove(&unit)
    }
}
