//! How the delay of a path varies.

use polypath_config::quantity::{Span, read};
use polypath_config::{FileError, Source};
use polypath_link::{Jitter, JitterKind};

use super::file::{PathFile, SetFile};

/// Those of a set's paths, by number; none if no path has one.
///
/// # Errors
/// The first that is none.
pub(super) fn of_set(source: Source<'_>, set: usize, file: &SetFile) -> Result<Vec<Jitter>, FileError> {
    if file.paths.iter().all(|path| path.jitter.is_none()) {
        return Ok(Vec::new());
    }
    let jitter = |(path, file): (usize, &PathFile)| match &file.jitter {
        None => Ok(Jitter::NONE),
        Some(text) => {
            let wrong = |message| source.wrong(format!("sets[{set}].paths[{path}].jitter"), message);
            jitter(text).map_err(wrong)
        }
    };
    file.paths.iter().enumerate().map(jitter).collect()
}

fn jitter(text: &str) -> Result<Jitter, String> {
    const EXPECTED: &str = "expected \"uniform:15ms\" or \"normal:5ms\"";
    let (kind, amount) = text.split_once(':').ok_or_else(|| format!("\"{text}\"; {EXPECTED}"))?;
    let kind = match kind {
        "uniform" => JitterKind::Uniform,
        "normal" => JitterKind::Normal,
        _ => return Err(format!("unknown shape \"{kind}\"; {EXPECTED}")),
    };
    let amount: Span = read(amount).map_err(|error| format!("{error}; {EXPECTED}"))?;
    Ok(Jitter { kind, amount: amount.0, keep_order: false })
}
