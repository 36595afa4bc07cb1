use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use super::early::Early;
use super::last::Waiting;
use super::{Answer, Ask, EventKind, EventReport, Observed, Question};

/// Clients that ask at once; further ones wait. One that watches leaves its place to the next that asks.
const MAX_CLIENTS: usize = 32;
/// Clients that watch at once; further ones are told so.
const MAX_WATCHERS: usize = 64;
/// A question is short.
const MAX_QUESTION_BYTES: u64 = 4096;
/// How long a client may take to ask, and to read an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Stacks in one process that may have a socket each.
const MAX_NAMES: u32 = 100;

/// A socket that is offered. It vanishes with [`ControlSocket::close`], or else with the runtime.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    task: AbortHandle,
}

impl ControlSocket {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes it away.
    pub fn close(self) {
        self.task.abort();
        remove(&self.path);
    }
}

/// As [`offer_as`], by the name of this process.
pub fn offer(observed: Arc<dyn Observed>, directory: &Path) -> io::Result<ControlSocket> {
    offer_as(observed, directory, process_name())
}

/// Offers a socket in a directory, which is made if it is missing. Sockets of processes that died without a word are
/// removed on the way. Answers name the program `process`, whose connections these are. Must be called within a tokio runtime.
pub fn offer_as(observed: Arc<dyn Observed>, directory: &Path, process: String) -> io::Result<ControlSocket> {
    let at = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", directory.display()));
    super::create_directory(directory).map_err(at)?;
    remove_stale(directory).map_err(at)?;
    let (listener, path) = bind(directory).map_err(at)?;
    let process: Arc<str> = process.into();
    let early = Early::keep(&*observed);
    let guard = Guard {
        path: path.clone(),
        waiting: Waiting::default(),
        observed: observed.clone(),
        process: process.clone(),
    };
    let task = tokio::spawn(async move {
        serve(listener, observed, early, process, guard.waiting.clone()).await;
    });
    Ok(ControlSocket { path, task: task.abort_handle() })
}

