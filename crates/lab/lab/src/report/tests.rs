use polypath_config::Policies;

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::experiment::{Experiment, Form};
use crate::result::Store;
use crate::run::{Simulator, execute};

const TIMELINE: &str = r#"
name = "timeline"
title = "<b>Two</b> connections"
metrics = ["fairness", "goodput"]
[topology]
kind = "shared"
paths = 1
[[sets]]
name = "one & only"
paths = [{ rate = "4mbit", rtt = "20ms", queue = "100ms" }]
[[flows]]
name = "TCP"
paths = [1]
tcp = "reno"
[[flows]]
name = "MPTCP"
paths = [1, 1]
start = "1s"
[traffic]
kind = "bulk"
duration = "12s"
[[variants]]
name = "LIA"
[[published]]
text = "fair"
source = "X 2000, Fig. 1"
variant = "LIA"
at-most = 100
[[expected]]
text = "not nothing"
reason = "it sends"
variant = "LIA"
metric = "goodput"
at-least = 0.1
"#;

#[test]
fn the_page_needs_nothing_from_outside_and_shows_what_there_is() {
    let experiment = Experiment::parse("timeline.toml", TIMELINE, Form::Full, &Policies::default()).unwrap();
    let out = tempfile::tempdir().unwrap();
    let mut store = Store::open(out.path(), &experiment, "1").unwrap();
    let never = AtomicBool::new(false);
    assert!(execute(&experiment, &Simulator, &mut store, NonZeroUsize::MIN, &never, &mut ()).unwrap());
    let from_log = render(&Results::load(store.dir(), &Policies::default()).unwrap());
    store.complete(&experiment).unwrap();
    let results = Results::load(store.dir(), &Policies::default()).unwrap();
    let page = render(&results);
    assert_eq!(page, from_log);
    assert!(!page.contains("src=") && !page.contains("href=") && !page.contains("@import"));
    assert!(!page.contains("<b>Two") && page.contains("&lt;b&gt;Two"));
    // A figure over time: the connections, and the subflows of the one that has several.
    assert_eq!(results.runs.values().next().unwrap().series.len(), 4);
    assert!(page.contains("LIA, one &amp; only") && page.contains("MPTCP, address 2 on path 1"));
    assert!(page.contains("class=\"good\"") && page.contains("at most 100"));
    assert!(page.contains("the same path <small>nearest to 1 is best"));
    assert!(page.contains("Goodput (Mbit/s) <small>more is better"));
    assert!(page.contains("Published and measured") && page.contains("X 2000, Fig. 1"));
    assert!(page.contains("Expected here") && page.contains("it sends"));
    assert!(page.contains("<dt>Traffic</dt><dd>bulk for 12 s</dd>"));
    assert!(page.contains("<dt>Set</dt><dd>one &amp; only: 4.00 Mbit/s, 20 ms, queue 100 ms</dd>"));
    assert!(page.contains("--full") && page.contains("--only 'one &amp; only/LIA/1'</code>"), "{page}");
}

#[test]
fn numbers_have_the_digits_that_matter() {
    for (value, text) in [
        (0.12345, "0.123"),
        (-12.345, "-12.35"),
        (123.45, "123.5"),
        (12345.6, "12346"),
        (f64::INFINITY, "∞"),
        (f64::NAN, "–"),
    ] {
        assert_eq!(number(value), text);
    }
}
