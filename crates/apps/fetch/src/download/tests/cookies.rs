//! Cookies of downloads: which requests have some, and from which answers they are taken.

use super::*;
use crate::cookies::{Cookies, Jar};
use crate::download::{ManyEvent, Wanted, download_many};

/// A case with cookies that a person gave, and with a jar.
fn case() -> (Case, Cookies) {
    let (mut case, cookies) = (Case::new(), Cookies::new(Jar::default(), true));
    case.options.fields = vec![("Cookie".into(), "given=1".into())];
    case.options.cookies = Some(cookies.clone());
    (case, cookies)
}

/// The fields of cookies in all requests that a server had.
fn cookies_of(server: &Server) -> Vec<Option<String>> {
    let field =
        |request: &String| request.lines().find_map(|line| line.strip_prefix("Cookie: ")).map(str::to_owned);
    server.requests().iter().map(field).collect()
}

/// The same server by another name.
fn by_name(server: &Server) -> Url {
    let mut url = server.url();
    url.set_host(Some("localhost")).expect("a host");
    url
}

fn sets(set_cookie: &'static str) -> Behaviour {
    Behaviour { set_cookie: Some(set_cookie), ..Behaviour::default() }
}

#[tokio::test]
async fn a_cookie_that_was_given_goes_to_the_first_server_alone() {
    let file = content(700_000);
    for is_elsewhere in [false, true] {
        let last = Server::start(file.clone(), sets("last=3")).await;
        let to = if is_elsewhere { by_name(&last) } else { last.url() };
        let sends = Behaviour { location: Some(to.into()), ..sets("first=2; path=/") };
        let first = Server::start(Vec::new(), sends).await;
        let (mut case, cookies) = case();
        case.fetch(&first).await.expect("a file");
        assert!(case.has(&file));
        assert_eq!(cookies_of(&first)[0].as_deref(), Some("given=1"));
        // Cookies make no difference between ports, and what was given does.
        let asked = cookies_of(&last);
        let expected = (!is_elsewhere).then(|| "first=2".to_owned());
        assert_eq!(asked[0], expected);
        assert!(asked.iter().flatten().all(|field| !field.contains("given")), "{asked:?}");
        let kept = cookies.to_file();
        assert!(
            kept.contains("\tfirst\t2\n") && kept.contains("\tlast\t3\n") && !kept.contains("given"),
            "{kept}"
        );
    }
}

#[tokio::test]
async fn mirrors_get_neither_what_was_given_nor_what_another_server_set() {
    let file = content(5_000_000);
    let slow = |set_cookie| Behaviour { bytes_per_second: Some(3_000_000), ..sets(set_cookie) };
    let (first, mirror) = tokio::join!(
        Server::start(file.clone(), slow("first=2; path=/")),
        Server::start(file.clone(), slow("mirror=3; path=/")),
    );
    let (mut case, cookies) = case();
    case.options.mirrors = vec![by_name(&mirror)];
    case.options.digests =
        vec![Digest { algorithm: DigestAlgorithm::Sha256, value: Sha256::digest(&file).to_vec() }];
    case.fetch(&first).await.expect("a file");
    assert!(case.has(&file));
    let asked = cookies_of(&mirror);
    let is_own = |field: &Option<String>| field.as_deref().is_none_or(|field| field == "mirror=3");
    assert!(!asked.is_empty() && asked.iter().all(is_own), "{asked:?}");
    let asked = cookies_of(&first);
    assert!(asked.iter().flatten().any(|field| field == "first=2; given=1"), "{asked:?}");
    assert!(cookies.to_file().contains("\tmirror\t3\n"));
}

/// By https the server itself refuses; by http it may be anybody.
#[tokio::test]
async fn a_refusal_sets_cookies_by_https_alone() {
    for (alpn, is_unverified, is_kept) in
        [(Some(&["http/1.1"][..]), false, true), (Some(&["http/1.1"][..]), true, false), (None, false, false)]
    {
        let refuses = Behaviour { status: Some(403), alpn, ..sets("n=v") };
        let server = Server::start(Vec::new(), refuses).await;
        let (mut case, _) = case();
        let cookies = Cookies::new(Jar::default(), is_unverified);
        case.options.cookies = Some(cookies.clone());
        assert!(case.fetch(&server).await.is_err());
        assert_eq!(cookies.to_file().contains("\tn\tv\n"), is_kept, "{alpn:?} {is_unverified}");
    }
}

#[tokio::test]
async fn what_answers_on_one_network_in_the_servers_place_sets_no_cookie() {
    let file = content(700_000);
    let slow = Behaviour { bytes_per_second: Some(1_000_000), ..sets("ours=1") };
    let server = Server::start(file.clone(), slow).await;
    let login = Server::start(b"who are you?".to_vec(), sets("login=1")).await;
    let kinds = [
        Behaviour { location: Some(login.url().into()), ..sets("theirs=1") },
        Behaviour { status: Some(511), ..sets("theirs=1") },
        Behaviour { has_ranges: false, etag: None, is_page: true, ..sets("theirs=1") },
    ];
    for (number, behaviour) in kinds.into_iter().enumerate() {
        let captive = Server::start(b"<html>who are you?".to_vec(), behaviour).await;
        let (sender, ways) = mpsc::channel::<Arc<dyn Dial>>(2);
        let dialer = || Dialer::new(None, tls());
        sender.try_send(Arc::new(Captive(dialer(), captive.url()))).expect("room");
        sender.try_send(Arc::new(Way("wwan0", dialer()))).expect("room");
        let (case, cookies) = case();
        let target = Target::File { place: case.place(), resume: false };
        let done = download(server.url(), &case.options, ways, target, pending(), |_| {}).await;
        assert!(done.is_ok() && case.has(&file) && !captive.requests().is_empty(), "{number}: {done:?}");
        let kept = cookies.to_file();
        assert!(kept.contains("\tours\t1\n") && !kept.contains("theirs"), "{number}: {kept}");
    }
}

#[tokio::test]
async fn small_files_have_cookies_too() {
    let last = Server::start(content(1000), sets("last=3; path=/")).await;
    let sends = Behaviour { location: Some(last.url().into()), ..sets("first=2; path=/") };
    let first = Server::start(Vec::new(), sends).await;
    let (case, cookies) = case();
    let wanted = |number: usize| Wanted {
        url: first.url(),
        place: case.folder.path().join(number.to_string()),
        resume: false,
    };
    let mut results = Vec::new();
    let tell = |event| {
        if let ManyEvent::Ended(ended) = event {
            results.push(ended.result.is_ok());
        }
    };
    let files = (0..3).map(wanted).collect();
    download_many(files, 1, case.options.clone(), ways(), pending(), tell).await;
    assert_eq!(results, [true; 3]);
    assert_eq!(cookies_of(&last)[0].as_deref(), Some("first=2"));
    let asked = cookies_of(&first);
    assert_eq!(asked[0].as_deref(), Some("given=1"));
    assert_eq!(asked.last().and_then(Option::as_deref), Some("first=2; last=3; given=1"));
    assert!(cookies.to_file().contains("\tlast\t3\n"));
}
