//! Some of the sets: those at certain levels of the parameters.

use std::collections::BTreeMap;
use std::fmt;

use polypath_config::quantity::{Percent, read};
use polypath_config::{FileError, Source};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NamedSet;
use super::parameters::Parameters;

/// A level, or several of which a set has one.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Words {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

/// Levels of parameters, or `most-loss`, which no path of the set exceeds.
pub(super) type GroupFile = BTreeMap<String, Words>;

const MOST_LOSS: &str = "most-loss";

/// The sets that have one of the levels of each parameter that is named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Parameters and levels, in the file's words.
    #[serde(flatten)]
    words: BTreeMap<String, Vec<String>>,
    /// By number.
    #[serde(skip)]
    sets: Vec<usize>,
}

impl Group {
    /// # Errors
    /// That there is no such parameter or level.
    pub(super) fn read(
        source: Source<'_>,
        key: &str,
        file: &GroupFile,
        parameters: &Parameters,
        sets: &[NamedSet],
    ) -> Result<Self, FileError> {
        let mut words = BTreeMap::new();
        for (parameter, levels) in file {
            let key = format!("{key}.{parameter}");
            let levels = match levels {
                Words::One(level) => vec![level.clone()],
                Words::Several(levels) => levels.clone(),
            };
            if parameter != MOST_LOSS && !parameters.names().any(|known| known == parameter) {
                let known = parameters.names().chain([MOST_LOSS]);
                return Err(source.unknown(key, "parameter of this experiment", parameter, known));
            }
            for level in &levels {
                if parameter == MOST_LOSS {
                    read::<Percent>(level).map_err(|error| source.wrong(key.clone(), error.to_string()))?;
                } else if !parameters.levels(parameter).any(|known| known == level) {
                    return Err(source.unknown(key, "level", level, parameters.levels(parameter)));
                }
            }
            words.insert(parameter.clone(), levels);
        }
        let mut group = Self { words, sets: Vec::new() };
        group.sets = (0..sets.len()).filter(|number| group.holds(&sets[*number])).collect();
        Ok(group)
    }

    fn holds(&self, set: &NamedSet) -> bool {
        self.words.iter().all(|(parameter, levels)| match parameter.as_str() {
            MOST_LOSS => {
                let most = levels.iter().filter_map(|level| read::<Percent>(level).ok());
                let most = most.map(|percent| percent.0).fold(0.0, f64::max);
                set.set.paths.iter().all(|path| path.loss <= most)
            }
            _ => set.levels.iter().any(|level| level.parameter == parameter && levels.contains(&level.text)),
        })
    }

    /// Its sets, by number.
    pub(crate) fn sets(&self) -> &[usize] {
        &self.sets
    }
}

/// `sack on, reordering-min 50 or 127`.
impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (parameter, levels)) in self.words.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{parameter} {}", levels.join(" or "))?;
        }
        Ok(())
    }
}
