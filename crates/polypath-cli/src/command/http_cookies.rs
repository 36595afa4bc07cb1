//! Cookies of downloads in ranges and of streams, in curl's words.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use polypath_fetch::cookies::{Cookies, Jar, MAX_FILE_BYTES};

use super::{Failure, complain};

#[derive(Args, Clone, Debug, Default)]
pub(super) struct CookieArguments {
    /// Send these cookies to the URL's server, for example "NAME=VALUE; N2=V2"; or those of FILE (Netscape's format) to the servers that it
    /// names; repeatable. Cookies that servers set are sent back
    #[arg(short = 'b', long = "cookie", value_name = "DATA|FILE")]
    given: Vec<String>,
    /// Write all cookies to FILE at the end, in Netscape's format
    #[arg(short = 'c', long = "cookie-jar", value_name = "FILE")]
    jar: Option<PathBuf>,
}

impl CookieArguments {
    pub(super) const fn are_given(&self) -> bool {
        !self.given.is_empty()
    }

    pub(super) const fn are_kept(&self) -> bool {
        self.jar.is_some()
    }

    /// What is sent to one host as it stands.
    pub(super) fn data(&self) -> Result<Option<String>, Failure> {
        let data: Vec<&str> =
            self.given.iter().map(String::as_str).filter(|text| text.contains('=')).collect();
        if data.iter().any(|text| text.bytes().any(|byte| byte.is_ascii_control())) {
            let problem = "--cookie: it has control characters; expected NAME=VALUE";
            return Err(Failure::input(problem));
        }
        Ok(Some(data.join("; ")).filter(|data| !data.is_empty()))
    }

    /// The cookies that are there before anything is asked for.
    pub(super) fn open(&self, is_unverified: bool) -> Result<KeptCookies, Failure> {
        if !self.are_given() && !self.are_kept() {
            return Ok(KeptCookies::default());
        }
        if let Some(place) = &self.jar {
            check_place(place)
                .map_err(|problem| Failure::Input(format!("--cookie-jar: {}: {problem}", place.display())))?;
        }
        let mut jar = Jar::default();
        // An empty name only says that cookies are kept.
        let files = self.given.iter().filter(|text| !text.is_empty() && !text.contains('='));
        for file in files.map(Path::new) {
            // The first time, the file that is written at the end is not there yet.
            if self.jar.as_deref() != Some(file) || file.exists() {
                read(&mut jar, file)
                    .map_err(|problem| Failure::Input(format!("--cookie: {}: {problem}", file.display())))?;
            }
        }
        Ok(KeptCookies { cookies: Some(Cookies::new(jar, is_unverified)), place: self.jar.clone() })
    }
}

/// Cookies while something is fetched, and where they go at the end.
#[derive(Debug, Default)]
pub(super) struct KeptCookies {
    cookies: Option<Cookies>,
    place: Option<PathBuf>,
}

impl KeptCookies {
    pub(super) fn cookies(&self) -> Option<Cookies> {
        self.cookies.clone()
    }

    /// Writes them, whatever the end was.
    pub(super) fn end(&self, result: Result<(), Failure>) -> Result<(), Failure> {
        let (Some(cookies), Some(place)) = (&self.cookies, &self.place) else { return result };
        let Err(error) = write(place, &cookies.to_file()) else { return result };
        let message = format!("--cookie-jar: {}: can't be written: {error}", place.display());
        if result.is_ok() {
            return Err(Failure::Run(message));
        }
        complain(&message);
        result
    }
}

/// A place where nothing can be written is told before anything is fetched.
fn check_place(place: &Path) -> Result<(), &'static str> {
    if place == Path::new("-") {
        return Err("standard output is not offered; expected a file");
    }
    if place.is_dir() || place.file_name().is_none() {
        return Err("it is no file; expected one, or none yet");
    }
    if folder_of(place).is_dir() { Ok(()) } else { Err("its folder is not there; expected one that is") }
}

