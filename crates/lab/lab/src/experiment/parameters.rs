//! Parameters of plain TCP that differ between sets, as paths do (Kaspar 2011, Table 5.5).

use polypath_config::{FileError, Policies, Source};
use polypath_congestion as congestion;
use polypath_tcp::{DuplicateThreshold, ForwardRto};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::run::Variant;

/// Values of each parameter, in words. What is not named is as the variant says.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct ParametersFile {
    /// Congestion controls, by name.
    pub(super) congestion: Vec<String>,
    /// Selective acknowledgments: `on`, `off`.
    pub(super) sack: Vec<String>,
    /// Duplicates are reported, and what is reported is believed: `on`, `off`. Nothing without SACK.
    pub(super) dsack: Vec<String>,
    /// Losses are told by forward acknowledgment, until the path reorders: `on`, `off`. Nothing without SACK.
    pub(super) fack: Vec<String>,
    /// How a timeout is asked if it was spurious: `off`, `basic`, `sack`. The last is `basic` without SACK.
    pub(super) f_rto: Vec<String>,
    /// Timestamps, and Eifel by them: `on`, `off`.
    pub(super) timestamps: Vec<String>,
    /// How many segments overtake one that is lost, at least: from 1 to 127.
    pub(super) reordering_min: Vec<String>,
    /// Parameters whose levels are reported together as well.
    pub(super) together: Vec<String>,
}

/// A parameter at one of its levels.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// The parameter, as the file has it.
    pub(crate) parameter: &'static str,
    /// Its value in the file's words.
    pub(crate) text: String,
    change: Change,
}

/// What a level changes.
#[derive(Clone, Debug, PartialEq)]
enum Change {
    Congestion(congestion::Policy),
    Sack(bool),
    Dsack(bool),
    Fack(bool),
    ForwardRto(ForwardRto),
    Timestamps(bool),
    ReorderingMin(u8),
}

impl Level {
    /// Puts it in place of what the variant says.
    pub(super) fn apply(&self, variant: &mut Variant) {
        let flavour = &mut variant.flavour;
        match &self.change {
            Change::Congestion(policy) => variant.congestion = policy.clone(),
            Change::Sack(is_on) => flavour.sack = *is_on,
            Change::Dsack(is_on) => flavour.recovery.duplicate_reports = *is_on,
            Change::Fack(is_on) => flavour.count_losses(|threshold| threshold.forward = *is_on),
            Change::ForwardRto(form) => flavour.recovery.forward_rto = *form,
            Change::Timestamps(is_on) => flavour.timestamps = *is_on,
            Change::ReorderingMin(least) => flavour.count_losses(|threshold| threshold.least = *least),
        }
    }
}

/// The parameters that differ, each with all of its levels.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Parameters {
    columns: Vec<Vec<Level>>,
    /// Those that are reported together as well, in this order.
    together: Vec<&'static str>,
}

impl Parameters {
    /// # Errors
    /// The first word that is not as it should be.
    pub(super) fn read(
        source: Source<'_>,
        file: Option<&ParametersFile>,
        policies: &Policies,
    ) -> Result<Self, FileError> {
        let Some(file) = file else { return Ok(Self::default()) };
        let mut columns = Vec::new();
        for (parameter, words) in [
            ("congestion", &file.congestion),
            ("sack", &file.sack),
            ("dsack", &file.dsack),
            ("fack", &file.fack),
            ("f-rto", &file.f_rto),
            ("timestamps", &file.timestamps),
            ("reordering-min", &file.reordering_min),
        ] {
            if words.is_empty() {
                continue;
            }
            let levels = words.iter().enumerate().map(|(index, text)| {
                let key = format!("parameters.{parameter}[{index}]");
                let change = change(source, &key, parameter, text, policies)?;
                if words[..index].contains(text) {
                    return Err(source.wrong(key, format!("\"{text}\" is there twice; expected each once")));
                }
                Ok(Level { parameter, text: text.clone(), change })
            });
            columns.push(levels.collect::<Result<Vec<_>, _>>()?);
        }
        let mut parameters = Self { columns, together: Vec::new() };
        for (index, name) in file.together.iter().enumerate() {
            let known = parameters.names().find(|known| known == name).ok_or_else(|| {
                let key = format!("parameters.together[{index}]");
                source.unknown(key, "parameter of this experiment", name, parameters.names())
            })?;
            parameters.together.push(known);
        }
        Ok(parameters)
    }

    /// How many columns of the design they take.
    pub(super) fn count(&self) -> usize {
        self.columns.len()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().filter_map(|levels| levels.first()).map(|level| level.parameter)
    }

    /// The words of the levels of a parameter.
    pub(super) fn levels(&self, parameter: &str) -> impl Iterator<Item = &str> {
        let of_it = self.columns.iter().flatten().filter(move |level| level.parameter == parameter);
        of_it.map(|level| level.text.as_str())
    }

