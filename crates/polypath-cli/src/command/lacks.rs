//! What the system has no more of, in words that say what to do.

use std::borrow::Cow;
use std::path::Path;

const NO_DESCRIPTORS: &str = "Too many open files (os error 24)";
const NO_SPACE: &str = "No space left on device (os error 28)";

/// A message with what was expected, where the system says only what it lacks. `limit`: how many files may be open.
pub(super) fn explained<'m>(message: &'m str, limit: u64, runtime_directory: Option<&Path>) -> Cow<'m, str> {
    if message.contains(NO_DESCRIPTORS) {
        let words = format!(
            "no more than {limit} files may be open at once; expected a higher limit, as by `ulimit -Hn 1024`, or LimitNOFILE= of \
             a service"
        );
        return message.replace(NO_DESCRIPTORS, &words).into();
    }
    let is_there = |directory: &Path| directory.to_str().is_some_and(|directory| message.contains(directory));
    if message.contains(NO_SPACE) && runtime_directory.is_some_and(is_there) {
        let words = "no space is left there; expected some, or another directory in POLYPATH_RUNTIME_DIR";
        return message.replace(NO_SPACE, words).into();
    }
    message.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_named_with_what_helps() {
        let run = Some(Path::new("/run/polypath"));
        let words = explained("f.part: can't be written: Too many open files (os error 24)", 12, run);
        assert!(
            words.starts_with("f.part: can't be written: no more than 12 files may be open at once; "),
            "{words}"
        );
        let words = explained("/run/polypath/lock: No space left on device (os error 28); more", 12, run);
        let expected = "/run/polypath/lock: no space is left there; expected some, or another directory in POLYPATH_RUNTIME_DIR; more";
        assert_eq!(words, expected);
        for other in ["f: No space left on device (os error 28)", "/run/polypath: nothing"] {
            assert_eq!(explained(other, 12, run), other);
            assert_eq!(explained(other, 12, None), other);
        }
    }
}
