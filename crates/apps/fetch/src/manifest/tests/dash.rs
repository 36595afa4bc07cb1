use std::collections::HashMap;
use std::time::{Duration as StdDuration, SystemTime};

use polypath_units::{BitRate, Duration};

use super::{feed, read, url};
use crate::manifest::{ByteRange, Container, Error, Manifest, Presentation, Quality, Resolution, TrackKind};

const AT: SystemTime = SystemTime::UNIX_EPOCH;

fn at(secs: f64) -> SystemTime {
    AT + StdDuration::from_secs_f64(secs)
}

fn mpd(text: &str, now: SystemTime) -> Result<Presentation, Error> {
    read("http://h.example/d/m.mpd", &[("/d/m.mpd", text)], now).map(|(_, presentation)| presentation)
}

/// Numbers, and starts in milliseconds.
fn numbers(quality: &Quality) -> Vec<(u64, u64)> {
    quality.segments().iter().map(|segment| (segment.number(), segment.start().as_millis())).collect()
}

fn paths(quality: &Quality) -> Vec<&str> {
    quality.segments().iter().map(|segment| segment.resource().url().path()).collect()
}

/// As ffmpeg's dash muxer makes it: an AdaptationSet for each stream.
pub(super) const FFMPEG: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<MPD xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns="urn:mpeg:dash:schema:mpd:2011"
    xmlns:xlink="http://www.w3.org/1999/xlink" profiles="urn:mpeg:dash:profile:isoff-live:2011"
    type="static" mediaPresentationDuration="PT9.0S" maxSegmentDuration="PT4.0S" minBufferTime="PT8.0S">
  <ProgramInformation></ProgramInformation>
  <Period id="0" start="PT0.0S">
    <AdaptationSet id="0" contentType="video" startWithSAP="1" segmentAlignment="true" maxWidth="640" maxHeight="360">
      <Representation id="0" mimeType="video/mp4" codecs="avc1.64001e" bandwidth="800000" width="640" height="360" sar="1:1">
        <SegmentTemplate timescale="12800" initialization="init-stream$RepresentationID$.m4s" media="chunk-stream$RepresentationID$-$Number%05d$.m4s" startNumber="1">
          <SegmentTimeline><S t="0" d="51200" r="1" /><S d="12800" /></SegmentTimeline>
        </SegmentTemplate>
      </Representation>
    </AdaptationSet>
    <AdaptationSet id="1" contentType="video" segmentAlignment="true">
      <Representation id="1" mimeType="video/mp4" codecs="avc1.640028" bandwidth="400000" width="320" height="180">
        <SegmentTemplate timescale="12800" initialization="init-stream$RepresentationID$.m4s" media="chunk-stream$RepresentationID$-$Number%05d$.m4s" startNumber="1">
          <SegmentTimeline><S t="0" d="51200" r="1" /><S d="12800" /></SegmentTimeline>
        </SegmentTemplate>
      </Representation>
    </AdaptationSet>
    <AdaptationSet id="2" contentType="audio" lang="und">
      <Representation id="2" mimeType="audio/mp4" codecs="mp4a.40.2" bandwidth="128000" audioSamplingRate="48000">
        <SegmentTemplate timescale="48000" initialization="init-stream$RepresentationID$.m4s" media="chunk-stream$RepresentationID$-$Number%05d$.m4s" startNumber="1">
          <SegmentTimeline><S t="0" d="192512" /><S d="191488" /><S d="48000" /></SegmentTimeline>
        </SegmentTemplate>
      </Representation>
    </AdaptationSet>
  </Period>
</MPD>"#;

