//! Runs as a Parquet table: one row a run, with its set beside what it gave, so that any tool can read it alone.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::Field;
use parquet::schema::types::Type;
use polypath_units::Duration;

use super::error::StoreError;
use crate::experiment::{Experiment, RunKey, Swept};
use crate::run::{
    BlockDelays, DatagramOutcome, Outcome, PathOutcome, PathSpec, PlaybackOutcome, Quantity, Series,
    StreamOutcome,
};

enum Column {
    Whole(Vec<i64>),
    Number(Vec<Option<f64>>),
    Text(Vec<ByteArray>),
}

/// Columns in the order of their first row.
#[derive(Default)]
struct Table {
    names: Vec<String>,
    columns: Vec<Column>,
    // Of the row that is being made.
    place: usize,
}

impl Table {
    fn column(&mut self, name: impl FnOnce() -> String, empty: fn() -> Column) -> &mut Column {
        if self.place == self.columns.len() {
            self.names.push(name());
            self.columns.push(empty());
        }
        self.place += 1;
        &mut self.columns[self.place - 1]
    }

    fn whole(&mut self, name: impl fmt::Display, value: u64) {
        let column = self.column(|| name.to_string(), || Column::Whole(Vec::new()));
        if let Column::Whole(values) = column {
            values.push(i64::try_from(value).unwrap_or(i64::MAX));
        }
    }

    fn number(&mut self, name: impl fmt::Display, value: Option<f64>) {
        let column = self.column(|| name.to_string(), || Column::Number(Vec::new()));
        if let Column::Number(values) = column {
            values.push(value);
        }
    }

    fn text(&mut self, name: impl fmt::Display, value: &str) {
        let column = self.column(|| name.to_string(), || Column::Text(Vec::new()));
        if let Column::Text(values) = column {
            values.push(ByteArray::from(value));
        }
    }
}

fn failed(path: &Path) -> impl Fn(ParquetError) -> StoreError + '_ {
    move |error| {
        let path = path.to_path_buf();
        let system = |error: Box<dyn std::error::Error + Send + Sync>| error.downcast::<std::io::Error>();
        match error {
            // What the system said is no fault of the table.
            ParquetError::External(error) => match system(error) {
                Ok(error) => StoreError::Io { path, error: *error },
                Err(error) => StoreError::Content { path, message: error.to_string() },
            },
            error => StoreError::Content { path, message: error.to_string() },
        }
    }
}

/// Writes the rates over time of all runs, if there are any; true if there are.
pub(super) fn write_series(path: &Path, runs: &BTreeMap<RunKey, Outcome>) -> Result<bool, StoreError> {
    let mut table = Table::default();
    for (key, outcome) in runs {
        for series in &outcome.series {
            for (place, value) in series.values.iter().enumerate() {
                table.place = 0;
                table.whole("set", key.set as u64);
                table.whole("point", key.point as u64);
                table.whole("variant", key.variant as u64);
                table.whole("repeat", key.repeat as u64);
                table.whole("flow", series.flow as u64);
                table.number("path", series.path.map(|path| path as f64));
                let at = series.quantity.interval() * (place as u64 + 1);
                table.number("time_s", Some(at.as_secs_f64()));
                let of = |quantity| Some(*value).filter(|_| series.quantity == quantity);
                table.number("bps", of(Quantity::Rate));
                table.number("window_bytes", of(Quantity::Window));
            }
        }
    }
    if table.columns.is_empty() {
        return Ok(false);
    }
    write_table(path, &table).map_err(failed(path))?;
    Ok(true)
}

/// Reads what [`write_series`] wrote, in its order.
pub(super) fn read_series(path: &Path, runs: &mut BTreeMap<RunKey, Outcome>) -> Result<(), StoreError> {
    each_row(path, |whole, number| {
        let index = |name: &str| whole(name).map(|value| value as usize);
        let Some(outcome) = runs.get_mut(&key(whole)?) else { return Ok(()) };
        let (flow, path) = (index("flow")?, number("path").map(|path| path as usize));
        let (quantity, value) = match number("bps") {
            Some(bps) => (Quantity::Rate, bps),
            None => (Quantity::Window, number("window_bytes").unwrap_or(f64::NAN)),
        };
        let is_next = |last: &Series| (last.flow, last.path, last.quantity) != (flow, path, quantity);
        if outcome.series.last().is_none_or(is_next) {
            outcome.series.push(Series { flow, path, quantity, values: Vec::new() });
        }
        if let Some(series) = outcome.series.last_mut() {
            series.values.push(value);
        }
        Ok(())
    })
}

