//! Results as a picture: one HTML file that needs nothing else.

mod figure;
mod html;
mod markup;
mod timeline;

use crate::analysis::Analysis;
use crate::experiment::Claim;
use crate::result::Results;

/// The report as one HTML page without any outside reference.
#[must_use]
pub fn render(results: &Results) -> String {
    let analysis = Analysis::new(&results.experiment, &results.runs);
    html::page(results, &analysis)
}

/// A number with the digits that matter.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    if value.is_nan() {
        "–".to_string()
    } else if value.is_infinite() {
        if value > 0.0 { "∞" } else { "−∞" }.to_string()
    } else if size >= 1000.0 {
        format!("{value:.0}")
    } else if size >= 100.0 {
        format!("{value:.1}")
    } else if size >= 10.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// What is to hold here, in words.
#[must_use]
pub fn demand(claim: &Claim) -> Option<String> {
    let least = claim.at_least.map(|least| format!("at least {least}"));
    let most = claim.at_most.map(|most| format!("at most {most}"));
    match (least, most) {
        (Some(least), Some(most)) => Some(format!("{least}, {most}")),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests;
