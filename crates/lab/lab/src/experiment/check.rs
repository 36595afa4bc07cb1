//! What an experiment file means: names resolved, defaults filled in, contradictions found.

use polypath_config::quantity::Size;
use polypath_config::{FileError, Policies, Source};
use polypath_fetch::schedule::Sizing;
use polypath_fetch::stream::adaptation::{AdaptationPolicy, Adaptations};
use polypath_mptcp::{ConnectionConfig, LiaOnSharedAccess, path_manager, scheduler};
use polypath_tunnel::aggregators::{Aggregation, Aggregations};

use super::file::{
    DesignFile, DesignWord, File, PathFile, PolicyFile, TopologyFile, TopologyWord, TrafficWord, VariantFile,
};
use super::parameters::Parameters;
use super::{
    Experiment, Form, Metric, NamedSet, Topology, Traffic, claims, defaults, jitter, reduced,
    sweep::{self, buffer, initial},
    timeline,
    traffic::traffic,
};
use crate::design;
use polypath_tunnel::split::{Split, Splitters};
use polypath_units::named::UnknownPolicy;

use crate::run::{
    Buffer, Flavour, InitialPath, Line, PathSet, PathSpec, RateChange, UnknownFlavour, Variant, VariantKind,
};

/// More sets than this are a slip of the pen.
const MOST_SETS: usize = 100_000;
/// More runs than this are one.
const MOST_RUNS: usize = 1_000_000;
const MOST_PATHS: usize = 8;

pub(super) fn check(
    source: Source<'_>,
    mut file: File,
    form: Form,
    policies: &Policies,
) -> Result<Experiment, FileError> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    if file.name.is_empty() || !file.name.chars().all(is_name) || file.name.starts_with('.') {
        return Err(source.wrong("name", "is part of a path; expected letters, digits and hyphens"));
    }
    sweep::check(source, &file)?;
    sweep::fill(source, &mut file)?;
    // The whole, whichever form is meant.
    traffic(source, &file.traffic)?;
    counts(source, &file)?;
    reduced::check(source, &file)?;
    // Without a short form there is one form.
    let form = if file.reduced.is_none() { Form::Full } else { form };
    if form == Form::Reduced {
        reduced::apply(&mut file);
    }
    let kind = file.topology.kind;
    let paths = paths(source, &file.topology)?;
    let line = line(source, &file.topology, policies)?;
    let parameters = Parameters::read(source, file.parameters.as_ref(), policies)?;
    let sets = sets(source, &file, paths, &line, &parameters)?;
    changes(source, &file)?;
    let traffic = traffic(source, &file.traffic)?;
    let topology = match kind {
        TopologyWord::Parallel => Topology::Parallel,
        TopologyWord::Ring => Topology::Ring,
        TopologyWord::Shared => timeline::topology(source, &file, &traffic, paths, policies)?,
    };
    if kind != TopologyWord::Shared && !(file.flows.is_empty() && file.events.is_empty()) {
        let key = if file.flows.is_empty() { "events" } else { "flows" };
        return Err(source.wrong(key, "belong to a shared topology; expected topology.kind = \"shared\""));
    }
    if kind == TopologyWord::Shared && file.baseline.is_some() {
        return Err(source
            .wrong("baseline", "a shared topology has its own flows; expected a flow with tcp = \"cubic\""));
    }
    if topology == Topology::Ring && !matches!(traffic, Traffic::Bulk { .. }) {
        return Err(source.wrong("traffic.kind", "a ring carries bulk transfers only; expected \"bulk\""));
    }
    let most_values = file.reduced.and_then(|reduced| reduced.points);
    let sweeps = sweep::read_all(source, &file.sweep, &traffic, paths)?;
    let points = sweep::points(&sweeps, most_values.filter(|_| form == Form::Reduced));
    let (variants, baseline_variants) = variants(source, &file, paths, policies)?;
    let metrics = metrics(source, &file, &traffic, &topology)?;
    if topology != Topology::Parallel && matches!(traffic, Traffic::Download { .. } | Traffic::Stream(_)) {
        let message =
            "downloads and streams go over paths side by side; expected topology.kind = \"parallel\"";
        return Err(source.wrong("traffic.kind", message));
    }
    datagrams(source, &file, &traffic, &topology)?;
    if file.record.is_some() && (topology != Topology::Parallel || !matches!(traffic, Traffic::Bulk { .. })) {
        let message =
            "windows are recorded of bulk transfers over parallel paths; expected traffic.kind = \"bulk\"";
        return Err(source.wrong("record", message));
    }
    let references = references(source, &file, &variants)?;
    let repeats = file.repeats.unwrap_or(defaults::REPEATS);
    bound(source, [sets.len(), points.len(), variants.len(), repeats])?;
    let mut experiment = Experiment {
        name: file.name,
        title: file.title,
        figure: file.figure.unwrap_or_default(),
        document: file.document.unwrap_or_default(),
        description: file.description.unwrap_or_default().trim().to_string(),
        form,
        text: source.text.to_string(),
        topology,
        sets,
        factors: file.factors.map(|factors| factors.words()).unwrap_or_default(),
        parameters: parameters.words(),
        together: parameters.together(),
        points,
        variants,
        baseline_variants,
        references,
        records_windows: file.record.is_some(),
        traffic,
        repeats,
        metrics,
        claims: Vec::new(),
    };
    experiment.claims =
        claims::all(source, (file.published, file.expected), &experiment, &sweeps, &parameters)?;
    Ok(experiment)
}

