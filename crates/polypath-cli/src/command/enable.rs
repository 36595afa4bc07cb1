//! `polypath enable` and `polypath disable`, for systemd's services.

mod time_span;
mod unit;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Args, FromArgMatches, parser::ValueSource};
use polypath_config::Policies;

use self::unit::{ExecStart, MADE_FOLDER, MARK, Service, Start, With};
use super::engine::clear_leftovers;
use super::{Failure, complain, help, open_regular, preload, print_line, run as run_command};

/// Where units are, below the root, the first first.
const FOLDERS: [&str; 6] = [
    "etc/systemd/system",
    "run/systemd/system",
    "run/systemd/generator",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];
/// The same of a user's units. Before them come those of the user, in their home.
const FOLDERS_OF_USERS: [&str; 4] =
    ["etc/systemd/user", "run/systemd/user", "usr/local/lib/systemd/user", "usr/lib/systemd/user"];
const FILE: &str = "polypath.conf";
/// Where polypath is in another system, the first first.
const COMMANDS: [&str; 2] = ["usr/bin/polypath", "usr/local/bin/polypath"];
/// More is not read of a unit; systemd reads no more either.
const MAX_UNIT_BYTES: u64 = 1 << 20;

/// Where drop-ins go.
#[derive(Args, Debug)]
struct Places {
    /// Where the drop-in's folder is, such as /run/systemd/system for the time until the next start [default:
    /// /etc/systemd/system; with --user ~/.config/systemd/user]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// A service of this user, which `systemctl --user` starts
    #[arg(long)]
    user: bool,
    /// Look at the files of another system, such as an image, below this folder
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// The service, such as nginx.service, name@.service for all of a template, or name@one.service for one
    #[arg(value_name = "UNIT")]
    unit: String,
    #[command(flatten)]
    places: Places,
    /// Where polypath is when the service starts [default: this program; with --root, usr/bin or usr/local/bin there]
    #[arg(long, value_name = "PATH")]
    command: Option<String>,
    /// Print the drop-in, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// What starts the program [default: preload; run, if it is statically linked, or with an option that only run has]
    #[arg(long, value_enum, value_name = "NAME")]
    with: Option<With>,
    #[command(flatten)]
    options: Options,
}

#[derive(Args, Debug)]
pub(super) struct DisableArguments {
    /// The service
    #[arg(value_name = "UNIT", required_unless_present = "all")]
    unit: Option<String>,
    /// All services that `polypath enable` changed
    #[arg(long, conflicts_with = "unit")]
    all: bool,
    #[command(flatten)]
    places: Places,
}

/// The options of `run` and `preload`, and which were given, as words.
#[derive(Debug, Default)]
struct Options {
    words: Vec<String>,
    is_for_run: bool,
    is_for_preload: bool,
}

impl Options {
    /// The options of both, each once, and whether `run` and `preload` have them.
    fn known() -> Vec<(Arg, bool, bool)> {
        let run = run_command::Arguments::augment_args(clap::Command::new("run"));
        let preload = preload::Arguments::augment_args(clap::Command::new("preload"));
        // The program comes from the unit; what would be set up is another question.
        let is_option = |arg: &&Arg| arg.get_long().is_some() && arg.get_id() != "dry_run";
        let of = |command: &clap::Command| -> Vec<Arg> {
            command.get_arguments().filter(is_option).cloned().collect()
        };
        let (run, preload) = (of(&run), of(&preload));
        let has = |args: &[Arg], arg: &Arg| args.iter().any(|other| other.get_id() == arg.get_id());
        let both = run.iter().map(|arg| (arg.clone(), true, has(&preload, arg)));
        let rest = preload.iter().filter(|arg| !has(&run, arg)).map(|arg| (arg.clone(), false, true));
        both.chain(rest).collect()
    }
}

