//! What a document found, and what is expected here.

use polypath_config::{FileError, Source};

use super::file::{ExpectedFile, PublishedFile};
use super::group::{Group, GroupFile};
use super::parameters::Parameters;
use super::sweep::{Values, points};
use super::{Claim, Experiment, Origin, Statistic};

/// Which number of the experiment is meant.
struct Place<'a> {
    variant: Option<&'a str>,
    metric: Option<&'a str>,
    statistic: Option<&'a str>,
    at: Option<&'a str>,
    set: Option<&'a str>,
    among: Option<&'a GroupFile>,
    against: Option<&'a GroupFile>,
}

/// All of them: those of the document first.
///
/// # Errors
/// The first mistake in one.
pub(super) fn all(
    source: Source<'_>,
    (published, expected): (Vec<PublishedFile>, Vec<ExpectedFile>),
    experiment: &Experiment,
    sweeps: &[Values],
    parameters: &Parameters,
) -> Result<Vec<Claim>, FileError> {
    let mut claims = Vec::new();
    for (index, file) in published.into_iter().enumerate() {
        let key = format!("published[{index}]");
        if file.source.trim().is_empty() {
            let message =
                "says nothing; expected document, year and place, such as \"Paasch 2014, Fig. 4.18\"";
            return Err(source.wrong(format!("{key}.source"), message));
        }
        let place = Place {
            variant: file.variant.as_deref(),
            metric: file.metric.as_deref(),
            statistic: file.statistic.as_deref(),
            at: file.at.as_deref(),
            set: file.set.as_deref(),
            among: file.among.as_ref(),
            against: file.against.as_ref(),
        };
        claims.push(Claim {
            value: file.value,
            at_least: file.at_least,
            at_most: file.at_most,
            remark: file.remark.clone().unwrap_or_default(),
            ..claim(source, &key, &place, experiment, (sweeps, parameters))?
        });
        if let Some(claim) = claims.last_mut() {
            (claim.text, claim.origin) = (file.text, Origin::Published { source: file.source });
        }
    }
    for (index, file) in expected.into_iter().enumerate() {
        let key = format!("expected[{index}]");
        if file.at_least.is_none() && file.at_most.is_none() {
            return Err(source.wrong(key, "expects nothing; expected at-least or at-most, a number"));
        }
        if file.reason.trim().is_empty() {
            return Err(source.wrong(format!("{key}.reason"), "says nothing; expected why it is to hold"));
        }
        let place = Place {
            variant: Some(&file.variant),
            metric: file.metric.as_deref(),
            statistic: file.statistic.as_deref(),
            at: file.at.as_deref(),
            set: file.set.as_deref(),
            among: file.among.as_ref(),
            against: file.against.as_ref(),
        };
        claims.push(Claim {
            at_least: file.at_least,
            at_most: file.at_most,
            remark: file.remark.clone().unwrap_or_default(),
            ..claim(source, &key, &place, experiment, (sweeps, parameters))?
        });
        if let Some(claim) = claims.last_mut() {
            (claim.text, claim.origin) = (file.text, Origin::Expected { reason: file.reason });
        }
    }
    Ok(claims)
}

/// The number that is meant.
fn claim(
    source: Source<'_>,
    key: &str,
    place: &Place<'_>,
    experiment: &Experiment,
    (sweeps, parameters): (&[Values], &Parameters),
) -> Result<Claim, FileError> {
    let variants = experiment.variants.iter().map(|variant| variant.name.as_str());
    let variant =
        match place.variant {
            None => None,
            Some(name) => Some(variants.clone().position(|known| known == name).ok_or_else(|| {
                source.unknown(format!("{key}.variant"), "variant", name, variants.clone())
            })?),
        };
    let metric = match place.metric {
        None => 0,
        Some(name) => experiment.metrics.iter().position(|metric| metric.name == name).ok_or_else(|| {
            let known = experiment.metrics.iter().map(|metric| metric.name);
            source.unknown(format!("{key}.metric"), "metric of this experiment", name, known)
        })?,
    };
    let statistic = match place.statistic {
        None => Statistic::default(),
        Some(name) => Statistic::by_name(name).ok_or_else(|| {
            source.unknown(format!("{key}.statistic"), "statistic", name, Statistic::names())
        })?,
    };
    let points = match place.at {
        None => Vec::new(),
        Some(_) if sweeps.is_empty() => {
            return Err(source.wrong(format!("{key}.at"), "nothing is swept; expected [[sweep]], or no `at`"));
        }
        Some(label) => {
            let labels = experiment.points.iter().map(|point| point.label.as_str());
            let here: Vec<Option<usize>> = (0..)
                .zip(labels)
                .filter(|(_, known)| *known == label)
                .map(|(point, _)| Some(point))
                .collect();
            match here.is_empty() {
                true => {
                    check_left_out(source, &format!("{key}.at"), label, sweeps)?;
                    vec![None]
                }
                false => here,
            }
        }
    };
    let set = match place.set {
        None => None,
        Some(name) => {
            let names = || experiment.sets.iter().map(|set| set.name.as_str());
            let position = names().position(|known| known == name);
            Some(position.ok_or_else(|| source.unknown(format!("{key}.set"), "set", name, names()))?)
        }
    };
    let group = |name: &str, file: Option<&GroupFile>| {
        let read = |file| Group::read(source, &format!("{key}.{name}"), file, parameters, &experiment.sets);
        file.map(read).transpose()
    };
    let (among, against) = (group("where", place.among)?, group("against", place.against)?);
    Ok(Claim { variant, metric, statistic, points, set, among, against, ..Claim::default() })
}

/// The short form leaves points out; a fact about one of them has no counterpart then.
///
/// # Errors
/// That the whole has no such point, either.
fn check_left_out(source: Source<'_>, key: &str, label: &str, sweeps: &[Values]) -> Result<(), FileError> {
    let all = points(sweeps, None);
    let mut labels = all.iter().map(|point| point.label.as_str());
    match labels.clone().any(|known| known == label) {
        true => Ok(()),
        false => Err(source.unknown(key, "value of the sweep", label, &mut labels)),
    }
}
