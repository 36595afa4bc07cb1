use std::fmt;

use polypath_units::{BitRate, Duration};

use super::codecs::family;
use super::error::Error;
use super::presentation::{Container, Quality, Segment, Track};

/// A media playlist (RFC 8216, section 4.3.3) of segments that are there: it only grows, and a player begins at its first one.
///
/// Segments of several qualities may follow each other. A player needs a new initialization section then (EXT-X-MAP), but a
/// discontinuity only if time, codec or encoding of time don't go on (section 4.3.2.3).
#[derive(Clone, Debug)]
pub struct LocalPlaylist {
    target_duration: Duration,
    body: String,
    last: Option<Last>,
    has_ended: bool,
}

/// What the next segment follows.
#[derive(Clone, Debug)]
struct Last {
    end: Duration,
    container: Container,
    codecs: Option<String>,
    init: Option<String>,
}

impl LocalPlaylist {
    /// An empty one. No segment should be longer than `target_duration`, as players expect this not to change.
    #[must_use]
    pub fn new(target_duration: Duration) -> Self {
        Self { target_duration, body: String::new(), last: None, has_ended: false }
    }

    /// Adds a segment of a quality, which a player finds at `uri`; its initialization section is at `init`. Both are relative to
    /// the playlist.
    pub fn push(
        &mut self,
        quality: &Quality,
        segment: &Segment,
        uri: &str,
        init: Option<&str>,
    ) -> Result<(), Error> {
        let last = self.last.take();
        if last.as_ref().is_some_and(|last| {
            last.container != quality.container() || (last.init.is_some() && init.is_none())
        }) {
            self.last = last;
            return Err(Error::OtherContainer);
        }
        if last.as_ref().is_some_and(|last| is_break(last, quality, segment)) {
            self.body.push_str("#EXT-X-DISCONTINUITY\n");
        }
        if let Some(init) =
            init.filter(|init| last.as_ref().is_none_or(|last| last.init.as_deref() != Some(*init)))
        {
            self.body.push_str(&format!("#EXT-X-MAP:URI=\"{init}\"\n"));
        }
        self.body.push_str(&format!("#EXTINF:{:.6},\n{uri}\n", segment.duration().as_secs_f64()));
        // A segment's EXTINF, rounded, is at most the target duration (section 4.3.3.1).
        self.target_duration = self.target_duration.max(segment.duration());
        self.last = Some(Last {
            end: segment.end(),
            container: quality.container(),
            codecs: quality.codecs().map(str::to_owned),
            init: init.map(str::to_owned),
        });
        Ok(())
    }

    /// No more follow.
    pub fn end(&mut self) {
        self.has_ended = true;
    }
}

/// Whether timestamps or codecs don't go on.
fn is_break(last: &Last, quality: &Quality, segment: &Segment) -> bool {
    let families = |codecs: &str| codecs.split(',').map(|codec| family(codec).to_owned()).collect::<Vec<_>>();
    let is_other_codec = match (&last.codecs, quality.codecs()) {
        (Some(before), Some(after)) => families(before) != families(after),
        _ => false,
    };
    // Segments aren't cut to the tick: what is missing is at least half a segment.
    let missing = segment.start().max(last.end) - segment.start().min(last.end);
    segment.is_discontinuous() || is_other_codec || missing > segment.duration() / 2
}

impl fmt::Display for LocalPlaylist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // EXT-X-MAP wants 6, decimal durations want 3 (section 7).
        let version = if self.last.as_ref().is_some_and(|last| last.init.is_some()) { 6 } else { 3 };
        let target = self.target_duration.as_nanos().div_ceil(1_000_000_000).max(1);
        write!(
            f,
            "#EXTM3U\n#EXT-X-VERSION:{version}\n#EXT-X-TARGETDURATION:{target}\n#EXT-X-MEDIA-SEQUENCE:0\n\
             #EXT-X-PLAYLIST-TYPE:EVENT\n#EXT-X-START:TIME-OFFSET=0\n{}",
            self.body
        )?;
        if self.has_ended { f.write_str("#EXT-X-ENDLIST\n") } else { Ok(()) }
    }
}

/// A multivariant playlist (RFC 8216, section 4.3.4) that puts a playlist of pictures and one of separate sound together. What it
/// says of the pictures is the best that may come.
#[must_use]
pub fn multivariant_playlist(main: &Track, main_uri: &str, audio: &Track, audio_uri: &str) -> String {
    let best = main.qualities().last();
    let of_audio = audio.qualities().last();
    let bit_rate = |quality: Option<&Quality>| quality.map_or(BitRate::ZERO, Quality::bit_rate).as_bps();
    let mut info = format!("BANDWIDTH={}", bit_rate(best).saturating_add(bit_rate(of_audio)).max(1));
    let codecs = [best, of_audio].map(|quality| quality.and_then(Quality::codecs));
    if let [Some(video), Some(audio)] = codecs {
        // HLS counts the codec of separate sound with the pictures'.
        let mut all: Vec<&str> = video.split(',').map(str::trim).collect();
        audio.split(',').map(str::trim).for_each(|codec| {
            if !all.contains(&codec) {
                all.push(codec)
            }
        });
        info.push_str(&format!(",CODECS=\"{}\"", all.join(",").replace(['"', '\r', '\n'], "")));
    }
    if let Some(resolution) = best.and_then(Quality::resolution) {
        info.push_str(&format!(",RESOLUTION={}x{}", resolution.width(), resolution.height()));
    }
    format!(
        "#EXTM3U\n#EXT-X-VERSION:6\n\
         #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"audio\",NAME=\"audio\",DEFAULT=YES,AUTOSELECT=YES,URI=\"{audio_uri}\"\n\
         #EXT-X-STREAM-INF:{info},AUDIO=\"audio\"\n{main_uri}\n"
    )
}
