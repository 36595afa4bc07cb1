//! Downloads and adaptive streams in real time: what ships, on the system's TCP over emulated paths, from one nginx.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use polypath_emulate::Emulation;
use polypath_fetch::download::{self, Dial, Done, Target};
use polypath_fetch::net::{Dialer, Tls, TlsOptions};
use polypath_fetch::stream::Buffering;
use polypath_fetch::streaming::{self, Summary, Told};
use polypath_lab::download::Movie;
use polypath_lab::run::{PathOutcome, PlaybackOutcome, StreamOutcome, StreamTraffic, VariantKind};
use polypath_lab::{Outcome, PathSet, Variant, Workload};
use polypath_testbed::Testbed;
use polypath_units::Instant;
use tokio::sync::mpsc;
use tokio::time::timeout;
use url::Url;

use super::{counted, links_of, neighbours_wait};
use crate::bench::BenchError;
use crate::bench::beside_kernel::scene::lead_everywhere;
use crate::bench::nginx::{HTTP_PORT, Nginx, make_file};

/// The name of a file at the server, and of a stream's manifest.
const FILE: &str = "file";
const MANIFEST: &str = "film.mpd";

/// Two hosts with a server, for one run.
struct Ground<'a> {
    set: &'a PathSet,
    variant: &'a Variant,
    initial_path: usize,
    // It ends before the namespaces that it is in.
    emulation: Emulation,
    testbed: Testbed,
    folder: tempfile::TempDir,
}

/// Carries a download or a stream. `None` if the workload is neither.
pub(super) fn run(
    set: &PathSet,
    variant: &Variant,
    workload: &Workload,
    seed: u64,
) -> Result<Option<Outcome>, BenchError> {
    let initial_path = variant.initial_path(set, workload, seed);
    let ground = || Ground::new(set, variant, initial_path, seed);
    match *workload {
        Workload::Download { bytes, timeout, player } => {
            let rate = player.map(|player| player.rate.as_bps() as f64 / 8.0);
            Ok(Some(ground()?.download(bytes, timeout.into(), rate)?))
        }
        Workload::Stream(traffic) => {
            Ok(Some(ground()?.stream(traffic, &Movie::new(traffic.duration, seed))?))
        }
        _ => Ok(None),
    }
}

impl<'a> Ground<'a> {
    fn new(
        set: &'a PathSet,
        variant: &'a Variant,
        initial_path: usize,
        seed: u64,
    ) -> Result<Self, BenchError> {
        let testbed = Testbed::with_middle(set.paths.len() as u8).map_err(BenchError::Namespaces)?;
        let middle = testbed.middle.as_ref();
        let middle = middle.ok_or_else(|| io::Error::other("hosts without anything between them"))?;
        let emulation = Emulation::start(middle, links_of(set, seed)).map_err(io::Error::from)?;
        testbed.make_neighbours(neighbours_wait(set))?;
        lead_everywhere(&testbed, variant.congestion.name())?;
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("site"))?;
        Ok(Self { set, variant, initial_path, emulation, testbed, folder })
    }

    fn site(&self) -> std::path::PathBuf {
        self.folder.path().join("site")
    }

    fn url(name: &str) -> Result<Url, BenchError> {
        let url = format!("http://{}:{HTTP_PORT}/{name}", Testbed::server_v4(0));
        Ok(Url::parse(&url).map_err(io::Error::other)?)
    }

    /// The paths that the variant uses, by the numbers that it knows them by.
    fn used(&self) -> Vec<usize> {
        match self.variant.kind {
            VariantKind::Multipath => (0..self.set.paths.len()).collect(),
            VariantKind::SinglePath | VariantKind::SplitPackets => vec![self.initial_path],
        }
    }

    /// Does something at the client, and counts what went over each path from the server.
    fn at_client<T: Send>(
        &self,
        work: impl AsyncFnOnce(mpsc::Receiver<Arc<dyn Dial>>) -> T + Send,
    ) -> Result<(T, Vec<PathOutcome>), BenchError> {
        let server = Nginx::start(&self.testbed, self.folder.path())?;
        let tls = Tls::new(&TlsOptions { is_unverified: true, ..TlsOptions::default() });
        let tls = tls.map_err(io::Error::other)?;
        let used = self.used();
        let (sender, ways) = mpsc::channel::<Arc<dyn Dial>>(used.len().max(1));
        for path in used {
            let dialer = Dialer::new(Some(&Testbed::interface(path as u8)), tls.clone());
            // There is room for all of them.
            let _ = sender.try_send(Arc::new(dialer));
        }
        let before = self.emulation.statistics()?;
        let done = self.testbed.client.run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            io::Result::Ok(runtime.block_on(work(ways)))
        })??;
        let after = self.emulation.statistics()?;
        drop((sender, server));
        // They come from the server: the other direction than that of other workloads.
        let paths = before.iter().zip(&after);
        Ok((done, paths.map(|(before, after)| counted(&before.backward, &after.backward)).collect()))
    }

    fn download(self, bytes: u64, limit: Duration, rate: Option<f64>) -> Result<Outcome, BenchError> {
        make_file(&self.site().join(FILE), bytes)?;
        let url = Self::url(FILE)?;
        let place = self.folder.path().join("copy");
        let options = download::Options {
            sizing: Some(self.variant.sizing.clone()),
            most_time: Some(limit),
            ..download::Options::default()
        };
        let target = Target::File { place: place.clone(), resume: false };
        let (done, paths) = self.at_client(async |ways| {
            download::download(url, &options, ways, target, std::future::pending(), |_| {}).await
        })?;
        let done = match done {
            Ok(done) => done,
            Err(download::DownloadError::TooLong(_)) => {
                return Ok(Outcome { initial_path: self.initial_path, paths, ..Outcome::default() });
            }
            Err(error) => return Err(io::Error::other(error).into()),
        };
        must_be_same(&place, &self.site().join(FILE))?;
        Ok(outcome_of(&done, rate, self.initial_path, paths))
    }

    fn stream(self, traffic: StreamTraffic, movie: &Movie) -> Result<Outcome, BenchError> {
        let StreamTraffic { buffer, timeout: limit, .. } = traffic;
        make_film(&self.site(), movie)?;
        let url = Self::url(MANIFEST)?;
        let options = streaming::Options {
            sizing: self.variant.sizing.clone(),
            adaptation: self.variant.adaptation.clone(),
            // The player begins when its buffer is full (K §6.3.1).
            buffering: Buffering { capacity: buffer, startup: buffer, after_stall: Movie::SEGMENT },
            ..streaming::Options::default()
        };
        let (mut qualities, mut bytes) = (Vec::new(), 0);
        let (streamed, paths) = self.at_client(async |ways| {
            let told = |told: Told| {
                if let Told::Segment(segment) = told {
                    bytes += segment.bytes.len() as u64;
                    qualities.push(segment.quality.bit_rate().as_bps());
                }
            };
            let streamed = streaming::stream(url, &options, ways, std::future::pending(), told);
            let begun = std::time::Instant::now();
            let streamed = timeout(limit.into(), streamed).await;
            streamed.map(|streamed| streamed.map(|summary| (summary, begun.elapsed())))
        })?;
        let outcome =
            Outcome { received_bytes: bytes, initial_path: self.initial_path, paths, ..Outcome::default() };
        match streamed {
            Ok(Ok((summary, took))) => Ok(streamed_outcome(outcome, &summary, took, &qualities, movie)),
            Ok(Err(error)) => Err(io::Error::other(error).into()),
            Err(_) => Ok(outcome),
        }
    }
}

