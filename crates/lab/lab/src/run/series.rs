//! What is recorded over time.

use polypath_units::Duration;
use serde::{Deserialize, Serialize};

/// Something over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The connection.
    pub(crate) flow: usize,
    /// The path, for the part of the connection that goes over it; all of the connection if none.
    pub(crate) path: Option<usize>,
    /// What the values are.
    #[serde(default)]
    pub(crate) quantity: Quantity,
    /// One for each [`Quantity::interval`].
    pub(crate) values: Vec<f64>,
}

/// What is recorded over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Quantity {
    /// Mean rate in bits per second: of a connection what arrived at the application, of a path what was acknowledged.
    #[default]
    Rate,
    /// Congestion window in bytes.
    Window,
}

impl Quantity {
    /// Time between two points.
    #[must_use]
    pub(crate) const fn interval(self) -> Duration {
        match self {
            Self::Rate => Series::INTERVAL,
            Self::Window => Duration::from_millis(50),
        }
    }
}

impl Series {
    pub(super) const INTERVAL: Duration = Duration::from_millis(500);

    /// A series without values yet.
    pub(crate) const fn new(flow: usize, path: Option<usize>, quantity: Quantity) -> Self {
        Self { flow, path, quantity, values: Vec::new() }
    }
}