/// What only datagrams have, and what they do not.
fn datagrams(
    source: Source<'_>,
    file: &File,
    traffic: &Traffic,
    topology: &Topology,
) -> Result<(), FileError> {
    if !matches!(traffic, Traffic::Datagrams(_)) {
        let paths = |(set, given): (usize, &super::file::SetFile)| {
            let path = given.paths.iter().position(|path| path.jitter.is_some())?;
            Some(format!("sets[{set}].paths[{path}].jitter"))
        };
        return match file.sets.iter().enumerate().find_map(paths) {
            None => Ok(()),
            Some(key) => Err(source.wrong(
                key,
                "is of datagrams only; expected topology.impairments = [\"jitter:5ms\"], or traffic.kind = \"datagrams\"",
            )),
        };
    }
    if *topology != Topology::Parallel {
        let message = "datagrams go over paths side by side; expected topology.kind = \"parallel\"";
        return Err(source.wrong("traffic.kind", message));
    }
    if file.baseline.is_some() {
        return Err(
            source.wrong("baseline", "datagrams have none; expected a variant with another aggregator")
        );
    }
    let TopologyFile { discipline, middleboxes, .. } = &file.topology;
    for (key, is_given) in [("discipline", discipline.is_some()), ("middleboxes", !middleboxes.is_empty())] {
        if is_given {
            let message = "is nothing of traffic.kind = \"datagrams\"; expected none";
            return Err(source.wrong(format!("topology.{key}"), message));
        }
    }
    match file.variants.iter().position(|variant| variant.single_path) {
        None => Ok(()),
        Some(index) => Err(source
            .wrong(format!("variants[{index}].single-path"), "datagrams take all paths; expected false")),
    }
}

/// Which paths may become others.
fn changes(source: Source<'_>, file: &File) -> Result<(), FileError> {
    let changed = |(set, given): (usize, &super::file::SetFile)| {
        let path = given.paths.iter().position(|path| path.change.is_some())?;
        Some(format!("sets[{set}].paths[{path}].change"))
    };
    let Some(key) = file.sets.iter().enumerate().find_map(changed) else { return Ok(()) };
    if file.topology.kind != TopologyWord::Parallel {
        let message = "is of paths side by side; expected [[events]], or topology.kind = \"parallel\"";
        return Err(source.wrong(key, message));
    }
    match file.traffic.kind {
        TrafficWord::Bulk | TrafficWord::Transfer | TrafficWord::Blocks | TrafficWord::Requests => Ok(()),
        TrafficWord::Download | TrafficWord::Stream | TrafficWord::Datagrams => {
            Err(source.wrong(key, "is nothing of this traffic; expected bulk, transfer, blocks or requests"))
        }
    }
}

