//! Codings that servers make of what they have (RFC 9110 §8.4). Clients of ours ask for none.

use hyper::HeaderMap;
use hyper::header::CONTENT_ENCODING;

/// Codings that make other bytes of a file (IANA's registry of content codings), and how names end of files that are
/// so by themselves. Servers tell the coding of those, too.
const CODINGS: [(&str, &[&str]); 12] = [
    ("aes128gcm", &[]),
    ("br", &[".br"]),
    ("compress", &[".Z"]),
    ("dcb", &[]),
    ("dcz", &[]),
    ("deflate", &[".zz"]),
    ("exi", &[".exi"]),
    ("gzip", &[".gz", ".tgz", ".svgz"]),
    ("pack200-gzip", &[".pack.gz"]),
    ("x-compress", &[".Z"]),
    ("x-gzip", &[".gz", ".tgz", ".svgz"]),
    ("zstd", &[".zst", ".tzst"]),
];

/// A coding that nobody asked for, and how a name ends that says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unwanted {
    pub(super) coding: String,
    pub(super) ending: Option<&'static str>,
}

/// What is unwanted in an answer, where a file is known by these names. Words that are no coding change no bytes.
pub(super) fn unwanted(fields: &HeaderMap, names: &[&str]) -> Option<Unwanted> {
    let lines = fields.get_all(CONTENT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    let words = lines.flat_map(|line| line.split(',')).map(|word| word.trim().to_ascii_lowercase());
    let known = |word: &String| CODINGS.iter().find(|(coding, _)| coding == word);
    let found: Vec<_> = words.filter_map(|word| known(&word)).collect();
    match found[..] {
        [] => None,
        [(_, endings)] if endings.iter().any(|ending| names.iter().any(|name| name.ends_with(ending))) => {
            None
        }
        [(coding, endings)] => Some(Unwanted { coding: (*coding).into(), ending: endings.first().copied() }),
        _ => {
            let codings: Vec<_> = found.iter().map(|(coding, _)| *coding).collect();
            Some(Unwanted { coding: codings.join(", "), ending: None })
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn only_names_that_say_so_have_encoded_files() {
        for (field, name, coding, ending) in [
            ("gzip", "a.json", Some("gzip"), Some(".gz")),
            ("X-GZip", "a.json", Some("x-gzip"), Some(".gz")),
            ("gzip", "a.tar.gz", None, None),
            ("gzip", "a.gz.json", Some("gzip"), Some(".gz")),
            ("gzip, gzip", "a.gz", Some("gzip, gzip"), None),
            ("aes128gcm", "a.gz", Some("aes128gcm"), None),
            ("br", "a.gz", Some("br"), Some(".br")),
            ("identity", "a", None, None),
            ("", "a", None, None),
            ("utf-8", "a", None, None),
        ] {
            let fields = [(CONTENT_ENCODING, HeaderValue::from_static(field))].into_iter().collect();
            let expected = coding.map(|coding| Unwanted { coding: coding.into(), ending });
            assert_eq!(unwanted(&fields, &["x", name]), expected, "{field}, {name}");
        }
    }
}
