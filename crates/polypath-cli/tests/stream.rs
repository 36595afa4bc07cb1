//! `polypath stream`: an adaptive stream over two interfaces, from its playlists to the last byte of its segments. What is in segments is
//! nobody's business here.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

mod lab;

use lab::{Lab, Running, has_or_skip};
use polypath_testbed::Testbed;
use serde_json::Value;

const SEGMENTS: usize = 8;
/// Of a segment in each quality: two seconds at 400 and 1600 kbit/s.
const SIZES: [usize; 2] = [100_000, 400_000];

/// Two uplinks, and a server of a stream beyond them.
struct Site {
    lab: Lab,
    _server: Running,
}

impl Site {
    /// Pictures in two qualities, with sound apart.
    fn new_or_skip(what: &str) -> Option<Self> {
        let lab = Lab::with_rate_or_skip(what, "20mbit")?;
        lab.add_default_routes();
        fs::create_dir(lab.folder().join("site")).expect("a folder");
        for (quality, size) in SIZES.into_iter().enumerate() {
            playlist(&lab, &format!("q{quality}"), size, SEGMENTS);
        }
        playlist(&lab, "sound", 30_000, SEGMENTS);
        let main = "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"a\",DEFAULT=YES,URI=\"sound.m3u8\"\n\
             #EXT-X-STREAM-INF:BANDWIDTH=520000,RESOLUTION=320x180,CODECS=\"avc1.42c01f,mp4a.40.2\",AUDIO=\"a\"\nq0.m3u8\n\
             #EXT-X-STREAM-INF:BANDWIDTH=1720000,RESOLUTION=640x360,CODECS=\"avc1.42c01f,mp4a.40.2\",AUDIO=\"a\"\nq1.m3u8\n";
        fs::write(lab.folder().join("site/film.m3u8"), main).expect("a file");
        let mut serve = Command::new(env!("CARGO_BIN_EXE_polypath"));
        serve.args(["serve", "--quiet", "--no-config", "--engine", "tcp", "--listen", "0.0.0.0:8077"]);
        let server = lab.serve(serve.arg(lab.folder().join("site")), 8077);
        Some(Self { lab, _server: server })
    }

    fn stream(&self, port: u16, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        command.args(["stream", "--no-config", "--json", "--linger", "0", "-o"]).arg(self.out());
        command.args(arguments).arg(format!("http://{}:{port}/{name}", Testbed::server_v4(0)));
        command.stdin(Stdio::null());
        command
    }

    fn out(&self) -> PathBuf {
        self.lab.folder().join("out")
    }

    /// Every segment is one of the server's, whole, and they are in order. Gives how many of the pictures came in the higher quality.
    fn assert_whole(&self) -> usize {
        let listed = |file: &str| {
            let text = fs::read_to_string(self.out().join(file)).expect("a playlist");
            assert!(text.ends_with("#EXT-X-ENDLIST\n"), "{text}");
            let names = text.lines().filter(|line| !line.starts_with('#'));
            names.map(|name| self.out().join(name)).collect::<Vec<_>>()
        };
        let is = |file: &Path, ours: String| {
            fs::read(file).expect("a segment")
                == fs::read(self.lab.folder().join("site").join(ours)).expect("ours")
        };
        let (pictures, sound) = (listed("main.m3u8"), listed("sound.m3u8"));
        assert_eq!((pictures.len(), sound.len()), (SEGMENTS, SEGMENTS));
        let mut high = 0;
        for at in 0..SEGMENTS {
            assert!(is(&sound[at], format!("sound-{at}.ts")), "sound {at}");
            let is_high = is(&pictures[at], format!("q1-{at}.ts"));
            assert!(is_high || is(&pictures[at], format!("q0-{at}.ts")), "pictures {at}");
            high += usize::from(is_high);
        }
        high
    }
}

