//! How a stream is fetched, and what is told of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use polypath_units::BitRate;

use crate::cookies::Cookies;
use crate::manifest::{Presentation, Quality, Segment, TrackKind};
use crate::schedule::Sizing;
use crate::stream::adaptation::AdaptationPolicy;
use crate::stream::{Buffering, State};

/// How a stream is fetched.
#[derive(Clone, Debug)]
pub struct Options {
    /// Fields of every request, such as `Authorization`; that one, and cookies, only for the host of the manifest's URL.
    pub fields: Vec<(String, String)>,
    /// Cookies that are sent where they belong, and taken from answers that are believed. Without, only [`Self::fields`] has some.
    pub cookies: Option<Cookies>,
    /// How much is asked for at once.
    pub sizing: Sizing,
    /// Who chooses qualities.
    pub adaptation: AdaptationPolicy,
    /// How much is held in advance.
    pub buffering: Buffering,
    /// Give up when nothing came for so long, though something was asked for.
    pub silence: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        use polypath_units::Duration as Span;
        Self {
            fields: Vec::new(),
            cookies: None,
            sizing: Sizing::in_order(),
            adaptation: AdaptationPolicy::default(),
            buffering: Buffering {
                capacity: Span::from_secs(30),
                startup: Span::from_secs(2),
                after_stall: Span::from_secs(2),
            },
            silence: Some(Duration::from_secs(60)),
        }
    }
}

/// A segment that is there.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Of which track.
    pub track: TrackKind,
    /// In which quality.
    pub quality: Quality,
    /// Which one.
    pub segment: Segment,
    /// What a player needs before it.
    pub init: Option<Bytes>,
    /// What it has.
    pub bytes: Bytes,
}

/// What happens while a stream is fetched.
#[derive(Clone, Debug)]
pub enum Told {
    /// What the stream consists of. It comes first.
    Begun(Arc<Presentation>),
    /// A path has a connection.
    Connected {
        /// In the order in which the paths were given.
        path: usize,
    },
    /// A path lost its connection, or can't get one.
    Lost {
        /// In the order in which the paths were given.
        path: usize,
        /// Why, if it is not the usual end of one.
        cause: String,
    },
    /// Bytes came over a path.
    Bytes {
        /// In the order in which the paths were given.
        path: usize,
        /// How many.
        bytes: u64,
    },
    /// The quality of a coming segment of the main track.
    Chosen {
        /// Its place in the track's qualities.
        quality: usize,
        /// What it needs.
        bit_rate: BitRate,
        /// What all paths bring, as far as it was measured.
        throughput: Option<BitRate>,
        /// How much there is to play.
        lead: polypath_units::Duration,
    },
    /// A segment is there, and all before it.
    Segment(Box<Fetched>),
    /// A segment can't be had, and is left out.
    LeftOut {
        /// Why.
        cause: String,
    },
    /// A player that takes the stream as it comes does something else now.
    Player(State),
    /// How it goes, once a second.
    Now(Now),
    /// Something that a person may want to know.
    Notice(String),
}

/// How a stream goes.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// What a player does that takes the stream as it comes.
    pub state: State,
    /// What is there and not played.
    pub lead: Duration,
    /// What was played.
    pub played: Duration,
    /// How often it had to wait in the middle.
    pub stalls: u32,
    /// How long it had to wait in the middle.
    pub stalled_for: Duration,
    /// What all paths bring, as far as it was measured.
    pub throughput: Option<BitRate>,
    /// Of a live stream: from what is played to the end of what the manifest last had.
    pub behind_live: Option<Duration>,
}

/// What became of a stream.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Segments of the main track, by their quality.
    pub segments: Vec<u64>,
    /// Segments that could not be had.
    pub left_out: u64,
    /// The server gives no ranges, so segments came over one path at a time.
    pub is_whole: bool,
    /// Bytes of segments over each path.
    pub path_bytes: Vec<u64>,
    /// When a player that takes the stream as it comes began, from the first request for the manifest.
    pub startup: Option<Duration>,
    /// How often it had to wait in the middle.
    pub stalls: u32,
    /// How long it had to wait in the middle.
    pub stalled_for: Duration,
    /// How long it played.
    pub played: Duration,
}
