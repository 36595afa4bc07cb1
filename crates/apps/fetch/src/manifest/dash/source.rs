use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use polypath_units::{BitRate, Duration};
use url::Url;

use super::expand::{Expansion, Window};
use super::index::SegmentIndex;
use super::mpd::{Mpd, Period, Representation};
use super::select::select;
use crate::manifest::budget::Budget;
use crate::manifest::error::Error;
use crate::manifest::limits::{MAX_MANIFEST_BYTES, MAX_SEGMENTS, MAX_SEGMENTS_IN_ALL};
use crate::manifest::presentation::{Container, Presentation, Quality, Segment, Track, TrackKind};
use crate::manifest::resource::Resource;

/// A stream of MPEG-DASH: its MPD as it was read last.
#[derive(Debug)]
pub(in crate::manifest) struct Source {
    url: Url,
    mpd: Mpd,
    to_fetch: VecDeque<Resource>,
    /// None for what wasn't fetched yet.
    indexes: HashMap<Resource, Option<SegmentIndex>>,
    /// Segments of all indexes.
    indexed: usize,
    main_numbers: Numbers,
    audio_numbers: Numbers,
}

/// The number of a segment by its time, over refreshes and Periods: the MPD's own begin anew in each Period, and with the window of a
/// live SegmentTimeline they move.
#[derive(Debug, Default)]
struct Numbers {
    known: Vec<(Duration, u64)>,
}

impl Numbers {
    /// Numbers segments from their first one on.
    fn apply(&mut self, segments: &mut [Segment]) {
        let Some(first) = segments.first() else { return };
        let mut number = self.of(first).unwrap_or(first.number);
        for segment in &mut *segments {
            segment.number = number;
            number = number.saturating_add(1);
        }
    }

    fn of(&self, segment: &Segment) -> Option<u64> {
        let behind = self.known.partition_point(|(start, _)| *start <= segment.start);
        let nearest = [behind.checked_sub(1), Some(behind)].into_iter().flatten();
        let nearest = nearest.filter_map(|at| self.known.get(at));
        let (start, number) =
            nearest.min_by_key(|(start, _)| (*start).max(segment.start) - (*start).min(segment.start))?;
        // What lies between was never seen, and was as long as this one.
        let away = |span: Duration| {
            let length = segment.duration.as_nanos().max(1);
            (span.as_nanos() + length / 2) / length
        };
        Some(if segment.start >= *start {
            number.saturating_add(away(segment.start - *start))
        } else {
            number.saturating_sub(away(*start - segment.start))
        })
    }

    fn remember(&mut self, segments: &[Segment]) {
        if !segments.is_empty() {
            self.known = segments.iter().map(|segment| (segment.start, segment.number)).collect();
        }
    }
}

impl Source {
    pub(in crate::manifest) fn parse(text: &str, url: &Url) -> Result<Self, Error> {
        let mut source = Self {
            url: url.clone(),
            mpd: Mpd::parse(text, url)?,
            to_fetch: VecDeque::new(),
            indexes: HashMap::new(),
            indexed: 0,
            main_numbers: Numbers::default(),
            audio_numbers: Numbers::default(),
        };
        source.find_indexes()?;
        Ok(source)
    }

    pub(in crate::manifest) fn poll_fetch(&mut self) -> Option<Resource> {
        self.to_fetch.pop_front()
    }

    pub(in crate::manifest) fn is_index(&self, asked: &Resource) -> bool {
        self.indexes.contains_key(asked)
    }

    fn next_url(&self) -> &Url {
        self.mpd.location.as_ref().unwrap_or(&self.url)
    }

    pub(in crate::manifest) fn refresh(&mut self) {
        let next = Resource::new(self.next_url().clone(), None);
        if self.mpd.is_dynamic && !self.to_fetch.contains(&next) {
            self.to_fetch.push_back(next);
        }
    }

    pub(in crate::manifest) fn reload(&mut self, asked: &Url, url: &Url, text: &str) -> Result<(), Error> {
        if asked != self.next_url() {
            return Err(Error::Unasked(Box::new(asked.clone())));
        }
        self.mpd = Mpd::parse(text, url)?;
        self.url = asked.clone();
        self.find_indexes()
    }

    pub(in crate::manifest) fn load_index(&mut self, asked: &Resource, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() > MAX_MANIFEST_BYTES {
            return Err(Error::TooLong(bytes.len()));
        }
        let index = SegmentIndex::parse(bytes)?;
        // Many Periods may have one each: what nobody could play is not gathered first.
        self.indexed += index.references.len();
        if self.indexed > MAX_SEGMENTS_IN_ALL {
            return Err(Error::TooManySegments);
        }
        self.indexes.insert(asked.clone(), Some(index));
        Ok(())
    }

    /// Asks for the indexes of what is played.
    fn find_indexes(&mut self) -> Result<(), Error> {
        let mut known = std::mem::take(&mut self.indexes);
        for period in &self.mpd.periods {
            let selection = select(period)?;
            for representation in selection.main.iter().copied().chain(selection.audio) {
                let Some(index) = Expansion::new(period, representation, None).index()? else { continue };
                if self.indexes.contains_key(&index) {
                    continue;
                }
                let before = known.remove(&index).flatten();
                if before.is_none() && !self.to_fetch.contains(&index) {
                    self.to_fetch.push_back(index.clone());
                }
                self.indexes.insert(index, before);
            }
        }
        self.indexed = self.indexes.values().flatten().map(|index| index.references.len()).sum();
        Ok(())
    }

