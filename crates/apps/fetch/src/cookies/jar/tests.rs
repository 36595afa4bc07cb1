use bytes::Bytes;

use super::*;
use crate::http1::Fields;

const NOW: u64 = 1_800_000_000;

fn url(text: &str) -> Url {
    Url::parse(text).expect("a URL")
}

fn head(values: &[&str]) -> Head {
    let fields =
        values.iter().map(|value| (Bytes::from("Set-Cookie"), Bytes::copy_from_slice(value.as_bytes())));
    Head::new(200, Fields::new(fields.collect()))
}

/// What is sent to a URL after another one's answer.
fn sent(from: &str, values: &[&str], to: &str) -> Option<String> {
    let mut jar = Jar::default();
    jar.note(&url(from), &head(values), NOW);
    jar.field(&url(to), NOW)
}

#[test]
fn a_cookie_goes_where_it_belongs_and_nowhere_else() {
    let from = "https://a.example.org/dir/file";
    let cases: [(&str, &str, bool); 30] = [
        ("n=v", "https://a.example.org/dir/other?x", true),
        ("n=v", "http://a.example.org:8080/dir", true),
        ("n=v", "https://a.example.org/directory", false),
        ("n=v", "https://a.example.org/", false),
        ("n=v", "https://b.a.example.org/dir/", false),
        ("n=v; path=/", "https://a.example.org/", true),
        ("n=v; path=dir", "https://a.example.org/", false),
        ("n=v; path=/; Domain=example.org", "https://b.example.org/", true),
        ("n=v; path=/; domain=.EXAMPLE.org", "https://example.org/", true),
        ("n=v; path=/; domain=example.org", "https://notexample.org/", false),
        ("n=v; path=/; domain=", "https://a.example.org/", true),
        ("n=v; path=/; domain=", "https://b.a.example.org/", false),
        // Not one of its own domains.
        ("n=v; path=/; domain=b.example.org", "https://b.example.org/", false),
        ("n=v; path=/; domain=b.a.example.org", "https://b.a.example.org/", false),
        ("n=v; path=/; domain=ample.org", "https://a.example.org/", false),
        // That of everybody.
        ("n=v; path=/; domain=org", "https://a.example.org/", false),
        ("n=v; path=/; domain=.org", "https://other.org/", false),
        ("n=v; path=/; Secure", "https://a.example.org/", true),
        ("n=v; path=/; Secure", "http://a.example.org/", false),
        ("n=v; path=/; max-age=0", "https://a.example.org/", false),
        ("n=v; path=/; max-age=-1; expires=Fri, 01-Jan-2100 00:00:00 GMT", "https://a.example.org/", false),
        ("n=v; path=/; expires=Thu, 01 Jan 1970 00:00:00 GMT", "https://a.example.org/", false),
        ("n=v; path=/; expires=Thu, 01 Jan 1970 00:00:00 GMT; max-age=9", "https://a.example.org/", true),
        ("n=v; path=/; expires=never; max-age=soon", "https://a.example.org/", true),
        ("__Host-n=v; path=/; secure", "https://a.example.org/", true),
        ("__Host-n=v; path=/; secure; domain=a.example.org", "https://a.example.org/", false),
        ("__secure-n=v; path=/", "https://a.example.org/", false),
        // Neither a name nor anything that would be read as more than it is.
        ("=v; path=/", "https://a.example.org/", false),
        ("v; path=/", "https://a.example.org/", false),
        ("n=v\tw; path=/", "https://a.example.org/", false),
    ];
    for (value, to, is_sent) in cases {
        assert_eq!(sent(from, &[value], to).is_some(), is_sent, "{value} {to}");
    }
    let countries = [("a.co.uk", "co.uk", "b.co.uk"), ("a.com.au", "com.au", "b.com.au")];
    for (host, domain, other) in countries {
        let (from, value) = (format!("https://{host}/"), format!("n=v; domain={domain}"));
        assert_eq!(sent(&from, &[&value], &format!("https://{other}/")), None, "{domain}");
        let value = format!("n=v; domain={host}");
        assert!(sent(&from, &[&value], &format!("https://x.{host}/")).is_some(), "{host}");
    }
}

#[test]
fn a_cookie_of_an_address_is_for_that_address() {
    for (host, other, domain) in [
        ("192.0.2.1", "192.0.2.2", "192.0.2.1"),
        ("192.0.2.1", "9.192.0.2", "0.2.1"),
        ("[2001:db8::1]", "[2001:db8::2]", "2001:db8::1"),
        ("localhost", "a.localhost", "localhost"),
    ] {
        let from = format!("http://{host}/");
        assert_eq!(sent(&from, &["n=v"], &from).as_deref(), Some("n=v"), "{host}");
        let value = format!("n=v; domain={domain}");
        assert_eq!(sent(&from, &[&value], &from).is_some(), domain != "0.2.1", "{domain}");
        assert_eq!(sent(&from, &[&value], &format!("http://{other}/")), None, "{other}");
    }
}

#[test]
fn what_comes_by_http_replaces_nothing_that_is_for_https_alone() {
    let mut jar = Jar::default();
    let (secure, open) = (url("https://example.org/"), url("http://example.org/"));
    jar.note(&secure, &head(&["n=ours; secure", "m=ours"]), NOW);
    jar.note(
        &open,
        &head(&["n=theirs", "n=theirs; path=/a; domain=example.org", "m=theirs", "s=s; secure"]),
        NOW,
    );
    jar.note(&url("http://www.example.org/"), &head(&["n=theirs; domain=example.org"]), NOW);
    assert_eq!(jar.field(&secure, NOW).as_deref(), Some("n=ours; m=theirs"));
    assert_eq!(jar.field(&open, NOW).as_deref(), Some("m=theirs"));
}

