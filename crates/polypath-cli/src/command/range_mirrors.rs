//! Other places of a file that is fetched in ranges.

use url::Url;

use super::Failure;
use super::range_ways::is_here;
use crate::web::without_user;

/// Reads those of the one file of `urls`.
pub(super) fn mirrors(texts: &[String], urls: &[Url]) -> Result<Vec<Url>, Failure> {
    let wrong = |problem: String| Failure::Input(format!("--mirror {problem}"));
    if !texts.is_empty() && urls.len() > 1 {
        return Err(wrong("is another place of one file; expected one URL with it".into()));
    }
    let parse = |text: &String| {
        let shown = without_user(text);
        let url = Url::parse(text).map_err(|error| wrong(format!("\"{shown}\": {error}; {EXPECTED}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong(format!("\"{shown}\": {EXPECTED}")));
        }
        // No interface leads to this host, and no other way leads elsewhere for sure.
        if urls.first().is_some_and(|first| is_here(first) != is_here(&url)) {
            return Err(wrong(format!("\"{shown}\": expected this host in all URLs, or in none")));
        }
        Ok(url)
    };
    texts.iter().map(parse).collect()
}

const EXPECTED: &str = "expected http://HOST/… or https://HOST/…";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_places_of_one_file() {
        let url = |text: &str| Url::parse(text).expect("a URL");
        let one = [url("http://192.0.2.1/a")];
        let read = |text: &str, urls: &[Url]| mirrors(&[text.to_string()], urls);
        assert_eq!(read("https://192.0.2.2/b", &one).ok(), Some(vec![url("https://192.0.2.2/b")]));
        for (text, urls, words) in [
            ("ftp://192.0.2.2/b", &one[..], "expected http://"),
            ("192.0.2.2/b", &one, "expected http://"),
            ("http://127.0.0.1/b", &one, "or in none"),
            ("http://192.0.2.2/b", &[one[0].clone(), url("http://192.0.2.1/b")], "one URL with it"),
        ] {
            let failed = read(text, urls);
            assert!(matches!(&failed, Err(Failure::Input(message)) if message.contains(words)), "{text}");
        }
        // A password is not shown.
        let Err(Failure::Input(message)) = read("ftp://me:secret@192.0.2.2/b", &one) else { panic!("a URL") };
        assert!(!message.contains("secret"), "{message}");
    }
}
