use super::*;

/// Two paths, one of which is cut; 2 MB each way.
const GOOD: &str = r#"
duration = "30s"
seed = 7

[[hosts]]
name = "phone"

[[hosts]]
name = "server"

[[links]]
name = "wifi"
between = ["phone", "server"]
rate = "40mbit"
delay = "10ms"
limit = "80ms"
reverse = { rate = "20mbit" }

[[links.change]]
at = "200ms"
down = true

[[links.change]]
at = "1s"
down = false

[[links]]
name = "lte"
between = ["phone", "server"]
rate = "20mbit"
delay = "30ms"
limit = "100p"

[[connections]]
from = "phone"
to = "server"
direction = "both"
bytes = "2MB"
"#;

fn parse(text: &str) -> Result<Scenario, FileError> {
    Scenario::parse("wifi.toml", text, &Policies::default())
}

/// The error line of the good scenario with `from` replaced by `to`.
#[track_caller]
fn mistake(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from:?} is not in the scenario");
    let error = parse(&GOOD.replacen(from, to, 1)).expect_err("the mistake should be found");
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn a_file_that_does_not_end_is_refused() {
    let error = read_text(Path::new("/dev/zero"), "a scenario").expect_err("it has no end");
    assert_eq!(error.to_string(), "/dev/zero: more than 64 MiB; expected a scenario in TOML");
}

#[test]
fn each_mistake_is_one_line_with_file_line_key_and_expectation() {
    let cases = [
        // Unknown keys, at the top, in a table, in an array of tables, in an inline table.
        ("seed = 7", "sed = 7", "wifi.toml:3: sed: unknown field `sed`, expected one of `name`, `duration`"),
        ("limit = \"80ms\"", "queue = \"80ms\"", "wifi.toml:16: links[0].queue: unknown field `queue`"),
        ("down = true", "dawn = true", "wifi.toml:21: links[0].change[0].dawn: unknown field `dawn`"),
        (
            "{ rate = \"20mbit\" }",
            "{ rat = \"20mbit\" }",
            "wifi.toml:17: links[0].reverse.rat: unknown field `rat`",
        ),
        // Values.
        (
            "\"40mbit\"",
            "\"-40mbit\"",
            "wifi.toml:14: links[0].rate: \"-40mbit\" is negative; expected a rate such as",
        ),
        (
            "\"20mbit\"\ndelay",
            "\"20ms\"\ndelay",
            "wifi.toml:30: links[1].rate: \"20ms\" has the unknown unit \"ms\"",
        ),
        (
            "\"40mbit\"",
            "40",
            "wifi.toml:14: links[0].rate: invalid type: integer `40`, expected a rate such as",
        ),
        (
            "\"100p\"",
            "\"100\"",
            "wifi.toml:32: links[1].limit: \"100\" has no unit; expected a queue limit such as",
        ),
        (
            "\"2MB\"",
            "\"much\"",
            "wifi.toml:38: connections[0].bytes: \"much\" has no number; expected a size",
        ),
        ("\"30s\"", "\"0s\"", "wifi.toml:2: duration: is zero; expected a time such as"),
        (
            "\"both\"",
            "\"up\"",
            "wifi.toml:37: connections[0].direction: unknown variant `up`, expected one of `upload`",
        ),
        ("limit = \"100p\"", "mtu = 0", "wifi.toml:32: links[1].mtu: is 0; expected 68 bytes or more"),
        (
            "{ rate = \"20mbit\" }",
            "{ mtu = 67 }",
            "wifi.toml:17: links[0].reverse.mtu: is 67; expected 68 bytes or more",
        ),
        // Missing keys.
        ("duration = \"30s\"", "", "wifi.toml:1: missing field `duration`"),
        // References.
        (
            "from = \"phone\"",
            "from = \"fone\"",
            "wifi.toml:35: connections[0].from: unknown host \"fone\"; expected one of",
        ),
        (
            "[\"phone\", \"server\"]\nrate = \"20",
            "[\"phone\", \"r1\"]\nrate = \"20",
            "wifi.toml:29: links[1].between[1]: unknown node \"r1\"",
        ),
        ("name = \"lte\"", "name = \"wifi\"", "wifi.toml:28: links[1].name: \"wifi\" is taken by links[0]"),
        ("name = \"server\"", "name = \"phone\"", "wifi.toml:9: hosts[1].name: \"phone\" is taken"),
        ("bytes = \"2MB\"", "version = 2", "wifi.toml:38: connections[0].version: is 2; expected 0 or 1"),
        (
            "bytes = \"2MB\"",
            "scheduler = \"best\"",
            "wifi.toml:38: connections[0].scheduler: no scheduler \"best\"; expected one of default, lowest-rtt",
        ),
        (
            "bytes = \"2MB\"",
            "congestion = \"best\"",
            "wifi.toml:38: connections[0].congestion: no congestion control \"best\"",
        ),
        (
            "bytes = \"2MB\"",
            "block = \"8KB\"",
            "wifi.toml:38: connections[0].block: comes without `block-rate`",
        ),
        (
            "bytes = \"2MB\"",
            "start = \"31s\"",
            "wifi.toml:38: connections[0].start: is not before the end of the run",
        ),
        (
            "limit = \"100p\"",
            "middleboxes = [\"nut\"]",
            "wifi.toml:32: links[1].middleboxes[0]: no middlebox \"nut\"",
        ),
    ];
    let wrong: Vec<String> = cases
        .iter()
        .map(|(from, to, expected)| (mistake(from, to), expected))
        .filter(|(line, expected)| !line.starts_with(**expected))
        .map(|(line, expected)| format!("     got {line}\nexpected {expected}\n"))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.concat());
}

