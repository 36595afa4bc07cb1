//! Cookies of streams.

use super::*;
use crate::cookies::{Cookies, Jar};

/// The same answers, each of which sets a cookie.
fn setting(cookie: &'static str, answers: Answers) -> Answers {
    Arc::new(move |asked: &Asked| {
        let answer = answers(asked)?;
        let at = answer.windows(2).position(|part| part == b"\r\n").expect("a head");
        let (status, rest) = answer.split_at(at);
        Some([status, format!("\r\nSet-Cookie: {cookie}").as_bytes(), rest].concat())
    })
}

fn with_cookies() -> (Options, Cookies) {
    let cookies = Cookies::new(Jar::default(), false);
    let fields = vec![("Cookie".into(), "given=1".into())];
    (Options { fields, cookies: Some(cookies.clone()), ..options() }, cookies)
}

#[tokio::test(start_paused = true)]
async fn a_cookie_of_the_manifest_comes_back_with_the_segments() {
    let film = film();
    let site: Answers = Arc::new(move |asked: &Asked| {
        let cookie = asked.text.lines().find_map(|line| line.strip_prefix("Cookie: "));
        let is_known = cookie.is_some_and(|cookie| cookie.contains("token=1"));
        match (asked.host.as_str(), asked.path.as_str()) {
            // Both the redirection and what it leads to have their cookies.
            ("http://h.example", "/login") => {
                let fields = [("Location", "/film.m3u8"), ("Set-Cookie", "token=1")];
                Some(answer(302, &fields, b""))
            }
            _ if is_known => film(asked),
            _ => Some(answer(403, &[], b"no")),
        }
    });
    let (options, cookies) = with_cookies();
    let site = setting("seen=1", site);
    let came = fetch("http://h.example/login", &options, &[site.clone(), site]).await;
    assert!(came.outcome.is_ok() && came.bytes() == all(), "{:?}", came.outcome);
    let asked = |(_, asked): &(usize, Asked)| asked.text.contains("\r\nCookie: seen=1; token=1; given=1\r\n");
    assert!(came.asked.iter().any(asked), "{:?}", came.asked.last());
    assert!(cookies.to_file().contains("\ttoken\t1\n"));
}

#[tokio::test(start_paused = true)]
async fn what_answers_for_the_server_on_one_path_sets_no_cookie() {
    for (kind, portal) in portals() {
        for at in 0..2 {
            let mut servers = [setting("ours=1", film()), setting("ours=1", film())];
            servers[at] = setting("theirs=1", portal.clone());
            let (options, cookies) = with_cookies();
            let came = fetch("http://h.example/film.m3u8", &options, &servers).await;
            assert!(came.outcome.is_ok(), "{kind} {at}: {:?}", came.outcome);
            let kept = cookies.to_file();
            assert!(kept.contains("\tours\t1\n") && !kept.contains("theirs"), "{kind} {at}: {kept}");
        }
    }
}
