use std::sync::Arc;

use polypath_units::Duration;

use super::addressing::{Addressing, Run, Scheme};
use super::index::SegmentIndex;
use super::mpd::{Period, Representation};
use super::template::{Values, fill};
use crate::manifest::budget::{Budget, join};
use crate::manifest::error::Error;
use crate::manifest::limits::MAX_SEGMENTS;
use crate::manifest::presentation::Segment;
use crate::manifest::resource::{ByteRange, Resource};

/// Of a live presentation, the times whose segments exist, on the presentation's clock in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) begin: i128,
    pub(super) now: i128,
}

/// A segment's place: how many are before it in the Period, when it begins and how long it is, in ticks.
#[derive(Clone, Copy, Debug)]
struct Place {
    index: u64,
    time: i128,
    ticks: u64,
}

const NANOS: i128 = 1_000_000_000;

/// What segments of a Representation need to be written down.
pub(super) struct Expansion<'a> {
    period: &'a Period,
    representation: &'a Representation,
    addressing: Option<&'a Addressing>,
    window: Option<Window>,
}

impl<'a> Expansion<'a> {
    pub(super) fn new(
        period: &'a Period,
        representation: &'a Representation,
        window: Option<Window>,
    ) -> Self {
        Self { period, representation, addressing: representation.addressing.as_deref(), window }
    }

    /// The index that has to be fetched first, if the segments are in one file.
    pub(super) fn index(&self) -> Result<Option<Resource>, Error> {
        let addressing = self.addressing.filter(|addressing| addressing.scheme == Scheme::Base);
        let range = addressing.and_then(|addressing| addressing.index_range);
        Ok(range.map(|range| Resource::new(self.representation.base.as_ref().clone(), Some(range))))
    }

    /// The segments, numbered as the MPD does.
    pub(super) fn segments(
        &self,
        index: Option<&SegmentIndex>,
        budget: &mut Budget,
    ) -> Result<Vec<Segment>, Error> {
        let line = self.representation.line;
        let Some(addressing) = self.addressing else {
            return self.single(None, budget);
        };
        match (addressing.scheme, index) {
            (Scheme::Base, Some(index)) => self.indexed(addressing, index, budget),
            (Scheme::Base, None) => self.single(Some(addressing), budget),
            (Scheme::Template, _) => {
                let media = addressing.media.as_deref();
                let media = media
                    .ok_or_else(|| Error::malformed(addressing.line, "a SegmentTemplate has no media"))?;
                let init = match addressing.init.as_deref() {
                    Some(template) => {
                        Some(self.resource(&self.fill(template, None, addressing.line)?, None, line)?)
                    }
                    None => None,
                };
                let places = self.places(addressing, None)?;
                let place = |place: Place, number: u64| {
                    // The time that stands in URLs is the media's own.
                    let time = u64::try_from(place.time).map_err(|_| {
                        Error::malformed(addressing.line, "a segment's time is no number of 64 bits")
                    })?;
                    self.resource(&self.fill(media, Some((number, time)), addressing.line)?, None, line)
                };
                self.write_down(addressing, places, init.map(Arc::new), place, budget)
            }
            (Scheme::List, _) => {
                let list = addressing.list.as_deref();
                let list =
                    list.ok_or_else(|| Error::malformed(addressing.line, "a SegmentList has no SegmentURL"))?;
                let init = match (addressing.init.as_deref(), addressing.init_range) {
                    (None, None) => None,
                    (url, range) => {
                        Some(Arc::new(self.resource(url.unwrap_or_default(), range, addressing.line)?))
                    }
                };
                let places = self.places(addressing, Some(list.len() as u64))?;
                let place = |place: Place, _| {
                    let listed = usize::try_from(place.index).ok().and_then(|index| list.get(index));
                    let listed = listed.ok_or_else(|| {
                        Error::malformed(addressing.line, "a SegmentList has fewer URLs than segments")
                    })?;
                    self.resource(listed.url.as_deref().unwrap_or_default(), listed.range, addressing.line)
                };
                self.write_down(addressing, places, init, place, budget)
            }
        }
    }

    fn fill(
        &self,
        template: &str,
        number_and_time: Option<(u64, u64)>,
        line: usize,
    ) -> Result<String, Error> {
        let Representation { id, bandwidth, .. } = self.representation;
        fill(template, Values { id, bandwidth: *bandwidth, number_and_time }, line)
    }

    fn resource(&self, url: &str, range: Option<ByteRange>, line: usize) -> Result<Resource, Error> {
        let base = &self.representation.base;
        let url = if url.is_empty() { base.as_ref().clone() } else { join(base, url, line)? };
        Ok(Resource::new(url, range))
    }

