//! Options that people write from habit, as curl wants them: what they ask for is done anyway.

use clap::Args;

#[derive(Args, Clone, Debug, Default)]
pub(super) struct CurlHabits {
    /// Name each file as its URL does, which is done without it, too; -L, -f and -sS, which curl needs, are understood
    #[arg(short = 'O', long, conflicts_with = "output")]
    remote_name: bool,
    /// Redirections are followed.
    #[arg(short = 'L', long, hide = true)]
    location: bool,
    /// A status that is none of success is a failure.
    #[arg(short, long, hide = true)]
    fail: bool,
    /// Show nothing but failures.
    #[arg(short, long, hide = true)]
    silent: bool,
    /// Failures are shown.
    #[arg(short = 'S', long, hide = true)]
    show_error: bool,
}

impl CurlHabits {
    /// Nothing is to be shown but failures.
    pub(super) const fn is_quiet(&self) -> bool {
        self.silent
    }
}

#[cfg(test)]
mod tests {
    use clap::{ArgMatches, Args as _, Command, FromArgMatches as _, error};

    use super::*;

    fn read(words: &[&str]) -> error::Result<ArgMatches> {
        let command = CurlHabits::augment_args(Command::new("get")).arg(clap::Arg::new("output").short('o'));
        command.try_get_matches_from([&["get"], words].concat())
    }

    #[test]
    fn what_curl_needs_is_understood() {
        for (words, is_quiet) in [(vec!["-fsSLO"], true), (vec!["-L", "-O"], false), (vec!["--silent"], true)]
        {
            let habits = read(&words).and_then(|found| CurlHabits::from_arg_matches(&found));
            assert_eq!(habits.expect("options").is_quiet(), is_quiet, "{words:?}");
        }
        assert!(read(&["-O", "-o", "name"]).is_err(), "a file has one name");
    }
}
