//! The result as a table and as a report.

use super::{Baselines, Demo, Outcome, Provenance, Sample};
use crate::report::{Chart, Mark, Report, Series, Table};

/// The comparison, with the row of the live run last.
#[must_use]
pub(crate) fn table(demo: &Demo, baselines: &Baselines, outcome: &Outcome) -> Table {
    let size_bits = demo.content.len() as f64 * 8.0;
    let row = |name: String, bps: f64, benefit: Option<f64>| {
        let benefit = benefit.map_or(String::new(), |benefit| format!("{benefit:+.2}"));
        vec![name, format!("{:.1}", bps / 1e6), format!("{:.2}", size_bits / bps), benefit]
    };
    let mut rows: Vec<Vec<String>> = demo
        .paths
        .iter()
        .zip(&baselines.tcp_alone_bps)
        .map(|(path, bps)| row(format!("{} alone (TCP)", path.name), *bps, None))
        .collect();
    if let Some((best, bps)) = baselines.best() {
        rows.push(row(format!("TCP on the best path ({})", demo.paths[best].name), bps, Some(0.0)));
    }
    let cut =
        demo.cut.map(|cut| format!(", {} cut from {} to {}", demo.paths[cut.path].name, cut.from, cut.to));
    if let Some(kernel) = baselines.kernel {
        let name = "Multipath TCP, kernel client";
        rows.push(row(name.into(), kernel.mptcp_bps, Some(baselines.benefit(kernel.mptcp_bps))));
        if let (Some(bps), Some(cut)) = (kernel.with_cut_bps, &cut) {
            rows.push(row(format!("{name}{cut}"), bps, Some(baselines.benefit(bps))));
        }
    }
    rows.push(row("Multipath TCP".into(), baselines.mptcp_bps, Some(baselines.benefit(baselines.mptcp_bps))));
    let live = format!("Multipath TCP{}", cut.as_deref().unwrap_or(", this run"));
    rows.push(row(live, outcome.goodput_bps, Some(baselines.benefit(outcome.goodput_bps))));
    let how = match baselines.provenance {
        Provenance::Simulator => {
            "All rows but the last were run in virtual time, with the same file and no cut."
        }
        Provenance::Namespaces => {
            "All rows are transfers over the same emulated links from the same server, with the same file. TCP is the \
             kernel's."
        }
    };
    Table {
        title: "Goodput".into(),
        columns: ["", "Mbit/s", "seconds", "aggregation benefit"].map(String::from).to_vec(),
        rows,
        note: format!("Aggregation benefit: 1 is the sum of the paths alone, 0 the best of them. {how}"),
    }
}

/// The whole result as a report.
#[must_use]
pub(crate) fn report(
    demo: &Demo,
    baselines: &Baselines,
    outcome: &Outcome,
    parameters: Vec<(String, String)>,
) -> Report {
    let names: Vec<&str> = demo.paths.iter().map(|path| path.name.as_str()).collect();
    let intact = if outcome.is_intact() { "identical" } else { "DIFFERENT" };
    let mut all = vec![
        ("File".into(), format!("{} bytes", demo.content.len())),
        ("SHA-256 sent".into(), outcome.sent_sha256.clone()),
        ("SHA-256 received".into(), format!("{} ({intact})", outcome.received_sha256)),
    ];
    for path in &demo.paths {
        let text = format!("{}, round trip {}, queue {}", path.rate, path.rtt, path.queue);
        all.push((format!("Path {}", path.name), text));
    }
    all.extend(parameters);
    Report {
        title: format!("One connection over {}", names.join(" and ")),
        summary: summary(demo, outcome, &names),
        headlines: vec![
            (format!("{:.1} Mbit/s", outcome.goodput_bps / 1e6), "goodput of this run".into()),
            (
                format!("{:+.2}", baselines.benefit(baselines.mptcp_bps)),
                if demo.cut.is_some() {
                    "aggregation benefit without the cut"
                } else {
                    "aggregation benefit"
                }
                .into(),
            ),
            (format!("{:.0} ms", outcome.longest_gap_s * 1e3), gap_of_kernel(baselines)),
            (intact.into(), "SHA-256 at both ends".into()),
        ],
        tables: vec![table(demo, baselines, outcome)],
        charts: charts(&names, &outcome.samples),
        marks: demo
            .cut
            .iter()
            .map(|cut| Mark {
                from_s: cut.from.as_secs_f64(),
                to_s: cut.to.as_secs_f64().min(outcome.duration_s),
                label: format!("{} is down", names[cut.path]),
            })
            .collect(),
        parameters: all,
    }
}

fn gap_of_kernel(baselines: &Baselines) -> String {
    let gap = "longest time without new data";
    match baselines.kernel.and_then(|kernel| kernel.with_cut_longest_gap_s) {
        Some(kernel_s) => format!("{gap} (kernel client: {:.0} ms)", kernel_s * 1e3),
        None => gap.into(),
    }
}

fn summary(demo: &Demo, outcome: &Outcome, names: &[&str]) -> String {
    let size = demo.content.len() as f64 / 1e6;
    let mut text =
        format!("A file of {size:.1} MB in {:.2} s over one Multipath TCP connection", outcome.duration_s);
    if let Some(cut) = demo.cut {
        text += &format!("; {} was cut at {} and came back at {}", names[cut.path], cut.from, cut.to);
    }
    text + "."
}

fn charts(names: &[&str], samples: &[Sample]) -> Vec<Chart> {
    let per_path = |value: &dyn Fn(&Sample, &Sample, usize) -> Option<f64>| -> Vec<Series> {
        let line = |(path, name): (usize, &&str)| Series {
            name: (*name).to_string(),
            colour: path,
            points: smooth(samples)
                .filter_map(|(before, after)| Some((after.at_s, value(before, after, path)?)))
                .collect(),
        };
        names.iter().enumerate().map(line).collect()
    };
    let mbps = |bytes: u64, before: &Sample, after: &Sample| {
        bytes as f64 * 8.0 / 1e6 / (after.at_s - before.at_s).max(1e-9)
    };
    let mut throughput = per_path(&|before, after, path| {
        let bytes = after.paths[path].acked_bytes.saturating_sub(before.paths[path].acked_bytes);
        Some(mbps(bytes, before, after))
    });
    throughput.push(Series {
        name: "data at the application".into(),
        colour: Series::TOTAL,
        points: smooth(samples)
            .map(|(before, after)| {
                (after.at_s, mbps(after.received_bytes - before.received_bytes, before, after))
            })
            .collect(),
    });
    let chart = |title: &str, unit: &str, series| Chart {
        title: title.into(),
        unit: unit.into(),
        stacked: false,
        series,
    };
    vec![
        Chart { stacked: true, ..chart("Throughput", "Mbit/s, mean of 300 ms", throughput) },
        chart(
            "Congestion window",
            "kB",
            per_path(&|_, after, path| {
                let cwnd = after.paths[path].cwnd_bytes;
                (cwnd > 0).then_some(cwnd as f64 / 1e3)
            }),
        ),
        chart(
            "Smoothed round-trip time",
            "ms",
            per_path(&|_, after, path| {
                let srtt = after.paths[path].srtt_ms;
                (srtt > 0.0).then_some(srtt)
            }),
        ),
    ]
}

/// Pairs of samples 300 ms apart: what arrives behind a gap is acknowledged and delivered in bursts that say little.
fn smooth(samples: &[Sample]) -> impl Iterator<Item = (&Sample, &Sample)> {
    samples.iter().enumerate().skip(1).map(|(at, after)| (&samples[at.saturating_sub(3)], after))
}