/// Writes all runs.
pub(super) fn write(
    path: &Path,
    experiment: &Experiment,
    build: &str,
    runs: &BTreeMap<RunKey, Outcome>,
) -> Result<(), StoreError> {
    let mut table = Table::default();
    for (key, outcome) in runs {
        table.place = 0;
        add(&mut table, experiment, build, *key, outcome);
    }
    write_table(path, &table).map_err(failed(path))
}

/// One row. Every row has the same columns in the same order.
fn add(table: &mut Table, experiment: &Experiment, build: &str, key: RunKey, outcome: &Outcome) {
    let set = &experiment.sets[key.set];
    table.whole("set", key.set as u64);
    table.whole("point", key.point as u64);
    table.whole("variant", key.variant as u64);
    table.whole("repeat", key.repeat as u64);
    table.whole("design", set.design as u64);
    table.text("set_name", &set.name);
    table.text("point_name", &experiment.points[key.point].label);
    for Swept { parameter, text, number } in &experiment.points[key.point].swept {
        let name = parameter.replace('-', "_");
        table.text(format_args!("sweep_{name}"), text);
        table.number(format_args!("sweep_{name}_value"), *number);
    }
    table.text("variant_name", &experiment.variants[key.variant].name);
    table.text("experiment", &experiment.name);
    table.text("form", experiment.form.name());
    table.text("build", build);
    table.text("run", &experiment.run_name(key));
    // As text: a whole number of a table has a bit less.
    table.text("seed", &experiment.job_of(key).seed.to_string());
    table.text("traffic", &experiment.traffic_at(key.point).to_string());
    table.number("duration_s", experiment.traffic.duration().map(Duration::as_secs_f64));
    table.whole("received_bytes", outcome.received_bytes);
    table.number("goodput_bps", Some(outcome.goodput_bps));
    table.number("completion_s", outcome.completion_s);
    table.number("fairness", outcome.fairness);
    table.number("adaptation_s", outcome.adaptation_s);
    table.number("receive_buffer_bytes", outcome.receive_buffer_bytes.map(|bytes| bytes as f64));
    table.number("slow_start_s", outcome.slow_start_s);
    let playback = |value: fn(&PlaybackOutcome) -> f64| outcome.playback.as_ref().map(value);
    table.number("playback_bps", playback(|playback| playback.rate_bps));
    table.number("playback_startup_s", playback(|playback| playback.startup_s));
    table.number("playback_buffer_bytes", playback(|playback| playback.buffer_bytes as f64));
    table.number("playback_blocked_bytes", playback(|playback| playback.blocked_bytes as f64));
    let stream = |value: fn(&StreamOutcome) -> f64| outcome.stream.as_ref().map(value);
    table.number("stream_segments", stream(|stream| stream.segments as f64));
    table.number("stream_planned_segments", stream(|stream| stream.planned_segments as f64));
    table.number("stream_top_segments", stream(|stream| stream.top_segments as f64));
    table.number("stream_mean_bps", stream(|stream| stream.mean_bps));
    table.number("stream_changes", stream(|stream| stream.changes as f64));
    table.number("stream_startup_s", outcome.stream.and_then(|stream| stream.startup_s));
    table.number("stream_stalls", stream(|stream| stream.stalls as f64));
    table.number("stream_stalled_s", stream(|stream| stream.stalled_s));
    let datagrams = |value: fn(&DatagramOutcome) -> f64| outcome.datagrams.as_ref().map(value);
    table.number("datagrams_sent", datagrams(|datagrams| datagrams.sent as f64));
    table.number("datagrams_received", datagrams(|datagrams| datagrams.received as f64));
    table.number("datagrams_reordered", datagrams(|datagrams| datagrams.reordered));
    table.number("datagrams_in_place", datagrams(|datagrams| datagrams.in_place));
    table.number("datagrams_displacement", datagrams(|datagrams| datagrams.displacement as f64));
    table.number("datagrams_entropy", datagrams(|datagrams| datagrams.entropy));
    table.number("datagrams_buffer_p50", datagrams(|datagrams| datagrams.buffer_p50 as f64));
    table.number("datagrams_buffer_p95", datagrams(|datagrams| datagrams.buffer_p95 as f64));
    table.number("datagrams_buffer_p99", datagrams(|datagrams| datagrams.buffer_p99 as f64));
    table.number("datagrams_adaptation_s", outcome.datagrams.and_then(|datagrams| datagrams.adaptation_s));
    table.whole("initial_path", outcome.initial_path as u64);
    table.whole("events", outcome.events);
    let blocks = outcome.blocks.unwrap_or_default();
    let delay = |value: f64| outcome.blocks.map(|_| value);
    table.number("blocks_made", delay(blocks.made as f64));
    table.number("blocks_arrived", delay(blocks.arrived as f64));
    table.number("block_delay_min_s", delay(blocks.min_s));
    table.number("block_delay_median_s", delay(blocks.median_s));
    table.number("block_delay_p95_s", delay(blocks.p95_s));
    table.number("block_delay_p99_s", delay(blocks.p99_s));
    table.number("block_delay_max_s", delay(blocks.max_s));
    let most_paths = experiment.sets.iter().map(|set| set.set.paths.len()).max().unwrap_or(0);
    for path in 0..most_paths {
        let number = path + 1;
        let spec = |value: fn(&PathSpec) -> f64| set.set.paths.get(path).map(value);
        table.number(format_args!("path{number}_rate_bps"), spec(|path| path.rate.as_bps() as f64));
        table.number(format_args!("path{number}_rtt_s"), spec(|path| path.rtt.as_secs_f64()));
        table.number(format_args!("path{number}_queue_s"), spec(|path| path.queue.as_secs_f64()));
        table.number(format_args!("path{number}_loss"), spec(|path| path.loss));
        let got = outcome.paths.get(path).copied().unwrap_or_default();
        table.whole(format_args!("path{number}_delivered_bytes"), got.delivered_bytes);
        table.whole(format_args!("path{number}_delivered_packets"), got.delivered_packets);
        table.whole(format_args!("path{number}_queue_drops"), got.queue_drops);
        table.whole(format_args!("path{number}_lost_packets"), got.lost_packets);
        table.number(format_args!("flow{number}_bps"), outcome.flows_bps.get(path).copied());
    }
}