    fn write_down(
        &self,
        addressing: &Addressing,
        places: Vec<Place>,
        init: Option<Arc<Resource>>,
        resource: impl Fn(Place, u64) -> Result<Resource, Error>,
        budget: &mut Budget,
    ) -> Result<Vec<Segment>, Error> {
        let mut segments = Vec::with_capacity(places.len());
        for place in places {
            let number = addressing.start_number.unwrap_or(1).checked_add(place.index);
            let number = number
                .ok_or_else(|| Error::malformed(addressing.line, "the numbers of segments pass 64 bits"))?;
            if addressing.end_number.is_some_and(|end| number > end) {
                break;
            }
            let resource = resource(place, number)?;
            budget.take(&resource)?;
            let (start, end) = (
                self.nanos(addressing, place.time),
                self.nanos(addressing, place.time + i128::from(place.ticks)),
            );
            segments.push(segment(number, resource, init.clone(), start, end));
        }
        Ok(segments)
    }

    /// Ticks of the media as nanoseconds of the presentation.
    fn nanos(&self, addressing: &Addressing, time: i128) -> i128 {
        let offset = i128::from(addressing.time_offset.unwrap_or(0));
        let in_period =
            time.saturating_sub(offset).saturating_mul(NANOS) / i128::from(addressing.timescale());
        i128::from(self.period.start.as_nanos()).saturating_add(in_period)
    }

    /// Nanoseconds of the presentation as ticks of the media.
    fn ticks(&self, addressing: &Addressing, nanos: i128) -> i128 {
        let in_period = nanos - i128::from(self.period.start.as_nanos());
        let offset = i128::from(addressing.time_offset.unwrap_or(0));
        in_period.saturating_mul(i128::from(addressing.timescale())).div_euclid(NANOS).saturating_add(offset)
    }

    /// Which segments there are, by SegmentTimeline or by a constant duration.
    fn places(&self, addressing: &Addressing, count: Option<u64>) -> Result<Vec<Place>, Error> {
        let end = self.period.end.map(|end| self.ticks(addressing, i128::from(end.as_nanos())));
        let window = self.window.map(|window| {
            let offset = self.representation.availability_offset
                + addressing
                    .availability_offset
                    .filter(|_| addressing.is_complete != Some(false))
                    .unwrap_or(0.0);
            // A float's conversion saturates; a century is as good as ever.
            let offset = (offset.clamp(0.0, 3e9) * 1e9) as i128;
            let (begin, now) =
                (self.ticks(addressing, window.begin), self.ticks(addressing, window.now + offset));
            (begin, now)
        });
        let mut places = Places { window, end, count, found: Vec::new() };
        let first = i128::from(addressing.time_offset.unwrap_or(0));
        let Some(timeline) = &addressing.timeline else {
            if let (Some(1), None) = (count, addressing.ticks) {
                // One segment is as long as its Period.
                let ticks = end.and_then(|end| u64::try_from(end - first).ok()).unwrap_or(0);
                places.add(
                    addressing.line,
                    Place { index: 0, time: first, ticks: ticks.max(1) },
                    Some(0),
                    None,
                )?;
                return Ok(places.found);
            }
            let ticks = addressing.ticks.ok_or_else(|| {
                Error::malformed(addressing.line, "there is neither a duration nor a SegmentTimeline")
            })?;
            // A segment that would begin within its last half tick is rounding.
            places.add(addressing.line, Place { index: 0, time: first, ticks }, None, None)?;
            return Ok(places.found);
        };
        let (mut index, mut time) = (0_u64, 0_i128);
        for (at, Run { line, time: at_time, ticks, repeats }) in timeline.iter().enumerate() {
            time = at_time.map_or(time, i128::from);
            let next = timeline.get(at + 1).and_then(|next| next.time).map(i128::from);
            let count = places.add(*line, Place { index, time, ticks: *ticks }, *repeats, next)?;
            index = index.saturating_add(count);
            time = time.saturating_add(i128::from(count).saturating_mul(i128::from(*ticks)));
        }
        Ok(places.found)
    }

