//! What the fuzz target of requests does, shared with the seeded run in the tests: what our readers make of any path and any fields.
//! It panics where one of them says what can't be.

use std::time::UNIX_EPOCH;

use hyper::HeaderMap;
use hyper::header::{
    AUTHORIZATION, HOST, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, ORIGIN,
};

use super::conditions::{Validators, allows_range, check, text};
use super::credentials::{Token, is_of_this_machine};
use super::digest::Digest;
use super::listing::encoded;
use super::range::{Wanted, content_range, wanted};
use super::root::names;

const TOKEN: &str = "0123456789abcdef";

const FIELDS: [HeaderName; 8] =
    [IF_MATCH, IF_NONE_MATCH, IF_RANGE, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, AUTHORIZATION, ORIGIN, HOST];

/// Lines of bytes: a path, a range, a length, a digest, then fields, each of which begins with a byte that names it.
#[cfg_attr(
    not(feature = "fuzzing"),
    expect(unreachable_pub, reason = "fuzz targets, which reach it, have the feature")
)]
pub fn request(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let mut line = || lines.next().and_then(|line| std::str::from_utf8(line).ok()).unwrap_or_default();
    let (path, range, length, digest) = (line(), line(), line(), line());
    read_path(path);
    read_range(range, length.len() as u64 * 1000);
    read_digest(digest);
    let mut headers = HeaderMap::new();
    for line in lines {
        if let Some((name, value)) = line.split_first()
            && let Ok(value) = HeaderValue::from_bytes(value)
        {
            headers.append(FIELDS[usize::from(*name) % FIELDS.len()].clone(), value);
        }
    }
    read_fields(&headers);
}

/// No name leads up or elsewhere, and each is read again as it is written.
fn read_path(path: &str) {
    let Some(names) = names(path) else { return };
    let parents = names.split_last().map_or(&[][..], |(_, parents)| parents);
    for name in &names {
        assert!(name != "." && name != ".." && !name.contains(['/', '\0']), "{path:?}: {names:?}");
    }
    assert!(parents.iter().all(|name| !name.is_empty()), "{path:?}: {names:?}");
    let again: String = names.iter().map(|name| format!("/{}", encoded(name))).collect();
    assert!(names.is_empty() || super::root::names(&again).as_ref() == Some(&names), "{path:?}: {again:?}");
}

/// A part lies within the file.
fn read_range(field: &str, length: u64) {
    if let Wanted::Part(first, count) = wanted(Some(field), length) {
        let end = first.checked_add(count);
        assert!(count > 0 && end.is_some_and(|end| end <= length), "{field:?} of {length}: {first}, {count}");
    }
    if let Some((first, last, total)) = content_range(field) {
        assert!(first <= last && last < total, "{field:?}: {first}-{last}/{total}");
    }
}

/// A digest that was read is the one that is written.
fn read_digest(field: &str) {
    if let Ok(Some(digest)) = Digest::from_field(field) {
        assert_eq!(Digest::from_field(&digest.to_field()), Ok(Some(digest)), "{field:?}");
    }
}

fn read_fields(headers: &HeaderMap) {
    let validators = Validators { etag: "\"a\"".into(), modified: UNIX_EPOCH };
    // Without a condition, nothing is left out.
    let verdict = check(headers, &validators);
    let conditions = [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];
    let is_free = conditions.iter().all(|name| !headers.contains_key(name));
    assert!(!is_free || verdict == super::conditions::Verdict::Proceed, "{headers:?}");
    assert!(headers.contains_key(IF_RANGE) || allows_range(headers, &validators), "{headers:?}");
    let Ok(token) = Token::new(TOKEN) else { return };
    if token.is_in(headers) {
        let field = text(headers, AUTHORIZATION).unwrap_or_default();
        assert!(
            field.contains(TOKEN) || field.trim().to_ascii_lowercase().starts_with("basic "),
            "{field:?}"
        );
    }
    if let Some(origin) = text(headers, ORIGIN)
        && is_of_this_machine(origin, "http", text(headers, HOST))
    {
        // An address, or a name in whatever letters.
        let is_name = origin.to_ascii_lowercase().contains("localhost");
        assert!(is_name || origin.contains(|char: char| char.is_ascii_digit() || char == '['), "{origin:?}");
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;

    const PLAIN: &[u8] = b"/a/%2e%2e/../b%20c/./d//\nbytes=5-9,1-\n.......\n\
        sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:;x, md5=:AA==:\n\x00\"a\", W/\"b\"\n\x01*\n\x02\"a\"\n\
        \x03Mon, 12 Jan 1970 13:46:40 GMT\n\x05Bearer 0123456789abcdef\n\x05Basic eDowMTIzNDU2Nzg5YWJjZGVm\n\x06http://[::1]:80\n\x07[::1]:80";

    #[test]
    fn no_request_breaks_a_reader() {
        request(PLAIN);
        for seed in 0..50_000 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut bytes = PLAIN.to_vec();
            for _ in 0..1 + random.next_u32() % 12 {
                let at = random.next_u32() as usize % bytes.len();
                match random.next_u32() % 4 {
                    0 => bytes[at] = random.next_u32() as u8,
                    1 => bytes.insert(at, b"/.%-=\",: \n\0\xff"[random.next_u32() as usize % 12]),
                    2 => drop(bytes.remove(at)),
                    _ => bytes.rotate_left(at),
                }
            }
            request(&bytes);
        }
    }
}
