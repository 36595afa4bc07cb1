//! Which field is wrong, and how.

use std::fmt::Display;
use std::str::FromStr;

pub(super) type Wrong = (&'static str, String);

/// What each of these texts says.
pub(super) fn each<T: FromStr<Err: Display>>(field: &'static str, texts: &[String]) -> Result<Vec<T>, Wrong> {
    let parsed = texts.iter().map(|text| text.parse().map_err(|error| (field, format!("{text}: {error}"))));
    parsed.collect()
}
