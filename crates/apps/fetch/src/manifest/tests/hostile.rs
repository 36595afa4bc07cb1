//! Whatever a server sends, reading it ends, soon and without panic.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::dash::{FFMPEG, LIVE, sidx, template};
use super::hls::{SINGLE, TS};
use super::url;
use crate::manifest::limits::{MAX_MANIFEST_BYTES, MAX_SEGMENTS};
use crate::manifest::{Error, Manifest};

const MASTER: &str = "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"n\",DEFAULT=YES,URI=\"a.m3u8\"\n\
    #EXT-X-STREAM-INF:BANDWIDTH=1000,CODECS=\"avc1.4d,mp4a.40.2\",RESOLUTION=640x360,AUDIO=\"a\"\nv.m3u8\n\
    #EXT-X-STREAM-INF:BANDWIDTH=2000,CODECS=\"avc1.4d,mp4a.40.2\",RESOLUTION=640x360,AUDIO=\"a\"\nw.m3u8\n";

fn seeds() -> Vec<Vec<u8>> {
    let list = "<MPD mediaPresentationDuration='PT9S'><BaseURL>b/</BaseURL><Period duration='PT4S'><AdaptationSet mimeType='video/mp4'><SegmentList duration='2'>\
        <SegmentURL media='a'/><SegmentURL mediaRange='1-9'/></SegmentList><Representation id='1' bandwidth='1'/></AdaptationSet></Period></MPD>";
    let base = "<MPD mediaPresentationDuration='PT9S'><Period><AdaptationSet mimeType='video/mp4'><Representation id='1' bandwidth='1'>\
        <BaseURL>v.mp4</BaseURL><SegmentBase indexRange='100-199'/></Representation></AdaptationSet></Period></MPD>";
    let numbers = template(LIVE, "media='$Number%05d$' duration='2'", "");
    let times =
        template(LIVE, "media='$Time$'", "<SegmentTimeline><S t='5' d='2' r='-1'/></SegmentTimeline>");
    [MASTER, TS, SINGLE, FFMPEG, list, base, &numbers, &times].map(|text| text.as_bytes().to_vec()).into()
}

/// Reads, gives `answer` to whatever is asked for, and refreshes once.
fn drive(manifest: &[u8], answer: &[u8], now: SystemTime) -> Result<usize, Error> {
    let at = url("http://h.example/d/m");
    let mut manifest = Manifest::parse(manifest, &at, None)?;
    let mut segments = 0;
    for _ in 0..2 {
        while let Some(resource) = manifest.poll_fetch() {
            manifest.handle_fetched(&resource, resource.url(), answer)?;
        }
        let stream = manifest.presentation(now)?;
        for quality in stream
            .main()
            .qualities()
            .iter()
            .chain(stream.audio().into_iter().flat_map(|audio| audio.qualities()))
        {
            assert!(quality.segments().len() <= MAX_SEGMENTS);
            assert!(quality.segments().is_sorted_by_key(|segment| segment.number()));
            segments += quality.segments().len();
        }
        manifest.refresh(None);
    }
    Ok(segments)
}

fn error_is_a_line(outcome: Result<usize, Error>) {
    if let Err(error) = outcome {
        let text = error.to_string();
        assert!(!text.contains('\n') && text.len() < 12_000, "{text:.400}");
    }
}

/// What makes trouble where a number or a word was.
const WORDS: [&str; 16] = [
    "-1",
    "0",
    "18446744073709551615",
    "9223372036854775807",
    "99999999999999999999999",
    "1e400",
    "NaN",
    "",
    "\"",
    "$",
    "%",
    "=",
    "<S d='1'/>",
    "INF",
    "P9999999999D",
    "\n",
];

