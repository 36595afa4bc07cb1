//! `--jobs`: how much is done at a time.

use std::num::NonZeroUsize;

/// As clap takes it.
pub(super) fn parse_jobs(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "expected 1 or more".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_job_at_a_time_is_no_number_of_them() {
        assert_eq!(parse_jobs("2"), Ok(NonZeroUsize::MIN.saturating_add(1)));
        for text in ["0", "-1", "", "two", "99999999999999999999"] {
            assert_eq!(parse_jobs(text), Err("expected 1 or more".to_string()), "{text}");
        }
    }
}
