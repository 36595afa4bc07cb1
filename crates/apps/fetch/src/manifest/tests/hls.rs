use std::collections::HashMap;
use std::time::SystemTime;

use polypath_units::{BitRate, Duration};

use super::{feed, read, url};
use crate::manifest::{ByteRange, Container, Error, Manifest, Presentation, Resolution, TrackKind};

const AT: SystemTime = SystemTime::UNIX_EPOCH;

/// As ffmpeg's hls muxer makes it with MPEG-TS.
pub(super) const TS: &str = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:6\n#EXT-X-MEDIA-SEQUENCE:0\n#EXTINF:6.006000,\n\
    low0.ts\n#EXTINF:6.006000,\nlow1.ts\n#EXTINF:2.002000,\nlow2.ts\n#EXT-X-ENDLIST\n";

/// As Shaka Packager makes it of single files: ranges, and a map.
pub(super) const SINGLE: &str = "#EXTM3U\r\n#EXT-X-VERSION:6\r\n## a comment\r\n#EXT-X-TARGETDURATION:4\r\n#EXT-X-PLAYLIST-TYPE:VOD\r\n\
    #EXT-X-MAP:URI=\"v.mp4\",BYTERANGE=\"800@0\"\r\n#EXTINF:4,\r\n#EXT-X-BYTERANGE:1000@900\r\nv.mp4\r\n#EXTINF:3.5,\r\n\
    #EXT-X-BYTERANGE:500\r\nv.mp4\r\n#EXT-X-ENDLIST\r\n";

fn media(playlist: &str) -> Result<Presentation, Error> {
    read("http://h.example/a/l.m3u8?k=1", &[("/a/l.m3u8", playlist)], AT)
        .map(|(_, presentation)| presentation)
}

#[test]
fn a_media_playlist_alone_is_a_stream_of_one_quality() {
    let stream = media(TS).expect("a stream");
    assert!(!stream.is_live());
    assert_eq!((stream.refresh_after(), stream.audio()), (None, None));
    let [quality] = stream.main().qualities() else { panic!("{stream:?}") };
    assert_eq!((quality.container(), quality.bit_rate()), (Container::MpegTs, BitRate::ZERO));
    let last = quality.segment(2).expect("three segments");
    assert_eq!(last.resource().url().as_str(), "http://h.example/a/low2.ts");
    assert_eq!((last.start(), last.duration()), (Duration::from_millis(12_012), Duration::from_millis(2002)));
    assert_eq!((last.init(), last.len_bytes(), last.is_discontinuous()), (None, None, false));
    assert_eq!(quality.segment_at(Duration::from_millis(6006)).map(|found| found.number()), Some(1));
    assert_eq!(stream.target_duration(), Duration::from_millis(6006));
    assert_eq!(stream.end(), Duration::from_millis(14_014));
}

#[test]
fn ranges_go_on_where_the_last_one_ended_and_give_lengths() {
    let stream = media(SINGLE).expect("a stream");
    let quality = &stream.main().qualities()[0];
    assert_eq!(quality.container(), Container::FragmentedMp4);
    let ranges: Vec<_> = quality.segments().iter().map(|segment| segment.resource().range()).collect();
    assert_eq!(ranges, [ByteRange::new(900, 1000), ByteRange::new(1900, 500)]);
    assert_eq!(quality.segments()[1].len_bytes(), Some(500));
    let init = quality.segments()[0].init().expect("a map");
    assert_eq!((init.url().as_str(), init.range()), ("http://h.example/a/v.mp4", ByteRange::new(0, 800)));
    assert_eq!(stream.end(), Duration::from_millis(7500));
}

