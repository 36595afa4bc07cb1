//! QR codes in a terminal.

use fast_qr::qr::QRBuilder;
use fast_qr::{ECL, Module};

/// Light modules around it (ISO/IEC 18004).
const QUIET: usize = 4;
/// Black on white, whatever the terminal's colours are.
const COLOURS: &str = "\x1b[40;97m";
const NO_COLOURS: &str = "\x1b[0m";

/// The code of a text. Each line is two rows of modules; with colours, it can be read on every terminal.
pub(super) fn draw(text: &str, has_colours: bool) -> Result<String, String> {
    let code = QRBuilder::new(text)
        .ecl(ECL::L)
        .build()
        .map_err(|error| format!("no QR code holds this: {error:?}"))?;
    let is_dark = |row: usize, column: usize| {
        let inside = |at: usize| (QUIET..QUIET + code.size).contains(&at);
        inside(row) && inside(column) && code[row - QUIET][column - QUIET].value() == Module::DARK
    };
    let size = code.size + 2 * QUIET;
    let mut lines = Vec::new();
    for row in (0..size).step_by(2) {
        // Light is what is drawn: terminals are dark.
        let line: String = (0..size)
            .map(|column| match (is_dark(row, column), row + 1 >= size || is_dark(row + 1, column)) {
                (false, false) => '█',
                (false, true) => '▀',
                (true, false) => '▄',
                (true, true) => ' ',
            })
            .collect();
        lines.push(if has_colours { format!("{COLOURS}{line}{NO_COLOURS}") } else { line });
    }
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The modules of a drawing, dark ones as true.
    fn modules(drawing: &str) -> Vec<Vec<bool>> {
        let halves = |upper: bool| {
            move |c: char| match c {
                '█' => false,
                '▀' => !upper,
                '▄' => upper,
                ' ' => true,
                _ => panic!("{c:?} is no part of a drawing"),
            }
        };
        let rows = |line: &str| [true, false].map(|upper| line.chars().map(halves(upper)).collect());
        drawing.lines().flat_map(rows).collect()
    }

    #[test]
    fn a_drawing_is_the_code_with_light_around_it() {
        let text = "[Interface]\nPrivateKey = dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=\n";
        let modules = modules(&draw(text, false).unwrap());
        let code = QRBuilder::new(text).ecl(ECL::L).build().unwrap();
        assert!(modules.iter().all(|row| row.len() == code.size + 2 * QUIET));
        for (row, dark) in modules.iter().enumerate() {
            for (column, dark) in dark.iter().enumerate() {
                let of_code = |at: usize| at.checked_sub(QUIET).filter(|at| *at < code.size);
                let expected = match (of_code(row), of_code(column)) {
                    (Some(row), Some(column)) => code[row][column].value() == Module::DARK,
                    // Below the last row of an odd number there is nothing.
                    _ => row == code.size + 2 * QUIET,
                };
                assert_eq!(*dark, expected, "{row}, {column}");
            }
        }
        // The corner of a finder pattern.
        assert!(modules[QUIET][QUIET] && !modules[QUIET - 1][QUIET] && !modules[QUIET + 1][QUIET + 1]);
        assert!(draw(text, true).unwrap().lines().all(|line| line.starts_with(COLOURS)));
        assert!(draw(&"x".repeat(4_000), false).unwrap_err().starts_with("no QR code holds this"));
    }
}