fn outcome_of(done: &Done, rate: Option<f64>, initial_path: usize, paths: Vec<PathOutcome>) -> Outcome {
    let took = done.history.end().map(|end| end.since(Instant::ZERO).as_secs_f64());
    let playback = done.history.playback(rate).map(|playback| PlaybackOutcome {
        rate_bps: playback.bytes_per_second * 8.0,
        startup_s: playback.startup_latency.as_secs_f64(),
        buffer_bytes: playback.required_buffer_bytes,
        blocked_bytes: playback.most_blocked_bytes,
    });
    Outcome {
        received_bytes: done.total_bytes,
        goodput_bps: done.total_bytes as f64 * 8.0 / took.unwrap_or_default().max(1e-9),
        completion_s: took,
        initial_path,
        paths,
        playback,
        ..Outcome::default()
    }
}

fn streamed_outcome(
    outcome: Outcome,
    summary: &Summary,
    took: Duration,
    rates_bps: &[u64],
    movie: &Movie,
) -> Outcome {
    let count = rates_bps.len();
    let top_bps = Movie::rates().last().map(|rate| rate.as_bps());
    let took = took.as_secs_f64();
    let stream = StreamOutcome {
        segments: count as u64,
        planned_segments: movie.segments().len() as u64,
        top_segments: rates_bps.iter().filter(|rate| Some(**rate) == top_bps).count() as u64,
        mean_bps: rates_bps.iter().sum::<u64>() as f64 / count.max(1) as f64,
        changes: rates_bps.windows(2).filter(|pair| pair[0] != pair[1]).count() as u64,
        startup_s: summary.startup.map(|startup| startup.as_secs_f64()),
        stalls: summary.stalls.into(),
        stalled_s: summary.stalled_for.as_secs_f64(),
    };
    Outcome {
        goodput_bps: outcome.received_bytes as f64 * 8.0 / took.max(1e-9),
        completion_s: Some(took),
        stream: Some(stream),
        ..outcome
    }
}

/// The movie as DASH: a file for each quality, and where its segments are in it. So their sizes are known before, as in the simulator.
fn make_film(site: &Path, movie: &Movie) -> io::Result<()> {
    let seconds = Movie::SEGMENT.as_secs_f64();
    let count = movie.segments().len();
    let mut representations = String::new();
    for (quality, rate) in Movie::rates().iter().enumerate() {
        let mut end = 0;
        let segments = movie.segments().iter().map(|sizes| {
            let start = end;
            end += sizes[quality];
            format!(r#"<SegmentURL mediaRange="{start}-{}"/>"#, end - 1)
        });
        let segments: String = segments.collect();
        let number = quality + 1;
        make_file(&site.join(format!("{number}.mp4")), end)?;
        representations += &format!(
            r#"<Representation id="{number}" codecs="avc1.64001f" bandwidth="{}"><BaseURL>{number}.mp4</BaseURL><SegmentList duration="{seconds}">{segments}</SegmentList></Representation>"#,
            rate.as_bps()
        );
    }
    let manifest = format!(
        r#"<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" mediaPresentationDuration="PT{}S" profiles="urn:mpeg:dash:profile:isoff-main:2011"><Period><AdaptationSet mimeType="video/mp4" contentType="video">{representations}</AdaptationSet></Period></MPD>"#,
        count as f64 * seconds
    );
    fs::write(site.join(MANIFEST), manifest)
}

fn must_be_same(one: &Path, other: &Path) -> io::Result<()> {
    if fs::read(one)? == fs::read(other)? {
        return Ok(());
    }
    Err(io::Error::other("the download brought another file"))
}
