use super::*;
use crate::answer::DigestAlgorithm;

fn document(inner: &str) -> String {
    format!(r#"<?xml version="1.0"?><metalink xmlns="urn:ietf:params:xml:ns:metalink">{inner}</metalink>"#)
}

#[test]
fn a_file_has_its_places_by_priority_and_what_it_has_to_be() {
    let (whole, piece) = ("0a".repeat(32), "0b".repeat(32));
    let files = parse(&document(&format!(
        r#"<!-- of two files --><file name="dir/a.iso"><size>300</size><identity>a &amp; b</identity>
        <hash type="md5">00</hash><hash type="sha-256">{whole}</hash>
        <pieces length="200" type="sha-256"><hash>{piece}</hash><hash>{piece}</hash></pieces>
        <url>http://192.0.2.3/a?x=1&amp;y=2</url><url priority="2" location="de">https://192.0.2.2/a</url>
        <url priority="1">ftp://192.0.2.1/a</url><url priority="1"><![CDATA[http://192.0.2.1/a]]></url></file>
        <file name="no places"/><file name="b"><url>http://192.0.2.1/b</url></file>"#
    )))
    .expect("a Metalink");
    let [a, b] = &files[..] else { panic!("{files:?}") };
    let urls: Vec<&str> = a.urls.iter().map(url::Url::as_str).collect();
    assert_eq!(urls, ["http://192.0.2.1/a", "https://192.0.2.2/a", "http://192.0.2.3/a?x=1&y=2"]);
    assert_eq!((a.name.as_str(), a.size_bytes, b.name.as_str()), ("a.iso", Some(300), "b"));
    assert_eq!((a.digests.len(), a.digests[0].algorithm), (1, DigestAlgorithm::Sha256));
    assert!(a.pieces.is_some() && b.pieces.is_none() && b.digests.is_empty());
}

#[test]
fn pieces_that_do_not_make_up_the_file_are_none() {
    let piece = "0b".repeat(32);
    let hash = format!("<hash>{piece}</hash>");
    for (length, count, is_there) in
        [("200", 2, true), ("200", 1, false), ("200", 3, false), ("0", 2, false), ("x", 2, false)]
    {
        let inner = format!(
            r#"<file name="a"><size>300</size><pieces length="{length}" type="sha-256">{}</pieces>
            <url>http://192.0.2.1/a</url></file>"#,
            hash.repeat(count)
        );
        let files = parse(&document(&inner)).expect("a Metalink");
        assert_eq!(files[0].pieces.is_some(), is_there, "{length} {count}");
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for name in [
        "",
        "..",
        ".",
        "../a",
        "/etc/passwd",
        "a/../../b",
        "a//b",
        "a/",
        "a&#10;b",
        "a\\b",
        "&#27;[2J",
        "a&#x202e;gpj.exe",
    ] {
        let inner = format!(r#"<file name="{name}"><url>http://192.0.2.1/a</url></file>"#);
        assert!(matches!(parse(&document(&inner)), Err(Error::Name(_))), "{name}");
    }
}

#[test]
fn a_metalink_writes_no_hidden_file() {
    for name in [".bashrc", "dir/.profile", "..."] {
        let inner = format!(r#"<file name="{name}"><url>http://192.0.2.1/a</url></file>"#);
        assert!(matches!(parse(&document(&inner)), Err(Error::Hidden(_))), "{name}");
    }
    let inner = r#"<file name=".dir/a.b"><url>http://192.0.2.1/a</url></file>"#;
    assert_eq!(parse(&document(inner)).expect("a Metalink")[0].name, "a.b");
}

#[test]
fn what_is_none_or_too_much_is_an_error() {
    let deep = format!("{}{}", "<a>".repeat(40), "</a>".repeat(40));
    let entity = r#"<!DOCTYPE metalink [<!ENTITY a "aaaa">]><metalink><file name="&a;"/></metalink>"#;
    let attributes: String = (0..100).map(|number| format!(r#" a{number}="""#)).collect();
    for text in [
        "",
        "<html></html>",
        "<metalink>",
        "<metalink></metalink>",
        entity,
        &document("&a;"),
        &document(&deep),
        &document(&"x".repeat(10_000)),
        &document(&format!("<file{attributes}/>")),
        &"x".repeat(MAX_BYTES + 1),
    ] {
        assert!(parse(text).is_err(), "{text:.60}");
    }
    // Too many places are left out, not taken.
    let many = format!(r#"<file name="a">{}</file>"#, "<url>http://192.0.2.1/a</url>".repeat(500));
    assert_eq!(parse(&document(&many)).expect("a Metalink")[0].urls.len(), 100);
}