/// How many of each there are.
fn counts(source: Source<'_>, file: &File) -> Result<(), FileError> {
    if let Some(design) = &file.design {
        for (key, count) in [("sets", design.sets), ("levels", design.levels), ("designs", design.designs)] {
            let Some(count) = count.filter(|count| !(1..=MOST_SETS).contains(count)) else { continue };
            return Err(source.wrong(format!("design.{key}"), format!("{count}; expected 1 to {MOST_SETS}")));
        }
        let (other, is_there, own) = match design.kind {
            DesignWord::Wsp | DesignWord::LatinHypercube => ("levels", design.levels.is_some(), "sets"),
            DesignWord::FullFactorial | DesignWord::OrthogonalArray => {
                ("sets", design.sets.is_some(), "levels")
            }
        };
        if is_there {
            let message = format!("is nothing of this kind; expected {own} in its place");
            return Err(source.wrong(format!("design.{other}"), message));
        }
    }
    if file.repeats == Some(0) {
        return Err(source.wrong("repeats", "0 runs; expected 1 or more"));
    }
    Ok(())
}

/// An experiment that never ends is a slip of the pen, too.
fn bound(source: Source<'_>, [sets, points, variants, repeats]: [usize; 4]) -> Result<(), FileError> {
    let runs = [points, variants, repeats].iter().try_fold(sets, |runs, more| runs.checked_mul(*more));
    if runs.is_none_or(|runs| runs > MOST_RUNS) {
        let message = format!(
            "{sets} sets, {points} values of the sweep, {variants} variants with the baseline's, {repeats} repeats: more runs \
             than {MOST_RUNS}; expected fewer"
        );
        let largest = [("variants", variants), ("sweep", points), ("repeats", repeats)];
        let key = largest.iter().max_by_key(|(_, count)| *count).map_or("repeats", |(key, _)| *key);
        return Err(source.wrong(key, message));
    }
    Ok(())
}

/// How many paths a set has.
fn paths(source: Source<'_>, file: &TopologyFile) -> Result<usize, FileError> {
    let is_ring = file.kind == TopologyWord::Ring;
    let paths = file.paths.unwrap_or(if is_ring { 3 } else { defaults::PATHS });
    if is_ring && paths != 3 {
        return Err(source.wrong("topology.paths", "a ring has three bottlenecks; expected 3"));
    }
    if !(1..=MOST_PATHS).contains(&paths) {
        let message = format!("{paths} paths; expected 1 to {MOST_PATHS}");
        return Err(source.wrong("topology.paths", message));
    }
    Ok(paths)
}

/// What all paths have.
fn line(source: Source<'_>, file: &TopologyFile, policies: &Policies) -> Result<Line, FileError> {
    let discipline = file.discipline.as_deref();
    let discipline =
        discipline.map(|name| source.policy("topology.discipline", name, policies)).transpose()?;
    if file.kind == TopologyWord::Ring && !file.middleboxes.is_empty() {
        let message = "acknowledgments of a ring go another way than data; expected no middleboxes";
        return Err(source.wrong("topology.middleboxes", message));
    }
    Ok(Line {
        discipline: discipline.unwrap_or_default(),
        impairments: source.policies("topology.impairments", &file.impairments, policies)?,
        middleboxes: source.policies("topology.middleboxes", &file.middleboxes, policies)?,
        jitters: Vec::new(),
    })
}

