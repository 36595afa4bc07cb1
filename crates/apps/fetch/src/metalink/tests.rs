use super::*;
use crate::answer::DigestAlgorithm;

fn document(inner: &str) -> String {
    format!(r#"<?xml version="1.0"?><metalink xmlns="urn:ietf:params:xml:ns:metalink">{inner}</metalink>"#)
}

#[test]
fn a_file_has_its_places_by_priority_and_what_it_has_to_be() {
    let (whole, piece) = ("0a".repeat(32), "0b".repeat(32));
    let Metalink { files, placeless, .. } = parse(&document(&format!(
        r#"<!-- of two files --><file name="dir/a.iso"><size>300</size><identity>a &amp; b</identity>
        <hash type="md5">00</hash><hash type="sha-256">{whole}</hash>
        <pieces length="200" type="sha-256"><hash>{piece}</hash><hash>{piece}</hash></pieces>
        <url>http://192.0.2.3/a?x=1&amp;y=2</url><url priority="2" location="de">https://192.0.2.2/a</url>
        <url priority="1">ftp://192.0.2.1/a</url><url priority="1"><![CDATA[http://192.0.2.1/a]]></url></file>
        <file name="no places"/><file name="b"><url>http://192.0.2.1/b</url></file>"#
    )))
    .expect("a Metalink");
    assert_eq!(placeless, ["no places"]);
    let [a, b] = &files[..] else { panic!("{files:?}") };
    let urls: Vec<&str> = a.urls.iter().map(url::Url::as_str).collect();
    assert_eq!(urls, ["http://192.0.2.1/a", "https://192.0.2.2/a", "http://192.0.2.3/a?x=1&y=2"]);
    assert_eq!((a.name.as_str(), a.size_bytes, b.name.as_str()), ("a.iso", Some(300), "b"));
    assert_eq!((a.digests.len(), a.digests[0].algorithm), (1, DigestAlgorithm::Sha256));
    assert!(a.pieces.is_some() && b.pieces.is_none() && b.digests.is_empty());
}

#[test]
fn what_a_file_has_to_be_is_read_or_an_error() {
    let digest = "0b".repeat(32);
    let hash = format!("<hash>{digest}</hash>");
    let pieces = |length: &str, hashes: String| {
        format!(r#"<size>300</size><pieces length="{length}" type="sha-256">{hashes}</pieces>"#)
    };
    let wrong = |hash: &str| format!(r#"<hash type="sha-256">{hash}</hash>"#);
    for (inner, is_read) in [
        (pieces("200", hash.repeat(2)), true),
        (pieces("200", hash.clone()), false),
        (pieces("200", hash.repeat(3)), false),
        (pieces("0", hash.repeat(2)), false),
        (pieces("x", hash.repeat(2)), false),
        (pieces("200", hash.clone() + "<hash>0b</hash>"), false),
        // Without a size, they are compared when that is known.
        (pieces("200", hash.repeat(2)).replace("<size>300</size>", ""), true),
        (wrong(&digest).replace("sha-256", "SHA-256"), true),
        (wrong(&digest[1..]), false),
        (wrong(&digest.replace("0b", "0x")), false),
        ("<size>-1</size>".to_owned(), false),
        (r#"<hash type="md5">what</hash>"#.to_owned(), true),
    ] {
        let document = document(&format!(r#"<file name="a">{inner}<url>http://192.0.2.1/a</url></file>"#));
        let found = parse(&document);
        assert_eq!(found.is_ok(), is_read, "{inner} {found:?}");
        let Ok(found) = found else { continue };
        assert_eq!(found.files[0].pieces.is_some(), inner.contains("pieces"), "{inner}");
        assert_eq!(found.files[0].digests.len(), usize::from(inner.contains("SHA-256")), "{inner}");
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for name in [
        "",
        "..",
        ".",
        "-",
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
    assert_eq!(parse(&document(inner)).expect("a Metalink").files[0].name, "a.b");
}

#[test]
fn no_file_is_lost_without_a_word() {
    let file = |name: &str| format!(r#"<file name="{name}"><url>http://192.0.2.1/a</url></file>"#);
    for (one, two) in [("a/README", "b/README"), ("a", "a")] {
        let both = document(&(file(one) + &file(two)));
        assert_eq!(parse(&both), Err(Error::Twice(two.into())));
    }
    let many: String = (0..1002).map(|number| file(&number.to_string())).collect();
    let found = parse(&document(&many)).expect("a Metalink");
    assert_eq!((found.files.len(), found.beyond, found.placeless.len()), (1000, 2, 0));
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
    assert_eq!(parse(&document(&many)).expect("a Metalink").files[0].urls.len(), 100);
}
