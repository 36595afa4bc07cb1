//! What downloads in ranges are told by the command.

use std::path::Path;
use std::time::Duration;

use polypath_fetch::answer::{Digest, DigestAlgorithm};
use url::Url;

use super::interfaces::Asked;
use crate::web;

/// What is fetched, and how, as far as other downloads have that too.
pub(super) struct Job<'a> {
    pub(super) urls: &'a [Url],
    pub(super) output: Option<&'a Path>,
    pub(super) resume: bool,
    pub(super) verifies: bool,
    pub(super) is_quiet: bool,
    pub(super) token: Option<web::Token>,
    pub(super) silence: Option<Duration>,
    pub(super) asked: Asked,
}

/// As reports have it.
pub(super) fn sha256(compared: &[Digest]) -> Option<web::Digest> {
    let compared = compared.iter().find(|digest| digest.algorithm == DigestAlgorithm::Sha256)?;
    Some(web::Digest(compared.value.as_slice().try_into().ok()?))
}