/// A media playlist, and its segments.
fn playlist(lab: &Lab, name: &str, size: usize, count: usize) {
    let mut text = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n".to_string();
    for at in 0..count {
        lab.file(&format!("site/{name}-{at}.ts"), size + at);
        writeln!(text, "#EXTINF:2.0,\n{name}-{at}.ts").expect("text");
    }
    text.push_str("#EXT-X-ENDLIST\n");
    fs::write(lab.folder().join(format!("site/{name}.m3u8")), text).expect("a file");
}

fn events(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_stream_comes_over_both_interfaces_and_is_offered_whole() {
    let Some(site) = Site::new_or_skip("streams over two interfaces") else { return };
    let report = site.lab.folder().join("report.html");
    let words = ["--report", report.to_str().expect("a name")];
    let output = site.lab.output(&mut site.stream(8077, "film.m3u8", &words));
    assert!(output.status.success(), "{}", said(&output));
    assert!(site.assert_whole() >= SEGMENTS / 2);
    let page = fs::read_to_string(report).expect("a page");
    for part in ["All of it came", "640×360 ", "path0", "path1", "What was held to play", "Startup"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script") && !page.contains("live edge at the end"));
    let all = events(&output);
    let of = |event: &str| all.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    assert!(of("offered")[0]["page"].as_str().is_some_and(|page| page.starts_with("http://127.0.0.1:")));
    assert_eq!(of("begun")[0]["qualities"].as_array().map(Vec::len), Some(2));
    assert_eq!(of("segment").len(), 2 * SEGMENTS);
    let now = *of("now").last().expect("figures");
    assert!(now["lead_s"].is_f64() && now["behind_live_s"].is_null(), "{now}");
    let summary = of("summary")[0];
    assert_eq!((&summary["stalls"], &summary["left_out"]), (&0.into(), &0.into()));
    let interfaces = summary["interfaces"].as_array().expect("a list");
    assert_eq!(interfaces.len(), 2, "{summary}");
    let main = fs::read_to_string(site.out().join("stream.m3u8")).expect("a playlist");
    assert!(main.contains("URI=\"sound.m3u8\"") && main.contains("RESOLUTION=640x360"), "{main}");
    // The folder is not written into twice.
    let again = site.lab.output(&mut site.stream(8077, "film.m3u8", &[]));
    assert_eq!(again.status.code(), Some(2));
    assert!(said(&again).contains("is not empty; expected an empty folder"), "{}", said(&again));
}

#[test]
fn a_stream_outlives_an_interface() {
    let Some(site) = Site::new_or_skip("streams of which one interface is lost") else { return };
    let before = site.lab.carried().iter().sum::<u64>();
    let running = site.lab.start(site.stream(8077, "film.m3u8", &[]).stdout(Stdio::piped()));
    site.lab.wait_until_carried(before + 200_000);
    site.lab.cut(0);
    let output = lab::finish(running);
    assert!(output.status.success(), "{}", said(&output));
    site.assert_whole();
}

#[test]
fn a_server_without_ranges_is_asked_for_whole_segments() {
    if !has_or_skip("python3", "a server without ranges") {
        return;
    }
    let Some(site) = Site::new_or_skip("streams from a server without ranges") else { return };
    let mut python = Command::new("python3");
    python.args(["-m", "http.server", "8078", "--directory"]).arg(site.lab.folder().join("site"));
    let _python = site.lab.serve(python.stdout(Stdio::null()).stderr(Stdio::null()), 8078);
    let output = site.lab.output(&mut site.stream(8078, "film.m3u8", &[]));
    assert!(output.status.success(), "{}", said(&output));
    site.assert_whole();
}

#[test]
fn what_does_not_go_is_one_line() {
    let Some(site) = Site::new_or_skip("mistakes of streams") else { return };
    let folder = site.lab.folder().join("site");
    fs::remove_file(folder.join("q0-3.ts"))
        .and_then(|()| fs::remove_file(folder.join("q1-3.ts")))
        .expect("files");
    fs::write(folder.join("page.html"), "<html></html>").expect("a file");
    let secret = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n#EXTINF:2.0,\nq0-0.ts\n#EXT-X-ENDLIST\n";
    fs::write(folder.join("secret.m3u8"), secret).expect("a file");
    for (name, code, problem) in [
        ("film.m3u8", 1, "-3.ts: the server says 404"),
        ("page.html", 1, "neither an MPEG-DASH manifest nor an HLS playlist"),
        ("secret.m3u8", 1, "the stream is encrypted (AES-128)"),
        ("nothing.mpd", 1, "404"),
    ] {
        let _ = fs::remove_dir_all(site.out());
        let output = site.lab.output(&mut site.stream(8077, name, &[]));
        let said = said(&output);
        assert_eq!(output.status.code(), Some(code), "{name}: {said}");
        assert!(said.lines().count() == 1 && said.contains(problem), "{name}: {said}");
    }
    // For people, too: nothing is said to play that does not.
    for (name, offers) in [("page.html", 0), ("q1.m3u8", 1)] {
        let _ = fs::remove_dir_all(site.out());
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        command.args(["stream", "--no-config", "--linger", "0", "-o"]).arg(site.out());
        command.arg(format!("http://{}:8077/{name}", Testbed::server_v4(0))).stdin(Stdio::null());
        let output = site.lab.output(&mut command);
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(told.matches(" plays at http://").count(), offers, "{name}: {told}");
    }
    let _ = fs::remove_dir_all(site.out());
    let output = site.lab.output(&mut site.stream(8077, "film.m3u8", &["--report", "/nonexistent/x"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("/nonexistent/x: can't be written"), "{}", said(&output));
    assert!(!site.out().exists(), "nothing was begun");
    let output = site.lab.output(&mut site.stream(8077, "film.m3u8", &["--adaptation", "best"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("expected one of robust-mpc, bola, measured-speed"), "{}", said(&output));
}

#[test]
fn a_live_stream_is_followed_to_its_end() {
    let Some(site) = Site::new_or_skip("live streams") else { return };
    let folder = site.lab.folder().join("site");
    let whole = fs::read_to_string(folder.join("q1.m3u8")).expect("a playlist");
    let lines: Vec<&str> = whole.lines().collect();
    let show = |segments: usize, end: &str| {
        let text = format!("{}\n{end}", lines[..2 + 2 * segments].join("\n"));
        fs::write(folder.join(".live"), text)
            .and_then(|()| fs::rename(folder.join(".live"), folder.join("live.m3u8")))
    };
    show(4, "").expect("a playlist");
    let report = site.lab.folder().join("report.html");
    let words = ["--report", report.to_str().expect("a name")];
    let running = site.lab.start(site.stream(8077, "live.m3u8", &words).stdout(Stdio::piped()));
    let playlist = site.out().join("stream.m3u8");
    let has = |count: usize| {
        fs::read_to_string(&playlist).is_ok_and(|text| text.matches("#EXTINF").count() >= count)
    };
    // It begins three segments before the end.
    while !has(3) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    show(6, "").expect("a playlist");
    while !has(5) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    show(6, "#EXT-X-ENDLIST\n").expect("a playlist");
    let output = lab::finish(running);
    assert!(output.status.success(), "{}", said(&output));
    // While it was live, it was known how far behind it was.
    let behind = events(&output).iter().filter_map(|line| line["behind_live_s"].as_f64()).fold(0.0, f64::max);
    assert!((2.0..20.0).contains(&behind), "{behind}");
    assert!(fs::read_to_string(report).is_ok_and(|page| page.contains("behind the live edge at the end")));
    let text = fs::read_to_string(&playlist).expect("a playlist");
    assert!(text.ends_with("#EXT-X-ENDLIST\n") && text.matches("#EXTINF").count() == 5, "{text}");
    for (at, ours) in (1..6).enumerate() {
        let came = fs::read(site.out().join(format!("video-{at:06}.ts"))).expect("a segment");
        assert!(came == fs::read(folder.join(format!("q1-{ours}.ts"))).expect("ours"), "{ours}");
    }
}
