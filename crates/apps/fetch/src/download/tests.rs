//! Downloads from servers of all kinds, over two ways that both lead through the loopback interface.

mod cookies;
mod http2;
mod many;
mod mirrors;
mod server;
mod shorter;

use std::fs;
use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::sync::{Notify, mpsc};
use url::Url;

use self::server::{Behaviour, Server};
use super::{Dial, Dialing, Done, DownloadError, Options, Progress, Target, Wire, download};
use crate::answer::{Digest, DigestAlgorithm};
use crate::http1;
use crate::net::{Dialer, Tls, TlsOptions};
use crate::playback::History;

/// A way through the loopback interface.
struct Way(&'static str, Dialer);

impl Dial for Way {
    fn name(&self) -> &str {
        self.0
    }

    fn dial<'a>(&'a self, url: &'a Url) -> Dialing<'a> {
        Box::pin(async {
            let stream = self.1.dial(url).await.map_err(std::io::Error::other)?;
            Ok(Box::new(stream) as Box<dyn Wire>)
        })
    }

    fn request(&self, url: &Url) -> Result<http1::Request, http1::InvalidRequest> {
        Dial::request(&self.1, url)
    }
}

fn tls() -> Tls {
    let options = TlsOptions { is_unverified: true, offers_http2: true, ..TlsOptions::default() };
    Tls::new(&options).expect("TLS")
}

fn ways() -> mpsc::Receiver<Arc<dyn Dial>> {
    let (sender, receiver) = mpsc::channel(2);
    for name in ["wlan0", "wwan0"] {
        let way: Arc<dyn Dial> = Arc::new(Way(name, Dialer::new(None, tls())));
        sender.try_send(way).expect("room");
    }
    receiver
}

/// Each byte tells where it is.
fn content(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Tells when so many bytes came.
struct Came {
    left: AtomicU64,
    enough: Notify,
}

fn came(bytes: u64) -> Came {
    Came { left: bytes.into(), enough: Notify::new() }
}

impl Came {
    fn note(&self, bytes: u64) {
        let left = self.left.load(Ordering::Relaxed).saturating_sub(bytes);
        self.left.store(left, Ordering::Relaxed);
        if left == 0 {
            self.enough.notify_waiters();
        }
    }

    async fn wait(&self) {
        loop {
            let told = self.enough.notified();
            if self.left.load(Ordering::Relaxed) == 0 {
                return;
            }
            told.await;
        }
    }
}

struct Case {
    folder: TempDir,
    options: Options,
    notices: Vec<String>,
    /// Why paths were lost.
    lost: Vec<String>,
    /// Of each attempt, when what came.
    over: Vec<History>,
}

impl Case {
    fn new() -> Self {
        let options = Options { silence: Some(Duration::from_secs(3)), ..Options::default() };
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            options,
            notices: Vec::new(),
            lost: Vec::new(),
            over: Vec::new(),
        }
    }

    fn place(&self) -> PathBuf {
        self.folder.path().join("file")
    }

    async fn fetch(&mut self, server: &Server) -> Result<Done, DownloadError> {
        self.fetch_until(server, &came(u64::MAX)).await
    }

    /// Fetches until so many bytes came as whoever waits for them wants.
    async fn fetch_until(&mut self, server: &Server, enough: &Came) -> Result<Done, DownloadError> {
        let target = Target::File { place: self.place(), resume: true };
        let (notices, lost, over) = (&mut self.notices, &mut self.lost, &mut self.over);
        let note = |progress| match progress {
            Progress::Notice(text) => notices.push(text),
            Progress::Lost { cause, .. } => lost.push(cause),
            Progress::Bytes { bytes, .. } => enough.note(bytes),
            Progress::Over(history) => over.push(*history),
            _ => {}
        };
        download(server.url(), &self.options, ways(), target, enough.wait(), note).await
    }

    fn has(&self, content: &[u8]) -> bool {
        let names: Vec<_> = fs::read_dir(self.folder.path()).expect("a folder").collect();
        fs::read(self.place()).is_ok_and(|found| found == content) && names.len() == 1
    }
}

#[tokio::test]
async fn a_file_comes_over_both_ways() {
    let file = content(6_000_000);
    let server =
        Server::start(file.clone(), Behaviour { bytes_per_second: Some(3_000_000), ..Behaviour::default() })
            .await;
    let mut case = Case::new();
    let done = case.fetch(&server).await.expect("a file");
    assert!(case.has(&file));
    assert_eq!(done.path_bytes.iter().sum::<u64>(), 6_000_000);
    assert!(done.path_bytes.iter().all(|bytes| *bytes > 0), "{:?}", done.path_bytes);
    let playback = case.over[0].playback(None).expect("a playback");
    assert!(playback.most_blocked_bytes < 6_000_000, "{playback:?}");
}

#[tokio::test]
async fn servers_of_all_kinds_give_the_file() {
    let file = content(700_000);
    let kinds = [
        ("plain", Behaviour::default()),
        ("without ranges", Behaviour { has_ranges: false, ..Behaviour::default() }),
        ("chunked", Behaviour { has_ranges: false, is_chunked: true, ..Behaviour::default() }),
        ("without validators", Behaviour { etag: None, ..Behaviour::default() }),
        ("one request a connection", Behaviour { closes_after: Some(1), ..Behaviour::default() }),
        ("breaks off", Behaviour { breaks_after: vec![50_000, 10_000, 120_000], ..Behaviour::default() }),
        (
            "breaks off without ranges",
            Behaviour { breaks_after: vec![50_000], has_ranges: false, ..Behaviour::default() },
        ),
    ];
    for (name, behaviour) in kinds {
        let server = Server::start(file.clone(), behaviour).await;
        let mut case = Case::new();
        let done = case.fetch(&server).await;
        assert!(done.is_ok() && case.has(&file), "{name}: {done:?}");
        // That the others were not needed is no loss.
        let is_whole = ["without ranges", "chunked", "without validators"].contains(&name);
        assert!(!is_whole || case.lost.is_empty(), "{name}: {:?}", case.lost);
    }
    for len in [0, 1, 65_535, 65_536, 65_537] {
        let file = content(len);
        let server = Server::start(file.clone(), Behaviour::default()).await;
        let mut case = Case::new();
        let done = case.fetch(&server).await;
        assert!(done.is_ok() && case.has(&file), "{len} bytes: {done:?}");
    }
}

/// A way that is there when the server was asked over another, if ever.
struct LateWay(Way, Option<Arc<Server>>);

impl Dial for LateWay {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn dial<'a>(&'a self, url: &'a Url) -> Dialing<'a> {
        Box::pin(async {
            let Some(server) = &self.1 else { return pending().await };
            while server.requests().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            self.0.dial(url).await
        })
    }

    fn request(&self, url: &Url) -> Result<http1::Request, http1::InvalidRequest> {
        self.0.request(url)
    }
}

#[tokio::test]
async fn one_answer_comes_over_the_first_way_that_brings_it() {
    let file = content(700_000);
    let without = Behaviour { has_ranges: false, ..Behaviour::default() };
    let kinds = [without, Behaviour { etag: None, ..Behaviour::default() }];
    for (behaviour, is_ever_there) in kinds.into_iter().flat_map(|kind| [(kind.clone(), true), (kind, false)])
    {
        let server = Arc::new(Server::start(file.clone(), behaviour).await);
        let way = |name| Way(name, Dialer::new(None, tls()));
        let (sender, ways) = mpsc::channel::<Arc<dyn Dial>>(2);
        let late = LateWay(way("wlan0"), is_ever_there.then(|| server.clone()));
        sender.try_send(Arc::new(late)).expect("room");
        sender.try_send(Arc::new(way("wwan0"))).expect("room");
        let case = Case::new();
        let target = Target::File { place: case.place(), resume: false };
        let mut one = None;
        let note = |progress| {
            if let Progress::OnePath { path, .. } = progress {
                one = Some(path);
            }
        };
        let done =
            download(server.url(), &case.options, ways, target, pending(), note).await.expect("a file");
        assert!(case.has(&file));
        let expected = usize::from(!is_ever_there);
        assert_eq!((one, done.path_bytes[expected]), (Some(expected), 700_000));
    }
}

#[tokio::test]
async fn what_does_not_fit_together_is_no_file() {
    let file = content(3_000_000);
    let slow = Behaviour { bytes_per_second: Some(6_000_000), ..Behaviour::default() };
    let kinds = [
        ("changes", Behaviour { changes_after: Some(2), ..slow.clone() }, "the file changed on the server"),
        ("other range", Behaviour { shifts_ranges_by: 1, ..slow.clone() }, "asked were"),
        ("two digests", Behaviour { has_random_digests: true, ..slow.clone() }, "two sha-256 digests"),
        ("wrong digest", Behaviour { digest: Some([7; 32]), ..slow.clone() }, "expected 0707"),
        ("refuses", Behaviour { status: Some(404), ..slow.clone() }, "404 (not found)"),
        ("too long", Behaviour { sends_more_by: 5, ..slow.clone() }, ""),
    ];
    for (name, behaviour, words) in kinds {
        let server = Server::start(file.clone(), behaviour).await;
        let mut case = Case::new();
        let failed = case.fetch(&server).await.expect_err(name);
        assert!(failed.to_string().contains(words), "{name}: {failed}");
        assert!(!case.place().exists(), "{name}");
    }
}

/// A way on which something answers in the server's place.
struct Captive(Dialer, Url);

impl Dial for Captive {
    fn name(&self) -> &str {
        "wlan0"
    }

    fn dial<'a>(&'a self, _: &'a Url) -> Dialing<'a> {
        Box::pin(async {
            let stream = self.0.dial(&self.1).await.map_err(std::io::Error::other)?;
            Ok(Box::new(stream) as Box<dyn Wire>)
        })
    }

    fn request(&self, url: &Url) -> Result<http1::Request, http1::InvalidRequest> {
        Dial::request(&self.0, url)
    }
}

#[tokio::test]
async fn what_one_network_says_in_the_servers_place_does_not_count_where_another_has_the_file() {
    let file = content(700_000);
    let slow = Behaviour { bytes_per_second: Some(1_000_000), ..Behaviour::default() };
    let server = Server::start(file.clone(), slow).await;
    let login = Server::start(b"who are you?".to_vec(), Behaviour::default()).await;
    let answers = [
        Behaviour { status: Some(302), location: Some(login.url().into()), ..Behaviour::default() },
        Behaviour { status: Some(404), ..Behaviour::default() },
        Behaviour { etag: Some("\"login\"".into()), changes_after: Some(0), ..Behaviour::default() },
        // A page, in place of whatever is asked for.
        Behaviour { has_ranges: false, etag: None, is_page: true, ..Behaviour::default() },
    ];
    for (number, behaviour) in answers.into_iter().enumerate() {
        let says = if behaviour.is_page { b"<html>who are you?".to_vec() } else { file.clone() };
        let captive = Server::start(says, behaviour).await;
        let dialer = || Dialer::new(None, tls());
        let (sender, ways) = mpsc::channel::<Arc<dyn Dial>>(2);
        // Of another version, it must not come first: nobody could tell which is right.
        let captive: Arc<dyn Dial> = Arc::new(Captive(dialer(), captive.url()));
        let honest: Arc<dyn Dial> = Arc::new(Way("wwan0", dialer()));
        let is_late = number == 2;
        for way in if is_late { vec![honest] } else { vec![captive.clone(), honest] } {
            sender.try_send(way).expect("room");
        }
        let case = Case::new();
        let target = Target::File { place: case.place(), resume: false };
        let mut late = is_late.then_some((sender, captive));
        let begun = |progress| {
            if matches!(progress, Progress::Bytes { .. })
                && let Some((sender, captive)) = late.take()
            {
                sender.try_send(captive).expect("room");
            }
        };
        let done = download(server.url(), &case.options, ways, target, pending(), begun).await;
        assert!(done.is_ok() && case.has(&file), "{number}: {done:?}");
    }
}

#[tokio::test]
async fn a_page_takes_away_nothing_that_is_there() {
    let file = content(3_000_000);
    let slow = Behaviour { bytes_per_second: Some(1_000_000), ..Behaviour::default() };
    let server = Server::start(file.clone(), slow).await;
    let page = Behaviour { has_ranges: false, etag: None, is_page: true, ..Behaviour::default() };
    let captive = Server::start(b"<html>who are you?".to_vec(), page).await;
    let mut case = Case::new();
    let enough = came(300_000);
    assert!(case.fetch_until(&server, &enough).await.is_err());
    let parts = case.folder.path().join("file.parts");
    let before = fs::read(&parts).expect("parts");
    let try_over = async |ways: Vec<Arc<dyn Dial>>| {
        let (sender, receiver) = mpsc::channel::<Arc<dyn Dial>>(2);
        ways.into_iter().for_each(|way| sender.try_send(way).expect("room"));
        let target = Target::File { place: case.place(), resume: true };
        download(server.url(), &case.options, receiver, target, pending(), |_| {}).await
    };
    let captive = || Arc::new(Captive(Dialer::new(None, tls()), captive.url())) as Arc<dyn Dial>;
    let honest = Arc::new(Way("wwan0", Dialer::new(None, tls()))) as Arc<dyn Dial>;
    assert!(try_over(vec![captive()]).await.is_err());
    assert_eq!(fs::read(&parts).expect("parts"), before);
    let done = try_over(vec![captive(), honest]).await.expect("a file");
    assert!(done.path_bytes[1] < 3_000_000 - 200_000 && case.has(&file), "{done:?}");
}

/// The page comes at once, the file a little later.
#[tokio::test]
async fn a_page_on_one_network_is_not_the_file_whatever_is_there_already() {
    let file = content(700_000);
    let page = Behaviour { has_ranges: false, etag: None, is_page: true, ..Behaviour::default() };
    let kinds = [
        Behaviour::default(),
        Behaviour { has_ranges: false, ..Behaviour::default() },
        Behaviour { etag: None, ..Behaviour::default() },
    ];
    for (number, behaviour) in kinds.into_iter().enumerate() {
        let server = Arc::new(Server::start(file.clone(), behaviour).await);
        let captive = Arc::new(Server::start(b"<html>who are you?".to_vec(), page.clone()).await);
        let case = Case::new();
        let (sender, ways) = mpsc::channel::<Arc<dyn Dial>>(2);
        let first: Arc<dyn Dial> = Arc::new(Captive(Dialer::new(None, tls()), captive.url()));
        let late = LateWay(Way("wwan0", Dialer::new(None, tls())), Some(captive.clone()));
        sender.try_send(first).expect("room");
        sender.try_send(Arc::new(late)).expect("room");
        let target = Target::File { place: case.place(), resume: false };
        let done = download(server.url(), &case.options, ways, target, pending(), |_| {}).await;
        assert!(done.is_ok() && case.has(&file), "{number}: {done:?}");
    }
}

#[tokio::test]
async fn parts_that_were_taken_away_become_no_file() {
    let file = content(700_000);
    let slow = Behaviour { bytes_per_second: Some(500_000), ..Behaviour::default() };
    let server = Server::start(file.clone(), slow).await;
    let case = Case::new();
    let parts = case.folder.path().join("file.parts");
    let target = Target::File { place: case.place(), resume: false };
    let replace = |progress| {
        if matches!(progress, Progress::Bytes { .. }) {
            fs::remove_file(&parts).expect("our own file");
            fs::write(&parts, "somebody else's").expect("a file");
        }
    };
    let failed = download(server.url(), &case.options, ways(), target, pending(), replace).await;
    let failed = failed.expect_err("no file").to_string();
    assert!(failed.contains("replaced by others"), "{failed}");
    // What says which bytes are there is not of these.
    let record = case.folder.path().join("file.parts.json");
    assert!(!case.place().exists() && !record.exists());
    // A record that never ends, or makes whoever reads it wait, is none.
    std::os::unix::fs::symlink("/dev/zero", record).expect("a link");
    let mut case = case;
    let refused = case.fetch(&server).await.expect_err("somebody's file").to_string();
    assert!(refused.contains("no download left"), "{refused}");
    assert_eq!(fs::read(&parts).expect("somebody's file"), b"somebody else's");
    fs::remove_file(&parts).expect("a file");
    case.fetch(&server).await.expect("a file");
    assert!(case.has(&file));
}

#[tokio::test]
async fn whoever_takes_nothing_holds_up_no_end() {
    let server = Server::start(content(3_000_000), Behaviour::default()).await;
    let (full, _unread) = tokio::io::duplex(1000);
    let case = Case::new();
    let target = Target::Stream(Box::new(full));
    let enough = tokio::time::sleep(Duration::from_millis(300));
    let stopped = download(server.url(), &case.options, ways(), target, enough, |_| {}).await;
    assert!(matches!(stopped, Err(DownloadError::Interrupted { .. })), "{stopped:?}");
}

#[tokio::test]
async fn a_server_that_breaks_off_for_ever_is_given_up() {
    let behaviour = Behaviour { breaks_after: vec![50_000; 100], has_ranges: false, ..Behaviour::default() };
    let server = Server::start(content(700_000), behaviour).await;
    let failed = Case::new().fetch(&server).await.expect_err("no file");
    assert!(matches!(failed, DownloadError::Broken { .. }), "{failed}");
}

#[tokio::test]
async fn an_attempt_goes_on_where_another_ended_unless_the_file_is_another_one() {
    let file = content(3_000_000);
    let slow = Behaviour { bytes_per_second: Some(2_000_000), ..Behaviour::default() };
    let server = Server::start(file.clone(), slow.clone()).await;
    let mut case = Case::new();
    let stopped = case.fetch_until(&server, &came(1_000_000)).await.expect_err("a part");
    let DownloadError::Interrupted { kept: Some(kept) } = &stopped else { panic!("{stopped:?}") };
    assert!(kept.is_resumable && kept.bytes >= 1_000_000, "{kept:?}");
    assert!(stopped.to_string().ends_with("/file.parts; --resume goes on from there"), "{stopped}");
    assert!(kept.parts.exists() && !case.place().exists());
    let done = case.fetch(&server).await.expect("the rest");
    let rest: u64 = done.path_bytes.iter().sum();
    assert!(case.has(&file) && rest <= 2_000_000, "{rest}");
    let ends = case.over.iter().map(|over| over.course().last().expect("bytes").total_bytes);
    assert_eq!(ends.collect::<Vec<_>>(), [kept.bytes, 3_000_000]);
    let present = case.over[1].course().next().expect("bytes").total_bytes;
    assert!((1_000_000..=kept.bytes).contains(&present), "{present}");

    let mut case = Case::new();
    let stopped = case.fetch_until(&server, &came(1_000_000)).await;
    assert!(stopped.is_err());
    let other: Vec<u8> = file.iter().rev().copied().collect();
    server.replace(other.clone(), "\"other\"");
    let done = case.fetch(&server).await;
    assert!(done.is_ok() && case.has(&other), "{done:?} {:?}", case.notices);
    assert!(case.notices.iter().any(|notice| notice.contains("from the beginning")), "{:?}", case.notices);
}

#[tokio::test]
async fn a_server_that_is_away_for_a_while_is_waited_for() {
    let file = content(2_000_000);
    let slow = Behaviour { bytes_per_second: Some(2_000_000), ..Behaviour::default() };
    let server = Server::start(file.clone(), slow).await;
    let case = Case::new();
    let enough = came(500_000);
    let away = async {
        enough.wait().await;
        server.pause().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.resume().await;
    };
    let done = {
        let target = Target::File { place: case.place(), resume: true };
        let note = |progress| {
            if let Progress::Bytes { bytes, .. } = progress {
                enough.note(bytes);
            }
        };
        let fetching = download(server.url(), &case.options, ways(), target, pending(), note);
        tokio::join!(fetching, away).0
    };
    assert!(done.is_ok() && case.has(&file), "{done:?}");
}

#[tokio::test]
async fn whoever_takes_it_in_order_gets_it_in_order() {
    let file = content(3_000_000);
    let server =
        Server::start(file.clone(), Behaviour { bytes_per_second: Some(4_000_000), ..Behaviour::default() })
            .await;
    let (to, mut from) = tokio::io::duplex(10_000);
    let digest = Digest { algorithm: DigestAlgorithm::Sha256, value: Sha256::digest(&file).to_vec() };
    let options = Options { digests: vec![digest], ..Options::default() };
    let reading = async {
        let mut found = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut from, &mut found).await.map(|_| found)
    };
    let target = Target::Stream(Box::new(to));
    let (done, found) =
        tokio::join!(download(server.url(), &options, ways(), target, pending(), |_| ()), reading);
    assert!(done.is_ok() && found.expect("bytes") == file, "{done:?}");
}