fn sets(
    source: Source<'_>,
    file: &File,
    paths: usize,
    line: &Line,
    parameters: &Parameters,
) -> Result<Vec<NamedSet>, FileError> {
    let mut sets = Vec::new();
    match (&file.design, &file.factors) {
        (Some(design), Some(factors)) => {
            let of_paths = factors.ranges_per_path() * paths + factors.common_ranges();
            let ranges = of_paths + parameters.count();
            if !factors.has_one_queue() {
                let message = "how large queues are; expected one of queue, queue-packets and queue-products";
                return Err(source.wrong("factors", message));
            }
            if ranges == 0 {
                return Err(source.wrong("factors", "none is a range; expected { from = …, to = … }"));
            }
            if let Some((key, from, to)) = factors.reversed() {
                let message = format!("from {from} to {to}; expected the smaller value in `from`");
                return Err(source.wrong(key, message));
            }
            let from_zero = [
                ("factors.rtt", factors.rtt.is_log_from(|span| span.0.is_zero())),
                (
                    "factors.queue",
                    factors.queue.is_some_and(|queue| queue.is_log_from(|span| span.0.is_zero())),
                ),
                ("factors.loss", factors.loss.is_some_and(|loss| loss.is_log_from(|loss| loss.0 <= 0.0))),
            ];
            if let Some((key, _)) = from_zero.iter().find(|(_, is_wrong)| *is_wrong) {
                return Err(source.wrong(*key, "a logarithmic range from zero; expected a start above it"));
            }
            let designs = design.designs.unwrap_or(defaults::DESIGNS);
            for number in 0..designs {
                let points = points_of(source, design, ranges, design.seed.wrapping_add(number as u64))?;
                if points.len().saturating_mul(designs) > MOST_SETS {
                    let message = format!(
                        "{designs} designs of {} sets; expected at most {MOST_SETS} sets",
                        points.len()
                    );
                    return Err(source.wrong("design.designs", message));
                }
                for point in points {
                    let (of_paths, of_parameters) = point.split_at(of_paths);
                    let set = PathSet { paths: factors.paths(paths, of_paths), line: line.clone() };
                    let (name, levels) = ((sets.len() + 1).to_string(), parameters.at(number, of_parameters));
                    sets.push(NamedSet { name, design: number, set, levels });
                }
            }
        }
        (Some(_), None) => return Err(source.wrong("design", "has no factors; expected [factors]")),
        (None, Some(_)) => return Err(source.wrong("factors", "have no design; expected [design]")),
        (None, None) if file.parameters.is_some() => {
            return Err(source.wrong("parameters", "have no design; expected [design] and [factors]"));
        }
        (None, None) => {}
    }
    for (index, given) in file.sets.iter().enumerate() {
        if given.paths.len() != paths {
            let message = format!("{} paths; expected {paths}, as in topology.paths", given.paths.len());
            return Err(source.wrong(format!("sets[{index}].paths"), message));
        }
        let path = |path: &PathFile| PathSpec {
            rate: path.rate.0,
            rtt: path.rtt.0,
            queue: path.queue.0,
            loss: path.loss.map_or(0.0, |loss| loss.0),
            change: path.change.map(|change| RateChange { after: change.after.0, rate: change.rate.0 }),
        };
        let line = Line { jitters: jitter::of_set(source, index, given)?, ..line.clone() };
        let set = PathSet { paths: given.paths.iter().map(path).collect(), line };
        sets.push(NamedSet { name: given.name.clone(), design: 0, set, levels: Vec::new() });
    }
    match sets.len() {
        0 => Err(source.wrong("design", "no sets at all; expected [design] with [factors], or [[sets]]")),
        count if count > MOST_SETS => {
            Err(source.wrong("design", format!("{count} sets; expected at most {MOST_SETS}")))
        }
        _ => Ok(sets),
    }
}

fn points_of(
    source: Source<'_>,
    design: &DesignFile,
    ranges: usize,
    seed: u64,
) -> Result<Vec<design::Point>, FileError> {
    let number = |key: &str, value: Option<usize>| match value {
        Some(value) => Ok(value),
        None => Err(source.wrong("design", format!("{:?} needs a number; expected {key} = …", design.kind))),
    };
    match design.kind {
        DesignWord::Wsp => Ok(design::wsp(number("sets", design.sets)?, ranges, seed)),
        DesignWord::LatinHypercube => Ok(design::latin_hypercube(number("sets", design.sets)?, ranges, seed)),
        DesignWord::FullFactorial => {
            let levels = number("levels", design.levels)?;
            let count = u32::try_from(ranges).ok().and_then(|ranges| levels.checked_pow(ranges));
            if count.is_none_or(|count| count > MOST_SETS) {
                let message =
                    format!("{levels} levels of {ranges} factors; expected at most {MOST_SETS} combinations");
                return Err(source.wrong("design.levels", message));
            }
            Ok(design::full_factorial(levels, ranges))
        }
        DesignWord::OrthogonalArray => {
            let levels = number("levels", design.levels)?;
            design::orthogonal_array(levels, ranges, seed)
                .map_err(|error| source.wrong("design.levels", format!("{error}; expected another number")))
        }
    }
}

