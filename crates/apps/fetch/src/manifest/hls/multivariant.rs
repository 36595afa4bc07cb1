use polypath_units::BitRate;
use url::Url;

use super::line::{Attributes, Line, integer, lines};
use super::media::check_key;
use crate::manifest::budget::join;
use crate::manifest::codecs::{families, has_video, rank};
use crate::manifest::error::Error;
use crate::manifest::limits::{MAX_QUALITIES, MAX_WORD_BYTES};
use crate::manifest::presentation::{Resolution, TrackKind};

/// A media playlist that a multivariant playlist names.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) url: Url,
    pub(super) bit_rate: BitRate,
    pub(super) resolution: Option<Resolution>,
    pub(super) codecs: Option<String>,
}

/// What is played of a multivariant playlist (RFC 8216, section 4.3.4).
#[derive(Debug)]
pub(super) struct Selection {
    pub(super) kind: TrackKind,
    pub(super) main: Vec<Named>,
    pub(super) audio: Option<Named>,
}

struct Variant<'a> {
    named: Named,
    audio_group: Option<&'a str>,
}

impl Variant<'_> {
    /// Pictures, unless the codecs say that there is only sound.
    fn has_video(&self) -> bool {
        self.named.resolution.is_some() || self.named.codecs.as_deref().is_none_or(has_video)
    }

    fn families(&self, of_video: bool) -> Vec<&str> {
        self.named.codecs.as_deref().map_or(Vec::new(), |codecs| families(codecs, of_video))
    }
}

struct AudioRendition<'a> {
    group: &'a str,
    url: Option<Url>,
    is_default: bool,
    is_automatic: bool,
}

/// Whether a playlist names others.
pub(super) fn is_multivariant(text: &str) -> bool {
    lines(text).any(|(_, line)| {
        matches!(line, Line::Tag("EXT-X-STREAM-INF" | "EXT-X-MEDIA" | "EXT-X-I-FRAME-STREAM-INF", _))
    })
}

pub(super) fn select(text: &str, url: &Url) -> Result<Selection, Error> {
    let (variants, renditions) = parse(text, url)?;
    if variants.is_empty() {
        return Err(Error::NoTrack("the playlist names no other (EXT-X-STREAM-INF)".to_owned()));
    }
    let with_video = variants.iter().any(Variant::has_video);
    let fits = |variant: &&Variant<'_>| variant.has_video() == with_video;
    // One encoder's output can't follow another's in all players: what most have is taken, and of that the best.
    let codec_of = |variant: &Variant<'_>| {
        let families: Vec<String> = variant.families(with_video).iter().map(ToString::to_string).collect();
        families
    };
    let best = (variants.iter().filter(fits))
        .min_by_key(|variant| {
            let ranks = (rank(&variant.families(with_video)), rank(&variant.families(!with_video)));
            (ranks, std::cmp::Reverse(variant.named.bit_rate))
        })
        .ok_or_else(|| Error::NoTrack("no variant has video or audio".to_owned()))?;
    let (codec, group) = (codec_of(best), best.audio_group);
    let mut alike: Vec<&Variant<'_>> =
        variants.iter().filter(fits).filter(|variant| codec_of(variant) == codec).collect();
    // The same pictures are listed once for each group of audio, or in reserve on another server.
    alike.sort_by_key(|variant| (variant.named.bit_rate, variant.audio_group != group));
    let mut main: Vec<Named> = Vec::new();
    for variant in alike {
        let is_known = |known: &Named| {
            known.url == variant.named.url
                || (known.bit_rate == variant.named.bit_rate && known.resolution == variant.named.resolution)
        };
        if !main.iter().any(is_known) {
            if main.len() == MAX_QUALITIES {
                return Err(Error::TooManyQualities);
            }
            main.push(variant.named.clone());
        }
    }
    let kind = if with_video { TrackKind::Video } else { TrackKind::Audio };
    let in_group = renditions.iter().filter(|rendition| Some(rendition.group) == group);
    let default = in_group.min_by_key(|rendition| (!rendition.is_default, !rendition.is_automatic));
    let audio_codecs = best.families(false);
    let whole = |family: &&str| {
        let codecs = best.named.codecs.as_deref().unwrap_or_default();
        codecs.split(',').map(str::trim).find(|codec| codec.starts_with(*family)).map(str::to_owned)
    };
    let audio = default.and_then(|rendition| rendition.url.clone()).filter(|_| with_video);
    let audio = audio.map(|url| Named {
        url,
        bit_rate: BitRate::ZERO,
        resolution: None,
        codecs: audio_codecs.first().and_then(whole),
    });
    Ok(Selection { kind, main, audio })
}