    /// The times whose segments exist (ISO/IEC 23009-1, annex A.3.2), of a live presentation.
    fn window(&self, now: SystemTime) -> Option<Window> {
        if !self.mpd.is_dynamic {
            return None;
        }
        let now = match now.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => i128::try_from(since.as_nanos()).unwrap_or(i128::MAX / 2),
            Err(_) => 0,
        };
        let now = now - self.mpd.available_from;
        let depth = self.mpd.time_shift.map_or(now.max(0), |depth| i128::from(depth.as_nanos()));
        Some(Window { begin: now - depth, now })
    }

    pub(in crate::manifest) fn presentation(&mut self, now: SystemTime) -> Result<Presentation, Error> {
        let window = self.window(now);
        let mut budget = Budget::new();
        let (mut kind, mut main, mut audio): (_, Vec<Building>, Option<Building>) =
            (TrackKind::Video, Vec::new(), None);
        for period in &self.mpd.periods {
            let selection = select(period)?;
            if main.is_empty() {
                kind = selection.kind;
                main = selection.main.iter().map(|first| Building::new(first)).collect();
                audio = selection.audio.map(Building::new);
            }
            if kind != selection.kind || audio.is_some() != selection.audio.is_some() {
                let what = "Periods with other tracks than the first one";
                return Err(Error::unsupported(selection.main.first().map_or(0, |first| first.line), what));
            }
            let indexes = &self.indexes;
            // What two qualities share in a Period that has fewer is read for each: they own their segments.
            for building in &mut main {
                if let Some(representation) = building.continuation(&selection.main) {
                    building.add(period, representation, window, indexes, &mut budget)?;
                }
            }
            if let (Some(building), Some(representation)) = (&mut audio, selection.audio) {
                building.add(period, representation, window, indexes, &mut budget)?;
            }
        }
        if main.is_empty() {
            return Err(Error::NoTrack("it has no Period".to_owned()));
        }
        let main = finish(main, &mut self.main_numbers);
        let audio = audio.map(|audio| finish(vec![audio], &mut self.audio_numbers));
        let is_live = self.mpd.is_dynamic;
        // A period of zero, for servers that tell in other ways, and none for what only grows by time.
        let longest = main.iter().filter_map(|quality| quality.segments.last()).map(Segment::duration).max();
        let refresh_after =
            self.mpd.update_period.or(longest).unwrap_or_default().max(Duration::from_secs(1));
        Ok(Presentation {
            is_live,
            refresh_after: is_live.then_some(refresh_after),
            main: Track { kind, qualities: main },
            audio: audio.map(|qualities| Track { kind: TrackKind::Audio, qualities }),
        })
    }
}

/// A quality, Period by Period.
struct Building {
    id: String,
    bandwidth: u64,
    quality: Quality,
    segments: Vec<Segment>,
}

impl Building {
    fn new(first: &Representation) -> Self {
        let quality = Quality {
            id: first.id.as_str().into(),
            bit_rate: BitRate::from_bps(first.bandwidth),
            resolution: first.resolution,
            codecs: first.codecs.as_deref().map(Into::into),
            container: first.container.unwrap_or(Container::FragmentedMp4),
            segments: Arc::default(),
        };
        Self { id: first.id.clone(), bandwidth: first.bandwidth, quality, segments: Vec::new() }
    }

    /// What goes on with this quality in a Period: the same name, or the nearest bandwidth.
    fn continuation<'a>(&self, among: &[&'a Representation]) -> Option<&'a Representation> {
        let nearest = among.iter().min_by_key(|other| {
            (other.id != self.id || self.id.is_empty(), other.bandwidth.abs_diff(self.bandwidth))
        });
        nearest.copied()
    }

    fn add(
        &mut self,
        period: &Period,
        representation: &Representation,
        window: Option<Window>,
        indexes: &HashMap<Resource, Option<SegmentIndex>>,
        budget: &mut Budget,
    ) -> Result<(), Error> {
        let expansion = Expansion::new(period, representation, window);
        let index = match expansion.index()? {
            Some(resource) => match indexes.get(&resource) {
                Some(Some(index)) => Some(index),
                _ => return Err(Error::Waiting(Box::new(resource.url().clone()))),
            },
            None => None,
        };
        let mut segments = expansion.segments(index, budget)?;
        if let (Some(_), Some(first)) = (self.segments.last(), segments.first_mut()) {
            first.is_discontinuous = true;
        }
        self.segments.append(&mut segments);
        if self.segments.len() > MAX_SEGMENTS { Err(Error::TooManySegments) } else { Ok(()) }
    }
}

fn finish(buildings: Vec<Building>, numbers: &mut Numbers) -> Vec<Quality> {
    let mut qualities = Vec::with_capacity(buildings.len());
    for (at, mut building) in buildings.into_iter().enumerate() {
        numbers.apply(&mut building.segments);
        if at == 0 {
            numbers.remember(&building.segments);
        }
        qualities.push(Quality { segments: building.segments.into(), ..building.quality });
    }
    qualities
}
