//! How a file is fetched, and what is told of it.

use std::time::Duration;

use url::Url;

use super::pieces::Pieces;
use crate::answer::Digest;
use crate::cookies::Cookies;
use crate::playback::History;
use crate::schedule::Sizing;

/// How a file is fetched.
#[derive(Clone, Debug)]
pub struct Options {
    /// Fields of every request, such as `Authorization`; that one, and cookies, only for the host of the first URL.
    pub fields: Vec<(String, String)>,
    /// Cookies that are sent where they belong, and taken from answers that are believed. Without, only [`Self::fields`] has some.
    pub cookies: Option<Cookies>,
    /// Other places of the file. Pieces of several are mixed only where the whole is compared with a digest that a person gave, or the
    /// server of the first URL by https.
    pub mirrors: Vec<Url>,
    /// The one whose host is told everything, if that is another than the URL's.
    pub home: Option<Url>,
    /// How long the file has to be.
    pub size_bytes: Option<u64>,
    /// What its pieces have to be.
    pub pieces: Option<Pieces>,
    /// How much is asked for at once. None is the best for the target.
    pub sizing: Option<Sizing>,
    /// What the file has to be.
    pub digests: Vec<Digest>,
    /// Compare with the digests that the server tells.
    pub verifies: bool,
    /// Certificates are not compared, so that anybody may answer for an `https` server.
    pub is_unverified: bool,
    /// How often a server that can't be reached, or says that it can't answer now, is asked again before anything came.
    pub retries: u32,
    /// Give up when nothing came for so long.
    pub silence: Option<Duration>,
    /// Give up after so long.
    pub most_time: Option<Duration>,
    /// Bytes a second, of all paths together.
    pub most_rate: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fields: Vec::new(),
            cookies: None,
            mirrors: Vec::new(),
            home: None,
            size_bytes: None,
            pieces: None,
            sizing: None,
            digests: Vec::new(),
            verifies: true,
            is_unverified: false,
            retries: 0,
            silence: Some(Duration::from_secs(60)),
            most_time: None,
            most_rate: None,
        }
    }
}

/// What happens while a file is fetched.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// The server answered: how much is there, and how much there will be, if that is known.
    Begun {
        /// Bytes of an earlier attempt.
        present_bytes: u64,
        /// Bytes of the whole file.
        total_bytes: Option<u64>,
    },
    /// Bytes came over a path, by its number.
    Bytes {
        /// In the order in which the ways were given.
        path: usize,
        /// That were not there yet.
        bytes: u64,
    },
    /// A path has a connection.
    Connected {
        /// In the order in which the ways were given.
        path: usize,
    },
    /// A path lost its connection, or can't get one.
    Lost {
        /// In the order in which the ways were given.
        path: usize,
        /// Why, if it is not the usual end of one.
        cause: String,
    },
    /// All comes over one path.
    OnePath {
        /// In the order in which the ways were given.
        path: usize,
        /// Why.
        cause: &'static str,
    },
    /// Something that a person may want to know.
    Notice(String),
    /// It is over, whatever became of it: when which bytes came. The last that is told.
    Over(Box<History>),
}

/// What became of a download.
#[derive(Clone, Debug)]
pub struct Done {
    /// Of the whole file.
    pub total_bytes: u64,
    /// Came this time, over each path.
    pub path_bytes: Vec<u64>,
    /// Where it came from in the end.
    pub url: Url,
    /// The digests with which it was compared.
    pub compared: Vec<Digest>,
    /// When which bytes came.
    pub history: History,
}
