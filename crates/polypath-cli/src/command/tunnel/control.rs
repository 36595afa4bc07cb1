//! The socket by which a running tunnel is asked and ended: one line in, one answer out. What is recorded goes on until the asker leaves.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use polypath_system::{in_context, runtime_directory};

/// What names of such sockets begin with.
const PREFIX: &str = "tunnel-";
const PATIENCE: Duration = Duration::from_secs(5);
/// An answer that says what is wrong begins so.
pub(super) const MISTAKE: &str = "error: ";
/// A question is short: a word, and maybe what somebody calls a peer.
const MOST_QUESTION_BYTES: u64 = 1_024;

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Status,
    Down,
    /// To take its file anew.
    Reload,
    /// Which file it has.
    File,
    /// To record what comes from a peer.
    Record,
}

/// What is said.
pub(super) enum Answer {
    Text(String),
    /// Something that takes long, and goes on a thread of its own.
    Lines(Box<dyn FnOnce(&UnixStream) + Send>),
}

impl Question {
    const ALL: [Self; 5] = [Self::Status, Self::Down, Self::Reload, Self::File, Self::Record];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Down => "down",
            Self::Reload => "reload",
            Self::File => "file",
            Self::Record => "record",
        }
    }
}

fn place(name: &str) -> io::Result<PathBuf> {
    Ok(runtime_directory()?.join(format!("{PREFIX}{name}.sock")))
}

/// The socket of a tunnel that runs; it vanishes with this.
pub(super) struct Control {
    path: PathBuf,
    listener: UnixListener,
}

impl Control {
    /// Offers it. One that a killed process left is replaced, one that answers is not.
    pub(super) fn offer(name: &str) -> io::Result<Self> {
        let path = place(name)?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(directory)
            .map_err(|error| in_context(format!("{}", directory.display()), error))?;
        if UnixStream::connect(&path).is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("a tunnel named {name} runs already; `polypath tunnel down {name}` ends it"),
            ));
        }
        let _ = std::fs::remove_file(&path);
        let listener =
            UnixListener::bind(&path).map_err(|error| in_context(format!("{}", path.display()), error))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self { path, listener })
    }

    /// Answers questions until the listener ends.
    ///
    /// `answer` gets what stands behind the question's word, too.
    pub(super) fn serve(&self, mut answer: impl FnMut(Question, &str) -> Answer) {
        for stream in self.listener.incoming() {
            let Ok(stream) = stream else { continue };
            let _ = answer_one(stream, &mut answer);
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.path.clone()
    }
}

fn answer_one(mut stream: UnixStream, answer: &mut impl FnMut(Question, &str) -> Answer) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(MOST_QUESTION_BYTES)).read_line(&mut line)?;
    let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    let Some(question) = Question::ALL.into_iter().find(|question| question.word() == word) else {
        return Ok(());
    };
    match answer(question, rest.trim()) {
        Answer::Text(text) => stream.write_all(text.as_bytes()),
        Answer::Lines(write) => {
            let thread = std::thread::Builder::new().name("tunnel-record".into());
            thread.spawn(move || write(&stream)).map(drop)
        }
    }
}

/// The names of tunnels that may run.
pub(super) fn names() -> io::Result<Vec<String>> {
    let directory = runtime_directory()?;
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(in_context(format!("{}", directory.display()), error)),
    };
    let name = |entry: io::Result<std::fs::DirEntry>| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        Some(name.strip_prefix(PREFIX)?.strip_suffix(".sock")?.to_owned())
    };
    let mut names: Vec<_> = entries.filter_map(name).collect();
    names.sort();
    Ok(names)
}

/// Removes the socket of one that was killed.
pub(super) fn remove(name: &str) -> io::Result<()> {
    let path = place(name)?;
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(in_context(format!("{}", path.display()), error))
        }
        _ => Ok(()),
    }
}

/// A connection to a tunnel. `None` if none of that name runs.
pub(super) fn connect(name: &str) -> io::Result<Option<UnixStream>> {
    match UnixStream::connect(place(name)?) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Asks a tunnel. `None` if none of that name runs.
pub(super) fn ask(name: &str, question: Question) -> io::Result<Option<String>> {
    let Some(mut stream) = connect(name)? else { return Ok(None) };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{}\n", question.word()).as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(Some(answer))
}
