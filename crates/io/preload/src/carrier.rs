//! What carries the program's connections: chosen by the environment, and kept by a process that outlives the program.

use std::ffi::{CStr, OsStr, OsString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use polypath_relay::EngineChoice;
use polypath_relay::keeper::{KeeperAddress, KeeperClient, launch};

/// Where the choice is.
const OPTIONS: &str = "POLYPATH_PRELOAD_OPTIONS";
/// Where the keeper of all programs that were started together is.
const KEEPER: &str = "POLYPATH_PRELOAD_KEEPER";
/// The `polypath` command, which is the keeper's program. It lies beside the library if nothing is said.
const COMMAND: &str = "POLYPATH_PRELOAD_COMMAND";
/// It is there if the keeper is to say something: then its standard error is the program's.
const VERBOSITY: &str = "POLYPATH_PRELOAD_VERBOSITY";
/// Its subcommand.
const SUBCOMMAND: &str = "preload-keeper";

/// The choice, if it can be understood; says so once if not.
pub(crate) fn choice() -> Option<&'static EngineChoice> {
    static CHOICE: OnceLock<Option<EngineChoice>> = OnceLock::new();
    let read = || {
        let options = options();
        let choice = std::str::from_utf8(options.as_bytes())
            .map_err(|_| "not UTF-8".to_string())
            .and_then(|options| EngineChoice::parse(options).map_err(|error| error.to_string()))
            .and_then(|choice| match choice {
                EngineChoice::Auto { .. } => Err("expected an engine that the command has chosen".into()),
                choice => Ok(choice),
            });
        choice.map_err(|error| say(&format!("{OPTIONS}: {error}"))).ok()
    };
    CHOICE.get_or_init(read).as_ref()
}

fn options() -> OsString {
    std::env::var_os(OPTIONS).unwrap_or_default()
}

/// Whether a stack of ours carries the connections.
pub(crate) fn is_relayed() -> bool {
    matches!(choice(), Some(EngineChoice::Relay(_)))
}

/// Whether a stack of ours may carry connections to the program's listeners.
pub(crate) fn takes_connections() -> bool {
    matches!(choice(), Some(EngineChoice::Relay(choices)) if choices.takes_connections())
}

/// Not `eprintln`, which panics when standard error is closed.
fn say(message: &str) {
    let text = format!("polypath: {message}\n");
    // SAFETY: the pointer and the length are those of a living string.
    #[allow(unsafe_code)]
    unsafe {
        libc::write(2, text.as_ptr().cast(), text.len());
    }
}

/// Says why something does not work, once.
pub(crate) fn complain(error: &io::Error) {
    static HAS_SAID: AtomicBool = AtomicBool::new(false);
    if !HAS_SAID.swap(true, Ordering::Relaxed) {
        say(&error.to_string());
    }
}

/// Whom to ask. A child of a fork asks the same; so does another program, if both were started by `polypath preload`.
pub(crate) fn keeper() -> io::Result<&'static KeeperClient> {
    static CLIENT: OnceLock<KeeperClient> = OnceLock::new();
    if let Some(client) = CLIENT.get() {
        return Ok(client);
    }
    let address = match std::env::var(KEEPER) {
        Ok(text) => text.parse().map_err(|error| io::Error::other(format!("{KEEPER}: {error}")))?,
        Err(_) => KeeperAddress::random()?,
    };
    Ok(CLIENT.get_or_init(|| KeeperClient::new(address)))
}

/// Starts the keeper.
pub(crate) fn launch_keeper(address: &KeeperAddress) -> io::Result<()> {
    let options = options().into_string().unwrap_or_default();
    let variables = [(KEEPER, address.to_string()), (OPTIONS, options)];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    let wish = std::env::var(VERBOSITY).ok().map(|wish| wish.parse().unwrap_or(0_usize));
    let words: Vec<&str> = std::iter::repeat_n("-v", wish.unwrap_or(0).min(3)).chain([SUBCOMMAND]).collect();
    launch(&command()?, &words, &variables, wish.is_some())
}

fn command() -> io::Result<PathBuf> {
    if let Some(named) = std::env::var_os(COMMAND) {
        return Ok(named.into());
    }
    let library = own_path().ok_or_else(|| io::Error::other("the library can't be found"))?;
    let folder = library.parent().unwrap_or(Path::new("/"));
    let places = [folder.join("polypath"), folder.join("../bin/polypath"), folder.join("../polypath")];
    places.into_iter().find(|place| place.is_file()).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "the command polypath, which keeps the connections, is neither in {0} nor in {0}/../bin; name it in {COMMAND}",
                folder.display()
            ),
        )
    })
}

/// The file that this library was loaded from.
fn own_path() -> Option<PathBuf> {
    let own: fn() -> Option<PathBuf> = own_path;
    // SAFETY: `dladdr` writes one `Dl_info`, of which zeros are a valid value, and the name that it gives lives as long as
    // the library is loaded.
    #[allow(unsafe_code)]
    let name = unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        let is_found = libc::dladdr(own as *const libc::c_void, &raw mut found) != 0;
        let name: *const c_char = found.dli_fname;
        (is_found && !name.is_null()).then(|| CStr::from_ptr(name))
    };
    name.map(|name| PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}
