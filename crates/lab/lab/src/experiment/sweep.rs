//! What is varied over all sets: the values of sweeps, and the points that they combine to.

use polypath_config::quantity::{Percent, Rate, Size, read};
use polypath_config::{FileError, Source};

use super::file::{BlockRate, File, SweepFile, TopologyWord, TrafficWord};
use super::{Setting, SweepPoint, Swept, Traffic};
use crate::run::{Buffer, InitialPath};

/// A value of a sweep.
#[derive(Clone, Debug)]
pub(super) struct Value {
    swept: Swept,
    setting: Setting,
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
        let message = || format!("is what sweep[{index}] sets; expected one of both");
        if let Some(key) = elsewhere(file, name) {
            return Err(source.wrong(key, message()));
        }
        if name == "initial-path" && file.topology.kind != TopologyWord::Parallel {
            let key = format!("sweep[{index}].parameter");
            let message =
                "only paths side by side have an initial one; expected topology.kind = \"parallel\"";
            return Err(source.wrong(key, message));
        }
    }
    Ok(())
}

/// The first key besides the sweep that says what this parameter is: the sweep would silently win.
fn elsewhere(file: &File, parameter: &str) -> Option<String> {
    match parameter {
        "loss" => {
            let of_factors = file.factors.filter(|factors| factors.loss.is_some());
            let of_sets = file.sets.iter().enumerate().flat_map(|(set, given)| {
                let paths = given.paths.iter().enumerate().filter(|(_, path)| path.loss.is_some());
                paths.map(move |(path, _)| format!("sets[{set}].paths[{path}].loss"))
            });
            of_factors.map(|_| "factors.loss".to_string()).into_iter().chain(of_sets).next()
        }
        "bytes" => file.traffic.bytes.map(|_| "traffic.bytes".into()),
        "load" => {
            let load = file.traffic.load.map(|_| "traffic.load".into());
            load.or_else(|| file.traffic.rate.map(|_| "traffic.rate".into()))
        }
        "rate" => file.traffic.rate.map(|_| "traffic.rate".into()),
        "buffer" => of_policies(file, "buffer", |buffer, _| buffer.is_some()),
        "initial-path" => of_policies(file, "initial-path", |_, initial| initial.is_some()),
        "segment" => {
            let variant = || file.variants.iter().position(|given| given.segment.is_some());
            match file.defaults.segment {
                Some(_) => Some("defaults.segment".into()),
                None => variant().map(|variant| format!("variants[{variant}].segment")),
            }
        }
        _ => None,
    }
}

/// The first of `defaults` and of the variants whose buffer or initial path is given.
fn of_policies(
    file: &File,
    key: &str,
    is_given: impl Fn(&Option<String>, &Option<String>) -> bool,
) -> Option<String> {
    if is_given(&file.defaults.buffer, &file.defaults.initial_path) {
        return Some(format!("defaults.{key}"));
    }
    let variant = file.variants.iter().position(|given| is_given(&given.buffer, &given.initial_path))?;
    Some(format!("variants[{variant}].{key}"))
}

/// Puts the first value of a sweep where the traffic of the file would have it: it says nothing of what is swept.
///
/// # Errors
/// That the value is none.
pub(super) fn fill(source: Source<'_>, file: &mut File) -> Result<(), FileError> {
    for (index, sweep) in file.sweep.iter().enumerate() {
        let wrong = |message| source.wrong(format!("sweep[{index}].values"), message);
        let Some(first) = sweep.values.first() else { continue };
        match (sweep.parameter.as_str(), file.traffic.kind) {
            ("segment", TrafficWord::Download | TrafficWord::Stream) => {
                file.defaults.segment = Some(size(first).map_err(wrong)?)
            }
            ("bytes", TrafficWord::Transfer | TrafficWord::Download) => {
                file.traffic.bytes = Some(size(first).map_err(wrong)?)
            }
            ("rate", TrafficWord::Datagrams) => {
                file.traffic.rate = Some(BlockRate::At(read(first).map_err(wrong)?));
            }
            ("load", TrafficWord::Blocks) => file.traffic.load = Some(read(first).map_err(wrong)?),
            _ => {}
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
                ("segment", Traffic::Download { .. } | Traffic::Stream(_)) => {
                    let Size(bytes) = size(text).map_err(wrong)?;
                    (Setting::Segment(bytes), Some(bytes as f64))
                }
                ("bytes", Traffic::Transfer { .. } | Traffic::Download { .. }) => {
                    let Size(bytes) = size(text).map_err(wrong)?;
                    (Setting::Bytes(bytes), Some(bytes as f64))
                }
                ("load", Traffic::Blocks { .. }) => {
                    let Percent(load) = read(text).map_err(wrong)?;
                    (Setting::Load(load), Some(load))
                }
                ("rate", Traffic::Datagrams(_)) => {
                    let Rate(rate) = read(text).map_err(wrong)?;
                    (Setting::Rate(rate), Some(rate.as_bps() as f64))
                }
                ("initial-path", _) => (Setting::Initial(initial(text, paths).map_err(wrong)?), None),
                ("loss", _) => {
                    let Percent(loss) = read(text).map_err(wrong)?;
                    (Setting::Loss(loss), Some(loss))
                }
                (name @ ("bytes" | "load" | "rate" | "segment"), _) => {
                    let message = format!("this traffic has no {name}; expected another parameter");
                    return Err(source.wrong(format!("sweep[{index}].parameter"), message));
                }
                (name, _) => {
                    let known = ["buffer", "bytes", "load", "initial-path", "loss", "rate", "segment"];
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
                return Err(wrong(match before.swept.text == *text {
                    true => format!("\"{text}\" is there twice; expected each once"),
                    false => {
                        format!("\"{}\" and \"{text}\" are the same; expected each once", before.swept.text)
                    }
                }));
            }
            let swept = Swept { parameter: sweep.parameter.clone(), text: text.clone(), number };
            values.push(Value { swept, setting });
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
            for Value { swept, setting } in &values {
                let Swept { text, number, .. } = swept;
                let mut point = point.clone();
                point.label = match point.label.is_empty() {
                    true => text.clone(),
                    false => format!("{}, {text}", point.label),
                };
                point.value = if index == 0 { *number } else { point.value };
                point.swept.push(swept.clone());
                point.settings.push(*setting);
                longer.push(point);
            }
        }
        points = longer;
    }
    points
}

fn size(text: &str) -> Result<Size, String> {
    match read::<Size>(text) {
        Ok(Size(0)) => Err("nothing to send; expected sizes above zero".into()),
        Ok(size) => Ok(size),
        Err(error) => Err(error.to_string()),
    }
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