#[derive(Clone, Debug)]
enum Change {
    Byte(usize, u8),
    Remove(usize, usize),
    Repeat(usize, usize, usize),
    /// A run of digits becomes a word.
    Number(usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        (any::<usize>(), 0..40_usize).prop_map(|(at, len)| Change::Remove(at, len)),
        (any::<usize>(), 0..200_usize, 1..20_usize)
            .prop_map(|(at, len, times)| Change::Repeat(at, len, times)),
        (any::<usize>(), 0..WORDS.len()).prop_map(|(at, word)| Change::Number(at, word)),
    ]
}

fn changed(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        let len = bytes.len().max(1);
        match *change {
            Change::Byte(at, byte) => bytes.iter_mut().skip(at % len).take(1).for_each(|old| *old = byte),
            Change::Remove(at, count) => drop(bytes.drain(at % len..(at % len + count).min(bytes.len()))),
            Change::Repeat(at, count, times) => {
                let piece =
                    bytes[(at % len).min(bytes.len())..(at % len + count).min(bytes.len())].repeat(times);
                bytes.splice((at % len).min(bytes.len())..(at % len).min(bytes.len()), piece);
            }
            Change::Number(at, word) => {
                let is_digit = |byte: &u8| byte.is_ascii_digit();
                let Some(begin) =
                    bytes.iter().skip(at % len).position(is_digit).map(|found| found + at % len)
                else {
                    continue;
                };
                let count = bytes[begin..].iter().take_while(|byte| is_digit(byte)).count();
                bytes.splice(begin..begin + count, WORDS[word].bytes());
            }
        }
    }
    bytes
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_no_manifest(bytes in prop::collection::vec(any::<u8>(), 0..400), kind in 0..3) {
        let head: &[u8] = [&b""[..], b"#EXTM3U\n", b"<MPD>"][kind as usize];
        error_is_a_line(drive(&[head, &bytes].concat(), &bytes, SystemTime::UNIX_EPOCH));
    }

    #[test]
    fn changed_manifests_are_read_or_refused(
        (seed, answer, secs) in (0..8_usize, 0..9_usize, 0..3_000_000_000_u64),
        (changes, changes_of_answer) in (prop::collection::vec(change(), 0..6), prop::collection::vec(change(), 0..3)),
    ) {
        let mut answers = seeds();
        answers.push(sidx(&[5, 6, 7]));
        let manifest = changed(seeds().swap_remove(seed), &changes);
        let answer = changed(answers.swap_remove(answer), &changes_of_answer);
        error_is_a_line(drive(&manifest, &answer, SystemTime::UNIX_EPOCH + Duration::from_secs(secs)));
    }
}

#[test]
fn the_seeds_are_streams() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    let sidx = sidx(&[5, 6, 7]);
    let seeds = seeds();
    let counts = seeds.iter().map(|seed| {
        let answer = match seed.starts_with(b"#") {
            true => TS.as_bytes(),
            false if String::from_utf8_lossy(seed).contains("indexRange") => &sidx,
            false => seed,
        };
        drive(seed, answer, now).expect("a stream")
    });
    assert_eq!(counts.collect::<Vec<_>>(), [18, 6, 4, 18, 4, 6, 8, 8]);
}