impl FromArgMatches for Options {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut options = Self::default();
        for (arg, of_run, of_preload) in Self::known() {
            let (id, long) = (arg.get_id().as_str(), arg.get_long().unwrap_or_default());
            if matches.value_source(id) != Some(ValueSource::CommandLine) {
                continue;
            }
            options.is_for_run |= !of_preload;
            options.is_for_preload |= !of_run;
            if !arg.get_action().takes_values() {
                options.words.push(format!("--{long}"));
                continue;
            }
            let is_path = arg.get_value_parser().type_id() == std::any::TypeId::of::<PathBuf>();
            for value in matches.get_raw(id).into_iter().flatten() {
                let value = PathBuf::from(value);
                // systemd starts programs elsewhere.
                let value = if is_path { std::path::absolute(&value).unwrap_or(value) } else { value };
                options.words.push(format!("--{long}={}", value.to_string_lossy()));
            }
        }
        Ok(options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Options {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(Self::known().into_iter().map(|(arg, ..)| arg))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// A service by its names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unit {
    name: String,
    /// `name@.service` of `name@one.service`.
    template: Option<String>,
}

impl Unit {
    fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = |why: &str| {
            let expected = "expected the name of a service, such as nginx.service or name@one.service";
            Failure::Input(format!("{text}: {why}; {expected}"))
        };
        let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || ":-_.\\@".contains(letter);
        if text.is_empty() || text.len() > 255 || text.starts_with('.') || !text.chars().all(is_allowed) {
            return Err(wrong("no name of a unit"));
        }
        let others =
            ["socket", "timer", "target", "mount", "path", "slice", "scope", "device", "swap", "automount"];
        let (stem, ending) = text.rsplit_once('.').unwrap_or((text, ""));
        let name = match ending {
            "service" => text.to_string(),
            other if others.contains(&other) => return Err(wrong("no service")),
            _ => format!("{text}.service"),
        };
        let stem = if ending == "service" { stem } else { text };
        let template = match stem.split_once('@') {
            Some(("", _)) => return Err(wrong("no name of a unit")),
            Some((base, instance)) if !instance.is_empty() => Some(format!("{base}@.service")),
            _ => None,
        };
        Ok(Self { name, template })
    }

    /// The names under which systemd looks for it, the first first.
    fn names(&self) -> impl DoubleEndedIterator<Item = &String> {
        [&self.name].into_iter().chain(&self.template)
    }
}

impl Places {
    fn check(&self) -> Result<(), Failure> {
        match fs::metadata(&self.root) {
            Ok(found) if found.is_dir() => Ok(()),
            found => {
                let what = found.map_or_else(|error| error.to_string(), |_| "no folder".into());
                let expected = "expected the folder with another system's files";
                Err(Failure::Input(format!("--root {}: {what}; {expected}", self.root.display())))
            }
        }
    }

    fn is_of_this_system(&self) -> bool {
        fs::canonicalize(&self.root).is_ok_and(|root| root == Path::new("/"))
    }

    /// Where drop-ins go.
    fn target(&self) -> PathBuf {
        let default = || if self.user { self.in_config() } else { self.root.join(FOLDERS[0]) };
        self.dir.clone().unwrap_or_else(default)
    }

    /// A folder of the user's, below the root; without a home, there is none.
    fn in_home(&self, variable: &str, default: &str) -> PathBuf {
        let given = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || given("HOME").unwrap_or_else(|| "/nonexistent".into()).join(default);
        let folder = given(variable).unwrap_or_else(home).join("systemd/user");
        self.root.join(folder.strip_prefix("/").unwrap_or(&folder))
    }

    fn in_config(&self) -> PathBuf {
        self.in_home("XDG_CONFIG_HOME", ".config")
    }

    /// Where units are.
    fn folders(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.target()];
        if self.user {
            folders.push(self.in_config());
            folders.extend(FOLDERS_OF_USERS[..2].iter().map(|folder| self.root.join(folder)));
            folders.push(self.in_home("XDG_DATA_HOME", ".local/share"));
            folders.extend(FOLDERS_OF_USERS[2..].iter().map(|folder| self.root.join(folder)));
        } else {
            folders.extend(FOLDERS.map(|folder| self.root.join(folder)));
        }
        let mut known = Vec::new();
        for folder in folders {
            if !known.contains(&folder) {
                known.push(folder);
            }
        }
        known
    }

    fn drop_in(&self, unit: &Unit) -> PathBuf {
        self.target().join(format!("{}.d", unit.name)).join(FILE)
    }

    /// The file of a unit; links below another root lead to files there.
    fn find(&self, unit: &Unit) -> Option<PathBuf> {
        let files =
            unit.names().flat_map(|name| self.folders().into_iter().map(move |folder| folder.join(name)));
        files.map(|file| self.resolved(file)).find(|file| file.exists())
    }

    fn resolved(&self, mut file: PathBuf) -> PathBuf {
        // As many as the kernel follows.
        for _ in 0..40 {
            let Ok(target) = fs::read_link(&file) else { break };
            file = match target.strip_prefix("/") {
                Ok(below) => self.root.join(below),
                Err(_) => file.parent().unwrap_or(Path::new("/")).join(target),
            };
        }
        file
    }