#[test]
fn a_cookie_ends_in_its_time_and_longer_paths_come_first() {
    let mut jar = Jar::default();
    let at = url("https://example.org/a/b/c");
    jar.note(&at, &head(&["n=1; path=/", "n=2; path=/a/b; max-age=10", "n=3; path=/a", "m=4; path=/"]), NOW);
    assert_eq!(jar.field(&at, NOW + 9).as_deref(), Some("n=2; n=3; n=1; m=4"));
    assert_eq!(jar.field(&at, NOW + 10).as_deref(), Some("n=3; n=1; m=4"));
    // One that is replaced keeps its place, and one that is over goes.
    jar.note(&at, &head(&["n=5; path=/", "n=; path=/a; max-age=0"]), NOW + 10);
    assert_eq!(jar.field(&at, NOW + 10).as_deref(), Some("n=5; m=4"));
    // Nothing lives for ever.
    jar.note(&at, &head(&["n=6; path=/; max-age=99999999999999999999"]), NOW);
    assert_eq!(jar.field(&at, NOW + 401 * 86_400).as_deref(), Some("m=4"));
}

#[test]
fn a_server_fills_its_own_place_alone() {
    let mut jar = Jar::default();
    let (ours, theirs) = (url("https://ours.example/"), url("https://theirs.example/"));
    jar.note(&ours, &head(&["n=v"]), NOW);
    for round in 0..200 {
        let values: Vec<String> = (0..60).map(|at| format!("n{round}x{at}={}", "v".repeat(100))).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        jar.note(&theirs, &head(&values), NOW);
    }
    assert_eq!(jar.kept(NOW).count(), 1 + MAX_OF_DOMAIN);
    assert_eq!(jar.field(&ours, NOW).as_deref(), Some("n=v"));
    // The latest are there, of each answer as many as count.
    assert!(jar.field(&theirs, NOW).expect("cookies").starts_with("n197x0="));
    for domain in 0..MAX_COOKIES {
        let value = format!("n={}", "v".repeat(4000));
        jar.note(&url(&format!("https://h{domain}.example/")), &head(&[&value, &"w".repeat(4100)]), NOW);
    }
    assert!(jar.kept(NOW).map(bytes_of).sum::<usize>() <= MAX_BYTES && jar.kept(NOW).count() <= MAX_COOKIES);
    assert_eq!(jar.field(&ours, NOW).as_deref(), Some("n=v"));
    // No request is longer than servers take.
    let values: Vec<String> = (0..9).map(|at| format!("m{at}={}", "v".repeat(4000))).collect();
    let mut jar = Jar::default();
    jar.note(&ours, &head(&values.iter().map(String::as_str).collect::<Vec<_>>()), NOW);
    let field = jar.field(&ours, NOW).expect("cookies");
    assert!(field.len() <= MAX_FIELD_BYTES && field.matches('=').count() == 2, "{}", field.len());
    assert_eq!(
        sent("https://ours.example/", &[&format!("n={}", "v".repeat(4096))], "https://ours.example/"),
        None
    );
}

#[test]
fn files_are_those_of_curl() {
    let text = "# Netscape HTTP Cookie File\n\n\
                .example.org\tTRUE\t/\tFALSE\t0\tsession\tone two\n\
                #HttpOnly_example.org\tFALSE\t/a\tTRUE\t1900000000\tid\tx=y\n\
                # a remark\n\
                example.org\tFALSE\t/\tFALSE\t1700000000\told\tv\n\
                #HttpOnly_192.0.2.1\tFALSE\t/\tFALSE\t0\tempty\n";
    let mut jar = Jar::default();
    assert_eq!(jar.read(text, NOW), Ok(()));
    let field = |jar: &Jar, to: &str| jar.field(&url(to), NOW);
    assert_eq!(field(&jar, "https://example.org/a/b").as_deref(), Some("id=x=y; session=one two"));
    assert_eq!(field(&jar, "http://www.example.org/a/b").as_deref(), Some("session=one two"));
    assert_eq!(field(&jar, "http://192.0.2.1/").as_deref(), Some("empty="));
    let written = jar.to_file(NOW);
    let lines: Vec<&str> = written.lines().filter(|line| line.contains('\t')).collect();
    let kept = |line: &&str| line.contains('\t') && !line.contains("old");
    let mut expected: Vec<String> = text.lines().filter(kept).map(str::to_owned).collect();
    expected[2].push('\t');
    assert_eq!(lines, expected);
    let mut again = Jar::default();
    assert!(again.read(&written, NOW).is_ok() && again.cookies == jar.cookies);
    for (line, problem) in [
        ("example.org", "seven words"),
        ("example.org\tYES\t/\tFALSE\t0\tn\tv", "TRUE nor FALSE"),
        ("example.org\tTRUE\t/\tFALSE\tsoon\tn\tv", "seconds since 1970"),
        ("example.org\tTRUE\t/\tFALSE\t0\t\tv", "no name"),
        ("exa mple\tTRUE\t/\tFALSE\t0\tn\tv", "no domain"),
        ("example.org\tTRUE\t/\tFALSE\t0\tn\tv\tw", "seven words"),
    ] {
        let error = Jar::default().read(&format!("\n{line}\n"), NOW).expect_err(line).to_string();
        assert!(error.starts_with("line 2: ") && error.contains(problem), "{error}");
    }
}
