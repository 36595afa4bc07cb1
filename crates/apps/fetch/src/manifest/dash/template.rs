use crate::manifest::error::{Error, quoted};
use crate::manifest::limits::MAX_URL_BYTES;

/// What stands for the identifiers of a template (ISO/IEC 23009-1, section 5.3.9.4.4).
#[derive(Clone, Copy, Debug)]
pub(super) struct Values<'a> {
    pub(super) id: &'a str,
    pub(super) bandwidth: u64,
    /// Of a segment; an initialization segment has none.
    pub(super) number_and_time: Option<(u64, u64)>,
}

/// Puts values in the places of identifiers.
pub(super) fn fill(template: &str, values: Values<'_>, line: usize) -> Result<String, Error> {
    let wrong = |what: &str| Error::malformed(line, format!("{what} in the template {}", quoted(template)));
    let mut filled = String::with_capacity(template.len() + 16);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        filled.push_str(before);
        let (identifier, after) = after.split_once('$').ok_or_else(|| wrong("a $ without its end"))?;
        rest = after;
        let (name, format) =
            identifier.split_once('%').map_or((identifier, None), |(name, format)| (name, Some(format)));
        let number = match (name, values.number_and_time) {
            ("", _) => {
                filled.push('$');
                continue;
            }
            ("RepresentationID", _) => {
                filled.push_str(values.id);
                if filled.len() > MAX_URL_BYTES {
                    return Err(Error::LongUrl(line));
                }
                continue;
            }
            ("Bandwidth", _) => values.bandwidth,
            ("Number", Some((number, _))) => number,
            ("Time", Some((_, time))) => time,
            (name, _) => {
                return Err(Error::unsupported(
                    line,
                    format!("${name}$ in the template {}", quoted(template)),
                ));
            }
        };
        let width = match format {
            None => 1,
            // %0[width]d, and nothing else.
            Some(format) => (format.strip_prefix('0').and_then(|format| format.strip_suffix('d')))
                .and_then(|width| width.parse::<usize>().ok())
                .filter(|width| *width <= 32)
                .ok_or_else(|| wrong("a format that isn't such as %05d"))?,
        };
        filled.push_str(&format!("{number:0width$}"));
        if filled.len() > MAX_URL_BYTES {
            return Err(Error::LongUrl(line));
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_filled_in() {
        let values = Values { id: "v0", bandwidth: 64_000, number_and_time: Some((7, 900)) };
        let filled = |template| fill(template, values, 3).map_err(|error| error.to_string());
        assert_eq!(
            filled("$RepresentationID$/$Number%05d$.m4s?b=$Bandwidth$"),
            Ok("v0/00007.m4s?b=64000".into())
        );
        assert_eq!(filled("$$t-$Time$$$"), Ok("$t-900$".into()));
        for (template, expected) in [
            ("a$Number", "line 3: a $ without its end"),
            ("$Number%5d$", "isn't such as %05d"),
            ("$Number%099d$", "isn't such as %05d"),
            ("$SubNumber$", "not supported"),
        ] {
            let error = filled(template).expect_err(template);
            assert!(error.contains(expected), "{error}");
        }
    }
}