fn variants(
    source: Source<'_>,
    file: &File,
    paths: usize,
    policies: &Policies,
) -> Result<(Vec<Variant>, usize), FileError> {
    let mut variants: Vec<Variant> = Vec::new();
    if file.variants.is_empty() {
        return Err(source.wrong("variants", "nothing to run; expected one or more [[variants]]"));
    }
    for (index, given) in file.variants.iter().enumerate() {
        let key = format!("variants[{index}]");
        if variants.iter().any(|variant| variant.name == given.name) {
            return Err(source.wrong(
                format!("{key}.name"),
                format!("\"{}\" is there twice; expected different names", given.name),
            ));
        }
        let policy = given.policy(&file.defaults);
        // It carries the packets of what is no stream of datagrams.
        let is_carried = policy.aggregator.is_some() && file.traffic.kind != TrafficWord::Datagrams;
        let kind = kind(source, &key, given, is_carried)?;
        let mut variant = variant((source, policies), &key, &given.name, kind, &policy, paths)?;
        variant.carrier = is_carried.then(|| variant.aggregation.clone());
        if let Some(name) = &given.split {
            variant.splitter = name.parse().map_err(|error: UnknownPolicy<Splitters>| {
                source.wrong(format!("{key}.split"), error.to_string())
            })?;
        }
        variants.push(variant);
    }
    let mut baseline_variants = 0;
    if let Some(baseline) = &file.baseline {
        let congestion = source.policy("baseline.congestion", &baseline.congestion, policies)?;
        baseline_variants = paths;
        for path in 0..paths {
            let name = format!("TCP on path {}", path + 1);
            if let Some(index) = variants.iter().position(|variant| variant.name == name) {
                let message = format!("\"{name}\" is what the baseline is called; expected another name");
                return Err(source.wrong(format!("variants[{index}].name"), message));
            }
            let mut variant = Variant { name, ..Variant::single_path(path, congestion.clone()) };
            if let Some(name) = &baseline.aggregator {
                variant.carrier = Some(name.parse().map_err(|error: UnknownPolicy<Aggregations>| {
                    source.wrong("baseline.aggregator", error.to_string())
                })?);
            }
            variant.autotuning = file.defaults.autotuning.unwrap_or(variant.autotuning);
            variant.send_buffer_bytes = file.defaults.send_buffer.map(|size| size.0);
            let mtu_bytes = file.defaults.mtu.map(mtu).transpose();
            variant.mtu_bytes = mtu_bytes.map_err(|error| source.wrong("defaults.mtu", error))?;
            variants.push(variant);
        }
    }
    Ok((variants, baseline_variants))
}

/// Over which paths it sends.
fn kind(
    source: Source<'_>,
    key: &str,
    given: &VariantFile,
    is_carried: bool,
) -> Result<VariantKind, FileError> {
    match (given.single_path, &given.split) {
        (_, Some(_)) if is_carried => {
            let message = "an aggregator gives packets to paths itself; expected one of split and aggregator";
            Err(source.wrong(format!("{key}.split"), message))
        }
        (false, None) if is_carried => Ok(VariantKind::SplitPackets),
        (true, Some(_)) => {
            let message =
                "packets are split over several paths, and single-path has one; expected one of both";
            Err(source.wrong(format!("{key}.split"), message))
        }
        (true, None) => Ok(VariantKind::SinglePath),
        (false, Some(_)) => Ok(VariantKind::SplitPackets),
        (false, None) => Ok(VariantKind::Multipath),
    }
}

