//! Which program this is.

use sha2::{Digest, Sha256};

/// What results depend on besides what was asked: the version, and the very program, since a change of the stack that is not
/// in the version changes results too.
pub(super) fn name() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let program = std::env::current_exe().and_then(std::fs::read);
    program.map_or_else(
        |_| version.to_string(),
        |bytes| {
            let hash: String =
                Sha256::digest(bytes).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
            format!("{version}+{hash}")
        },
    )
}

/// The line below the version.
pub(super) fn explained() -> String {
    format!(
        "build {}: the version, and the first 12 digits of the SHA-256 of this program's file; results of `polypath lab` carry it",
        name()
    )
}