    /// The drop-ins of others, in the order in which systemd reads them.
    fn drop_ins(&self, unit: &Unit) -> Vec<(String, PathBuf)> {
        let mut found: Vec<(String, PathBuf)> = Vec::new();
        for name in unit.names() {
            for folder in self.folders() {
                let Ok(entries) = fs::read_dir(folder.join(format!("{name}.d"))) else { continue };
                for entry in entries.flatten() {
                    let file = entry.file_name().to_string_lossy().into_owned();
                    let is_known = found.iter().any(|(known, _)| *known == file);
                    if file.ends_with(".conf") && file != FILE && !is_known {
                        found.push((file, self.resolved(entry.path())));
                    }
                }
            }
        }
        found.sort();
        found.retain(|(_, path)| !self.is_mask(path));
        found
    }

    /// What stands for nothing.
    fn is_mask(&self, file: &Path) -> bool {
        file == Path::new("/dev/null") || file == self.root.join("dev/null")
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let read = || {
        let mut content = Vec::new();
        let file = open(path)?;
        match file.take(MAX_UNIT_BYTES + 1).read_to_end(&mut content)? as u64 {
            0..=MAX_UNIT_BYTES => Ok(content),
            _ => Err(io::Error::other(format!("more than {MAX_UNIT_BYTES} bytes"))),
        }
    };
    let content = read().map_err(|error| {
        Failure::Input(format!("{}: can't be read: {error}; expected a regular file", path.display()))
    })?;
    Ok(String::from_utf8_lossy(&content).into_owned())
}

fn open(path: &Path) -> io::Result<File> {
    open_regular(path, File::options().read(true))
}

fn service(places: &Places, unit: &Unit) -> Result<Service, Failure> {
    let folders = places.target();
    let file = places.find(unit).ok_or_else(|| {
        let expected = format!(
            "expected a service that systemd knows, in {} or where packages have theirs",
            folders.display()
        );
        Failure::Input(format!("{}: no such unit; {expected}", unit.name))
    })?;
    if places.is_mask(&file) {
        return Err(Failure::Input(format!(
            "{}: it is masked; expected a service that can start",
            unit.name
        )));
    }
    let mut service = Service::default();
    service.read(&read(&file)?);
    for (name, path) in places.drop_ins(unit) {
        let text = read(&path)?;
        let mut alone = Service::default();
        alone.read(&text);
        if name.as_str() > FILE && alone.starts().is_ok() {
            return Err(Failure::Input(format!(
                "{}: it sets ExecStart= and is read after {FILE}; expected a name that comes before it",
                path.display()
            )));
        }
        service.read(&text);
    }
    Ok(service)
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let (places, options) = (&arguments.places, &arguments.options);
    places.check()?;
    let unit = Unit::parse(&arguments.unit)?;
    let service = service(places, &unit)?;
    let refused = |refusal| Failure::Input(format!("{}: {refusal}", unit.name));
    let starts = service.starts().map_err(refused)?;
    let with = chosen(arguments, &starts)?;
    let socket = Unit { name: unit.name.replace(".service", ".socket"), template: None };
    service.check(with, places.find(&socket).is_some()).map_err(refused)?;
    check_words(with, &options.words, policies)?;
    for text in options.words.iter().map(String::as_str).chain(places.target().to_str()) {
        if text.contains(char::is_control) {
            let expected = "expected text without line breaks and other control characters";
            return Err(Failure::Input(format!("{text}: it can't stand in a unit; {expected}")));
        }
    }

    let polypath = &*command(arguments)?;
    let engine = options.words.iter().find_map(|word| word.strip_prefix("--engine="));
    let needs_tun = engine == Some("tun");
    if needs_tun && places.user {
        let expected = "expected --engine udp or kernel";
        return Err(Failure::Input(format!(
            "--engine tun: a user's service can't have a TUN device; {expected}"
        )));
    }
    if with == With::Preload
        && engine.is_none()
        && !places.user
        && let Some(setting) = service.hides_tun()
    {
        complain(&format!(
            "{}: {setting} stays, so that it has no TUN device, and the kernel carries its connections; --engine tun lets it \
             have one",
            unit.name
        ));
    }
    let file = places.drop_in(&unit);
    let folder = file.parent().unwrap_or(Path::new("/"));
    let is_made = !folder.exists() || is_ours(&file) == Some(true) && read(&file)?.contains(MADE_FOLDER);
    let start = Start {
        polypath,
        with,
        words: &options.words,
        is_ours: !matches!(engine, Some("kernel" | "tcp")),
        needs_tun,
        is_users: places.user,
    };
    let text = service.drop_in(&start, &starts, is_made);
    if is_ours(&file) == Some(false) {
        let expected = "expected none, or one that `polypath enable` wrote";
        return Err(Failure::Input(format!("{}: it is somebody else's; {expected}", file.display())));
    }
    if arguments.dry_run {
        return print_line(&format!("# {}\n{}", file.display(), text.trim_end()));
    }
    write(&file, &text).map_err(|error| {
        let expected = if places.user { "a folder of this user" } else { "to be root" };
        Failure::Input(format!("{}: can't be written ({error}); expected {expected}", file.display()))
    })?;
    print_line(&format!("{} starts under `polypath {}`, by {}", unit.name, with.name(), file.display()))?;
    if with == With::Run && !options.words.iter().any(|word| word.starts_with("--publish")) {
        print_line("no port is published: -p PORT for each on which it is to be reached")?;
    }
    print_line(&apply(places, &unit))
}

/// What the unit starts: this program, or the one that the other system has.
fn command(arguments: &Arguments) -> Result<String, Failure> {
    let root = &arguments.places.root;
    let command = if let Some(command) = &arguments.command {
        command.clone()
    } else if arguments.places.is_of_this_system() {
        let own = std::env::current_exe().map_err(Failure::run)?;
        let text = own.to_str().map(str::to_string);
        text.ok_or_else(|| Failure::input(format!("{}: expected a path in UTF-8", own.display())))?
    } else {
        let is_there = |path: &&str| arguments.places.resolved(root.join(*path)).is_file();
        let found = COMMANDS.into_iter().find(is_there).ok_or_else(|| {
            let [first, second] = COMMANDS;
            let expected = format!("expected {first} or {second} there, or --command PATH");
            Failure::Input(format!("{}: polypath is not installed there; {expected}", root.display()))
        })?;
        format!("/{found}")
    };
    if !command.starts_with('/') {
        return Err(Failure::Input(format!("--command {command}: expected a path that begins with /")));
    }
    if command.contains(char::is_control) {
        return Err(Failure::Input(format!("{command}: expected a path without control characters")));
    }
    Ok(command)
}

/// What brings a change about.
fn apply(places: &Places, unit: &Unit) -> String {
    if !places.is_of_this_system() {
        // No service of it runs here.
        return format!("it applies when the system in {} starts next", places.root.display());
    }
    let systemctl = if places.user { "systemctl --user" } else { "systemctl" };
    // A template runs as its instances.
    let instances = unit.name.replace("@.service", "@*.service");
    format!("to apply it: {systemctl} daemon-reload && {systemctl} restart '{instances}'")
}

/// Which of the two starts it.
fn chosen(arguments: &Arguments, starts: &[ExecStart]) -> Result<With, Failure> {
    let options = &arguments.options;
    let is_static = |start: &ExecStart| {
        let program = arguments.places.root.join(start.program().trim_start_matches('/'));
        let read = |mut file: File| {
            let mut content = Vec::new();
            file.read_to_end(&mut content).map(|_| content)
        };
        open(&program).and_then(read).is_ok_and(|content| preload::is_static(&content))
    };
    let found = starts.iter().find(|start| is_static(start));
    let with = match arguments.with {
        Some(with) => with,
        None if options.is_for_run || found.is_some() => With::Run,
        None => With::Preload,
    };
    match (with, found) {
        (With::Preload, Some(start)) => Err(Failure::Input(format!(
            "{}: statically linked, so that no library can be loaded into it; expected --with run",
            start.program()
        ))),
        (With::Preload, _) if options.is_for_run => {
            Err(Failure::input("one of the options is for `polypath run` alone; expected --with run"))
        }
        (With::Run, _) if options.is_for_preload => {
            Err(Failure::input("one of the options is for `polypath preload` alone; expected --with preload"))
        }
        _ => Ok(with),
    }
}

/// Whether the command that is written into the unit would understand what it is told.
fn check_words(with: With, words: &[String], policies: &Policies) -> Result<(), Failure> {
    let line = ["polypath".to_string(), with.name().to_string()].into_iter().chain(words.iter().cloned());
    let line = line.chain(["--".to_string(), "true".to_string()]);
    help::command(policies)
        .try_get_matches_from(line)
        .map_err(|error| Failure::input(super::one_line(&error.to_string())))?;
    Ok(())
}

/// Whether a drop-in is ours; nothing if there is none.
fn is_ours(file: &Path) -> Option<bool> {
    // What is there and no file is somebody else's.
    fs::symlink_metadata(file).ok()?;
    let mut begin = vec![0; MARK.len()];
    let read = open(file).and_then(|mut file| file.read_exact(&mut begin));
    Some(read.is_ok() && begin == MARK.as_bytes())
}

/// It is there as a whole or not at all. Until then it has a name that nobody guesses, and is made anew: what others put into the
/// folder leads nowhere.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let readable = fs::Permissions::from_mode(0o644);
    let mut partial = tempfile::Builder::new()
        .prefix(".polypath-")
        .suffix(".new")
        .permissions(readable)
        .tempfile_in(folder)?;
    partial.write_all(text.as_bytes())?;
    partial.as_file().sync_all()?;
    partial.persist(file)?;
    Ok(())
}