fn parse<'a>(text: &'a str, url: &Url) -> Result<(Vec<Variant<'a>>, Vec<AudioRendition<'a>>), Error> {
    /// Variants and renditions that are looked at.
    const MOST: usize = 1000;
    let mut variants: Vec<Variant<'a>> = Vec::new();
    let mut renditions = Vec::new();
    let mut info: Option<(usize, &str)> = None;
    for (line, said) in lines(text) {
        match said {
            Line::Tag("EXT-X-STREAM-INF", value) => info = Some((line, value)),
            Line::Uri(uri) => {
                // A URI that nothing is said about is none of RFC 8216's, and old playlists have them.
                let Some((line_of_info, info)) = info.take() else { continue };
                variants.push(variant(line_of_info, info, join(url, uri, line)?)?);
            }
            Line::Tag("EXT-X-MEDIA", value) => {
                let attributes = Attributes::parse(line, "EXT-X-MEDIA", value)?;
                if attributes.require("TYPE")? == "AUDIO" {
                    let uri = attributes.get("URI");
                    renditions.push(AudioRendition {
                        group: attributes.require("GROUP-ID")?,
                        url: uri.map(|uri| join(url, uri, line)).transpose()?,
                        is_default: attributes.is_yes("DEFAULT"),
                        is_automatic: attributes.is_yes("AUTOSELECT"),
                    });
                }
            }
            Line::Tag("EXT-X-SESSION-KEY", value) => check_key(line, "EXT-X-SESSION-KEY", value)?,
            Line::Tag("EXT-X-DEFINE", _) => {
                return Err(Error::unsupported(line, "variables in a playlist (EXT-X-DEFINE)"));
            }
            Line::Tag(..) => {}
        }
        if variants.len() > MOST || renditions.len() > MOST {
            return Err(Error::TooManyQualities);
        }
    }
    Ok((variants, renditions))
}

fn variant(line: usize, info: &str, url: Url) -> Result<Variant<'_>, Error> {
    const TAG: &str = "EXT-X-STREAM-INF";
    let attributes = Attributes::parse(line, TAG, info)?;
    let resolution = attributes.get("RESOLUTION").map(|text| {
        let (width, height) = text.split_once('x')?;
        Some(Resolution::new(width.trim().parse().ok()?, height.trim().parse().ok()?))
    });
    let resolution = match resolution {
        Some(None) => return Err(Error::malformed(line, "RESOLUTION is not of the form 1280x720")),
        Some(resolution) => resolution,
        None => None,
    };
    if attributes.get("CODECS").is_some_and(|codecs| codecs.len() > MAX_WORD_BYTES) {
        return Err(Error::malformed(line, format!("CODECS is longer than {MAX_WORD_BYTES} bytes")));
    }
    let named = Named {
        url,
        bit_rate: BitRate::from_bps(integer(line, "BANDWIDTH", attributes.require("BANDWIDTH")?)?),
        resolution,
        codecs: attributes.get("CODECS").filter(|codecs| !codecs.is_empty()).map(str::to_owned),
    };
    Ok(Variant { named, audio_group: attributes.get("AUDIO") })
}
