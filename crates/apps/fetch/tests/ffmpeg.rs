//! Streams that ffmpeg makes are read, and ffprobe reads what is offered of them. Needs both programs.
#![cfg(feature = "stream")]

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use polypath_fetch::manifest::{LocalPlaylist, Manifest, Presentation, multivariant_playlist};
use url::Url;

/// Two qualities of moving pictures at 25 frames a second, and a tone: 6 s.
const INPUT: &[&str] = &[
    "-f",
    "lavfi",
    "-i",
    "testsrc2=size=320x180:rate=25:duration=6",
    "-f",
    "lavfi",
    "-i",
    "sine=duration=6",
    "-map",
    "0:v",
    "-map",
    "0:v",
    "-map",
    "1:a",
    "-c:v",
    "mpeg4",
    "-g",
    "50",
    "-keyint_min",
    "50",
    "-b:v:0",
    "200k",
    "-b:v:1",
    "600k",
    "-s:v:1",
    "640x360",
    "-c:a",
    "aac",
    "-b:a",
    "64k",
];

fn run(folder: &Path, program: &str, arguments: &[&[&str]]) -> Option<String> {
    let output = Command::new(program).current_dir(folder).args(arguments.concat()).output().ok()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {errors}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn is_there_or_skip(folder: &Path) -> bool {
    let is_there =
        ["ffmpeg", "ffprobe"].iter().all(|program| run(folder, program, &[&["-version"]]).is_some());
    if !is_there {
        eprintln!("SKIPPED: ffmpeg and ffprobe aren't installed");
    }
    is_there
}

fn read(folder: &Path, name: &str) -> Presentation {
    let url = Url::parse("http://h.example/").and_then(|base| base.join(name)).expect("a URL");
    let file = |url: &Url| fs::read(folder.join(&url.path()[1..])).expect("a file of ffmpeg's");
    let mut manifest = Manifest::parse(&file(&url), &url, None).expect("a manifest");
    while let Some(resource) = manifest.poll_fetch() {
        manifest.handle_fetched(&resource, resource.url(), &file(resource.url())).expect("a playlist");
    }
    manifest.presentation(SystemTime::UNIX_EPOCH).expect("a stream")
}

/// Writes a playlist of a track, each segment of the next quality, and gives back how many maps it has.
fn offer(folder: &Path, name: &str, stream: &Presentation, is_audio: bool) -> usize {
    let track = if is_audio { stream.audio().expect("sound of its own") } else { stream.main() };
    let mut playlist = LocalPlaylist::new(stream.target_duration());
    for number in track.qualities()[0].segments().iter().map(|segment| segment.number()) {
        let quality = &track.qualities()[number as usize % track.qualities().len()];
        let segment = quality.segment(number).expect("the qualities are aligned");
        let init = segment.init().map(|init| init.url().path()[1..].to_owned());
        let uri = &segment.resource().url().path()[1..];
        playlist.push(quality, segment, uri, init.as_deref()).expect("it follows");
    }
    playlist.end();
    let text = playlist.to_string();
    assert!(!text.contains("DISCONTINUITY"), "{text}");
    fs::write(folder.join(name), &text).expect("a playlist");
    text.matches("EXT-X-MAP").count()
}

/// Packets of the first stream of a kind.
fn packets(folder: &Path, name: &str, kind: &str) -> usize {
    const SHOW: &[&str] =
        &["-v", "error", "-allowed_extensions", "ALL", "-show_entries", "packet=pts_time", "-of", "csv=p=0"];
    let list = run(folder, "ffprobe", &[SHOW, &["-select_streams", kind, name]]).expect("ffprobe");
    // Each by its time, as some are listed again where a playlist is opened.
    list.lines().filter(|line| !line.is_empty()).collect::<HashSet<_>>().len()
}

#[test]
fn what_ffmpeg_makes_is_read_and_what_is_offered_is_played() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    if !is_there_or_skip(folder) {
        return;
    }
    let begin = [&["-v", "error"][..], INPUT].concat();
    run(folder, "ffmpeg", &[&begin, &["-f", "dash", "-seg_duration", "2", "m.mpd"]]);
    let hls = ["-f", "hls", "-hls_time", "2", "-hls_playlist_type", "vod", "-master_pl_name", "master.m3u8"];
    let map = ["-var_stream_map", "v:0,agroup:a v:1,agroup:a a:0,agroup:a,default:yes", "s%v.m3u8"];
    run(folder, "ffmpeg", &[&begin, &hls, &map]);
    for (name, maps) in [("m.mpd", 3), ("master.m3u8", 0)] {
        let stream = read(folder, name);
        assert_eq!((stream.is_live(), stream.main().qualities().len()), (false, 2), "{name}");
        assert!((5.9..6.1).contains(&stream.end().as_secs_f64()), "{name}: {stream:?}");
        assert_eq!(offer(folder, "v.m3u8", &stream, false), maps, "{name}");
        offer(folder, "a.m3u8", &stream, true);
        let audio = stream.audio().expect("sound of its own");
        fs::write(folder.join("local.m3u8"), multivariant_playlist(stream.main(), "v.m3u8", audio, "a.m3u8"))
            .expect("a playlist");
        assert_eq!(packets(folder, "local.m3u8", "v:0"), 150, "{name}: 6 s of 25 pictures");
        assert!(packets(folder, "local.m3u8", "a:0") > 240, "{name}: 6 s of sound");
    }
}
