use super::mpd::{Period, Representation};
use crate::manifest::codecs::{families, rank};
use crate::manifest::error::Error;
use crate::manifest::limits::MAX_QUALITIES;
use crate::manifest::presentation::TrackKind;

/// What is played of a Period.
#[derive(Debug)]
pub(super) struct Selection<'a> {
    pub(super) kind: TrackKind,
    /// By bandwidth.
    pub(super) main: Vec<&'a Representation>,
    pub(super) audio: Option<&'a Representation>,
}

/// Representations that can follow each other in a player. Packagers put them in one AdaptationSet or in several.
fn is_alike(one: &Representation, other: &Representation) -> bool {
    let codecs = |representation: &Representation| {
        let codecs = representation.codecs.clone().unwrap_or_default();
        let families = families(&codecs, representation.kind == Some(TrackKind::Video));
        families.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    (one.kind, one.container, one.is_alternate, &one.language)
        == (other.kind, other.container, other.is_alternate, &other.language)
        && codecs(one) == codecs(other)
}

/// The group that is played: not an alternate one, in codecs that most players have, and of these the first.
fn group(period: &Period, kind: TrackKind) -> Vec<&Representation> {
    let of_kind = || {
        let all = period.representations.iter();
        all.filter(|one| one.kind == Some(kind) && one.container.is_some() && one.encryption.is_none())
    };
    let rank = |one: &&Representation| {
        let codecs = one.codecs.as_deref().unwrap_or_default();
        (one.is_alternate, rank(&families(codecs, kind == TrackKind::Video)))
    };
    let Some(best) = of_kind().min_by_key(rank) else { return Vec::new() };
    let mut group: Vec<_> = of_kind().filter(|one| is_alike(best, one)).collect();
    group.sort_by_key(|one| one.bandwidth);
    group
}

pub(super) fn select(period: &Period) -> Result<Selection<'_>, Error> {
    let (video, audio) = (group(period, TrackKind::Video), group(period, TrackKind::Audio));
    let has_encrypted = |kind| {
        let mut all = period.representations.iter().filter(|one| one.kind == Some(kind));
        all.find_map(|one| one.encryption.clone())
    };
    // Sound alone of a film whose pictures are encrypted is nobody's wish, nor is a silent film.
    let encrypted = [(TrackKind::Video, &video), (TrackKind::Audio, &audio)]
        .into_iter()
        .find_map(|(kind, group)| if group.is_empty() { has_encrypted(kind) } else { None });
    if let Some(scheme) = encrypted {
        return Err(Error::encrypted(&scheme));
    }
    let (kind, main, audio) = match (video.is_empty(), audio.last()) {
        (false, best) => (TrackKind::Video, video, best.copied()),
        (true, Some(_)) => (TrackKind::Audio, audio, None),
        (true, None) => {
            return Err(Error::NoTrack("no video or audio in MP4 or MPEG-TS".to_owned()));
        }
    };
    if main.len() > MAX_QUALITIES {
        return Err(Error::TooManyQualities);
    }
    Ok(Selection { kind, main, audio })
}