#[tokio::test]
async fn a_redirection_is_followed_without_the_password() {
    let file = content(100_000);
    let server = Server::start(file.clone(), Behaviour::default()).await;
    let other = Server::start(
        Vec::new(),
        Behaviour { location: Some(server.url().to_string()), ..Behaviour::default() },
    )
    .await;
    let mut case = Case::new();
    case.options.fields = vec![("Authorization".into(), "Basic x".into()), ("X-Other".into(), "y".into())];
    let done = case.fetch(&other).await.expect("a file");
    assert!(case.has(&file) && done.url == server.url());
    assert!(other.requests().iter().all(|request| request.contains("Authorization: Basic x")));
    assert!(
        server
            .requests()
            .iter()
            .all(|request| !request.contains("Basic x") && request.contains("X-Other: y"))
    );
}

#[tokio::test]
async fn two_downloads_of_one_file_do_not_mix_and_a_password_is_not_written_down() {
    let file = content(3_000_000);
    let slow = Behaviour { bytes_per_second: Some(2_000_000), ..Behaviour::default() };
    let server = Server::start(file, slow).await;
    let case = Case::new();
    let target = || Target::File { place: case.place(), resume: true };
    let mut url = server.url();
    url.set_password(Some("secret")).and_then(|()| url.set_username("me")).expect("a URL with a user");
    let enough = came(1_000_000);
    let note = |progress| {
        if let Progress::Bytes { bytes, .. } = progress {
            enough.note(bytes);
        }
    };
    let first = download(url.clone(), &case.options, ways(), target(), enough.wait(), note);
    let second = async {
        tokio::task::yield_now().await;
        download(url.clone(), &case.options, ways(), target(), pending(), |_| ()).await
    };
    let (first, second) = tokio::join!(first, second);
    assert!(matches!(first, Err(DownloadError::Interrupted { .. })), "{first:?}");
    assert!(second.expect_err("the first has it").to_string().contains("another download"));
    let record = fs::read_to_string(case.folder.path().join("file.parts.json")).expect("a record");
    assert!(record.contains("127.0.0.1") && !record.contains("secret"), "{record}");
}
