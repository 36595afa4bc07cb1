//! Lists of URLs to download: one a line.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::{Failure, standard_input};

/// More than anybody lists.
const MOST_BYTES: u64 = 256 << 20;

/// The URLs of a file, or of standard input if that is `-`. Empty lines, and those that begin with #, are none.
pub(super) fn read(file: &Path) -> Result<Vec<String>, Failure> {
    let name = match standard_input::is_meant(file) {
        true => standard_input::NAME.to_string(),
        false => file.display().to_string(),
    };
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::Input(format!("{name}: can't be read ({why}); expected a URL on each line"))
    };
    let source: io::Result<Box<dyn Read>> = match standard_input::is_meant(file) {
        true => Ok(Box::new(io::stdin())),
        false => File::open(file).map(|file| Box::new(file) as Box<dyn Read>),
    };
    let mut text = String::new();
    let read = source.and_then(|source| source.take(MOST_BYTES + 1).read_to_string(&mut text));
    if read.map_err(|error| wrong(&error))? as u64 > MOST_BYTES {
        return Err(wrong(&format_args!("more than {} MiB", MOST_BYTES >> 20)));
    }
    Ok(urls(&text).map(str::to_string).collect())
}

fn urls(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_url_unless_it_is_empty_or_a_comment() {
        let text = "http://192.0.2.1/a\r\n\n# b\n  http://192.0.2.1/c#d \n";
        assert!(urls(text).eq(["http://192.0.2.1/a", "http://192.0.2.1/c#d"]));
    }

    #[test]
    fn a_list_that_is_not_there_is_said() {
        let missing = read(Path::new("/nonexistent/list"));
        assert!(
            matches!(missing, Err(Failure::Input(message)) if message.starts_with("/nonexistent/list: can't"))
        );
    }
}
