//! Lists, sizes and commands as people read them.

/// `512 B`, `3.4 MB`, `26 MB`: two digits or more.
pub(super) fn amount(bytes: u64) -> String {
    let units = [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB")];
    let Some((size, unit)) = units.into_iter().find(|(size, _)| bytes >= *size) else {
        return format!("{bytes} B");
    };
    let value = bytes as f64 / size as f64;
    let digits = usize::from(value < 9.95);
    format!("{value:.digits$} {unit}")
}

/// `1 packet`, `2 packets`.
pub(super) fn count(number: impl Into<u64>, what: &str) -> String {
    let number = number.into();
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// `wifi, lte and eth0`.
pub(super) fn and(names: &[&str]) -> String {
    match names.split_last() {
        None => String::new(),
        Some((last, [])) => (*last).to_string(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// A command for root, whoever reads it.
pub(super) fn as_root(is_root: bool, command: &str) -> String {
    if is_root { command.into() } else { format!("sudo {command}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_two_digits() {
        let amounts = [999, 1000, 9_949, 9_950, 25_600_000, 1_400_000_000].map(amount);
        assert_eq!(amounts, ["999 B", "1.0 kB", "9.9 kB", "10 kB", "26 MB", "1.4 GB"]);
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!([0_u64, 1, 2].map(|number| count(number, "flow")), ["0 flows", "1 flow", "2 flows"]);
    }

    #[test]
    fn names_are_joined_as_people_do() {
        assert_eq!(and(&[]), "");
        assert_eq!(and(&["a"]), "a");
        assert_eq!(and(&["a", "b", "c"]), "a, b and c");
    }
}
