//! What the system has no more of, in words that say what to do.

use std::borrow::Cow;
use std::io;
use std::path::Path;

/// Linux's numbers of errors: a process has no descriptor left, and a file system no space.
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;

/// What an error is called in a message. The words differ by the C library.
fn words(errno: i32) -> String {
    io::Error::from_raw_os_error(errno).to_string()
}

/// How many open files to ask for, where `limit` was too few.
fn enough(limit: u64) -> u64 {
    limit.saturating_mul(2).max(1024)
}

/// A message with what was expected, where the system says only what it lacks. `limit`: how many files may be open.
pub(super) fn explained<'m>(message: &'m str, limit: u64, runtime_directory: Option<&Path>) -> Cow<'m, str> {
    let no_descriptors = words(EMFILE);
    if message.contains(&no_descriptors) {
        let enough = enough(limit);
        let advice = format!(
            "no more than {limit} files may be open at once; expected a higher limit, as by \
             `sudo prlimit --pid $$ --nofile={enough}`, or LimitNOFILE={enough} of a service"
        );
        return message.replace(&no_descriptors, &advice).into();
    }
    let is_there = |directory: &Path| directory.to_str().is_some_and(|directory| message.contains(directory));
    let no_space = words(ENOSPC);
    if message.contains(&no_space) && runtime_directory.is_some_and(is_there) {
        let advice = "no space is left there; expected some, or another directory in POLYPATH_RUNTIME_DIR";
        return message.replace(&no_space, advice).into();
    }
    message.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_named_with_what_helps() {
        let run = Some(Path::new("/run/polypath"));
        for (limit, enough) in [(12, 1024), (1024, 2048), (1_048_576, 2_097_152)] {
            let message = format!("f.part: can't be written: {}", words(24));
            let expected = format!(
                "f.part: can't be written: no more than {limit} files may be open at once; expected a higher limit, as by \
                 `sudo prlimit --pid $$ --nofile={enough}`, or LimitNOFILE={enough} of a service"
            );
            assert_eq!(explained(&message, limit, run), expected);
        }
        let message = format!("/run/polypath/lock: {}; more", words(28));
        let expected = "/run/polypath/lock: no space is left there; expected some, or another directory in POLYPATH_RUNTIME_DIR; more";
        assert_eq!(explained(&message, 12, run), expected);
        for other in [format!("f: {}", words(28)), "/run/polypath: nothing".into()] {
            assert_eq!(explained(&other, 12, run), other);
            assert_eq!(explained(&other, 12, None), other);
        }
    }
}
