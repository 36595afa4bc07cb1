use std::sync::Arc;

use polypath_units::Duration;
use url::Url;

use super::addressing::Addressing;
use super::time::{EXPECTED_DURATION, EXPECTED_TIME, duration, time};
use super::xml::Element;
use crate::manifest::budget::join;
use crate::manifest::codecs::has_video;
use crate::manifest::error::Error;
use crate::manifest::limits::MAX_WORD_BYTES;
use crate::manifest::presentation::{Container, Resolution, TrackKind};

/// Representations in one manifest.
const MAX_REPRESENTATIONS: usize = 10_000;

/// A media presentation description (ISO/IEC 23009-1, section 5.3.1).
#[derive(Debug)]
pub(super) struct Mpd {
    pub(super) is_dynamic: bool,
    /// Nanoseconds since 1970.
    pub(super) available_from: i128,
    pub(super) update_period: Option<Duration>,
    pub(super) time_shift: Option<Duration>,
    /// Where the next one is.
    pub(super) location: Option<Url>,
    pub(super) periods: Vec<Period>,
}

/// A Period (section 5.3.2).
#[derive(Debug)]
pub(super) struct Period {
    pub(super) start: Duration,
    pub(super) end: Option<Duration>,
    pub(super) representations: Vec<Representation>,
}

/// A Representation with what it has from its AdaptationSet (sections 5.3.3 and 5.3.5).
#[derive(Debug)]
pub(super) struct Representation {
    pub(super) line: usize,
    pub(super) id: String,
    pub(super) bandwidth: u64,
    pub(super) kind: Option<TrackKind>,
    /// None if it isn't one that can be played.
    pub(super) container: Option<Container>,
    pub(super) codecs: Option<String>,
    pub(super) resolution: Option<Resolution>,
    pub(super) language: String,
    pub(super) is_alternate: bool,
    pub(super) encryption: Option<String>,
    pub(super) base: Arc<Url>,
    pub(super) availability_offset: f64,
    pub(super) addressing: Option<Arc<Addressing>>,
}

/// What a level inherits from the one above.
#[derive(Clone)]
struct Above {
    base: Arc<Url>,
    availability_offset: f64,
    addressing: Option<Arc<Addressing>>,
}

impl Above {
    fn descend(&self, level: &Element<'_>) -> Result<Self, Error> {
        let mut below = self.clone();
        // The first one; others are the same on other servers (section 5.6.5).
        if let Some(base) = level.child("BaseURL") {
            below.base = Arc::new(join(&self.base, base.text(), base.line())?);
            match base.attribute("availabilityTimeOffset") {
                Some("INF") => below.availability_offset = f64::INFINITY,
                Some(_) if base.attribute("availabilityTimeComplete") == Some("false") => {}
                Some(text) => below.availability_offset += text.parse().unwrap_or(0.0),
                None => {}
            }
        }
        below.addressing = Addressing::parse(level, self.addressing.as_ref())?;
        Ok(below)
    }
}

impl Mpd {
    pub(super) fn parse(text: &str, url: &Url) -> Result<Self, Error> {
        let root = Element::parse(text)?;
        if root.name() != "MPD" {
            let what = format!("the document is {:?}; expected MPD", root.name());
            return Err(Error::malformed(root.line(), what));
        }
        let is_dynamic = root.attribute("type") == Some("dynamic");
        let span = |element: &Element<'_>, name| element.read(name, EXPECTED_DURATION, duration);
        let available_from = root.read("availabilityStartTime", EXPECTED_TIME, time)?;
        if is_dynamic && available_from.is_none() {
            return Err(Error::malformed(root.line(), "a dynamic MPD has no availabilityStartTime"));
        }
        let whole = span(&root, "mediaPresentationDuration")?;
        let above = Above { base: Arc::new(url.clone()), availability_offset: 0.0, addressing: None };
        let above = above.descend(&root)?;
        let mut periods: Vec<Period> = Vec::new();
        let mut count = 0;
        for element in root.children("Period") {
            let remote = element.attribute("href");
            if let Some(remote) = remote {
                if remote == "urn:mpeg:dash:resolve-to-zero:2013" {
                    continue;
                }
                return Err(Error::unsupported(element.line(), "a Period at another URL (xlink:href)"));
            }
            let start = match (span(element, "start")?, periods.last()) {
                (Some(start), _) => start,
                (None, None) => Duration::ZERO,
                (None, Some(before)) => before.end.ok_or_else(|| {
                    Error::malformed(element.line(), "a Period has no start, and the one before no duration")
                })?,
            };
            if let Some(before) = periods.last_mut() {
                if start < before.start {
                    return Err(Error::malformed(element.line(), "a Period begins before the one before it"));
                }
                before.end = Some(before.end.map_or(start, |end| end.min(start)));
            }
            let end = span(element, "duration")?.map(|duration| start + duration);
            let representations = representations(element, &above)?;
            count += representations.len();
            if count > MAX_REPRESENTATIONS {
                return Err(Error::malformed(
                    element.line(),
                    format!("there are more than {MAX_REPRESENTATIONS} Representations"),
                ));
            }
            periods.push(Period { start, end, representations });
        }
        if let Some(last) = periods.last_mut() {
            last.end = last.end.or(whole);
        }
        let location = root.child("Location").map(|location| join(url, location.text(), location.line()));
        Ok(Self {
            is_dynamic,
            available_from: available_from.unwrap_or(0),
            update_period: span(&root, "minimumUpdatePeriod")?,
            time_shift: span(&root, "timeShiftBufferDepth")?,
            location: location.transpose()?,
            periods,
        })
    }
}

