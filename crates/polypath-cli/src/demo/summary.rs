//! The result as a table and as a report.

use super::words::{faster, list, pause, seconds, sentence};
use super::{Provenance, Shown, charts};
use crate::report::{Mark, Report, Table};

/// The comparison, with the row of the live run last.
#[must_use]
pub(crate) fn table(shown: &Shown<'_>) -> Table {
    let (baselines, outcome) = (shown.baselines, shown.outcome);
    let size_bits = shown.demo.content.len() as f64 * 8.0;
    let against = |bps: f64, than_bps: f64| {
        faster(bps, than_bps).replace(" than", "").replace("as fast as", "the same")
    };
    let row = |name: String, bps: f64, gap_s: Option<f64>, than_bps: Option<f64>| {
        let gap = gap_s.map_or(String::new(), seconds);
        let against = than_bps.map_or(String::new(), |than_bps| against(bps, than_bps));
        vec![name, format!("{:.2}", size_bits / bps.max(1.0)), format!("{:.1}", bps / 1e6), gap, against]
    };
    let best_bps = baselines.best().map_or(0.0, |(_, bps)| bps);
    let both = format!("Multipath TCP over {}", list(&shown.names()));
    let of_kernel = format!("kernel's client, {both}");
    let mut rows = Vec::new();
    let cut = shown.cut();
    if cut.is_some() {
        rows.push(vec!["Nothing is cut".to_string()]);
    }
    for (path, (name, bps)) in shown.names().iter().zip(&baselines.tcp_alone_bps).enumerate() {
        let than = (path != shown.beside.path).then_some(best_bps);
        rows.push(row(format!("TCP over {name}"), *bps, None, than));
    }
    if let Some(kernel) = baselines.kernel {
        rows.push(row(of_kernel.clone(), kernel.mptcp_bps, None, Some(best_bps)));
    }
    if let Some(cut) = cut {
        rows.push(row(both.clone(), baselines.mptcp_bps, None, Some(best_bps)));
        let name = shown.names()[cut.path];
        rows.push(vec![format!("{name} is cut from {} to {}", moment(cut.from), moment(cut.to))]);
        let tcp = &shown.beside.outcome;
        let than_bps = Some(tcp.goodput_bps);
        rows.push(row(format!("TCP over {}", shown.best()), tcp.goodput_bps, Some(tcp.longest_gap_s), None));
        if let Some((bps, kernel)) = baselines.kernel.and_then(|kernel| Some((kernel.with_cut_bps?, kernel)))
        {
            rows.push(row(of_kernel, bps, kernel.with_cut_longest_gap_s, than_bps));
        }
        rows.push(row(both, outcome.goodput_bps, Some(outcome.longest_gap_s), than_bps));
    } else {
        rows.push(row(both, outcome.goodput_bps, Some(outcome.longest_gap_s), Some(best_bps)));
    }
    let how = match baselines.provenance {
        Provenance::Simulator if cut.is_some() => {
            "TCP runs at the same time, over links of its own that are just the same. The rows without a cut are from \
             virtual time."
        }
        Provenance::Simulator => "TCP has links of its own that are just the same.",
        Provenance::Namespaces => {
            "All rows are transfers over the same emulated links from the same server, with the same file, one after the \
             other. TCP is the kernel's."
        }
    };
    Table {
        title: format!("{:.1} MB", shown.demo.content.len() as f64 / 1e6),
        columns: ["", "seconds", "Mbit/s", "longest pause", &format!("against TCP over {}", shown.best())]
            .map(String::from)
            .to_vec(),
        rows,
        note: how.into(),
    }
}

/// The whole result as a report.
#[must_use]
pub(crate) fn report(shown: &Shown<'_>, parameters: Vec<(String, String)>) -> Report {
    let Shown { demo, outcome, baselines, .. } = shown;
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
    let benefit = |bps: f64| format!("{:+.2}", baselines.benefit(bps));
    let mut benefits = benefit(outcome.goodput_bps);
    if shown.cut().is_some() {
        benefits += &format!("; {} without the cut", benefit(baselines.mptcp_bps));
    }
    let benefits =
        format!("{benefits} (1 is the sum of what TCP makes of each path alone, 0 the best of them)");
    all.push(("Aggregation benefit".into(), benefits));
    all.extend(parameters);
    Report {
        title: sentence(shown),
        summary: summary(shown),
        pictures: charts::pictures(shown),
        headlines: headlines(shown, intact),
        tables: vec![table(shown)],
        bars: Vec::new(),
        terms: Vec::new(),
        charts: charts::details(shown),
        marks: marks(shown),
        parameters: all,
    }
}

fn headlines(shown: &Shown<'_>, intact: &str) -> Vec<(String, String)> {
    let (baselines, best) = (shown.baselines, shown.best());
    let compared = |bps: f64, than_bps: f64, what: &str| {
        let words = faster(bps, than_bps);
        match words.strip_suffix(" than") {
            Some(value) => (value.to_string(), format!("than {what}")),
            None => ("as fast".into(), format!("as {what}")),
        }
    };
    let best_bps = baselines.best().map_or(0.0, |(_, bps)| bps);
    let mut all = vec![compared(baselines.mptcp_bps, best_bps, &format!("{best} alone"))];
    if let Some(cut) = shown.cut() {
        all[0].1 += " while nothing is cut";
        let tcp = &shown.beside.outcome;
        let under = if cut.path == shown.beside.path { "under the same cut" } else { "which was not cut" };
        all.push(compared(shown.outcome.goodput_bps, tcp.goodput_bps, &format!("TCP over {best} {under}")));
        let kernel = baselines.kernel.and_then(|kernel| kernel.with_cut_longest_gap_s);
        let kernel = kernel.map_or(String::new(), |gap_s| format!("; the kernel's client {}", pause(gap_s)));
        let what = format!("longest pause; TCP over {best} {}{kernel}", pause(tcp.longest_gap_s));
        all.push((seconds(shown.outcome.longest_gap_s), what));
    }
    all.push((intact.into(), "the file at both ends, by SHA-256".into()));
    all
}

fn moment(at: polypath_units::Duration) -> String {
    seconds(at.as_secs_f64())
}

fn marks(shown: &Shown<'_>) -> Vec<Mark> {
    let end_s = shown.outcome.duration_s.max(shown.beside.outcome.duration_s);
    let mark = |cut: super::Cut| Mark {
        from_s: cut.from.as_secs_f64(),
        to_s: cut.to.as_secs_f64().min(end_s),
        label: format!("{} is down", shown.names()[cut.path]),
    };
    shown.cut().into_iter().map(mark).collect()
}

fn summary(shown: &Shown<'_>) -> String {
    let size = shown.demo.content.len() as f64 / 1e6;
    let mut text = format!(
        "{size:.1} MB in one connection over {}: {}; over TCP on {}: {}.",
        list(&shown.names()),
        seconds(shown.outcome.duration_s),
        shown.best(),
        seconds(shown.beside.outcome.duration_s)
    );
    match (shown.cut(), shown.demo.cut) {
        (Some(cut), _) => {
            text += &format!(
                " {} was cut at {} and came back at {}.",
                shown.names()[cut.path],
                moment(cut.from),
                moment(cut.to)
            );
        }
        (None, Some(cut)) => {
            text += &format!(
                " It was there before {} was to be cut, at {}.",
                shown.names()[cut.path],
                moment(cut.from)
            );
        }
        (None, None) => {}
    }
    text
}