fn variant(
    (source, policies): (Source<'_>, &Policies),
    key: &str,
    name: &str,
    kind: VariantKind,
    policy: &PolicyFile,
    paths: usize,
) -> Result<Variant, FileError> {
    let congestion = match (&policy.congestion, kind) {
        (Some(name), _) => source.policy(format!("{key}.congestion"), name, policies)?,
        (None, VariantKind::Multipath) => ConnectionConfig::default().congestion,
        (None, VariantKind::SinglePath | VariantKind::SplitPackets) => polypath_congestion::CUBIC,
    };
    let scheduler = match &policy.scheduler {
        None => scheduler::Policy::default(),
        Some(name) => source.policy(format!("{key}.scheduler"), name, policies)?,
    };
    let path_manager = match &policy.path_manager {
        None => path_manager::Policy::default(),
        Some(name) => source.policy(format!("{key}.path-manager"), name, policies)?,
    };
    let wrong = |which: &str, message: String| source.wrong(format!("{key}.{which}"), message);
    let buffer = policy.buffer.as_deref().map(buffer).transpose().map_err(|error| wrong("buffer", error))?;
    let initial = policy.initial_path.as_deref().map(|text| initial(text, paths)).transpose();
    let initial = initial.map_err(|error| wrong("initial-path", error))?;
    let mtu_bytes = policy.mtu.map(mtu).transpose().map_err(|error| wrong("mtu", error.into()))?;
    Ok(Variant {
        name: name.to_string(),
        kind,
        congestion,
        lia_on_shared_access: match policy.congestion {
            None => LiaOnSharedAccess::default(),
            Some(_) => LiaOnSharedAccess::Never,
        },
        scheduler,
        path_manager,
        buffer: buffer.unwrap_or(Buffer::Recommended),
        send_buffer_bytes: policy.send_buffer.map(|size| size.0),
        initial: initial.unwrap_or(InitialPath::Number(0)),
        race: policy.race.unwrap_or(ConnectionConfig::default().race),
        acquainted: false,
        autotuning: policy.autotuning.unwrap_or(ConnectionConfig::default().receive_autotuning),
        sizing: sizing(policy).map_err(|(which, message)| wrong(which, message.into()))?,
        adaptation: match &policy.adaptation {
            None => AdaptationPolicy::default(),
            Some(name) => name
                .parse()
                .map_err(|error: UnknownPolicy<Adaptations>| wrong("adaptation", error.to_string()))?,
        },
        aggregation: match &policy.aggregator {
            None => Aggregation::default(),
            Some(name) => name
                .parse()
                .map_err(|error: UnknownPolicy<Aggregations>| wrong("aggregator", error.to_string()))?,
        },
        flavour: match &policy.flavour {
            None => Flavour::default(),
            Some(name) => {
                name.parse().map_err(|error: UnknownFlavour| wrong("flavour", error.to_string()))?
            }
        },
        splitter: Split::default(),
        carrier: None,
        mtu_bytes,
    })
}

/// Every host takes 576 bytes, and a path of the laboratory has packets of an Ethernet at most.
fn mtu(size: Size) -> Result<u16, &'static str> {
    let bytes = u16::try_from(size.0).ok().filter(|bytes| (576..=1500).contains(bytes));
    bytes.ok_or("is no length of packets here; expected 576B to 1500B, headers included")
}

/// How large the requests of a download are.
fn sizing(policy: &PolicyFile) -> Result<Sizing, (&'static str, &'static str)> {
    if policy.proportional == Some(true) {
        return match (policy.in_flight, policy.segment) {
            (Some(pipelined @ 1..), Some(Size(mean_bytes @ 1..))) => {
                Ok(Sizing::Proportional { mean_bytes, pipelined })
            }
            _ => Err((
                "proportional",
                "of which size; expected segment = \"100KB\" and in-flight = 2 beside it",
            )),
        };
    }
    match (policy.in_flight, policy.segment, policy.in_order.unwrap_or(false)) {
        (None, _, false) => Ok(Sizing::for_files()),
        (None, _, true) => Ok(Sizing::in_order()),
        (Some(0), ..) => Err(("in-flight", "0 requests; expected 1 or more")),
        (Some(_), _, true) => {
            Err(("in-order", "is nothing of requests of a fixed size; expected one of both"))
        }
        (Some(_), None, _) => Err(("in-flight", "of which size; expected segment = \"100KB\" beside it")),
        (Some(pipelined), Some(Size(segment_bytes)), false) if segment_bytes > 0 => {
            Ok(Sizing::Fixed { segment_bytes, pipelined })
        }
        (Some(_), Some(_), false) => Err(("segment", "0 bytes; expected a size above zero")),
    }
}

/// The number of the variant that each one is compared with; the baseline's with none.
fn references(
    source: Source<'_>,
    file: &File,
    variants: &[Variant],
) -> Result<Vec<Option<usize>>, FileError> {
    let mut references = vec![None; variants.len()];
    for (index, given) in file.variants.iter().enumerate() {
        let Some(name) = &given.reference else { continue };
        let others = || variants.iter().enumerate().filter(|(other, _)| *other != index);
        let place = others().find(|(_, variant)| variant.name == *name).map(|(place, _)| place);
        references[index] = Some(place.ok_or_else(|| {
            let names = others().map(|(_, variant)| variant.name.as_str());
            source.unknown(format!("variants[{index}].reference"), "variant", name, names)
        })?);
    }
    Ok(references)
}

