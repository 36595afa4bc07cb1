//! The socket by which what runs is asked, changed and ended: one line in, one answer out. Each has a name among those of its kind.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use polypath_system::{in_context, runtime_directories, runtime_directory};

use super::Failure;

const PATIENCE: Duration = Duration::from_secs(5);
/// What is told to end does so within this, unless it hangs.
const MOST_WAIT: Duration = Duration::from_secs(5);
/// Those who are asking at a time.
const MOST_ASKING: usize = 64;
/// An answer that says what is wrong begins so.
pub(super) const MISTAKE: &str = "error: ";
/// Those of a directory that are found.
const MOST_FOUND: usize = 256;
/// A question is short: a word, and what that is about.
const MOST_QUESTION_BYTES: u64 = 65_536;

/// What is said.
pub(super) enum Answer {
    Text(String),
    /// Something that takes long, and goes on a thread of its own.
    Lines(Box<dyn FnOnce(&UnixStream) + Send>),
}

impl Answer {
    pub(super) fn mistake(error: &str) -> Self {
        Self::Text(format!("{MISTAKE}{error}\n"))
    }
}

/// Those of one kind: what one of them is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sockets(pub(super) &'static str);

impl Sockets {
    fn place(self, name: &str) -> io::Result<PathBuf> {
        Ok(runtime_directory()?.join(format!("{}-{name}.sock", self.0)))
    }