pub(super) fn disable(arguments: &DisableArguments) -> Result<(), Failure> {
    let places = &arguments.places;
    places.check()?;
    let units = match &arguments.unit {
        Some(unit) => vec![Unit::parse(unit)?],
        None => enabled(places),
    };
    if units.is_empty() {
        complain("no service is enabled");
    }
    for unit in units {
        let file = places.drop_in(&unit);
        match is_ours(&file) {
            None => {
                return Err(Failure::Input(format!(
                    "{}: not enabled; expected {}",
                    unit.name,
                    file.display()
                )));
            }
            Some(false) => {
                let expected = "expected one that `polypath enable` wrote";
                return Err(Failure::Input(format!("{}: it is somebody else's; {expected}", file.display())));
            }
            Some(true) => remove(&file)?,
        }
        print_line(&format!("{} starts as before; removed {}", unit.name, file.display()))?;
        print_line(&apply(places, &unit))?;
    }
    // A service that was killed may have left what nobody of it takes down any more.
    if places.is_of_this_system() && !places.user {
        let before = polypath_netsetup::left_by().unwrap_or_default();
        clear_leftovers();
        let after = polypath_netsetup::left_by().unwrap_or_default();
        let cleared: Vec<String> =
            before.iter().filter(|pid| !after.contains(pid)).map(u32::to_string).collect();
        if !cleared.is_empty() {
            print_line(&format!(
                "took down what a process that was killed had set up (process {})",
                cleared.join(", ")
            ))?;
        }
    }
    Ok(())
}