/// Paths change, and something follows.
fn adaptation(
    source: Source<'_>,
    key: String,
    traffic: &Traffic,
    topology: &Topology,
) -> Result<(), FileError> {
    match (traffic, topology) {
        (Traffic::Datagrams(traffic), _) if traffic.redrawn.is_some() => Ok(()),
        (Traffic::Datagrams(_), _) => {
            Err(source.wrong(key, "paths stay as they are; expected traffic.redrawn = \"30s\""))
        }
        (_, Topology::Shared(timeline)) if timeline.flows.len() > 1 => {
            Err(source.wrong(key, "others share the paths; expected a single one of [[flows]]"))
        }
        (_, Topology::Shared(timeline)) if timeline.capacity_changes().next().is_some() => Ok(()),
        _ => {
            let message =
                "paths stay as they are; expected [[events]] with rates of a shared topology, or datagrams";
            Err(source.wrong(key, message))
        }
    }
}

fn metrics(
    source: Source<'_>,
    file: &File,
    traffic: &Traffic,
    topology: &Topology,
) -> Result<Vec<Metric>, FileError> {
    let names = Metric::ALL.iter().map(|metric| metric.name);
    let mut metrics = Vec::new();
    for (index, name) in file.metrics.iter().enumerate() {
        let key = format!("metrics[{index}]");
        let Some(metric) = Metric::by_name(name) else {
            return Err(source.unknown(key, "metric", name, names));
        };
        if let Some(first) = file.metrics[..index].iter().position(|other| other == name) {
            return Err(source.wrong(key, format!("\"{name}\" is metrics[{first}], too; expected each once")));
        }
        if metric.needs_end() && matches!(traffic, Traffic::Bulk { .. }) {
            let message = format!(
                "\"{name}\" is about the last byte, which bulk has none of; expected traffic.kind = \"transfer\""
            );
            return Err(source.wrong(key, message));
        }
        if metric.needs_baseline() && file.baseline.is_none() {
            return Err(source.wrong(key, format!("\"{name}\" compares with plain TCP; expected [baseline]")));
        }
        if metric.needs_blocks() && !matches!(traffic, Traffic::Blocks { .. }) {
            return Err(
                source.wrong(key, format!("\"{name}\" looks at blocks; expected traffic.kind = \"blocks\""))
            );
        }
        if metric.needs_playback() && !matches!(traffic, Traffic::Download { .. }) {
            return Err(source.wrong(
                key,
                format!("\"{name}\" looks at a download; expected traffic.kind = \"download\""),
            ));
        }
        if metric.needs_stream() && !matches!(traffic, Traffic::Stream(_)) {
            return Err(source
                .wrong(key, format!("\"{name}\" looks at a stream; expected traffic.kind = \"stream\"")));
        }
        if metric.needs_datagrams() && !matches!(traffic, Traffic::Datagrams(_)) {
            return Err(source.wrong(
                key,
                format!("\"{name}\" looks at datagrams; expected traffic.kind = \"datagrams\""),
            ));
        }
        if name == "adaptation-time" {
            adaptation(source, key.clone(), traffic, topology)?;
        }
        if name == "smooth" && !matches!(traffic, Traffic::Download { player: Some(_), .. }) {
            return Err(source.wrong(
                key,
                "somebody plays it; expected traffic.playback = \"6.4mbit\" and traffic.startup = \"3s\"",
            ));
        }
        if metric.needs_observation()
            && (*topology != Topology::Parallel || !matches!(traffic, Traffic::Bulk { .. }))
        {
            let message = format!(
                "\"{name}\" looks at bulk transfers over parallel paths; expected traffic.kind = \"bulk\""
            );
            return Err(source.wrong(key, message));
        }
        if name == "slow-start-lag" && file.variants.iter().all(|variant| variant.reference.is_none()) {
            return Err(
                source.wrong(key, "compares variants; expected one with reference = the name of another")
            );
        }
        if name == "fairness" && !matches!(topology, Topology::Shared(_)) {
            return Err(
                source.wrong(key, "several connections share a path; expected topology.kind = \"shared\"")
            );
        }
        if name == "load-balancing" && *topology != Topology::Ring {
            return Err(
                source.wrong(key, "several connections share links; expected topology.kind = \"ring\"")
            );
        }
        metrics.push(metric);
    }
    if metrics.is_empty() {
        return Err(source.unknown("metrics", "metric", "", names));
    }
    Ok(metrics)
}
