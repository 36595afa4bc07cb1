//! What is varied over all sets: the values of sweeps, and the points that they combine to.

use polypath_config::quantity::{Percent, Size, read};
use polypath_config::{FileError, Source};

use super::file::{File, SweepFile};
use super::{Setting, SweepPoint, Traffic};
use crate::run::{Buffer, InitialPath};

/// A value of a sweep.
#[derive(Clone, Debug)]
pub(super) struct Value {
    /// In the file's words.
    text: String,
    setting: Setting,
    /// As a number, if it has one.
    number: Option<f64>,
}

/// The values of a sweep, in the order of the file.
pub(super) type Values = Vec<Value>;

/// No two things may say what a parameter is.
///
/// # Errors
/// The first parameter that is given twice.
pub(super) fn check(source: Source<'_>, file: &File) -> Result<(), FileError> {
    for (index, sweep) in file.sweep.iter().enumerate() {
        let name = sweep.parameter.as_str();
        if let Some(before) = file.sweep[..index].iter().position(|before| before.parameter == name) {
            let message = format!("\"{name}\" is that of sweep[{before}], too; expected each once");
            return Err(source.wrong(format!("sweep[{index}].parameter"), message));
        }
        if name == "loss" {
            let of_factors = file.factors.filter(|factors| factors.loss.is_some());
            let of_sets = file.sets.iter().enumerate().flat_map(|(set, given)| {
                let paths = given.paths.iter().enumerate().filter(|(_, path)| path.loss.is_some());
                paths.map(move |(path, _)| format!("sets[{set}].paths[{path}].loss"))
            });
            if let Some(key) =
                of_factors.map(|_| "factors.loss".to_string()).into_iter().chain(of_sets).next()
            {
                return Err(source.wrong(key, format!("is what sweep[{index}] sets; expected one of both")));
            }
        }
    }
    Ok(())
}

/// All values of all sweeps.
///
/// # Errors
/// The first that is none, or is there twice.
pub(super) fn read_all(
    source: Source<'_>,
    sweeps: &[SweepFile],
    traffic: &Traffic,
    paths: usize,
) -> Result<Vec<Values>, FileError> {
    let mut all = Vec::new();
    for (index, sweep) in sweeps.iter().enumerate() {
        let wrong = |message: String| source.wrong(format!("sweep[{index}].values"), message);
        if sweep.values.is_empty() {
            return Err(wrong("is empty; expected a value".into()));
        }
        let mut values = Values::new();
        for text in &sweep.values {
            let (setting, number) = match (sweep.parameter.as_str(), traffic) {
                ("buffer", _) => {
                    let buffer = buffer(text).map_err(wrong)?;
                    let bytes = if let Buffer::Bytes(bytes) = buffer { Some(bytes as f64) } else { None };
                    (Setting::Buffer(buffer), bytes)
                }
                ("bytes", Traffic::Transfer { .. }) => {
                    let Size(bytes) = read(text).map_err(wrong)?;
                    (Setting::Bytes(bytes), Some(bytes as f64))
                }
                ("load", Traffic::Blocks { .. }) => {
                    let Percent(load) = read(text).map_err(wrong)?;
                    (Setting::Load(load), Some(load))
                }
                ("initial-path", _) => (Setting::Initial(initial(text, paths).map_err(wrong)?), None),
                ("loss", _) => {
                    let Percent(loss) = read(text).map_err(wrong)?;
                    (Setting::Loss(loss), Some(loss))
                }
                (name @ ("bytes" | "load"), _) => {
                    let message = format!("this traffic has no {name}; expected another parameter");
                    return Err(source.wrong(format!("sweep[{index}].parameter"), message));
                }
                (name, _) => {
                    let known = ["buffer", "bytes", "load", "initial-path", "loss"];
                    return Err(source.unknown(
                        format!("sweep[{index}].parameter"),
                        "parameter",
                        name,
                        known,
                    ));
                }
            };
            // Two runs of the same would count twice, in words that may differ.
            if let Some(before) = values.iter().find(|before| before.setting == setting) {
                return Err(wrong(match before.text == *text {
                    true => format!("\"{text}\" is there twice; expected each once"),
                    false => format!("\"{}\" and \"{text}\" are the same; expected each once", before.text),
                }));
            }
            values.push(Value { text: text.clone(), setting, number });
        }
        all.push(values);
    }
    Ok(all)
}

/// All combinations, of at most so many values of each sweep.
pub(super) fn points(sweeps: &[Values], most: Option<usize>) -> Vec<SweepPoint> {
    let mut points = vec![SweepPoint::default()];
    for (index, values) in sweeps.iter().enumerate() {
        let mut values: Vec<&Value> = values.iter().collect();
        if let Some(most) = most.map(|most| most.max(1)).filter(|most| values.len() > *most) {
            // First and last, and the rest evenly between them.
            let last = values.len() - 1;
            values = (0..most).map(|place| values[place * last / (most - 1).max(1)]).collect();
        }
        let mut longer = Vec::new();
        for point in &points {
            for Value { text, setting, number } in &values {
                let mut point = point.clone();
                point.label = match point.label.is_empty() {
                    true => text.clone(),
                    false => format!("{}, {text}", point.label),
                };
                point.value = if index == 0 { *number } else { point.value };
                point.settings.push(*setting);
                longer.push(point);
            }
        }
        points = longer;
    }
    points
}

pub(super) fn buffer(text: &str) -> Result<Buffer, String> {
    match text {
        "recommended" => Ok(Buffer::Recommended),
        "stack" => Ok(Buffer::Stack),
        _ => read::<Size>(text)
            .map(|size| Buffer::Bytes(size.0))
            .map_err(|error| format!("{error}, or \"recommended\" or \"stack\"")),
    }
}

pub(super) fn initial(text: &str, paths: usize) -> Result<InitialPath, String> {
    match text {
        "first" => Ok(InitialPath::Number(0)),
        "best" => Ok(InitialPath::Best),
        "worst" => Ok(InitialPath::Worst),
        "random" => Ok(InitialPath::Random),
        _ => match text.parse::<usize>() {
            Ok(number) if (1..=paths).contains(&number) => Ok(InitialPath::Number(number - 1)),
            _ => Err(format!(
                "unknown path \"{text}\"; expected \"first\", \"best\", \"worst\", \"random\" or a number from 1 to {paths}"
            )),
        },
    }
}