#[test]
fn a_timeline_on_demand_with_separate_sound() {
    let stream = mpd(FFMPEG, AT).expect("a stream");
    assert_eq!(
        (stream.is_live(), stream.refresh_after(), stream.main().kind()),
        (false, None, TrackKind::Video)
    );
    let [low, high] = stream.main().qualities() else { panic!("{stream:?}") };
    assert_eq!((low.bit_rate(), high.bit_rate()), (BitRate::from_kbps(400), BitRate::from_kbps(800)));
    assert_eq!((high.codecs(), high.resolution()), (Some("avc1.64001e"), Some(Resolution::new(640, 360))));
    assert_eq!(high.container(), Container::FragmentedMp4);
    assert_eq!(numbers(high), [(1, 0), (2, 4000), (3, 8000)]);
    assert_eq!(paths(high)[2], "/d/chunk-stream0-00003.m4s");
    assert_eq!(high.segments()[0].init().expect("an init").url().path(), "/d/init-stream0.m4s");
    let audio = &stream.audio().expect("sound").qualities()[0];
    assert_eq!(audio.segments()[1].start(), Duration::from_nanos(4_010_666_666));
    assert_eq!((stream.end(), stream.target_duration().as_millis()), (Duration::from_secs(9), 4010));
}

pub(super) fn sidx(sizes: &[u32]) -> Vec<u8> {
    let mut words = vec![
        32 + 12 * sizes.len() as u32,
        u32::from_be_bytes(*b"sidx"),
        0,
        1,
        1000,
        0,
        0,
        sizes.len() as u32,
    ];
    words.extend(sizes.iter().flat_map(|size| [*size, 2000, 0x9000_0000]));
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn a_single_file_is_known_by_its_index() {
    // As Shaka Packager makes it on demand.
    let text = r#"<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" profiles="urn:mpeg:dash:profile:isoff-on-demand:2011"
        type="static" mediaPresentationDuration="PT4S"><Period id="0">
        <AdaptationSet id="0" contentType="video"><Representation id="0" bandwidth="97" codecs="avc1.64001f" mimeType="video/mp4">
        <BaseURL>../v.mp4?token=a&amp;b=1</BaseURL><SegmentBase indexRange="816-871" timescale="12800">
        <Initialization range="0-815"/></SegmentBase></Representation></AdaptationSet></Period></MPD>"#;
    let at = url("http://h.example/d/m.mpd");
    let mut manifest = Manifest::parse(text.as_bytes(), &at, None).expect("a manifest");
    assert!(matches!(manifest.presentation(AT), Err(Error::Waiting(_))));
    let index = manifest.poll_fetch().expect("an index");
    assert_eq!(index.to_string(), "http://h.example/v.mp4?token=a&b=1 (bytes 816-871)");
    let error = manifest.handle_fetched(&index, index.url(), b"<html>").expect_err("no index");
    assert!(error.to_string().contains("the index of segments (sidx) is"), "{error}");
    manifest.handle_fetched(&index, index.url(), &sidx(&[500, 300])).expect("an index");
    let stream = manifest.presentation(AT).expect("a stream");
    let segments = stream.main().qualities()[0].segments();
    let ranges: Vec<_> = segments.iter().map(|segment| segment.resource().range()).collect();
    assert_eq!(ranges, [ByteRange::new(872, 500), ByteRange::new(1372, 300)]);
    assert_eq!((segments[1].start(), segments[1].len_bytes()), (Duration::from_secs(2), Some(300)));
    assert_eq!(segments[0].init().and_then(|init| init.range()), ByteRange::new(0, 816));
}

#[test]
fn a_list_and_several_periods_follow_each_other() {
    let list = |start: &str, name: &str| {
        format!(
            r#"<Period id="{name}" {start} duration="PT5S"><BaseURL>{name}/</BaseURL><AdaptationSet mimeType="video/mp4">
            <SegmentList timescale="10" duration="30"><Initialization sourceURL="i.mp4" range="0-99"/>
            <SegmentURL media="a.m4s"/><SegmentURL media="b.m4s" mediaRange="5-9"/></SegmentList>
            <Representation id="{name}" bandwidth="1000" codecs="avc1.1"/></AdaptationSet></Period>"#
        )
    };
    let text = format!(
        "<MPD type='static'><BaseURL>/x/</BaseURL>{}{}</MPD>",
        list("", "p"),
        list("start='PT5S'", "q")
    );
    let stream = mpd(&text, AT).expect("a stream");
    let quality = &stream.main().qualities()[0];
    assert_eq!(paths(quality), ["/x/p/a.m4s", "/x/p/b.m4s", "/x/q/a.m4s", "/x/q/b.m4s"]);
    assert_eq!(numbers(quality), [(1, 0), (2, 3000), (3, 5000), (4, 8000)]);
    let discontinuous: Vec<_> = quality.segments().iter().map(|segment| segment.is_discontinuous()).collect();
    assert_eq!(discontinuous, [false, false, true, false]);
    let init = quality.segments()[2].init().expect("an init");
    assert_eq!((init.url().path(), init.range()), ("/x/q/i.mp4", ByteRange::new(0, 100)));
    assert_eq!(quality.segments()[1].len_bytes(), Some(5));
}

pub(super) fn template(kind: &str, attributes: &str, inside: &str) -> String {
    format!(
        "<MPD {kind}>\n<Period id='P0' start='PT0S'>\n<AdaptationSet contentType='video' mimeType='video/mp4'>\n\
         <SegmentTemplate initialization='$RepresentationID$/i.mp4' {attributes}>{inside}</SegmentTemplate>\n\
         <Representation id='v' bandwidth='1000' codecs='avc1.1'/>\n</AdaptationSet></Period></MPD>"
    )
}

pub(super) const LIVE: &str = "type='dynamic' availabilityStartTime='1970-01-01T00:00:00Z' minimumUpdatePeriod='PT10S' timeShiftBufferDepth='PT8S'";

#[test]
fn live_numbers_exist_by_the_clock() {
    // As DASH-IF's live simulator makes it.
    let text = template(LIVE, "media='$RepresentationID$/$Number$.m4s' duration='2' startNumber='0'", "");
    let live = |secs| mpd(&text, at(secs)).expect("a stream");
    let stream = live(1_700_000_001.9);
    assert_eq!((stream.is_live(), stream.refresh_after()), (true, Some(Duration::from_secs(10))));
    let quality = &stream.main().qualities()[0];
    let ours: Vec<u64> = numbers(quality).iter().map(|(number, _)| *number).collect();
    // The one that began 1.9 s ago isn't finished; the oldest still reaches into the window.
    assert_eq!(ours, [849_999_996, 849_999_997, 849_999_998, 849_999_999]);
    assert_eq!(paths(quality)[0], "/d/v/849999996.m4s");
    assert_eq!(
        live(1_700_000_002.0).main().qualities()[0].segments().last().map(|last| last.number()),
        Some(850_000_000)
    );
    // Low latency: parts of a segment aren't fetched; whole ones that are there earlier are.
    let ahead = |complete| {
        let attributes = format!(
            "media='$Number$' duration='2' availabilityTimeOffset='1.5' availabilityTimeComplete='{complete}'"
        );
        let stream = mpd(&template(LIVE, &attributes, ""), at(100.6)).expect("a stream");
        stream.main().qualities()[0].segments().last().map(|last| last.start().as_millis())
    };
    assert_eq!((ahead("true"), ahead("false")), (Some(100_000), Some(98_000)));
}

#[test]
fn a_live_timeline_slides_and_its_segments_keep_numbers() {
    let text = |first: u64, runs: &str| {
        template(
            LIVE,
            "media='$Time$.m4s' timescale='1000'",
            &format!("<SegmentTimeline><S t='{first}' {runs}/></SegmentTimeline>"),
        )
    };
    let at_url = url("http://h.example/d/m.mpd");
    let mut manifest =
        Manifest::parse(text(100_000, "d='2000' r='3'").as_bytes(), &at_url, None).expect("a manifest");
    let stream = manifest.presentation(at(108.0)).expect("a stream");
    assert_eq!(
        numbers(&stream.main().qualities()[0]),
        [(1, 100_000), (2, 102_000), (3, 104_000), (4, 106_000)]
    );
    let mut refresh = |text: String, now| {
        manifest.refresh(None);
        feed(&mut manifest, &HashMap::from([("/d/m.mpd", text.as_bytes())])).expect("it is read");
        let stream = manifest.presentation(at(now)).expect("a stream");
        numbers(&stream.main().qualities()[0])
    };
    assert_eq!(refresh(text(104_000, "d='2000' r='-1'"), 111.0), [(3, 104_000), (4, 106_000), (5, 108_000)]);
    // Long away.
    assert_eq!(refresh(text(204_000, "d='2000' r='0'"), 206.0), [(53, 204_000)]);
}

#[test]
fn an_update_moves_to_its_location_and_ends() {
    let live = template(LIVE, "media='$Number$' duration='2'", "")
        .replace("<Period", "<Location>/other/n.mpd?s=1</Location><Period");
    let ended =
        template("type='static' mediaPresentationDuration='PT4S'", "media='$Number$' duration='2'", "");
    let mut manifest =
        Manifest::parse(live.as_bytes(), &url("http://h.example/d/m.mpd"), None).expect("a manifest");
    manifest.refresh(None);
    let next = manifest.poll_fetch().expect("the next one");
    assert_eq!(next.to_string(), "http://h.example/other/n.mpd?s=1");
    manifest.handle_fetched(&next, next.url(), ended.as_bytes()).expect("it is read");
    let stream = manifest.presentation(AT).expect("a stream");
    assert_eq!((stream.is_live(), stream.end()), (false, Duration::from_secs(4)));
    assert_eq!(paths(&stream.main().qualities()[0]), ["/other/1", "/other/2"]);
    manifest.refresh(None);
    assert_eq!(manifest.poll_fetch(), None);
}

#[test]
fn a_timeline_is_on_the_presentation_s_clock() {
    let inside = "<SegmentTimeline><S t='900' d='200' r='-1'/><S t='1290' d='100'/></SegmentTimeline>";
    let text = template(
        "mediaPresentationDuration='PT4S'",
        "media='$Time$' timescale='100' presentationTimeOffset='1000'",
        inside,
    );
    let stream = mpd(&text, AT).expect("a stream");
    let quality = &stream.main().qualities()[0];
    assert_eq!(paths(quality), ["/d/900", "/d/1100", "/d/1290"]);
    assert_eq!(numbers(quality), [(1, 0), (2, 1000), (3, 2900)]);
    assert_eq!(quality.segments()[0].duration(), Duration::from_secs(2));
}

#[test]
fn sound_alone_and_the_best_of_what_can_be_played() {
    let set = |attributes: &str, inside: &str| {
        format!(
            "<AdaptationSet {attributes}>{inside}<SegmentTemplate media='$RepresentationID$' duration='2'/></AdaptationSet>"
        )
    };
    let rep = |id: &str, codecs: &str, bandwidth: u32| {
        format!("<Representation id='{id}' codecs='{codecs}' bandwidth='{bandwidth}'/>")
    };
    let wrap = |sets: &[String]| {
        format!("<MPD mediaPresentationDuration='PT2S'><Period>{}</Period></MPD>", sets.concat())
    };
    let english = set(
        "mimeType='audio/mp4' lang='en'",
        &(rep("e1", "mp4a.40.2", 64_000) + &rep("e2", "mp4a.40.2", 128_000)),
    );
    let surround = set("mimeType='audio/mp4' lang='en'", &rep("s", "ec-3", 640_000));
    let comment = set(
        "mimeType='audio/mp4' lang='en'",
        &("<Role schemeIdUri='r' value='commentary'/>".to_owned() + &rep("c", "mp4a.40.2", 900_000)),
    );
    let stream = mpd(&wrap(&[comment.clone(), surround.clone(), english.clone()]), AT).expect("a stream");
    assert_eq!((stream.main().kind(), stream.audio()), (TrackKind::Audio, None));
    let ids: Vec<_> = stream.main().qualities().iter().map(Quality::id).collect();
    assert_eq!(ids, ["e1", "e2"]);
    let trick = set(
        "mimeType='video/mp4'",
        &("<EssentialProperty schemeIdUri='http://dashif.org/guidelines/trickmode'/>".to_owned()
            + &rep("t", "avc1.1", 5)),
    );
    let webm = set("mimeType='video/webm'", &rep("w", "vp9", 5));
    let hevc = set("mimeType='video/mp4'", &rep("h", "hvc1.1", 9));
    let avc = set("mimeType='video/mp4'", &rep("a", "avc1.1", 7));
    let locked = set("mimeType='video/mp4'", &("<ContentProtection schemeIdUri='urn:mpeg:dash:mp4protection:2011' value='cenc'/><ContentProtection schemeIdUri='urn:uuid:EDEF8BA9-79D6-4ACE-A3C8-27DCD51D21ED'/>".to_owned() + &rep("l", "avc1.1", 99)));
    let stream = mpd(&wrap(&[trick.clone(), webm.clone(), hevc, avc, locked.clone(), english.clone()]), AT)
        .expect("a stream");
    let ids: Vec<_> = stream.main().qualities().iter().map(Quality::id).collect();
    assert_eq!((ids, stream.audio().map(|audio| audio.qualities()[0].id())), (vec!["a"], Some("e2")));
    let error = mpd(&wrap(&[locked, english]), AT).expect_err("it is encrypted").to_string();
    assert_eq!(error, "the stream is encrypted (Widevine); only streams in the clear can be played");
    assert!(matches!(mpd(&wrap(&[trick, webm]), AT), Err(Error::NoTrack(_))));
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let whole = "mediaPresentationDuration='PT4S'";
    let timeline =
        |s: &str| template(whole, "media='$Number$'", &format!("<SegmentTimeline>{s}</SegmentTimeline>"));
    let cases = [
        (timeline("<S d='0'/>"), "line 4: S@d is \"0\"; expected a number above 0"),
        (timeline("<S d='1' r='-5'/>"), "line 4: S@r is \"-5\"; expected how often it repeats, or -1"),
        (timeline("<S d='1' t='-1'/>"), "line 4: S@t is \"-1\""),
        (timeline("<S/>"), "line 4: S has no d"),
        (
            template(
                "mediaPresentationDuration='P9000D'",
                "media='$Number$'",
                "<SegmentTimeline><S d='1' r='9223372036854775807'/></SegmentTimeline>",
            ),
            "more than 100000 segments",
        ),
        (
            template("mediaPresentationDuration='P9000D'", "media='$Number$' duration='1'", ""),
            "more than 100000 segments",
        ),
        (
            template(whole, "media='$Number$' duration='1' timescale='0'", ""),
            "SegmentTemplate@timescale is \"0\"",
        ),
        (
            template(whole, "media='$Number$' duration='99999999999999999999'", ""),
            "SegmentTemplate@duration is",
        ),
        (
            template(whole, "media='$Number$' duration='1' startNumber='18446744073709551615'", ""),
            "pass 64 bits",
        ),
        (
            template(whole, "media='$Number$'", ""),
            "line 4: there is neither a duration nor a SegmentTimeline",
        ),
        (template(whole, "duration='1'", ""), "line 4: a SegmentTemplate has no media"),
        (
            template("", "media='$Number$' duration='1'", ""),
            "line 4: segments have no end: the Period has no duration",
        ),
        (
            template("type='dynamic'", "media='$Number$' duration='1'", ""),
            "line 1: a dynamic MPD has no availabilityStartTime",
        ),
        (template("mediaPresentationDuration='four'", "", ""), "expected a duration such as PT1M30.5S"),
        ("<MPD>\n<Period></MPD>".to_owned(), "line 2: the XML is malformed"),
        (
            "<!DOCTYPE MPD [<!ENTITY a 'b'>]><MPD/>".to_owned(),
            "line 1: a document type (DOCTYPE): not supported",
        ),
        ("<MPD><Period xlink:href='http://x.example/'/></MPD>".to_owned(), "(xlink:href): not supported"),
        ("<SMPD/>".to_owned(), "the document is \"SMPD\"; expected MPD"),
        ("<MPD/>".to_owned(), "no track that can be played: it has no Period"),
        (format!("<MPD>{}", "<a>".repeat(100)), "too many elements, or too deep ones"),
    ];
    for (text, expected) in cases {
        let error = mpd(&text, AT).expect_err(expected).to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{expected}: {error}");
    }
}