#[test]
fn hosts_without_a_way_between_them_are_named() {
    let text = GOOD
        .replace("[[links]]\nname = \"wifi\"", "[[hosts]]\nname = \"island\"\n\n[[links]]\nname = \"wifi\"");
    let text = text.replace("to = \"server\"\ndirection", "to = \"island\"\ndirection");
    let error = parse(&text).unwrap_err();
    assert_eq!(error.kind, FileErrorKind::NoRoute);
    assert_eq!(
        error.to_string(),
        "wifi.toml:39: connections[0].to: no route from \"phone\" to \"island\" and back; \
         expected links that join them"
    );
}

#[test]
fn files_that_are_not_there_or_are_no_toml_are_named() {
    let error = Scenario::load("does/not/exist.toml", &Policies::default()).unwrap_err();
    assert_eq!(error.kind, FileErrorKind::Unreadable);
    assert_eq!(error.to_string(), "does/not/exist.toml: no such file; expected a scenario in TOML");
    let error = parse("duration = \"30s\"\n[[hosts]\n").unwrap_err();
    assert_eq!(error.kind, FileErrorKind::Syntax);
    assert!(error.to_string().starts_with("wifi.toml:2: "), "{error}");
}

#[test]
fn a_run_delivers_everything_over_both_paths_and_repeats_itself() {
    struct Last(u64);
    impl Progress for Last {
        fn at(&mut self, now: Instant, end: Instant, received_bytes: u64) {
            assert!(now <= end && received_bytes >= self.0);
            self.0 = received_bytes;
        }
    }
    let scenario = parse(GOOD).unwrap();
    let mut last = Last(0);
    let result = scenario.run(&mut last).unwrap();
    assert_eq!(last.0, 4_000_000);
    let connection = &result.connections[0];
    for stream in [connection.upload.as_ref().unwrap(), connection.download.as_ref().unwrap()] {
        assert!(stream.intact);
        assert_eq!(stream.bytes, 2_000_000);
        assert!(stream.completed_at_s.unwrap() < 10.0);
        let links: Vec<_> = stream.subflows.iter().filter_map(|subflow| subflow.link.as_deref()).collect();
        assert!(links.contains(&"wifi") && links.contains(&"lte"), "{links:?}");
        assert_eq!(stream.series.time_s.len(), stream.series.goodput_bps.len());
    }
    assert_eq!(connection.closed.as_deref(), Some("finished"));
    assert_eq!(result.links[0].backward.rate_bps, Some(20_000_000));
    let json = serde_json::to_string(&result).unwrap();
    assert_eq!(json, serde_json::to_string(&scenario.run(&mut ()).unwrap()).unwrap());
    let other = parse(GOOD).unwrap().with_seed(8).run(&mut ()).unwrap();
    assert_ne!(result.trace_hash, other.trace_hash);
}

/// The bytes below a series of rates.
fn area_bytes(time_s: &[f64], rates_bps: &[f64]) -> f64 {
    let mut since_s = 0.0;
    let areas = time_s.iter().zip(rates_bps).map(|(at_s, bps)| {
        let span_s = at_s - since_s;
        since_s = *at_s;
        bps / 8.0 * span_s
    });
    areas.sum()
}