#[test]
fn a_multivariant_playlist_names_what_has_to_be_fetched() {
    const MASTER: &str = "#EXTM3U\n#EXT-X-VERSION:6\n\
        #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"aac\",NAME=\"Deutsch\",LANGUAGE=\"de\",URI=\"de.m3u8\",AUTOSELECT=YES\n\
        #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"aac\",NAME=\"English, stereo\",DEFAULT=YES,URI=\"en.m3u8?t=a=b\"\n\
        #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"ac3\",NAME=\"English\",DEFAULT=YES,URI=\"ac3.m3u8\"\n\
        #EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"s\",NAME=\"English\",URI=\"s.m3u8\"\n\
        #EXT-X-STREAM-INF:BANDWIDTH=3000000,CODECS=\"avc1.64001f,mp4a.40.2\",RESOLUTION=1280x720,AUDIO=\"aac\"\n\
        /v/high.m3u8\n\
        #EXT-X-STREAM-INF:BANDWIDTH=3400000,CODECS=\"avc1.64001f,ac-3\",RESOLUTION=1280x720,AUDIO=\"ac3\"\n\
        /v/high.m3u8\n\
        #EXT-X-STREAM-INF:BANDWIDTH=900000,CODECS=\"avc1.4d401e,mp4a.40.2\",RESOLUTION=640x360,AUDIO=\"aac\"\n\
        /v/low.m3u8\n\
        #EXT-X-STREAM-INF:BANDWIDTH=2000000,CODECS=\"hvc1.1.6.L93,mp4a.40.2\",RESOLUTION=1280x720,AUDIO=\"aac\"\n\
        /v/hevc.m3u8\n\
        #EXT-X-STREAM-INF:BANDWIDTH=64000,CODECS=\"mp4a.40.2\",AUDIO=\"aac\"\n\
        en.m3u8\n\
        #EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=100000,URI=\"i.m3u8\"\n";
    let files =
        [("/a/m.m3u8", MASTER), ("/v/high.m3u8", SINGLE), ("/v/low.m3u8", TS), ("/a/en.m3u8", SINGLE)];
    let mut manifest =
        Manifest::parse(MASTER.as_bytes(), &url("https://h.example/a/m.m3u8"), None).expect("a manifest");
    assert!(matches!(manifest.presentation(AT), Err(Error::Waiting(_))));
    let files: HashMap<&str, &[u8]> = files.iter().map(|(path, text)| (*path, text.as_bytes())).collect();
    feed(&mut manifest, &files).expect("the playlists are read");
    let stream = manifest.presentation(AT).expect("a stream");
    let [low, high] = stream.main().qualities() else { panic!("{stream:?}") };
    assert_eq!((low.bit_rate(), high.bit_rate()), (BitRate::from_kbps(900), BitRate::from_mbps(3)));
    assert_eq!(low.resolution(), Some(Resolution::new(640, 360)));
    assert_eq!(high.codecs(), Some("avc1.64001f,mp4a.40.2"));
    let audio = stream.audio().expect("sound of its own");
    assert_eq!((audio.kind(), audio.qualities().len()), (TrackKind::Audio, 1));
    assert_eq!(audio.qualities()[0].id(), "https://h.example/a/en.m3u8?t=a=b");
    assert_eq!(audio.qualities()[0].codecs(), Some("mp4a.40.2"));
}

fn window(first: u64, count: u64, end: &str) -> String {
    let mut text = format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:{first}\n");
    for number in first..first + count {
        text.push_str(&format!("#EXTINF:2.0,\ns{number}.m4s\n"));
    }
    text + end
}