    fn indexed(
        &self,
        addressing: &Addressing,
        index: &SegmentIndex,
        budget: &mut Budget,
    ) -> Result<Vec<Segment>, Error> {
        let range = addressing.index_range.ok_or(Error::Index("has no range"))?;
        let init = match (addressing.init_range, addressing.init.as_deref()) {
            (None, None) => ByteRange::new(0, range.first())
                .map(|before| self.resource("", Some(before), addressing.line)),
            (range, url) => Some(self.resource(url.unwrap_or_default(), range, addressing.line)),
        };
        let init = init.transpose()?.map(Arc::new);
        // The index has ticks of its own.
        let offset =
            i128::from(addressing.time_offset.unwrap_or(0)) * NANOS / i128::from(addressing.timescale());
        let begin = i128::from(self.period.start.as_nanos()) - offset;
        let nanos = |ticks: u128| begin + (ticks * NANOS as u128 / u128::from(index.timescale)) as i128;
        const BEYOND: Error = Error::Index("has segments beyond 64 bits");
        let mut first = range.first().checked_add(index.first_offset).ok_or(BEYOND)?;
        let mut ticks = u128::from(index.earliest_time);
        let mut segments = Vec::with_capacity(index.references.len());
        for (number, (len, duration)) in (1..).zip(&index.references) {
            let bytes = ByteRange::new(first, *len).ok_or(BEYOND)?;
            first = first.checked_add(*len).ok_or(BEYOND)?;
            let (start, end) = (nanos(ticks), nanos(ticks + u128::from(*duration)));
            ticks += u128::from(*duration);
            let resource = self.resource("", Some(bytes), addressing.line)?;
            budget.take(&resource)?;
            segments.push(segment(number, resource, init.clone(), start, end));
        }
        Ok(segments)
    }

    /// A file that is one segment, as long as its Period.
    fn single(&self, addressing: Option<&Addressing>, budget: &mut Budget) -> Result<Vec<Segment>, Error> {
        let line = self.representation.line;
        let end = self.period.end.filter(|_| self.window.is_none());
        let end = end.ok_or_else(|| {
            Error::malformed(line, "a Representation has no segments, and its Period no end")
        })?;
        let range = addressing.and_then(|addressing| addressing.init_range);
        let init = range.map(|range| self.resource("", Some(range), line)).transpose()?.map(Arc::new);
        let resource = self.resource("", None, line)?;
        budget.take(&resource)?;
        let (start, end) = (i128::from(self.period.start.as_nanos()), i128::from(end.as_nanos()));
        Ok(vec![segment(1, resource, init, start, end)])
    }
}

fn segment(number: u64, resource: Resource, init: Option<Arc<Resource>>, start: i128, end: i128) -> Segment {
    let clock = |nanos: i128| nanos.clamp(0, i128::from(u64::MAX)) as u64;
    let duration = Duration::from_nanos(clock(end.saturating_sub(start)));
    Segment {
        number,
        resource,
        init,
        start: Duration::from_nanos(clock(start)),
        duration,
        is_discontinuous: false,
    }
}

/// Gathers the segments that exist: a run is cut to what is wanted before it is written out, as it may be as long as it likes.
struct Places {
    window: Option<(i128, i128)>,
    end: Option<i128>,
    count: Option<u64>,
    found: Vec<Place>,
}

impl Places {
    /// Adds a run, and says how many segments it has. Without `repeats` it goes on to `next`, to the end of the Period, or to now.
    fn add(
        &mut self,
        line: usize,
        first: Place,
        repeats: Option<u64>,
        next: Option<i128>,
    ) -> Result<u64, Error> {
        let ticks = i128::from(first.ticks);
        // How many whole segments are over at a time, and how many have begun.
        let over = |time: i128| time.saturating_sub(first.time).max(0) / ticks;
        let begun = |time: i128| (time.saturating_sub(first.time).max(0) + ticks - 1) / ticks;
        let count = match repeats {
            Some(repeats) => i128::from(repeats) + 1,
            None => match (next.or(self.end), self.count, self.window) {
                (Some(end), _, _) => begun(end),
                (None, Some(count), _) => i128::from(count),
                (None, None, Some((_, now))) => over(now),
                (None, None, None) => {
                    return Err(Error::malformed(line, "segments have no end: the Period has no duration"));
                }
            },
        };
        let left = self.count.map_or(i128::MAX, |count| i128::from(count.saturating_sub(first.index)));
        let count = count.min(left);
        let (mut from, mut to) = (0, count.min(self.end.map_or(i128::MAX, begun)));
        if let Some((begin, now)) = self.window {
            to = to.min(over(now));
            // The newest are wanted, if nothing says how far back the others reach.
            from = over(begin).max(to - MAX_SEGMENTS as i128).min(to);
        }
        let room = MAX_SEGMENTS.saturating_sub(self.found.len());
        if to - from > room as i128 {
            return Err(Error::TooManySegments);
        }
        for at in from..to {
            let index = first.index.checked_add(at as u64);
            let index =
                index.ok_or_else(|| Error::malformed(line, "the numbers of segments pass 64 bits"))?;
            self.found.push(Place { index, time: first.time + at * ticks, ticks: first.ticks });
        }
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }
}
