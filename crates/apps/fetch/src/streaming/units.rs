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
    /// Where the first segment of the main track begins.
    begin: Option<Duration>,
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
            self.begin = segments.get(first).map(Segment::start);
        }
        let Some(from) = self.next_main else { return units };
        for segment in longest.segments_from(from) {
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

    /// Where what is played begins, on the clock of [`Segment::start`].
    pub(super) const fn begin(&self) -> Option<Duration> {
        self.begin
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
        for segment in quality.segments_from(from).iter().take_while(|segment| segment.start() < with.end()) {
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
        let sizes = choices.iter().map(|(_, segment)| segment.len_bytes()).collect();
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

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use url::Url;

    use super::*;
    use crate::manifest::Manifest;

    fn presentation(main: &str, files: &[(&str, &str)]) -> Presentation {
        let at = Url::parse("http://h.example/m").expect("a URL");
        let mut manifest = Manifest::parse(main.as_bytes(), &at, None).expect("a manifest");
        while let Some(resource) = manifest.poll_fetch() {
            let file = files.iter().find(|(path, _)| *path == resource.url().path()).expect("a file").1;
            manifest.handle_fetched(&resource, resource.url(), file.as_bytes()).expect("a playlist");
        }
        manifest.presentation(SystemTime::UNIX_EPOCH).expect("a stream")
    }

    #[test]
    fn a_part_of_a_file_has_its_length_whatever_other_qualities_have() {
        let main = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1000\na\n#EXT-X-STREAM-INF:BANDWIDTH=2000\nb\n";
        let parts = "#EXTM3U\n#EXTINF:2,\n#EXT-X-BYTERANGE:5000@5000\nbig.ts\n#EXT-X-ENDLIST\n";
        let whole = "#EXTM3U\n#EXTINF:2,\n1.ts\n#EXT-X-ENDLIST\n";
        let stream = presentation(main, &[("/a", parts), ("/b", whole)]);
        let units = Units::default().next(&stream);
        assert_eq!(*units[0].sizes, [Some(5000), None]);
    }

    #[test]
    fn each_segment_has_the_sound_that_is_played_with_it() {
        let main = "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"n\",DEFAULT=YES,URI=\"s\"\n\
            #EXT-X-STREAM-INF:BANDWIDTH=1000,CODECS=\"avc1.4d,mp4a.40.2\",AUDIO=\"a\"\nv\n";
        let list = |count: usize, secs: usize| {
            let segments: String = (0..count).map(|at| format!("#EXTINF:{secs},\n{at}.ts\n")).collect();
            format!("#EXTM3U\n{segments}#EXT-X-ENDLIST\n")
        };
        // So many that looking at all of them for each would take minutes.
        let (video, sound) = (list(50_000, 2), list(100_000, 1));
        let stream = presentation(main, &[("/v", &video), ("/s", &sound)]);
        let mut units = Units::default();
        assert_eq!(units.next(&stream).len(), 150_000);
        let track = |at: u64| units.place(UnitNumber(at)).map(|place| place.track);
        let kinds: Vec<_> = (0..6).map_while(track).collect();
        use TrackKind::{Audio, Video};
        assert_eq!(kinds, [Audio, Audio, Video, Audio, Audio, Video]);
        let (quality, _) = &units.place(UnitNumber(2)).expect("a unit").choices[0];
        let (again, _) = &units.place(UnitNumber(5)).expect("a unit").choices[0];
        assert!(std::ptr::eq(quality.id(), again.id()), "one text for all");
        assert_eq!((units.begin(), stream.end()), (Some(Duration::ZERO), Duration::from_secs(100_000)));
    }
}
