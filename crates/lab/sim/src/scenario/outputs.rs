use std::path::PathBuf;

/// Where the results of a scenario are to go, as its file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outputs {
    /// Results in JSON.
    pub json: Option<PathBuf>,
    /// Packets in pcapng. Written by [`Scenario::run`](super::Scenario::run).
    pub pcap: Option<PathBuf>,
    /// Packets, events and the state of subflows in qlog. Written by [`Scenario::run`](super::Scenario::run).
    pub qlog: Option<PathBuf>,
    /// Packets in text. Written by [`Scenario::run`](super::Scenario::run).
    pub trace: Option<PathBuf>,
    /// A report in HTML.
    pub report: Option<PathBuf>,
}
