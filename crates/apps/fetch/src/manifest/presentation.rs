use std::fmt;
use std::sync::Arc;

use polypath_units::{BitRate, Duration};

use super::resource::Resource;

/// A stream as a manifest describes it at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presentation {
    pub(super) is_live: bool,
    pub(super) refresh_after: Option<Duration>,
    pub(super) main: Track,
    pub(super) audio: Option<Track>,
}

impl Presentation {
    /// Whether segments may still be added: a dynamic MPD, or a media playlist without EXT-X-ENDLIST.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        self.is_live
    }

    /// How long after one reading the manifest should be read again: `@minimumUpdatePeriod`, or EXT-X-TARGETDURATION (RFC 8216, section
    /// 6.3.4). None if it never changes.
    #[must_use]
    pub const fn refresh_after(&self) -> Option<Duration> {
        self.refresh_after
    }

    /// The video, with its sound if that isn't separate; or the sound, if there is no video.
    #[must_use]
    pub const fn main(&self) -> &Track {
        &self.main
    }

    /// The sound, if it is separate. It has one quality, the best.
    #[must_use]
    pub const fn audio(&self) -> Option<&Track> {
        self.audio.as_ref()
    }

    /// The length of the longest segment.
    #[must_use]
    pub fn target_duration(&self) -> Duration {
        let tracks = std::iter::once(&self.main).chain(&self.audio);
        let segments = tracks.flat_map(|track| &track.qualities).flat_map(|quality| quality.segments.iter());
        segments.map(|segment| segment.duration).max().unwrap_or_default()
    }

    /// Where the last segment ends, on the clock of [`Segment::start`].
    #[must_use]
    pub fn end(&self) -> Duration {
        let last = self.main.qualities.iter().filter_map(|quality| quality.segments.last());
        last.map(Segment::end).max().unwrap_or_default()
    }
}

/// What a track is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackKind {
    /// Pictures, and perhaps sound.
    Video,
    /// Sound alone.
    Audio,
}

/// The same content in several qualities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    pub(super) kind: TrackKind,
    pub(super) qualities: Vec<Quality>,
}

impl Track {
    /// What it is.
    #[must_use]
    pub const fn kind(&self) -> TrackKind {
        self.kind
    }

    /// From the lowest bit rate to the highest; there is at least one.
    #[must_use]
    pub fn qualities(&self) -> &[Quality] {
        &self.qualities
    }
}

/// How large a picture is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution {
    width: u32,
    height: u32,
}

impl Resolution {
    /// In pixels.
    #[must_use]
    pub const fn new(width: u32, height: u32) -> Self {
        Self { width, height }
    }

    /// Pixels across.
    #[must_use]
    pub const fn width(self) -> u32 {
        self.width
    }

    /// Lines.
    #[must_use]
    pub const fn height(self) -> u32 {
        self.height
    }
}

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}", self.width, self.height)
    }
}

/// What segments are wrapped in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Container {
    /// Fragmented MP4, which needs an initialization segment (ISO/IEC 14496-12).
    FragmentedMp4,
    /// An MPEG-2 transport stream.
    MpegTs,
    /// Sound alone, each segment with an ID3 timestamp (RFC 8216, section 3.4).
    PackedAudio,
}

/// One encoding of a track: a Representation, or a variant stream with its media playlist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quality {
    /// Shared, as every unit of a stream says of which quality it is.
    pub(super) id: Arc<str>,
    pub(super) bit_rate: BitRate,
    pub(super) resolution: Option<Resolution>,
    pub(super) codecs: Option<Arc<str>>,
    pub(super) container: Container,
    pub(super) segments: Arc<[Segment]>,
}

impl Quality {
    /// What names it over refreshes: `Representation@id`, or the URL of its media playlist.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What it takes to play it without waiting: `@bandwidth`, or BANDWIDTH. Zero if the manifest doesn't say.
    #[must_use]
    pub const fn bit_rate(&self) -> BitRate {
        self.bit_rate
    }

    /// How large the picture is.
    #[must_use]
    pub const fn resolution(&self) -> Option<Resolution> {
        self.resolution
    }

    /// What it is encoded in (RFC 6381). HLS counts the codec of a separate audio track with it.
    #[must_use]
    pub fn codecs(&self) -> Option<&str> {
        self.codecs.as_deref()
    }

    /// What its segments are wrapped in.
    #[must_use]
    pub const fn container(&self) -> Container {
        self.container
    }

    /// What exists at the time, by number.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// What exists at the time, from a number on.
    pub(crate) fn segments_from(&self, number: u64) -> &[Segment] {
        &self.segments[self.segments.partition_point(|segment| segment.number < number)..]
    }

    /// What it is, without what there is of it.
    pub(crate) fn without_segments(&self) -> Self {
        Self { segments: Arc::new([]), ..self.clone() }
    }

    /// The segment of a number.
    #[must_use]
    pub fn segment(&self, number: u64) -> Option<&Segment> {
        let place = self.segments.binary_search_by_key(&number, |segment| segment.number).ok()?;
        self.segments.get(place)
    }

    /// The segment that is played at a time, or the first one after it.
    #[must_use]
    pub fn segment_at(&self, time: Duration) -> Option<&Segment> {
        self.segments.get(self.segments.partition_point(|segment| segment.end() <= time))
    }
}

/// A piece of a quality: what is fetched at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub(super) number: u64,
    pub(super) resource: Resource,
    pub(super) init: Option<Arc<Resource>>,
    pub(super) start: Duration,
    pub(super) duration: Duration,
    pub(super) is_discontinuous: bool,
}

impl Segment {
    /// Its place in the quality. It grows by one from segment to segment, stays over refreshes, and is the same in all qualities of a
    /// track whose segments are aligned. A number that is left out is a segment that can't be had.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Where it is.
    #[must_use]
    pub const fn resource(&self) -> &Resource {
        &self.resource
    }

    /// What a player needs before it: the initialization segment (DASH) or media initialization section (HLS).
    #[must_use]
    pub fn init(&self) -> Option<&Arc<Resource>> {
        self.init.as_ref()
    }

    /// Bytes it has, if the manifest tells.
    #[must_use]
    pub fn len_bytes(&self) -> Option<u64> {
        self.resource.range().map(|range| range.len_bytes())
    }

    /// When it is played, from the beginning of the presentation. For HLS that are live, from the first segment that was listed.
    #[must_use]
    pub const fn start(&self) -> Duration {
        self.start
    }

    /// How long it is played.
    #[must_use]
    pub const fn duration(&self) -> Duration {
        self.duration
    }

    /// When the next one is played.
    #[must_use]
    pub fn end(&self) -> Duration {
        self.start + self.duration
    }

    /// Whether timestamps or encoding don't go on from the segment before: EXT-X-DISCONTINUITY, or a new Period.
    #[must_use]
    pub const fn is_discontinuous(&self) -> bool {
        self.is_discontinuous
    }
}