fn bind(directory: &Path) -> io::Result<(UnixListener, PathBuf)> {
    let pid = std::process::id();
    for number in 1..=MAX_NAMES {
        let name = if number == 1 { format!("{pid}.sock") } else { format!("{pid}-{number}.sock") };
        let (unready, path) = (directory.join(format!("{name}.new")), directory.join(name));
        // It has its name once it listens, so that whoever sees it can ask.
        match UnixListener::bind(&unready) {
            Ok(listener) => {
                let named = fs::set_permissions(&unready, fs::Permissions::from_mode(0o600)).and_then(|()| {
                    let renamed = renameat_with(CWD, &unready, CWD, &path, RenameFlags::NOREPLACE);
                    renamed.map_err(io::Error::from)
                });
                match named {
                    Ok(()) => return Ok((listener, path)),
                    Err(error) => {
                        remove(&unready);
                        if error.kind() != io::ErrorKind::AlreadyExists {
                            return Err(error);
                        }
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// Removes sockets of stacks at which nobody listens. A process that lives may be about to listen.
pub(super) fn remove_stale(directory: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let is_socket = fs::symlink_metadata(&path).is_ok_and(|found| found.file_type().is_socket());
        let Some(owner) = owner(&path).filter(|_| is_socket) else { continue };
        if is_deserted(&path) && !is_alive(owner) {
            remove(&path);
        }
    }
    Ok(())
}

/// Whether nobody listens at a socket. A process that is stopped does: nobody waits for it.
pub(super) fn is_deserted(path: &Path) -> bool {
    let connect = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(path)?)
    };
    connect().is_err_and(|error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// The process whose stack a socket is of, by its name. Sockets of other kinds, which understand other questions, do not begin with a number.
pub(super) fn owner(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    name.split(['.', '-']).next()?.parse().ok()
}

/// Whether the process is there, and not this one under a number that was used before.
fn is_alive(pid: u32) -> bool {
    pid != std::process::id() && polypath_system::process::is_alive(pid)
}

fn remove(path: &Path) {
    // Another process may have done it.
    let _ = fs::remove_file(path);
}

/// What is done when a socket vanishes, however that comes.
struct Guard {
    path: PathBuf,
    waiting: Waiting,
    observed: Arc<dyn Observed>,
    process: Arc<str>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        remove(&self.path);
        self.waiting.tell(&*self.observed, &self.process);
    }
}

async fn serve(
    listener: UnixListener,
    observed: Arc<dyn Observed>,
    early: Early,
    process: Arc<str>,
    waiting: Waiting,
) {
    let places = Arc::new(Semaphore::new(MAX_CLIENTS));
    let watchers = Arc::new(Semaphore::new(MAX_WATCHERS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((client, _)) if is_allowed(&client) => {
                let (observed, early, process) = (observed.clone(), early.clone(), process.clone());
                let waits = (watchers.clone(), waiting.clone());
                tokio::spawn(async move {
                    // A client that went away needs no answer.
                    let _ = answer(client, &*observed, &early, &process, place, waits).await;
                });
            }
            Ok(_) => {}
            // Too many open files, perhaps.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// The file's mode keeps others out already; this holds if the file system has no modes.
fn is_allowed(client: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    client.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

async fn answer(
    client: UnixStream,
    observed: &dyn Observed,
    early: &Early,
    process: &str,
    place: OwnedSemaphorePermit,
    (watchers, waiting): (Arc<Semaphore>, Waiting),
) -> io::Result<()> {
    let (reader, mut writer) = client.into_split();
    let mut reader = BufReader::new(reader.take(MAX_QUESTION_BYTES));
    let mut line = String::new();
    tokio::time::timeout(PATIENCE, reader.read_line(&mut line)).await??;
    let mut answer = Answer { process: process.into(), pid: std::process::id(), ..Answer::default() };
    let (mut watching, mut is_last) = (None, false);
    let events = match serde_json::from_str(&line) {
        Ok(Question { ask: Ask::Connections, .. }) => {
            answer.connections = observed.connections();
            answer.listeners = observed.listeners();
            None
        }
        Ok(Question { ask: Ask::Counters, .. }) => {
            let counters = observed.counters();
            answer.counters = counters.into_iter().map(|(name, value)| (name.into(), value)).collect();
            None
        }
        Ok(Question { ask: Ask::Figures, .. }) => {
            answer.add_figures(observed);
            None
        }
        Ok(Question { ask: Ask::Last, .. }) => {
            watching = watchers.try_acquire_owned().ok();
            if watching.is_none() {
                answer.error = Some(format!("{MAX_WATCHERS} watch already; expected fewer"));
            }
            is_last = watching.is_some();
            None
        }
        Ok(Question { ask: Ask::Monitor, early: is_early, .. }) => {
            watching = watchers.try_acquire_owned().ok();
            if watching.is_none() {
                answer.error = Some(format!("{MAX_WATCHERS} watch already; expected fewer"));
            }
            let kept = if is_early { early.subscribe() } else { None };
            Some(kept.unwrap_or_else(|| (Vec::new(), observed.subscribe())))
        }
        Ok(Question { ask: Ask::Paths, .. }) => {
            answer.paths = observed.paths();
            None
        }
        Ok(Question { ask: Ask::Change, change, .. }) => {
            answer.error = match change {
                Some(change) => observed.change(&change).err().map(|error| error.to_string()),
                None => Some(
                    "a change without what is to be changed; expected {\"ask\":\"change\",\"change\":…}"
                        .into(),
                ),
            };
            None
        }
        Err(error) => {
            answer.error = Some(format!("{error}; expected {{\"ask\":\"connections\"}}"));
            None
        }
    };
    // For a monitor, the answer without content says that every event from now on will come.
    write_line(&mut writer, &answer).await?;
    if is_last {
        drop(place);
        let number = waiting.add(writer.as_ref())?;
        // More than a question is not expected; the end means that the client waits no more.
        while reader.read(&mut [0]).await.is_ok_and(|read| read > 0) {}
        waiting.remove(number);
        return Ok(());
    }
    let Some(((kept, mut events), _watching)) = events.zip(watching) else { return Ok(()) };
    drop(place);
    for event in &kept {
        write_line(&mut writer, event).await?;
    }
    let mut end = [0];
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Ok(event) => write_line(&mut writer, &event).await?,
                Err(RecvError::Lagged(count)) => {
                    let reason = Some(format!("{count}_events"));
                    let missed = EventReport { reason, ..EventReport::new(EventKind::Missed, 0) };
                    write_line(&mut writer, &missed).await?;
                }
                Err(RecvError::Closed) => return Ok(()),
            },
            // More than a question is not expected; the end means that the client has seen enough.
            read = reader.read(&mut end) => if read? == 0 { return Ok(()) },
        }
    }
}

async fn write_line(
    writer: &mut (impl tokio::io::AsyncWrite + Unpin),
    value: &impl serde::Serialize,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    tokio::time::timeout(PATIENCE, writer.write_all(&line)).await?
}

/// What this process is called, as `ps` and `top` show it.
#[must_use]
pub fn process_name() -> String {
    name_at("/proc/self/comm").unwrap_or_default()
}

/// What another process is called; none if it has ended, or is out of sight.
#[must_use]
pub fn process_name_of(pid: u32) -> Option<String> {
    name_at(&format!("/proc/{pid}/comm"))
}

fn name_at(place: &str) -> Option<String> {
    fs::read_to_string(place).ok().map(|name| name.trim().to_string())
}
