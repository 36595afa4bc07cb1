use std::sync::Arc;

use polypath_units::Duration;
use url::Url;

use super::line::{Attributes, Line, byte_range, integer, lines, seconds};
use crate::manifest::budget::{Budget, join};
use crate::manifest::error::Error;
use crate::manifest::limits::MAX_SEGMENTS;
use crate::manifest::presentation::{Container, Segment};
use crate::manifest::resource::{ByteRange, Resource};

/// A media playlist (RFC 8216, sections 4.3.2 and 4.3.3). Its segments begin at time zero.
#[derive(Debug)]
pub(super) struct MediaPlaylist {
    pub(super) target_duration: Duration,
    pub(super) container: Container,
    pub(super) segments: Vec<Segment>,
    pub(super) has_ended: bool,
}

impl MediaPlaylist {
    pub(super) fn parse(text: &str, url: &Url) -> Result<Self, Error> {
        let mut budget = Budget::new();
        let mut list = Self {
            target_duration: Duration::ZERO,
            container: Container::MpegTs,
            segments: Vec::new(),
            has_ended: false,
        };
        let mut next = Next::default();
        let mut start = Duration::ZERO;
        for (line, said) in lines(text) {
            match said {
                Line::Uri(uri) => {
                    let (segment, is_gap) = next.take(line, uri, url, start)?;
                    start = segment.end();
                    budget.take(&segment.resource)?;
                    if list.segments.len() >= MAX_SEGMENTS {
                        return Err(Error::TooManySegments);
                    }
                    if list.segments.is_empty() {
                        list.container = container_of(&segment);
                    }
                    if is_gap {
                        next.is_discontinuous = true;
                    } else {
                        list.segments.push(segment);
                    }
                }
                Line::Tag("EXT-X-TARGETDURATION", value) => {
                    list.target_duration = seconds(line, "EXT-X-TARGETDURATION", value)?;
                }
                Line::Tag("EXT-X-MEDIA-SEQUENCE", value) => {
                    let first = integer(line, "EXT-X-MEDIA-SEQUENCE", value)?;
                    if !list.segments.is_empty() {
                        let what = "EXT-X-MEDIA-SEQUENCE stands behind the first segment";
                        return Err(Error::malformed(line, what));
                    }
                    next.number = first;
                }
                Line::Tag("EXT-X-ENDLIST", _) => list.has_ended = true,
                Line::Tag("EXT-X-I-FRAMES-ONLY", _) => {
                    return Err(Error::unsupported(line, "a playlist for trick play (EXT-X-I-FRAMES-ONLY)"));
                }
                Line::Tag("EXT-X-SKIP", _) => {
                    return Err(Error::unsupported(line, "a playlist with only what changed (EXT-X-SKIP)"));
                }
                Line::Tag("EXT-X-DEFINE", _) => {
                    return Err(Error::unsupported(line, "variables in a playlist (EXT-X-DEFINE)"));
                }
                Line::Tag(tag, value) => next.handle(line, tag, value, url)?,
            }
        }
        Ok(list)
    }
}

/// A file's name tells when there is no initialization section.
fn container_of(segment: &Segment) -> Container {
    if segment.init.is_some() {
        return Container::FragmentedMp4;
    }
    let name = segment.resource.url().path().rsplit('/').next().unwrap_or_default();
    match name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase().as_str() {
        "mp4" | "m4s" | "m4v" | "m4a" | "cmfv" | "cmfa" => Container::FragmentedMp4,
        "aac" | "mp3" | "ac3" | "ec3" => Container::PackedAudio,
        _ => Container::MpegTs,
    }
}

/// What is known of the next segment before its URI.
#[derive(Debug, Default)]
struct Next {
    number: u64,
    duration: Option<Duration>,
    range: Option<(usize, String)>,
    /// The file of the last range, and where that ended.
    range_before: Option<(Url, u64)>,
    init: Option<Arc<Resource>>,
    is_discontinuous: bool,
    is_gap: bool,
}

impl Next {
    fn handle(&mut self, line: usize, tag: &str, value: &str, url: &Url) -> Result<(), Error> {
        match tag {
            "EXTINF" => {
                let duration = value.split(',').next().unwrap_or_default();
                self.duration = Some(seconds(line, tag, duration)?);
            }
            "EXT-X-BYTERANGE" => self.range = Some((line, value.to_owned())),
            "EXT-X-DISCONTINUITY" => self.is_discontinuous = true,
            "EXT-X-GAP" => self.is_gap = true,
            "EXT-X-MAP" => {
                let attributes = Attributes::parse(line, tag, value)?;
                let file = join(url, attributes.require("URI")?, line)?;
                let range = attributes.get("BYTERANGE");
                let range = range.map(|range| byte_range(line, tag, range, Some(0))).transpose()?;
                self.init = Some(Arc::new(Resource::new(file, range)));
            }
            "EXT-X-KEY" => check_key(line, tag, value)?,
            _ => {}
        }
        Ok(())
    }

    fn take(&mut self, line: usize, uri: &str, url: &Url, start: Duration) -> Result<(Segment, bool), Error> {
        let duration = self.duration.take();
        let duration = duration.ok_or_else(|| Error::malformed(line, "a segment has no EXTINF before it"))?;
        let file = join(url, uri, line)?;
        let range: Option<ByteRange> = match self.range.take() {
            Some((line, text)) => {
                let before = self.range_before.take().filter(|(before, _)| *before == file);
                let range = byte_range(line, "EXT-X-BYTERANGE", &text, before.map(|(_, end)| end))?;
                self.range_before = range.end().map(|end| (file.clone(), end));
                Some(range)
            }
            None => {
                self.range_before = None;
                None
            }
        };
        let number = self.number;
        self.number = number
            .checked_add(1)
            .ok_or_else(|| Error::malformed(line, "the numbers of segments pass 64 bits"))?;
        let segment = Segment {
            number,
            resource: Resource::new(file, range),
            init: self.init.clone(),
            start,
            duration,
            is_discontinuous: std::mem::take(&mut self.is_discontinuous),
        };
        Ok((segment, std::mem::take(&mut self.is_gap)))
    }
}

/// Passes what says that segments are in the clear.
pub(super) fn check_key(line: usize, tag: &str, value: &str) -> Result<(), Error> {
    let attributes = Attributes::parse(line, tag, value)?;
    let scheme = match (attributes.require("METHOD")?, attributes.get("KEYFORMAT")) {
        ("NONE", _) => return Ok(()),
        (method, Some(format)) => format!("{method}, {format}"),
        (method, None) => method.to_owned(),
    };
    Err(Error::encrypted(&scheme))
}
