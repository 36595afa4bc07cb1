use std::io;
use std::path::PathBuf;

/// Where the sockets of this user's stacks are: `POLYPATH_RUNTIME_DIR` if it is set, `/run/polypath` for root, and
/// `$XDG_RUNTIME_DIR/polypath` for others.
pub fn runtime_directory() -> io::Result<PathBuf> {
    if let Some(chosen) = std::env::var_os("POLYPATH_RUNTIME_DIR") {
        return Ok(chosen.into());
    }
    if rustix::process::geteuid().is_root() {
        return Ok("/run/polypath".into());
    }
    let of_session =
        std::env::var_os("XDG_RUNTIME_DIR").map(|session| PathBuf::from(session).join("polypath"));
    of_session.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            "XDG_RUNTIME_DIR is not set; expected the directory of the login session, or one in POLYPATH_RUNTIME_DIR",
        )
    })
}