fn write_table(path: &Path, table: &Table) -> Result<(), ParquetError> {
    let fields = table.names.iter().zip(&table.columns).map(|(name, column)| {
        let (physical, logical, repetition) = match column {
            Column::Whole(_) => (PhysicalType::INT64, None, Repetition::REQUIRED),
            Column::Number(_) => (PhysicalType::DOUBLE, None, Repetition::OPTIONAL),
            Column::Text(_) => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String), Repetition::REQUIRED),
        };
        let field = Type::primitive_type_builder(name, physical);
        field.with_logical_type(logical).with_repetition(repetition).build().map(Arc::new)
    });
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    let schema = Arc::new(Type::group_type_builder("runs").with_fields(fields).build()?);
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = SerializedFileWriter::new(File::create(path)?, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for column in &table.columns {
        let Some(mut out) = group.next_column()? else { break };
        match column {
            Column::Whole(values) => {
                out.typed::<Int64Type>().write_batch(values, None, None)?;
            }
            Column::Number(values) => {
                let there: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
                let values: Vec<f64> = values.iter().copied().flatten().collect();
                out.typed::<DoubleType>().write_batch(&values, Some(&there), None)?;
            }
            Column::Text(values) => {
                out.typed::<ByteArrayType>().write_batch(values, None, None)?;
            }
        }
        out.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

/// Reads what [`write`] wrote.
pub(super) fn read(path: &Path) -> Result<BTreeMap<RunKey, Outcome>, StoreError> {
    let mut runs = BTreeMap::new();
    each_row(path, |whole, number| {
        runs.insert(key(whole)?, outcome(whole, number)?);
        Ok(())
    })?;
    Ok(runs)
}

/// Looks up a column of whole numbers in a row, and one of numbers that may be missing.
type Whole<'a> = &'a dyn Fn(&str) -> Result<u64, ParquetError>;
type Number<'a> = &'a dyn Fn(&str) -> Option<f64>;

fn each_row(
    path: &Path,
    mut take: impl FnMut(Whole<'_>, Number<'_>) -> Result<(), ParquetError>,
) -> Result<(), StoreError> {
    let failed =
        |error: ParquetError| StoreError::Damaged { path: path.to_path_buf(), message: error.to_string() };
    let file = File::open(path).map_err(|error| match error.kind() {
        // Only what is complete is read, and then it was there.
        ErrorKind::NotFound => {
            StoreError::Damaged { path: path.to_path_buf(), message: "there is no such file".into() }
        }
        _ => StoreError::Io { path: path.to_path_buf(), error },
    })?;
    let reader = SerializedFileReader::new(file).map_err(failed)?;
    for row in reader.get_row_iter(None).map_err(failed)? {
        let row = row.map_err(failed)?;
        let fields: BTreeMap<&str, &Field> =
            row.get_column_iter().map(|(name, field)| (name.as_str(), field)).collect();
        let whole = |name: &str| match fields.get(name) {
            Some(Field::Long(value)) => Ok(u64::try_from(*value).unwrap_or(0)),
            _ => Err(ParquetError::General(format!("no column \"{name}\" of whole numbers"))),
        };
        let number = |name: &str| match fields.get(name) {
            Some(Field::Double(value)) => Some(*value),
            _ => None,
        };
        take(&whole, &number).map_err(failed)?;
    }
    Ok(())
}

fn key(whole: Whole<'_>) -> Result<RunKey, ParquetError> {
    let index = |name: &str| whole(name).map(|value| value as usize);
    Ok(RunKey {
        set: index("set")?,
        point: index("point")?,
        variant: index("variant")?,
        repeat: index("repeat")?,
    })
}

fn outcome(whole: Whole<'_>, number: Number<'_>) -> Result<Outcome, ParquetError> {
    let delay = |name: &str| number(&format!("block_delay_{name}_s")).unwrap_or(f64::NAN);
    let blocks = number("blocks_made").map(|made| BlockDelays {
        made: made as u64,
        arrived: number("blocks_arrived").unwrap_or(0.0) as u64,
        min_s: delay("min"),
        median_s: delay("median"),
        p95_s: delay("p95"),
        p99_s: delay("p99"),
        max_s: delay("max"),
    });
    let mut paths = Vec::new();
    let mut flows_bps = Vec::new();
    for at in 1.. {
        let of_path = |name: &str| whole(&format!("path{at}_{name}"));
        let Ok(delivered_bytes) = of_path("delivered_bytes") else { break };
        paths.push(PathOutcome {
            delivered_bytes,
            delivered_packets: of_path("delivered_packets")?,
            queue_drops: of_path("queue_drops")?,
            lost_packets: of_path("lost_packets")?,
        });
        flows_bps.extend(number(&format!("flow{at}_bps")));
    }
    Ok(Outcome {
        received_bytes: whole("received_bytes")?,
        goodput_bps: number("goodput_bps").unwrap_or(0.0),
        completion_s: number("completion_s"),
        initial_path: whole("initial_path")? as usize,
        paths,
        flows_bps,
        fairness: number("fairness"),
        adaptation_s: number("adaptation_s"),
        receive_buffer_bytes: number("receive_buffer_bytes").map(|bytes| bytes as u64),
        slow_start_s: number("slow_start_s"),
        playback: number("playback_bps").map(|rate_bps| PlaybackOutcome {
            rate_bps,
            startup_s: number("playback_startup_s").unwrap_or(f64::NAN),
            buffer_bytes: number("playback_buffer_bytes").unwrap_or(0.0) as u64,
            blocked_bytes: number("playback_blocked_bytes").unwrap_or(0.0) as u64,
        }),
        stream: number("stream_segments").map(|segments| StreamOutcome {
            segments: segments as u64,
            planned_segments: number("stream_planned_segments").unwrap_or(0.0) as u64,
            top_segments: number("stream_top_segments").unwrap_or(0.0) as u64,
            mean_bps: number("stream_mean_bps").unwrap_or(f64::NAN),
            changes: number("stream_changes").unwrap_or(0.0) as u64,
            startup_s: number("stream_startup_s"),
            stalls: number("stream_stalls").unwrap_or(0.0) as u64,
            stalled_s: number("stream_stalled_s").unwrap_or(f64::NAN),
        }),
        datagrams: number("datagrams_sent").map(|sent| {
            let whole = |name: &str| number(&format!("datagrams_{name}")).unwrap_or(0.0) as u64;
            let share = |name: &str| number(&format!("datagrams_{name}")).unwrap_or(f64::NAN);
            DatagramOutcome {
                sent: sent as u64,
                received: whole("received"),
                reordered: share("reordered"),
                in_place: share("in_place"),
                displacement: whole("displacement"),
                entropy: share("entropy"),
                buffer_p50: whole("buffer_p50"),
                buffer_p95: whole("buffer_p95"),
                buffer_p99: whole("buffer_p99"),
                adaptation_s: number("datagrams_adaptation_s"),
            }
        }),
        series: Vec::new(),
        blocks,
        events: whole("events")?,
    })
}