    /// Offers one. One that a killed process left is replaced, one that answers is not. Others of its kind that were left are removed.
    pub(super) fn offer(self, name: &str) -> io::Result<Control> {
        let path = self.place(name)?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(directory)
            .map_err(|error| in_context(format!("{}", directory.display()), error))?;
        if UnixStream::connect(&path).is_ok() {
            let kind = self.0;
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("a {kind} named {name} runs already; `polypath {kind} down` ends it"),
            ));
        }
        self.clear(directory);
        // It has its name once it listens: whoever sees it can ask, and nobody takes it for one that was left.
        let unready = path.with_extension(format!("sock.{}.new", std::process::id()));
        let _ = std::fs::remove_file(&unready);
        let named = UnixListener::bind(&unready).and_then(|listener| {
            std::fs::set_permissions(&unready, std::fs::Permissions::from_mode(0o600))?;
            std::fs::rename(&unready, &path)?;
            Ok(listener)
        });
        let listener = named.map_err(|error| in_context(format!("{}", path.display()), error))?;
        Ok(Control { path, listener })
    }

    /// Removes those at which nobody listens.
    fn clear(self, directory: &Path) {
        for path in self.places_in(directory) {
            let answer = UnixStream::connect(&path);
            if answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// The sockets of this kind that this user may ask: root sees everybody's.
    pub(super) fn places(self) -> Vec<PathBuf> {
        let Ok(own) = runtime_directory() else { return Vec::new() };
        runtime_directories(&own).iter().flat_map(|directory| self.places_in(directory)).collect()
    }

    /// Sorted by name. A link would lead to somebody else's.
    fn places_in(self, directory: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let is_one = |entry: &std::fs::DirEntry| {
            entry.file_type().is_ok_and(|kind| kind.is_socket())
                && entry.file_name().to_str().is_some_and(|file| self.name_of(file).is_some())
        };
        let mut places: Vec<_> = entries.filter(is_one).take(MOST_FOUND).map(|entry| entry.path()).collect();
        places.sort();
        places
    }

    /// The names of those that may run.
    pub(super) fn names(self) -> io::Result<Vec<String>> {
        let directory = runtime_directory()?;
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(in_context(format!("{}", directory.display()), error)),
        };
        let name = |entry: io::Result<std::fs::DirEntry>| {
            let file = entry.ok()?.file_name().into_string().ok()?;
            self.name_of(&file).map(ToOwned::to_owned)
        };
        let mut names: Vec<_> = entries.filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    /// The name of the one whose socket the file is, if it is of this kind.
    pub(super) fn name_of(self, file: &str) -> Option<&str> {
        file.strip_prefix(self.0)?.strip_prefix('-')?.strip_suffix(".sock")
    }

    /// The one that somebody means, of these.
    pub(super) fn meant<'a>(self, name: Option<&'a str>, running: &'a [String]) -> Result<&'a str, Failure> {
        let kind = self.0;
        match (name, running) {
            (Some(name), _) => Ok(name),
            (None, [only]) => Ok(only),
            (None, []) => Err(Failure::Run(format!("no {kind} runs"))),
            (None, several) => {
                Err(Failure::Input(format!("several run: expected one {kind} of {}", several.join(", "))))
            }
        }
    }

    /// What to say where none of that name runs.
    pub(super) fn missing(self, name: &str) -> Failure {
        Failure::Run(format!("no {} named {name} runs", self.0))
    }

    /// Removes the socket of one that was killed.
    pub(super) fn remove(self, name: &str) -> io::Result<()> {
        let path = self.place(name)?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(in_context(format!("{}", path.display()), error))
            }
            _ => Ok(()),
        }
    }

    /// A connection to one. `None` if none of that name runs.
    pub(super) fn connect(self, name: &str) -> io::Result<Option<UnixStream>> {
        match UnixStream::connect(self.place(name)?) {
            Ok(stream) => Ok(Some(stream)),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Asks one. `None` if none of that name runs.
    pub(super) fn ask(self, name: &str, question: &str) -> io::Result<Option<String>> {
        let question = line_of(question)?;
        let Some(mut stream) = self.connect(name)? else { return Ok(None) };
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(question.as_bytes())?;
        let mut answer = String::new();
        match stream.read_to_string(&mut answer) {
            Ok(_) => Ok(Some(answer)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let problem = format!("{name} did not answer within {} s", PATIENCE.as_secs());
                Err(io::Error::new(io::ErrorKind::TimedOut, problem))
            }
            Err(error) => Err(error),
        }
    }

    /// Asks one to do something; what it says to that.
    pub(super) fn tell(self, name: &str, question: &str) -> Result<String, Failure> {
        let answer = self.ask(name, question).map_err(Failure::run)?;
        let answer = answer.ok_or_else(|| self.missing(name))?;
        match answer.trim_end().strip_prefix(MISTAKE) {
            Some(mistake) => Err(Failure::Input(mistake.to_owned())),
            None => Ok(answer.trim_end().to_owned()),
        }
    }

    /// Until one that was told to end has. Its socket goes last.
    pub(super) fn wait_for_end(self, name: &str, most: Duration) -> Result<(), Failure> {
        let (begin, most) = (Instant::now(), most + MOST_WAIT);
        while self.names().map_err(Failure::run)?.iter().any(|running| running == name) {
            // One that may not remove it has ended without.
            if self.connect(name).is_ok_and(|answering| answering.is_none()) {
                return self.remove(name).map_err(Failure::run);
            }
            if begin.elapsed() > most {
                return Err(Failure::Run(format!(
                    "{name} was told to end, and still runs after {} s",
                    most.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// The socket of one that runs. Whoever offers it removes it, at [`Control::path`], in the end.
pub(super) struct Control {
    path: PathBuf,
    listener: UnixListener,
}

impl Control {
    /// Answers questions until the listener ends: `answer` gets a word and what stands behind it. What it does not know is not answered.
    ///
    /// Those who say nothing keep nobody waiting, and are so many at most.
    pub(super) fn serve(&self, answer: impl FnMut(&str, &str) -> Option<Answer> + Send) {
        let (answer, asking) = (Mutex::new(answer), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for stream in self.listener.incoming() {
                let Ok(stream) = stream else { continue };
                if asking.fetch_add(1, Ordering::Relaxed) >= MOST_ASKING {
                    asking.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let (answer, asking) = (&answer, &asking);
                let thread = std::thread::Builder::new().name("control".into());
                let begun = thread.spawn_scoped(scope, move || {
                    // Who leaves before the answer has none.
                    let _ = answer_one(stream, answer);
                    asking.fetch_sub(1, Ordering::Relaxed);
                });
                if begun.is_err() {
                    asking.fetch_sub(1, Ordering::Relaxed);
                }
            }
        });
    }

    pub(super) fn path(&self) -> PathBuf {
        self.path.clone()
    }
}

/// A question as it goes over the socket.
fn line_of(question: &str) -> io::Result<String> {
    let line = format!("{question}\n");
    if line.len() as u64 > MOST_QUESTION_BYTES {
        let problem =
            format!("that is too long: {} bytes, expected {MOST_QUESTION_BYTES} at most", line.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    Ok(line)
}

fn answer_one(
    mut stream: UnixStream,
    answer: &Mutex<impl FnMut(&str, &str) -> Option<Answer>>,
) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(MOST_QUESTION_BYTES)).read_line(&mut line)?;
    let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    let said = (answer.lock().unwrap_or_else(PoisonError::into_inner))(word, rest.trim());
    match said {
        None => Ok(()),
        Some(Answer::Text(text)) => stream.write_all(text.as_bytes()),
        Some(Answer::Lines(write)) => {
            let thread = std::thread::Builder::new().name("control-lines".into());
            thread.spawn(move || write(&stream)).map(drop)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_is_too_long_is_not_asked() {
        let most = MOST_QUESTION_BYTES as usize;
        assert!(line_of(&"x".repeat(most - 1)).is_ok());
        let error = line_of(&"x".repeat(most)).expect_err("too long").to_string();
        assert_eq!(error, "that is too long: 65537 bytes, expected 65536 at most");
    }

    #[test]
    fn those_of_a_kind_are_known_by_their_names() {
        let kind = Sockets("proxy");
        assert_eq!(kind.name_of("proxy-a.b.sock"), Some("a.b"));
        for other in ["1234.sock", "tunnel-a.sock", "proxy-", "proxy-a.sock.12.new"] {
            assert_eq!(kind.name_of(other), None, "{other}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let place = |file: &str| folder.path().join(file);
        let _lives = UnixListener::bind(place("proxy-lives.sock")).expect("a socket");
        for left in ["proxy-left.sock", "tunnel-left.sock"] {
            drop(UnixListener::bind(place(left)).expect("a socket"));
        }
        std::os::unix::fs::symlink(place("proxy-lives.sock"), place("proxy-link.sock")).expect("a link");
        kind.clear(folder.path());
        assert_eq!(kind.places_in(folder.path()), [place("proxy-lives.sock")]);
        assert!(place("tunnel-left.sock").exists(), "others' are left alone");
    }

    #[test]
    fn who_says_nothing_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("one.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        let control = Control { path: path.clone(), listener };
        // It ends with the test's process.
        std::thread::spawn(move || {
            control.serve(|word, rest| Some(Answer::Text(format!("{rest} {word}\n"))))
        });
        let silent: Vec<_> = (0..MOST_ASKING / 2).map(|_| UnixStream::connect(&path)).collect();
        let begun = Instant::now();
        let mut asking = UnixStream::connect(&path).expect("a connection");
        asking.write_all(b"hear me\n").expect("a question");
        let mut answer = String::new();
        asking.read_to_string(&mut answer).expect("an answer");
        assert_eq!(answer, "me hear\n");
        // One after the other, they would have taken half a minute and more.
        assert!(begun.elapsed() < PATIENCE * 4, "{:?}", begun.elapsed());
        drop(silent);
    }
}
