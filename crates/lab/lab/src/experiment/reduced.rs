//! The short form of an experiment.

use polypath_config::{FileError, Source};

use super::defaults;
use super::file::{DesignWord, File};

/// Whether it is one: it belongs to something, and is not larger than the whole.
///
/// # Errors
/// The first key that is not as it should be.
pub(super) fn check(source: Source<'_>, file: &File) -> Result<(), FileError> {
    let Some(reduced) = file.reduced else { return Ok(()) };
    let design = file.design.as_ref();
    let has_levels = design
        .is_some_and(|design| matches!(design.kind, DesignWord::FullFactorial | DesignWord::OrthogonalArray));
    let sets = design.and_then(|design| design.sets).filter(|_| !has_levels);
    let levels = design.and_then(|design| design.levels).filter(|_| has_levels);
    let designs = design.map(|design| design.designs.unwrap_or(defaults::DESIGNS));
    let repeats = Some(file.repeats.unwrap_or(defaults::REPEATS));
    let points = file.sweep.iter().map(|sweep| sweep.values.len()).max();
    for (key, value, whole, of) in [
        ("sets", reduced.sets, sets, "design.sets"),
        ("levels", reduced.levels, levels, "design.levels"),
        ("designs", reduced.designs, designs, "design.designs"),
        ("repeats", reduced.repeats, repeats, "repeats"),
        ("points", reduced.points, points, "the values of a sweep"),
    ] {
        let Some(value) = value else { continue };
        let wrong = |message: String| Err(source.wrong(format!("reduced.{key}"), message));
        match whole {
            None => return wrong(format!("{value}, of what is not there; expected {of} beside it")),
            // Which is told by who reads the whole.
            Some(0) => {}
            Some(whole) if value > whole => {
                return wrong(format!(
                    "{value} is more than the whole has; expected at most {whole}, as in {of}"
                ));
            }
            Some(_) if value == 0 => return wrong("0; expected 1 or more".to_string()),
            Some(_) => {}
        }
    }
    match (reduced.duration, file.traffic.duration) {
        (Some(_), None) => {
            let message = "is of what is not there; expected traffic.duration beside it";
            Err(source.wrong("reduced.duration", message))
        }
        (Some(short), Some(whole)) if short.0 > whole.0 => {
            let message = format!(
                "{} s is longer than the whole; expected at most {} s, as in traffic.duration",
                short.0.as_secs_f64(),
                whole.0.as_secs_f64()
            );
            Err(source.wrong("reduced.duration", message))
        }
        (Some(short), _) if short.0.is_zero() => {
            Err(source.wrong("reduced.duration", "no time to send; expected a time such as \"10s\""))
        }
        _ => Ok(()),
    }
}

/// Puts what the short form says in place of what the file says.
pub(super) fn apply(file: &mut File) {
    let reduced = file.reduced.unwrap_or_default();
    if let Some(design) = &mut file.design {
        design.sets = reduced.sets.or(design.sets);
        design.levels = reduced.levels.or(design.levels);
        design.designs = reduced.designs.or(design.designs);
    }
    file.traffic.duration = reduced.duration.or(file.traffic.duration);
    file.repeats = reduced.repeats.or(file.repeats);
}