#[test]
fn series_and_subflows_have_all_of_a_transfer_however_short() {
    for (bytes, interval) in [(100_000, "100ms"), (100_000, "1s"), (2_000_000, "1s"), (2_000_000, "300ms")] {
        for connection in ["", "mptcp = false\n"] {
            let text = GOOD.replace("seed = 7", &format!("seed = 7\nsample-interval = \"{interval}\""));
            let text = text.replace("bytes = \"2MB\"", &format!("bytes = \"{bytes}B\"\n{connection}"));
            let result = parse(&text).unwrap().run(&mut ()).unwrap();
            let connection = &result.connections[0];
            for stream in [connection.upload.as_ref().unwrap(), connection.download.as_ref().unwrap()] {
                let what = format!("{bytes} bytes, {interval}: {stream:?}");
                assert_eq!(stream.bytes, bytes, "{what}");
                assert_eq!(stream.last_arrived_at_s, stream.completed_at_s, "{what}");
                let total = area_bytes(&stream.series.time_s, &stream.series.goodput_bps);
                assert!((total - bytes as f64).abs() < 10.0, "{total} of {what}");
                // All but what the last acknowledgment says, with which a subflow is gone.
                let acked: u64 = stream.subflows.iter().map(|subflow| subflow.acked_bytes).sum();
                assert!(acked + 2 * 1460 >= bytes, "{acked} of {what}");
                for subflow in &stream.subflows {
                    let (times_s, rates_bps) = (&subflow.series.time_s, &subflow.series.throughput_bps);
                    let step_s = times_s[0].min(times_s.get(1).map_or(times_s[0], |next| next - times_s[0]));
                    let total: f64 = rates_bps.iter().map(|bps| bps / 8.0 * step_s).sum();
                    assert!((total - subflow.acked_bytes as f64).abs() < 100.0, "{total} of {what}");
                }
                assert!(stream.subflows[0].series.throughput_bps[0] > 0.0, "{what}");
            }
        }
    }
}

/// Each write is the end of what was written: to copy all of them over the other path would double the traffic.
#[test]
fn a_paced_stream_leaves_little_more_than_once() {
    const BYTES: u64 = 10_000_000;
    let access = [("8mbit", "10ms", "80ms"), ("2mbit", "75ms", "2s")];
    let equal = [("10mbit", "10ms", "80ms"); 2];
    let alike = [("20mbit", "10ms", "80ms"), ("20mbit", "15ms", "80ms")];
    for paths in [access, equal, alike] {
        let link = |(name, (rate, delay, limit))| {
            format!(
                "[[links]]\nname = \"{name}\"\nbetween = [\"phone\", \"server\"]\nrate = \"{rate}\"\ndelay = \"{delay}\"\n\
                 limit = \"{limit}\"\n"
            )
        };
        let links: String = ["one", "two"].into_iter().zip(paths).map(link).collect();
        let text = format!(
            "duration = \"30s\"\nseed = 1\n[[hosts]]\nname = \"phone\"\n[[hosts]]\nname = \"server\"\n{links}\
             [[connections]]\nfrom = \"phone\"\nto = \"server\"\ndirection = \"upload\"\nbytes = \"10MB\"\n\
             congestion = \"cubic\"\nblock = \"8KB\"\nblock-rate = \"4mbit\"\n"
        );
        let result = parse(&text).unwrap().run(&mut ()).unwrap();
        let upload = result.connections[0].upload.as_ref().unwrap();
        assert_eq!(upload.bytes, BYTES);
        let sent: u64 = upload.subflows.iter().map(|subflow| subflow.sent_bytes).sum();
        // A 32nd, and 256 KB before that is earned.
        assert!(sent < BYTES + BYTES / 32 + (256 << 10) + 8000, "{sent} over {paths:?}");
    }
}

/// Both paths at work; the second is out from 3 s to 13 s.
fn with_an_outage(host: &str, connection: &str) -> Scenario {
    let text = format!(
        r#"
duration = "16s"
seed = 3
sample-interval = "100ms"

[[hosts]]
name = "phone"
{host}

[[hosts]]
name = "server"

[[links]]
name = "wifi"
between = ["phone", "server"]
addresses = ["10.1.0.1", "10.1.0.2"]
rate = "20mbit"
delay = "10ms"
limit = "60ms"

[[links]]
name = "lte"
between = ["phone", "server"]
addresses = ["10.2.0.1", "10.2.0.2"]
rate = "10mbit"
delay = "25ms"
limit = "100ms"

[[links.change]]
at = "3s"
down = true

[[links.change]]
at = "13s"
down = false

[[connections]]
from = "phone"
to = "server"
{connection}
"#
    );
    parse(&text).unwrap()
}

/// As in the scenario of `with_an_outage`.
const SAMPLE_INTERVAL_S: f64 = 0.1;