fn folder_of(place: &Path) -> &Path {
    place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn read(jar: &mut Jar, file: &Path) -> Result<(), String> {
    let expected = "expected NAME=VALUE, or a file of cookies in Netscape's format";
    let mut bytes = Vec::new();
    let opened = File::open(file).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    opened.map_err(|error| format!("{error}; {expected}"))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("it has more than {MAX_FILE_BYTES} bytes; {expected}"));
    }
    let text = String::from_utf8(bytes).map_err(|_| format!("it is no UTF-8; {expected}"))?;
    let now_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    jar.read(&text, now_unix_s).map_err(|error| error.to_string())
}

/// Replaces a file in one step by one that nobody else reads. What is no file is written as it stands.
fn write(place: &Path, text: &str) -> io::Result<()> {
    // Behind a link it stays where it is.
    let place = fs::canonicalize(place).unwrap_or_else(|_| place.into());
    if place.metadata().is_ok_and(|found| !found.is_file()) {
        return File::options().write(true).open(&place)?.write_all(text.as_bytes());
    }
    let mut new = tempfile::NamedTempFile::new_in(folder_of(&place))?;
    new.write_all(text.as_bytes())?;
    new.as_file().sync_all()?;
    new.persist(&place)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn arguments(given: &[&str], jar: Option<&Path>) -> CookieArguments {
        let given = given.iter().map(|text| (*text).into()).collect();
        CookieArguments { given, jar: jar.map(Path::to_path_buf) }
    }

    fn message<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
        match result {
            Err(Failure::Input(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn data_has_an_equals_sign_and_a_file_has_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("cookies");
        let name = file.to_str().expect("a name");
        let both = arguments(&["a=1", name, "b=2; c=3"], None);
        assert_eq!(both.data().expect("data").as_deref(), Some("a=1; b=2; c=3"));
        assert!(message(both.open(false)).contains("No such file"));
        fs::write(&file, "example.org\tFALSE\t/\tFALSE\t0\tn\tv\n").expect("a file");
        let kept = both.open(false).expect("cookies").cookies().expect("cookies");
        assert!(kept.to_file().contains("\tn\tv\n"));
        fs::write(&file, "<html>").expect("a file");
        assert!(message(both.open(false)).contains("line 1: it has no seven words"));
        fs::write(&file, [0xff]).expect("a file");
        assert!(message(both.open(false)).contains("no UTF-8"));
        assert!(message(arguments(&["a=1\r\nX: y"], None).data()).contains("control characters"));
        // Nothing is kept unless somebody asks for it; an empty name does.
        assert!(arguments(&[], None).open(false).expect("none").cookies().is_none());
        assert!(arguments(&[""], None).open(false).expect("some").cookies().is_some());
    }

    #[test]
    fn a_jar_is_written_for_its_owner_alone_and_after_a_failure_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("jar"), folder.path().join("link"));
        // The same file may be read, though it is not there yet.
        let both = arguments(&[file.to_str().expect("a name")], Some(&file));
        let kept = both.open(false).expect("cookies");
        assert!(
            matches!(kept.end(Err(Failure::Run("no".into()))), Err(Failure::Run(message)) if message == "no")
        );
        let mode = || fs::metadata(&file).expect("a file").mode() & 0o777;
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("our file");
        symlink(&file, &link).expect("a link");
        let text = "example.org\tFALSE\t/\tFALSE\t0\tn\tv\n";
        fs::write(&file, text).expect("our file");
        let kept = arguments(&[link.to_str().expect("a name")], Some(&link)).open(false).expect("cookies");
        assert!(kept.end(Ok(())).is_ok() && link.is_symlink());
        assert_eq!(mode(), 0o600);
        assert!(fs::read_to_string(&file).expect("a file").ends_with(text));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
        for place in [Path::new("-"), folder.path(), &folder.path().join("missing/jar")] {
            let refused = message(arguments(&[], Some(place)).open(false));
            assert!(refused.starts_with("--cookie-jar: "), "{refused}");
        }
        // What can't be written is a failure, unless there was another.
        fs::remove_file(&file).expect("our file");
        let gone = folder.path().join("gone");
        fs::create_dir(&gone).expect("a folder");
        let kept = arguments(&[], Some(&gone.join("jar"))).open(false).expect("cookies");
        fs::remove_dir(&gone).expect("our folder");
        assert!(
            matches!(kept.end(Ok(())), Err(Failure::Run(message)) if message.contains("can't be written"))
        );
    }
}