#[test]
fn a_live_playlist_slides_and_its_segments_keep_numbers_and_times() {
    let at = url("http://h.example/live.m3u8");
    let mut manifest = Manifest::parse(window(100, 5, "").as_bytes(), &at, None).expect("a manifest");
    let stream = manifest.presentation(AT).expect("a stream");
    assert_eq!((stream.is_live(), stream.refresh_after()), (true, Some(Duration::from_secs(2))));
    let mut refresh = |first, count, end| {
        manifest.refresh(Some(0));
        let list = window(first, count, end);
        feed(&mut manifest, &HashMap::from([("/live.m3u8", list.as_bytes())]))?;
        let stream = manifest.presentation(AT)?;
        let quality = &stream.main().qualities()[0];
        let first = quality.segments().first().map(|segment| (segment.number(), segment.start()));
        Ok::<_, Error>((stream.is_live(), first, stream.end()))
    };
    let secs = Duration::from_secs;
    assert_eq!(refresh(103, 5, ""), Ok((true, Some((103, secs(6))), secs(16))));
    // An old copy changes nothing.
    assert_eq!(refresh(102, 5, ""), Ok((true, Some((103, secs(6))), secs(16))));
    // What was missed has its time.
    assert_eq!(refresh(110, 2, ""), Ok((true, Some((110, secs(20))), secs(24))));
    let error = refresh(0, 2, "").expect_err("numbers went back");
    assert!(error.to_string().ends_with("went back from 110 to 1: the stream began anew"), "{error}");
    assert_eq!(refresh(111, 3, "#EXT-X-ENDLIST\n"), Ok((false, Some((111, secs(22))), secs(28))));
    manifest.refresh(None);
    assert_eq!(manifest.poll_fetch(), None, "what ended doesn't change");
}

#[test]
fn a_rendition_that_was_read_later_has_the_times_of_the_first() {
    const MASTER: &str =
        "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1000\na.m3u8\n#EXT-X-STREAM-INF:BANDWIDTH=2000\nb.m3u8\n";
    let (a, b) = (window(10, 3, ""), window(12, 3, ""));
    let files = [("/m.m3u8", MASTER), ("/a.m3u8", a.as_str()), ("/b.m3u8", b.as_str())];
    let (mut manifest, stream) = read("http://h.example/m.m3u8", &files, AT).expect("a stream");
    let [a, b] = stream.main().qualities() else { panic!("{stream:?}") };
    assert_eq!(a.segment(12).map(|segment| segment.start()), b.segment(12).map(|segment| segment.start()));
    assert_eq!(b.segments()[0].start(), Duration::from_secs(4));
    // Only what is played is read again.
    manifest.refresh(Some(1));
    assert_eq!(
        manifest.poll_fetch().map(|resource| resource.url().path().to_owned()),
        Some("/b.m3u8".into())
    );
    assert_eq!(manifest.poll_fetch(), None);
}