fn representations(period: &Element<'_>, above: &Above) -> Result<Vec<Representation>, Error> {
    let above = above.descend(period)?;
    let mut found = Vec::new();
    for set in period.children("AdaptationSet") {
        let above = above.descend(set)?;
        let roles = || set.children("Role").filter_map(|role| role.attribute("value"));
        let is_alternate = roles().next().is_some() && !roles().any(|role| role == "main");
        for element in set.children("Representation") {
            if found.len() >= MAX_REPRESENTATIONS {
                return Err(Error::malformed(
                    element.line(),
                    format!("there are more than {MAX_REPRESENTATIONS} Representations"),
                ));
            }
            let above = above.descend(element)?;
            let either = |name: &str| element.attribute(name).or_else(|| set.attribute(name));
            for name in ["id", "codecs"] {
                if either(name).is_some_and(|word| word.len() > MAX_WORD_BYTES) {
                    let what = format!("@{name} is longer than {MAX_WORD_BYTES} bytes");
                    return Err(Error::malformed(element.line(), what));
                }
            }
            let mime = either("mimeType").unwrap_or_default();
            let codecs = either("codecs").filter(|codecs| !codecs.is_empty());
            let kind =
                match set.attribute("contentType").unwrap_or(mime.split('/').next().unwrap_or_default()) {
                    "video" => Some(TrackKind::Video),
                    "audio" => Some(TrackKind::Audio),
                    "" if codecs.is_some_and(has_video) => Some(TrackKind::Video),
                    _ => None,
                };
            let container = match mime.split(';').next().unwrap_or_default().trim() {
                "video/mp4" | "audio/mp4" | "application/mp4" => Some(Container::FragmentedMp4),
                "video/mp2t" | "video/MP2T" => Some(Container::MpegTs),
                _ => None,
            };
            // What essential properties say must be understood (section 5.8.4.8): trick play, pictures in tiles.
            let is_essential = |level: &Element<'_>| {
                let scheme = |property: &Element<'_>| property.attribute("schemeIdUri").map(str::to_owned);
                let mut schemes = level.children("EssentialProperty").filter_map(scheme);
                schemes.any(|scheme| !scheme.starts_with("urn:mpeg:mpegB:cicp:"))
            };
            let kind = kind.filter(|_| !is_essential(set) && !is_essential(element));
            let size = |name| {
                let text = either(name);
                text.map(|text| {
                    let wrong = || {
                        Error::malformed(element.line(), format!("@{name} is {text:.40?}; expected pixels"))
                    };
                    text.trim().parse::<u32>().map_err(|_| wrong())
                })
                .transpose()
            };
            found.push(Representation {
                line: element.line(),
                id: element.attribute("id").unwrap_or_default().to_owned(),
                bandwidth: element.number("bandwidth")?.unwrap_or(0),
                kind,
                container,
                codecs: codecs.map(str::to_owned),
                resolution: size("width")?
                    .zip(size("height")?)
                    .map(|(width, height)| Resolution::new(width, height)),
                language: set.attribute("lang").unwrap_or_default().to_owned(),
                is_alternate,
                encryption: encryption(set).or_else(|| encryption(element)),
                base: above.base,
                availability_offset: above.availability_offset,
                addressing: above.addressing,
            });
        }
    }
    Ok(found)
}

/// The name of what encrypts (section 5.8.4.1): of a system that is known, or the scheme.
fn encryption(level: &Element<'_>) -> Option<String> {
    const SYSTEMS: [(&str, &str); 5] = [
        ("edef8ba9-79d6-4ace-a3c8-27dcd51d21ed", "Widevine"),
        ("9a04f079-9840-4286-ab92-e65be0885f95", "PlayReady"),
        ("94ce86fb-07ff-4f43-adb8-93d2fa968ca2", "FairPlay"),
        ("e2719d58-a985-b3c9-781a-b030af78d30e", "Clear Key"),
        ("1077efec-c0b2-4d02-ace3-3c1e52e2fb4b", "Common PSSH"),
    ];
    let schemes =
        || level.children("ContentProtection").filter_map(|element| element.attribute("schemeIdUri"));
    let system = |scheme: &str| {
        let scheme = scheme.to_ascii_lowercase();
        let known = SYSTEMS.iter().find(|(id, _)| scheme.ends_with(id));
        known.map(|(_, name)| (*name).to_owned())
    };
    schemes().find_map(system).or_else(|| {
        let protection = level.child("ContentProtection")?;
        let text = protection.attribute("value").or_else(|| protection.attribute("schemeIdUri"));
        Some(text.unwrap_or("ContentProtection").chars().take(80).collect())
    })
}
