//! What carries the program's connections: chosen by the environment, started by the first connection, ended with the
//! program.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use polypath_net::relay::{EngineChoice, Relay, errno};

/// Where the choice is.
const OPTIONS: &str = "POLYPATH_PRELOAD_OPTIONS";

/// The choice, if it can be understood; says so once if not.
pub(crate) fn choice() -> Option<&'static EngineChoice> {
    static CHOICE: OnceLock<Option<EngineChoice>> = OnceLock::new();
    let read = || {
        let options = std::env::var_os(OPTIONS).unwrap_or_default();
        let choice = std::str::from_utf8(options.as_bytes())
            .map_err(|_| "not UTF-8".to_string())
            .and_then(|options| EngineChoice::parse(options).map_err(|error| error.to_string()));
        choice.map_err(|error| say(&format!("{OPTIONS}: {error}"))).ok()
    };
    CHOICE.get_or_init(read).as_ref()
}

/// Not `eprintln`, which panics when standard error is closed.
pub(crate) fn say(message: &str) {
    let text = format!("polypath: {message}\n");
    // SAFETY: the pointer and the length are those of a living string.
    #[allow(unsafe_code)]
    unsafe {
        libc::write(2, text.as_ptr().cast(), text.len());
    }
}

/// The engine of a process, or why there is none.
enum State {
    None,
    Running { process: u32, relay: Arc<Relay> },
    Failed { process: u32, errno: i32 },
}

static STATE: Mutex<State> = Mutex::new(State::None);

/// The engine, started if it isn't yet. A child of a fork gets one of its own: its parent's threads are not in it.
pub(crate) fn relay() -> io::Result<Arc<Relay>> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let here = std::process::id();
    match &*state {
        State::Running { process, relay } if *process == here => return Ok(relay.clone()),
        State::Failed { process, errno } if *process == here => {
            return Err(io::Error::from_raw_os_error(*errno));
        }
        _ => {}
    }
    let Some(EngineChoice::Relay(choices)) = choice() else { return Err(io::ErrorKind::Unsupported.into()) };
    let (next, result) = match Relay::start(choices) {
        Ok(relay) => {
            let relay = Arc::new(relay);
            (State::Running { process: here, relay: relay.clone() }, Ok(relay))
        }
        Err(error) => {
            say(&error.to_string());
            (State::Failed { process: here, errno: errno(&error) }, Err(error))
        }
    };
    // What a parent left behind can't be ended here: its threads are elsewhere.
    std::mem::forget(std::mem::replace(&mut *state, next));
    drop(state);
    end_with_program();
    result
}

/// The engine, if it runs already.
pub(crate) fn running() -> Option<Arc<Relay>> {
    match &*STATE.lock().unwrap_or_else(PoisonError::into_inner) {
        State::Running { process, relay } if *process == std::process::id() => Some(relay.clone()),
        _ => None,
    }
}

/// Has the engine ended in order when the program ends, with what was written delivered.
fn end_with_program() {
    static ONCE: OnceLock<()> = OnceLock::new();
    extern "C" fn end() {
        // The variables of this thread may be gone already, so another one does it. What can't be done now is done by
        // the next start.
        let ending = std::panic::catch_unwind(|| std::thread::spawn(finish).join());
        drop(ending);
    }
    ONCE.get_or_init(|| {
        // SAFETY: the handler is a function of this library, which is loaded as long as the program runs.
        #[allow(unsafe_code)]
        unsafe {
            libc::atexit(end);
        }
    });
}

fn finish() {
    let Ok(mut state) = STATE.try_lock() else { return };
    let ended = std::mem::replace(&mut *state, State::None);
    drop(state);
    match ended {
        // The last one to hold it ends it.
        State::Running { process, relay } if process == std::process::id() => drop(relay),
        other => std::mem::forget(other),
    }
}