#[test]
fn discontinuities_gaps_and_changed_maps_are_kept() {
    let stream = media(
        "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MAP:URI=\"i0\"\n#EXTINF:2,\na\n#EXT-X-DISCONTINUITY\n\
         #EXT-X-MAP:URI=\"i1\"\n#EXTINF:2,\nb\n#EXT-X-GAP\n#EXTINF:2,\nc\n#EXTINF:2,\nd\n",
    )
    .expect("a stream");
    let segments = stream.main().qualities()[0].segments();
    let numbers: Vec<_> =
        segments.iter().map(|segment| (segment.number(), segment.is_discontinuous())).collect();
    assert_eq!(numbers, [(0, false), (1, true), (3, true)]);
    let inits: Vec<_> =
        segments.iter().filter_map(|segment| segment.init()).map(|init| init.url().path()).collect();
    assert_eq!(inits, ["/a/i0", "/a/i1", "/a/i1"]);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let begin = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n";
    for (rest, expected) in [
        ("#EXTINF:-2,\na.ts\n", r#"line 3: EXTINF is "-2"; expected seconds such as 6.006"#),
        ("#EXTINF:99999999999999999999,\na.ts\n", "line 3: EXTINF is"),
        ("a.ts\n", "line 3: a segment has no EXTINF before it"),
        ("#EXTINF:2,\n#EXT-X-BYTERANGE:5\na.ts\n", "line 4: EXT-X-BYTERANGE has no offset"),
        ("#EXTINF:2,\n#EXT-X-BYTERANGE:9@18446744073709551615\na.ts\n", "is no range of bytes"),
        ("#EXT-X-MEDIA-SEQUENCE:18446744073709551615\n#EXTINF:2,\na.ts\n", "pass 64 bits"),
        ("#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n", "the stream is encrypted (AES-128)"),
        (
            "#EXT-X-KEY:METHOD=SAMPLE-AES,KEYFORMAT=\"com.apple.streamingkeydelivery\"\n",
            "(SAMPLE-AES, com.apple",
        ),
        ("#EXT-X-KEY:URI=\"k\"\n", "line 3: EXT-X-KEY has no METHOD"),
        ("#EXT-X-MAP:URI=\"k\n", "line 3: EXT-X-MAP has a quotation that doesn't end"),
        ("#EXT-X-MAP:URI\n", "line 3: EXT-X-MAP has an attribute without \"=\""),
        ("#EXTINF:2,\nfile:///etc/passwd\n", "line 4: a URL of scheme \"file\": not supported"),
        ("#EXT-X-I-FRAMES-ONLY\n", "line 3: a playlist for trick play (EXT-X-I-FRAMES-ONLY): not supported"),
    ] {
        let error = media(&format!("{begin}{rest}")).expect_err(rest).to_string();
        assert!(error.contains(expected), "{rest:?}: {error}");
    }
    let error =
        Manifest::parse(b"<html>", &url("http://h.example/"), Some("text/html")).expect_err("no manifest");
    assert_eq!(
        error.to_string(),
        "this is neither an MPEG-DASH manifest nor an HLS playlist: the server calls it \"text/html\""
    );
}

#[test]
fn a_quality_that_is_not_there_is_left_out() {
    const MASTER: &str =
        "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1000\na.m3u8\n#EXT-X-STREAM-INF:BANDWIDTH=2000\nb.m3u8\n";
    let mut manifest =
        Manifest::parse(MASTER.as_bytes(), &url("http://h.example/m.m3u8"), None).expect("a manifest");
    let first = manifest.poll_fetch().expect("a playlist");
    manifest.handle_unavailable(&first).expect("there is another");
    let second = manifest.poll_fetch().expect("a playlist");
    let error = manifest.handle_unavailable(&second).expect_err("there is no other");
    assert!(matches!(error, Error::NoTrack(_)), "{error}");
    manifest.handle_fetched(&second, second.url(), TS.as_bytes()).expect("a playlist");
    assert_eq!(manifest.presentation(AT).expect("a stream").main().qualities().len(), 1);
}

#[test]
fn a_playlist_that_came_over_https_leads_to_no_plain_http() {
    let segment =
        |url: &str| format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\n{url}\n#EXT-X-ENDLIST\n");
    let at = url("https://bob:TOPSECRET@h.example/m");
    for (there, is_allowed) in [
        ("1.ts", true),
        ("https://cdn.example/1.ts", true),
        ("http://h.example/1.ts", false),
        ("HTTP://cdn.example/1.ts", false),
    ] {
        match Manifest::parse(segment(there).as_bytes(), &at, None) {
            Ok(_) => assert!(is_allowed, "{there}"),
            Err(error) => {
                assert!(
                    !is_allowed
                        && error.to_string().contains("an http:// URL in a manifest that came over https"),
                    "{error}"
                );
                assert!(!error.to_string().contains("TOPSECRET"), "{error}");
            }
        }
    }
    // Upwards is fine.
    assert!(
        Manifest::parse(segment("https://h.example/1.ts").as_bytes(), &url("http://h.example/m"), None)
            .is_ok()
    );
}

#[test]
fn what_is_said_of_a_url_has_no_password() {
    let at = url("http://bob:TOPSECRET@h.example/m");
    let master = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\na.m3u8\n";
    let mut manifest = Manifest::parse(master.as_bytes(), &at, None).expect("a manifest");
    let waiting = manifest.presentation(AT).expect_err("not yet").to_string();
    let asked = manifest.poll_fetch().expect("a playlist");
    let wrong = manifest.handle_fetched(&asked, asked.url(), b"<html>").expect_err("a page").to_string();
    let gone = manifest.handle_unavailable(&asked).expect_err("the only one").to_string();
    for text in [waiting, wrong, gone, asked.to_string()] {
        assert!(text.contains("http://h.example/a.m3u8") && !text.contains("bob"), "{text}");
    }
}