#[test]
fn the_longest_manifests_end_too() {
    let fill = |head: &str, piece: &str, tail: &str| {
        let count = (MAX_MANIFEST_BYTES - head.len() - tail.len()) / piece.len();
        format!("{head}{}{tail}", piece.repeat(count))
    };
    let long = "x".repeat(1000);
    let set = "<MPD mediaPresentationDuration='P9D'><Period><AdaptationSet mimeType='video/mp4'><SegmentTemplate media='$Time$'>";
    let end = "</SegmentTemplate><Representation id='1'/></AdaptationSet></Period></MPD>";
    let cases = [
        fill("#EXTM3U\n", "#EXT-X-MAP:URI\n", ""),
        fill("#EXTM3U\n", "#EXTINF:1,\na\n", ""),
        fill("#EXTM3U\n", "\"", ""),
        fill("#EXTM3U\n#EXT-X-KEY:", "A=\"\",", ""),
        fill("#EXTM3U\n", "#EXT-X-STREAM-INF:BANDWIDTH=1\na\n", ""),
        fill("<MPD>", "<a>", ""),
        fill("<MPD ", "a='' ", "/>"),
        fill("<MPD ", "xmlns:a='' ", "/>"),
        fill("<MPD>", "&amp;", "</MPD>"),
        fill("<MPD><!--", "-", "--></MPD>"),
        fill("<MPD>", "<a/>", "</MPD>"),
        fill(&format!("{set}<SegmentTimeline>"), "<S d='1' r='9'/>", &format!("</SegmentTimeline>{end}")),
        fill(
            &format!(
                "<MPD><BaseURL>/{long}/</BaseURL><Period><AdaptationSet mimeType='video/mp4'><SegmentTemplate media='$Number$' duration='1'/>"
            ),
            "<Representation><BaseURL>y/</BaseURL></Representation>",
            "</AdaptationSet></Period></MPD>",
        ),
        fill(
            "<MPD>",
            "<Period duration='PT1S'><AdaptationSet mimeType='video/mp4'><SegmentTemplate media='a' duration='1'/><Representation id='1'/></AdaptationSet></Period>",
            "</MPD>",
        ),
    ];
    for case in cases {
        let outcome = drive(case.as_bytes(), TS.as_bytes(), SystemTime::UNIX_EPOCH);
        assert!(outcome.is_err(), "{:.60}: {outcome:?}", case);
        error_is_a_line(outcome);
    }
    let outcome = drive(&vec![b'#'; MAX_MANIFEST_BYTES + 1], b"", SystemTime::UNIX_EPOCH);
    assert_eq!(outcome, Err(Error::TooLong(MAX_MANIFEST_BYTES + 1)));
    // A short manifest of many qualities with many long URLs each.
    let reps: String = (0..60).map(|at| format!("<Representation id='{at}' bandwidth='{at}'/>")).collect();
    let many = format!(
        "<MPD mediaPresentationDuration='PT50000S'><Period><AdaptationSet mimeType='video/mp4'>\
         <SegmentTemplate media='{long}$Number$' duration='1'/>{reps}</AdaptationSet></Period></MPD>"
    );
    assert_eq!(drive(many.as_bytes(), b"", SystemTime::UNIX_EPOCH), Err(Error::TooManySegments));
}

#[test]
fn a_long_name_of_a_quality_is_refused() {
    let long = "x".repeat(100_000);
    for attributes in [format!("id='{long}' codecs='avc1.4d'"), format!("id='1' codecs='{long}'")] {
        let text = format!(
            "<MPD mediaPresentationDuration='PT9S'><Period><AdaptationSet mimeType='video/mp4'>\
             <SegmentTemplate media='$Number$' duration='1'/><Representation {attributes}/></AdaptationSet></Period></MPD>"
        );
        let error = drive(text.as_bytes(), b"", SystemTime::UNIX_EPOCH).expect_err("too long").to_string();
        assert!(error.contains("is longer than 1024 bytes") && error.len() < 200, "{error:.400}");
    }
}

#[test]
fn many_indexes_end_before_all_are_fetched() {
    let period = |at: usize| {
        format!(
            "<Period duration='PT1S'><AdaptationSet mimeType='video/mp4'><Representation id='1'><BaseURL>{at}</BaseURL>\
             <SegmentBase indexRange='0-9'/></Representation></AdaptationSet></Period>"
        )
    };
    let text = format!("<MPD>{}</MPD>", (0..1000).map(period).collect::<String>());
    let mut manifest =
        Manifest::parse(text.as_bytes(), &url("http://h.example/m"), None).expect("a manifest");
    let index = sidx(&[1; 60_000]);
    let mut fetched = 0;
    let outcome = loop {
        let resource = manifest.poll_fetch().expect("one more");
        fetched += 1;
        if let Err(error) = manifest.handle_fetched(&resource, resource.url(), &index) {
            break error;
        }
    };
    assert!(outcome.to_string().contains("too many in all"), "{outcome}");
    assert_eq!(fetched, 17, "a million segments are enough");
}
