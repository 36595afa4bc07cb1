use polypath_congestion::Algorithm;
use polypath_sim::scenario::Source;

use super::ExperimentError;

/// The congestion control that `key` names.
pub(super) fn algorithm(source: Source<'_>, key: &str, name: &str) -> Result<Algorithm, ExperimentError> {
    polypath_congestion::Algorithm::by_name(name)
        .ok_or_else(|| source.unknown(key, "congestion control", name, Algorithm::names()))
}
