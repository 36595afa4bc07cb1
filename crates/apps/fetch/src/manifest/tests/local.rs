use std::time::SystemTime;

use m3u8_rs::{MediaPlaylistType, Playlist};
use polypath_units::Duration;

use super::dash::FFMPEG;
use super::read;
use crate::manifest::{Error, LocalPlaylist, Presentation, multivariant_playlist};

fn stream() -> Presentation {
    let files = [("/m.mpd", FFMPEG)];
    read("http://h.example/m.mpd", &files, SystemTime::UNIX_EPOCH).expect("a stream").1
}

fn media(playlist: &LocalPlaylist) -> m3u8_rs::MediaPlaylist {
    let text = playlist.to_string();
    match m3u8_rs::parse_playlist_res(text.as_bytes()) {
        Ok(Playlist::MediaPlaylist(list)) => list,
        other => panic!("{other:?} of {text}"),
    }
}

#[test]
fn another_reader_finds_each_segment_and_a_map_for_each_change_of_quality() {
    let stream = stream();
    let [low, high] = stream.main().qualities() else { panic!("{stream:?}") };
    let mut playlist = LocalPlaylist::new(stream.target_duration());
    assert!(!media(&playlist).end_list);
    for (at, quality, init) in [(0, low, "low/i"), (1, high, "high/i"), (2, high, "high/i")] {
        let segment = &quality.segments()[at];
        playlist.push(quality, segment, &format!("{at}.m4s"), Some(init)).expect("it follows");
    }
    playlist.end();
    let list = media(&playlist);
    assert_eq!(
        (list.version, list.target_duration, list.media_sequence, list.end_list),
        (Some(6), 5, 0, true)
    );
    assert_eq!(list.playlist_type, Some(MediaPlaylistType::Event));
    assert_eq!(list.start.map(|start| start.time_offset), Some(0.0));
    let listed: Vec<_> = (list.segments.iter())
        .map(|segment| {
            (
                segment.uri.as_str(),
                segment.duration,
                segment.map.as_ref().map(|map| map.uri.as_str()),
                segment.discontinuity,
            )
        })
        .collect();
    let expected = [
        ("0.m4s", 4.0, Some("low/i"), false),
        ("1.m4s", 4.0, Some("high/i"), false),
        ("2.m4s", 1.0, None, false),
    ];
    assert_eq!(listed, expected);
}

#[test]
fn a_discontinuity_stands_only_where_time_or_codec_break() {
    let stream = stream();
    let [low, high] = stream.main().qualities() else { panic!("{stream:?}") };
    let mut other_codec = high.clone();
    other_codec.codecs = Some("hvc1.1".into());
    let mut marked = low.segments()[2].clone();
    marked.is_discontinuous = true;
    let segments = low.segments();
    let breaks = |pushes: &[(&crate::manifest::Quality, &crate::manifest::Segment)]| {
        let mut playlist = LocalPlaylist::new(Duration::from_secs(4));
        for (quality, segment) in pushes {
            playlist.push(quality, segment, "s", Some("i")).expect("it follows");
        }
        media(&playlist).segments.iter().map(|segment| segment.discontinuity).collect::<Vec<_>>()
    };
    assert_eq!(breaks(&[(low, &segments[0]), (high, &segments[1])]), [false, false]);
    assert_eq!(breaks(&[(low, &segments[0]), (&other_codec, &segments[1])]), [false, true]);
    assert_eq!(breaks(&[(low, &segments[0]), (low, &segments[2])]), [false, true], "one is missing");
    assert_eq!(breaks(&[(low, &segments[1]), (low, &marked)]), [false, true]);
}

#[test]
fn what_has_no_map_cannot_follow_what_has_one() {
    let stream = stream();
    let low = &stream.main().qualities()[0];
    let mut playlist = LocalPlaylist::new(Duration::from_secs(4));
    playlist.push(low, &low.segments()[0], "a", Some("i")).expect("it is the first");
    assert_eq!(playlist.push(low, &low.segments()[1], "b", None), Err(Error::OtherContainer));
    playlist.push(low, &low.segments()[1], "b", Some("i")).expect("it follows");
    assert_eq!(media(&playlist).segments.len(), 2);
}

#[test]
fn pictures_and_sound_are_put_together() {
    let stream = stream();
    let text = multivariant_playlist(stream.main(), "v.m3u8", stream.audio().expect("sound"), "a.m3u8");
    let Ok(Playlist::MasterPlaylist(list)) = m3u8_rs::parse_playlist_res(text.as_bytes()) else {
        panic!("{text}")
    };
    let [variant] = &list.variants[..] else { panic!("{text}") };
    assert_eq!((variant.uri.as_str(), variant.bandwidth), ("v.m3u8", 928_000));
    assert_eq!(variant.codecs.as_deref(), Some("avc1.64001e,mp4a.40.2"));
    assert_eq!(variant.resolution.map(|size| (size.width, size.height)), Some((640, 360)));
    let [audio] = &list.alternatives[..] else { panic!("{text}") };
    assert_eq!((audio.uri.as_deref(), Some(&audio.group_id)), (Some("a.m3u8"), variant.audio.as_ref()));
    assert!(audio.default && audio.autoselect);
}