    pub(super) fn together(&self) -> Vec<&'static str> {
        self.together.clone()
    }

    /// Name and levels of each, as people read them.
    pub(super) fn words(&self) -> Vec<(&'static str, String)> {
        self.names().map(|name| (name, self.levels(name).collect::<Vec<_>>().join(", "))).collect()
    }

    /// The levels of a point. Where a design has more levels than a parameter, some stand for the same; which they are goes by turns from
    /// design to design. What has no effect without SACK is left out.
    pub(super) fn at(&self, design: usize, point: &[f64]) -> Vec<Level> {
        let level = |(levels, place): (&Vec<Level>, &f64)| {
            let index = ((place * levels.len() as f64) as usize).min(levels.len() - 1);
            levels[(index + design) % levels.len()].clone()
        };
        let mut levels: Vec<Level> = self.columns.iter().zip(point).map(level).collect();
        if levels.iter().any(|level| level.change == Change::Sack(false)) {
            levels.retain(|level| !matches!(level.change, Change::Dsack(_) | Change::Fack(_)));
            for level in &mut levels {
                if level.change == Change::ForwardRto(ForwardRto::Sack) {
                    (level.text, level.change) = (BASIC.into(), Change::ForwardRto(ForwardRto::Basic));
                }
            }
        }
        levels
    }
}

const BASIC: &str = "basic";

fn change(
    source: Source<'_>,
    key: &str,
    parameter: &str,
    text: &str,
    policies: &Policies,
) -> Result<Change, FileError> {
    let switch = || match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(source.unknown(key, "setting", text, ["on", "off"])),
    };
    Ok(match parameter {
        "congestion" => Change::Congestion(source.policy(key, text, policies)?),
        "sack" => Change::Sack(switch()?),
        "dsack" => Change::Dsack(switch()?),
        "fack" => Change::Fack(switch()?),
        "timestamps" => Change::Timestamps(switch()?),
        "f-rto" => Change::ForwardRto(match text {
            "off" => ForwardRto::Off,
            BASIC => ForwardRto::Basic,
            "sack" => ForwardRto::Sack,
            _ => return Err(source.unknown(key, "form of F-RTO", text, ["off", BASIC, "sack"])),
        }),
        _ => match text.parse() {
            Ok(least @ 1..=DuplicateThreshold::MOST) => Change::ReorderingMin(least),
            _ => {
                let message = format!("\"{text}\"; expected a number from 1 to {}", DuplicateThreshold::MOST);
                return Err(source.wrong(key, message));
            }
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, Form};
    use polypath_tcp::LossDetection;

    const TEXT: &str = r#"
name = "parameters"
title = "Parameters"
metrics = ["aggregation-benefit"]
[factors]
rate = { from = "1mbit", to = "10mbit" }
rtt = "20ms"
queue = "50ms"
[parameters]
congestion = ["reno", "bic", "cubic"]
sack = ["on", "off"]
fack = ["on", "off"]
f-rto = ["off", "basic", "sack"]
reordering-min = ["3", "10", "50"]
together = ["sack", "fack"]
[design]
kind = "orthogonal-array"
levels = 7
designs = 6
[traffic]
kind = "bulk"
duration = "1s"
[[variants]]
name = "any"
flavour = "linux-2.6.32"
split = "send-vector"
[[expected]]
text = "something"
reason = "for the test"
variant = "any"
at-least = 0
"#;

    fn read(text: &str) -> Result<Experiment, FileError> {
        Experiment::parse("x.toml", text, Form::Full, &Policies::default())
    }

    #[test]
    fn levels_are_as_often_as_each_other_over_designs_and_change_the_variant() {
        let experiment = read(TEXT).unwrap();
        assert_eq!(experiment.sets.len(), 6 * 49);
        let count = |parameter: &str, text: &str| {
            let has = |level: &Level| level.parameter == parameter && level.text == text;
            experiment.sets.iter().filter(|set| set.levels.iter().any(has)).count()
        };
        for text in ["reno", "bic", "cubic"] {
            assert_eq!(count("congestion", text), 2 * 49);
        }
        assert_eq!((count("sack", "on"), count("sack", "off")), (3 * 49, 3 * 49));
        // Without SACK there is neither, and of F-RTO the basic form.
        assert_eq!(count("fack", "on") + count("fack", "off"), 3 * 49);
        assert!(count("f-rto", "basic") > count("f-rto", "sack"));
        for (number, set) in experiment.sets.iter().enumerate() {
            let job = experiment.job(number);
            let level = |parameter: &str| {
                let level = set.levels.iter().find(|level| level.parameter == parameter);
                level.map_or("", |level| level.text.as_str())
            };
            assert_eq!(job.variant.congestion.name(), level("congestion"));
            assert_eq!(job.variant.flavour.sack, level("sack") == "on");
            let LossDetection::ByCount(threshold) = job.variant.flavour.recovery.detection else {
                panic!("{job:?}")
            };
            assert_eq!(threshold.least.to_string(), level("reordering-min"));
            assert!(level("fack").is_empty() || threshold.forward == (level("fack") == "on"));
        }
    }

    #[test]
    fn words_that_are_none_are_told_with_their_place() {
        for (old, new, expected) in [
            ("[\"on\", \"off\"]\nfack", "[\"on\", \"of\"]\nfack", "parameters.sack[1]"),
            ("\"basic\"", "\"simple\"", "parameters.f-rto[1]"),
            ("\"50\"", "\"128\"", "parameters.reordering-min[2]"),
            ("\"bic\"", "\"reno\"", "parameters.congestion[1]"),
            ("together = [\"sack\"", "together = [\"dsack\"", "parameters.together[0]"),
        ] {
            assert!(TEXT.contains(old), "{old}");
            let error = read(&TEXT.replacen(old, new, 1)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