#[test]
fn a_path_that_comes_back_fills_within_little_more_than_a_second() {
    for direction in ["upload", "download"] {
        let scenario = with_an_outage("", &format!("direction = \"{direction}\"\ncongestion = \"cubic\""));
        let result = scenario.run(&mut ()).unwrap();
        let connection = &result.connections[0];
        let stream = connection.upload.as_ref().or(connection.download.as_ref()).unwrap();
        assert!(stream.intact);
        // How the subflows of a link share it is their luck.
        let lte: Vec<_> =
            stream.subflows.iter().filter(|subflow| subflow.link.as_deref() == Some("lte")).collect();
        let mean = |from_s: f64, to_s: f64| {
            let points = lte
                .iter()
                .flat_map(|subflow| subflow.series.time_s.iter().zip(&subflow.series.throughput_bps));
            let inside = points.filter(|(at, _)| **at > from_s && **at <= to_s);
            inside.map(|(_, bps)| bps * SAMPLE_INTERVAL_S).sum::<f64>() / (to_s - from_s)
        };
        let before = mean(2.0, 3.0);
        assert!(before > 5e6, "{direction}: {before} before");
        assert_eq!(mean(3.3, 13.0), 0.0);
        assert!(mean(13.0, 14.2) > 0.0, "{direction}");
        let after = mean(14.2, 16.0);
        assert!(after > 5e6, "{direction}: {after} after");
    }
}

#[test]
fn handovers_and_budgets_are_chosen_in_the_file() {
    let endpoint =
        |path: u8, rest: &str| format!("{{ address = \"10.{path}.0.1\", flags = [\"subflow\"], {rest} }}");
    let host = format!(
        "endpoints = [{}, {}]",
        endpoint(1, "priority = 1, budget = \"3MB\", hard = true"),
        endpoint(2, "priority = 2")
    );
    let result =
        with_an_outage(&host, "bytes = \"6MB\"\npath-manager = \"make-before-break\"").run(&mut ()).unwrap();
    let stream = result.connections[0].upload.as_ref().unwrap();
    let sent = |link: &str| -> u64 {
        let of_link = stream.subflows.iter().filter(|subflow| subflow.link.as_deref() == Some(link));
        of_link.map(|subflow| subflow.sent_bytes).sum()
    };
    // Until the budget is spent one path carries everything, and then the other.
    assert!((2_700_000..3_000_000).contains(&sent("wifi")), "{}", sent("wifi"));
    assert!(sent("lte") >= 3_000_000, "{}", sent("lte"));
    assert!(stream.intact && stream.completed_at_s.is_some());
}

#[test]
fn path_managers_that_are_none_are_told_from_those_that_are() {
    let line = mistake("bytes = \"2MB\"", "path-manager = \"ndiffports:0\"");
    assert!(
        line.starts_with(
            "wifi.toml:38: connections[0].path-manager: the path manager of \"ndiffports:0\" has a wrong"
        ),
        "{line}"
    );
    let endpoints = "endpoints = [{ address = \"10.1.0.1\", flags = [], hard = true }]";
    let error =
        parse(&GOOD.replacen("name = \"phone\"", &format!("name = \"phone\"\n{endpoints}"), 1).replacen(
            "name = \"wifi\"",
            "name = \"wifi\"\naddresses = [\"10.1.0.1\", \"10.1.0.2\"]",
            1,
        ));
    let line = error.unwrap_err().to_string();
    assert!(line.contains("hosts[0].endpoints[0].hard: comes without `budget`"), "{line}");
}

#[test]
fn subflows_are_told_by_the_links_where_they_part() {
    let links = [("wifi", "phone", "router"), ("lte", "phone", "router"), ("core", "router", "server")].map(
        |(name, from, to)| {
            format!(
                "[[links]]\nname = \"{name}\"\nbetween = [\"{from}\", \"{to}\"]\nrate = \"10mbit\"\ndelay = \"5ms\"\n"
            )
        },
    );
    let text = format!(
        "duration = \"5s\"\nseed = 1\n[[hosts]]\nname = \"phone\"\n[[hosts]]\nname = \"server\"\n[[routers]]\n\
         name = \"router\"\n{}[[connections]]\nfrom = \"phone\"\nto = \"server\"\nbytes = \"1MB\"\ndirection = \"both\"\n",
        links.concat()
    );
    let result = parse(&text).unwrap().run(&mut ()).unwrap();
    let connection = &result.connections[0];
    for stream in [&connection.upload, &connection.download] {
        let subflows = &stream.as_ref().unwrap().subflows;
        let links: std::collections::BTreeSet<_> =
            subflows.iter().map(|subflow| subflow.link.as_deref()).collect();
        assert_eq!(links.into_iter().collect::<Vec<_>>(), [Some("lte"), Some("wifi")]);
    }
}