fn remove(file: &Path) -> Result<(), Failure> {
    let made_folder = read(file)?.lines().nth(1) == Some(MADE_FOLDER);
    fs::remove_file(file)
        .map_err(|error| Failure::Run(format!("{}: can't be removed: {error}", file.display())))?;
    if let (true, Some(folder)) = (made_folder, file.parent()) {
        // It stays if others have put something there.
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}

/// All services with a drop-in of ours.
fn enabled(places: &Places) -> Vec<Unit> {
    let entries = fs::read_dir(places.target()).into_iter().flatten().flatten();
    let names =
        entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".d").map(str::to_string));
    let mut units: Vec<Unit> = names.filter_map(|name| Unit::parse(&name).ok()).collect();
    units.retain(|unit| is_ours(&places.drop_in(unit)) == Some(true));
    units.sort_by(|one, other| one.name.cmp(&other.name));
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_applied_by_the_systemd_that_runs_here() {
        let unit = Unit::parse("a@.service").unwrap();
        let places = |user, root: &str| Places { dir: None, user, root: root.into() };
        let applied = |user| apply(&places(user, "/"), &unit);
        let command = "systemctl daemon-reload && systemctl restart 'a@*.service'";
        assert_eq!(applied(false), format!("to apply it: {command}"));
        let of_user = command.replace("systemctl", "systemctl --user");
        assert_eq!(applied(true), format!("to apply it: {of_user}"));
        assert_eq!(apply(&places(false, "/proc"), &unit), "it applies when the system in /proc starts next");
    }

    #[test]
    fn a_unit_is_named_as_systemd_names_it() {
        let unit = |name: &str, template: Option<&str>| Unit {
            name: name.into(),
            template: template.map(str::to_string),
        };
        assert_eq!(Unit::parse("nginx").unwrap(), unit("nginx.service", None));
        assert_eq!(Unit::parse("a.b").unwrap(), unit("a.b.service", None));
        assert_eq!(Unit::parse("a@.service").unwrap(), unit("a@.service", None));
        assert_eq!(Unit::parse("a@b.c.service").unwrap(), unit("a@b.c.service", Some("a@.service")));
        for wrong in ["", "../a", "a/b", "a b", "a.socket", "a.timer", "@a", ".service"] {
            assert!(Unit::parse(wrong).is_err(), "{wrong}");
        }
    }
}
