use std::sync::Arc;

use super::xml::Element;
use crate::manifest::error::Error;
use crate::manifest::limits::MAX_SEGMENTS;
use crate::manifest::resource::ByteRange;

/// A run of segments of one length: an element S (ISO/IEC 23009-1, section 5.3.9.6).
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) line: usize,
    pub(super) time: Option<u64>,
    pub(super) ticks: u64,
    /// How many follow the first; none up to the next run, or the end.
    pub(super) repeats: Option<u64>,
}

/// A URL of a SegmentList.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) url: Option<String>,
    pub(super) range: Option<ByteRange>,
}

/// Which of the elements says where segments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Template,
    List,
    Base,
}

/// Where the segments of a Representation are: SegmentTemplate, SegmentList or SegmentBase (section 5.3.9). What a level doesn't
/// say it has from the level above (section 5.3.9.1).
#[derive(Clone, Debug)]
pub(super) struct Addressing {
    pub(super) scheme: Scheme,
    pub(super) line: usize,
    pub(super) timescale: Option<u64>,
    pub(super) ticks: Option<u64>,
    pub(super) start_number: Option<u64>,
    pub(super) end_number: Option<u64>,
    pub(super) time_offset: Option<u64>,
    pub(super) availability_offset: Option<f64>,
    pub(super) is_complete: Option<bool>,
    pub(super) media: Option<Arc<str>>,
    pub(super) init: Option<Arc<str>>,
    pub(super) init_range: Option<ByteRange>,
    pub(super) index_range: Option<ByteRange>,
    pub(super) timeline: Option<Arc<[Run]>>,
    pub(super) list: Option<Arc<[Listed]>>,
}

const EXPECTED_RANGE: &str = "a range of bytes such as 0-799";

impl Addressing {
    /// What a level says, filled up from the level above.
    pub(super) fn parse(level: &Element<'_>, above: Option<&Arc<Self>>) -> Result<Option<Arc<Self>>, Error> {
        let schemes = [
            ("SegmentTemplate", Scheme::Template),
            ("SegmentList", Scheme::List),
            ("SegmentBase", Scheme::Base),
        ];
        let found = schemes.iter().find_map(|(name, scheme)| Some((level.child(name)?, *scheme)));
        let Some((element, scheme)) = found else { return Ok(above.map(Arc::clone)) };
        let mut this = Self::parse_element(element, scheme)?;
        if let Some(above) = above.filter(|above| above.scheme == scheme) {
            this.timescale = this.timescale.or(above.timescale);
            this.ticks = this.ticks.or(above.ticks);
            this.start_number = this.start_number.or(above.start_number);
            this.end_number = this.end_number.or(above.end_number);
            this.time_offset = this.time_offset.or(above.time_offset);
            this.availability_offset = this.availability_offset.or(above.availability_offset);
            this.is_complete = this.is_complete.or(above.is_complete);
            this.media = this.media.or_else(|| above.media.clone());
            if this.init.is_none() && this.init_range.is_none() {
                this.init = above.init.clone();
                this.init_range = above.init_range;
            }
            this.index_range = this.index_range.or(above.index_range);
            this.timeline = this.timeline.or_else(|| above.timeline.clone());
            this.list = this.list.or_else(|| above.list.clone());
        }
        Ok(Some(Arc::new(this)))
    }

    fn parse_element(element: &Element<'_>, scheme: Scheme) -> Result<Self, Error> {
        let positive = |name| {
            element.read(name, "a number above 0", |text| text.parse().ok().filter(|number| *number > 0))
        };
        let text = |name| element.attribute(name).map(Arc::from);
        let range = |element: &Element<'_>, name| element.read(name, EXPECTED_RANGE, ByteRange::parse);
        let offset = |text: &str| match text {
            "INF" => Some(f64::INFINITY),
            text => text.parse().ok().filter(|offset: &f64| !offset.is_nan()),
        };
        let init = element.child("Initialization");
        let init_url = init.and_then(|init| init.attribute("sourceURL")).map(Arc::from);
        Ok(Self {
            scheme,
            line: element.line(),
            timescale: positive("timescale")?,
            ticks: positive("duration")?,
            start_number: element.number("startNumber")?,
            end_number: element.number("endNumber")?,
            time_offset: element.number("presentationTimeOffset")?,
            availability_offset: element.read("availabilityTimeOffset", "seconds, or INF", offset)?,
            is_complete: element.attribute("availabilityTimeComplete").map(|text| text != "false"),
            media: text("media"),
            init: init_url.or_else(|| text("initialization")),
            init_range: init.map(|init| range(init, "range")).transpose()?.flatten(),
            index_range: range(element, "indexRange")?,
            timeline: element.child("SegmentTimeline").map(timeline).transpose()?,
            list: (scheme == Scheme::List).then(|| list(element, range)).transpose()?.flatten(),
        })
    }

    pub(super) fn timescale(&self) -> u64 {
        self.timescale.unwrap_or(1)
    }
}

fn timeline(element: &Element<'_>) -> Result<Arc<[Run]>, Error> {
    let run = |run: &Element<'_>| {
        let ticks = run.read("d", "a number above 0", |text| text.parse().ok().filter(|ticks| *ticks > 0))?;
        let repeats =
            run.read("r", "how often it repeats, or -1", |text| match text.parse::<i64>().ok()? {
                -1 => Some(None),
                repeats => u64::try_from(repeats).ok().map(Some),
            })?;
        Ok(Run {
            line: run.line(),
            time: run.number("t")?,
            ticks: ticks.ok_or_else(|| Error::malformed(run.line(), "S has no d"))?,
            repeats: repeats.unwrap_or(Some(0)),
        })
    };
    if let Some(pattern) = element.child("Pattern") {
        return Err(Error::unsupported(pattern.line(), "a Pattern in a SegmentTimeline"));
    }
    element.children("S").map(run).collect()
}

fn list(
    element: &Element<'_>,
    range: impl Fn(&Element<'_>, &'static str) -> Result<Option<ByteRange>, Error>,
) -> Result<Option<Arc<[Listed]>>, Error> {
    let listed = |url: &Element<'_>| {
        Ok(Listed { url: url.attribute("media").map(str::to_owned), range: range(url, "mediaRange")? })
    };
    if element.children("SegmentURL").nth(MAX_SEGMENTS).is_some() {
        return Err(Error::TooManySegments);
    }
    let urls: Arc<[Listed]> = element.children("SegmentURL").map(listed).collect::<Result<_, Error>>()?;
    Ok((!urls.is_empty()).then_some(urls))
}
