//! `polypath enable` and `disable`, on the files of a system in a folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The files of a system.
struct System(tempfile::TempDir);

impl System {
    fn new(files: &[(&str, &str)]) -> Self {
        let files = &[&[("usr/bin/polypath", "")], files].concat();
        let system = Self(tempfile::tempdir().expect("a folder"));
        for (path, text) in files {
            let path = system.path(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        system
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn polypath(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        command.args(arguments).arg("--root").arg(self.0.path());
        command.output().expect("the command runs")
    }

    #[track_caller]
    fn does(&self, arguments: &[&str]) -> String {
        let output = self.polypath(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Is refused in one line that holds all that is wanted; nothing changes.
    #[track_caller]
    fn refuses(&self, arguments: &[&str], wanted: &[&str]) {
        let before = self.files();
        let output = self.polypath(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
        assert!(wanted.iter().all(|part| message.contains(part)), "{wanted:?}: {message}");
        assert_eq!(self.files(), before);
    }

    /// What there is, folders without content.
    fn files(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.0.path().to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a folder").flatten() {
                let path = entry.path();
                let is_folder = path.is_dir();
                // Pipes and devices have no content that ends.
                files.insert(path.clone(), path.is_file().then(|| fs::read(&path).unwrap_or_default()));
                folders.extend(is_folder.then_some(path));
            }
        }
        files
    }
}

const WEB: &str = "[Unit]\nDescription=web\n[Service]\nType=notify\nExecStartPre=/bin/true\nExecStart=-/usr/sbin/web -g 'daemon off;' $OPTIONS\n";
const FOLDER: &str = "usr/lib/systemd/system";
const DROP_IN: &str = "etc/systemd/system/web.service.d/polypath.conf";

fn unit(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

#[test]
fn a_service_is_started_under_polypath_and_then_as_before() {
    let system =
        System::new(&[(&unit("web.service"), WEB), ("etc/systemd/system/other.service.d/x.conf", "")]);
    let before = system.files();
    let shown = system.does(&["enable", "web", "--engine", "tun", "-I", "wlan0,priority=1", "--dry-run"]);
    assert_eq!(system.files(), before, "a dry run writes nothing");
    let said = system.does(&["enable", "web", "--engine", "tun", "-I", "wlan0,priority=1"]);
    assert!(said.contains("web.service starts under `polypath preload`"), "{said}");
    let applied = format!("it applies when the system in {} starts next", system.0.path().display());
    assert!(said.contains(&applied) && !said.contains("systemctl"), "no service of it runs here: {said}");
    let written = fs::read_to_string(system.path(DROP_IN)).expect("the drop-in");
    assert!(shown.ends_with(&written), "{shown}");
    let polypath = "/usr/bin/polypath";
    let start = format!(
        "ExecStart=\nExecStart=-{polypath} preload --engine=tun --interface=wlan0,priority=1 -- /usr/sbin/web -g 'daemon off;' $OPTIONS\n"
    );
    assert!(written.contains(&start), "{written}");
    // Again, with other options: what is there is replaced, not added to.
    system.does(&["enable", "web.service", "-p", "8080:80"]);
    let written = fs::read_to_string(system.path(DROP_IN)).expect("the drop-in");
    let start =
        format!("ExecStart=-{polypath} run --publish=8080:80 -- /usr/sbin/web -g 'daemon off;' $OPTIONS");
    assert!(written.contains(&start) && written.contains("NotifyAccess=all"), "{written}");
    system.does(&["disable", "web.service"]);
    assert_eq!(system.files(), before);
    system.refuses(&["disable", "web.service"], &["web.service", "not enabled"]);
}

#[test]
fn an_image_s_services_start_the_polypath_that_is_there() {
    let system = System::new(&[(&unit("web.service"), WEB)]);
    let starts = |arguments: &[&str], polypath: &str| {
        let shown = system.does(&[&["enable", "web", "--dry-run"], arguments].concat());
        assert!(shown.contains(&format!("\nExecStart=-{polypath} preload -- ")), "{shown}");
    };
    starts(&[], "/usr/bin/polypath");
    starts(&["--command", "/opt/polypath"], "/opt/polypath");
    system.refuses(&["enable", "web", "--command", "polypath"], &["--command polypath: expected a path"]);
    fs::remove_file(system.path("usr/bin/polypath")).expect("the file");
    let wanted =
        ["not installed there", "expected usr/bin/polypath or usr/local/bin/polypath there, or --command"];
    system.refuses(&["enable", "web"], &wanted);
    fs::create_dir_all(system.path("usr/local/bin")).expect("a folder");
    fs::write(system.path("usr/local/bin/polypath"), "").expect("a file");
    starts(&[], "/usr/local/bin/polypath");
}

#[test]
fn templates_drop_ins_and_somebody_elses_files() {
    let system = System::new(&[
        (&unit("one@.service"), "[Service]\nExecStart=/usr/bin/one %i\n"),
        (
            "etc/systemd/system/one@.service.d/10-local.conf",
            "[Service]\nExecStart=\nExecStart=/usr/bin/one --more %i\n",
        ),
        (&unit("two.service"), "[Service]\nType=oneshot\nExecStart=/bin/a\nExecStart=+/bin/b c\n"),
        ("etc/systemd/system/two.service.d/polypath.conf", "[Service]\n"),
        (&unit("three.service"), "[Service]\nExecStart=/bin/a\n"),
        ("etc/systemd/system/three.service.d/zz.conf", "[Service]\nExecStart=\nExecStart=/bin/b\n"),
        (&unit("four.service"), "[Service]\nExecStop=/bin/a\n"),
        (&unit("five.service"), "[Service]\nExecStart=@/bin/a other\n"),
    ]);
    let before = system.files();
    system.does(&["enable", "one@.service"]);
    system.does(&["enable", "one@x.service"]);
    for folder in ["one@.service.d", "one@x.service.d"] {
        let file = system.path("etc/systemd/system").join(folder).join("polypath.conf");
        let written = fs::read_to_string(file).expect("the drop-in");
        assert!(written.contains(" preload -- /usr/bin/one --more %i\n"), "{written}");
    }
    system.refuses(&["enable", "two.service"], &["polypath.conf", "somebody else's"]);
    system.refuses(&["disable", "two.service"], &["polypath.conf", "somebody else's"]);
    let folder = system.path("run/systemd/system");
    let run = system.does(&["enable", "two.service", "--dir", folder.to_str().expect("a path")]);
    assert!(run.contains("two.service starts under"), "{run}");
    let written = fs::read_to_string(folder.join("two.service.d/polypath.conf")).expect("the drop-in");
    let starts: Vec<&str> = written.lines().filter(|line| line.starts_with("ExecStart=")).collect();
    assert!(
        starts.len() == 3 && starts[1].ends_with(" -- /bin/a") && starts[2].starts_with("ExecStart=+/"),
        "{written}"
    );
    system.does(&["disable", "two.service", "--dir", folder.to_str().expect("a path")]);
    fs::remove_dir_all(system.path("run")).expect("the folder");
    system.refuses(&["enable", "three.service"], &["zz.conf", "read after polypath.conf"]);
    system.refuses(&["enable", "four.service"], &["four.service", "no ExecStart="]);
    system.refuses(&["enable", "five.service"], &["five.service", "prefix @"]);
    system.refuses(&["enable", "six.service"], &["six.service", "no such unit"]);
    system.refuses(&["enable", "web.socket"], &["web.socket", "expected the name of a service"]);
    let said = system.does(&["disable", "--all"]);
    assert!(said.contains("one@.service starts as before") && said.contains("one@x.service"), "{said}");
    assert_eq!(system.files(), before);
}

#[test]
fn static_programs_get_a_network_of_their_own() {
    // A header without a program header: it asks for no dynamic linker.
    let mut program = b"\x7fELF\x02\x01".to_vec();
    program.resize(64, 0);
    let system = System::new(&[(&unit("go.service"), "[Service]\nExecStart=/opt/go\n")]);
    fs::create_dir(system.path("opt")).expect("a folder");
    fs::write(system.path("opt/go"), program).expect("a file");
    let said = system.does(&["enable", "go.service"]);
    assert!(said.contains("under `polypath run`") && said.contains("no port is published"), "{said}");
    system.refuses(&["enable", "go.service", "--with", "preload"], &["/opt/go", "--with run"]);
    system.refuses(&["enable", "go.service", "--reachable"], &["`polypath preload` alone"]);
}

#[test]
fn what_is_no_file_is_refused_at_once_and_links_lead_nowhere() {
    let text = "[Service]\nExecStart=/bin/sh -c \"a ; b\"\n";
    let system = System::new(&[
        (&unit("web.service"), text),
        ("etc/systemd/system/web.service.d/20-none.conf", ""),
        ("kept", "as it was"),
    ]);
    let pipe = |at: &str| {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        mknodat(CWD, system.path(at), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    };
    pipe(&unit("pipe.service"));
    system.refuses(&["enable", "pipe.service"], &["pipe.service", "no regular file"]);
    std::os::unix::fs::symlink("/dev/zero", system.path(&unit("zero.service"))).expect("a link");
    // Below another root, it leads to nothing.
    system.refuses(&["enable", "zero.service"], &["zero.service", "no such unit"]);
    fs::create_dir_all(system.path("etc/systemd/system/pipe.service.d")).expect("a folder");
    pipe("etc/systemd/system/pipe.service.d/polypath.conf");
    system.refuses(&["disable", "pipe.service"], &["polypath.conf", "somebody else's"]);
    // A masked drop-in is none, and the name that was used while writing is nobody's.
    let drop_in = system.path("etc/systemd/system/web.service.d/20-none.conf");
    fs::remove_file(&drop_in).expect("a file");
    std::os::unix::fs::symlink("/dev/null", &drop_in).expect("a link");
    let guessed = system.path("etc/systemd/system/web.service.d/polypath.conf.new");
    std::os::unix::fs::symlink(system.path("kept"), &guessed).expect("a link");
    system.does(&["enable", "web.service"]);
    let written = fs::read_to_string(system.path(DROP_IN)).expect("the drop-in");
    assert!(written.contains(" preload -- /bin/sh -c \"a ; b\"\n"), "{written}");
    assert_eq!(fs::read_to_string(system.path("kept")).expect("a file"), "as it was");
    let mode = fs::metadata(system.path(DROP_IN)).expect("the drop-in").permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o644);
    let names = fs::read_dir(guessed.parent().expect("a folder")).expect("a folder").count();
    assert_eq!(names, 3, "nothing else is left there");
}

#[test]
fn a_units_words_are_what_was_meant_wherever_systemd_starts_it() {
    let system = System::new(&[(&unit("web.service"), WEB), ("settings.toml", "")]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.current_dir(system.path("")).args(["enable", "web", "--config", "settings.toml", "--root"]);
    let output = command.arg(system.path("")).output().expect("the command runs");
    assert!(output.status.success(), "{output:?}");
    let written = fs::read_to_string(system.path(DROP_IN)).expect("the drop-in");
    let config = format!(" --config={} ", system.path("settings.toml").display());
    assert!(written.contains(&config), "{config} {written}");
    let hostile = "/x\nExecStartPre=/bin/false";
    system.refuses(&["enable", "web", "--config", hostile], &["it can't stand in a unit"]);
}

#[test]
fn a_users_service_is_enabled_where_systemd_looks_for_it() {
    let system =
        System::new(&[("usr/lib/systemd/user/sync.service", "[Service]\nExecStart=/usr/bin/sync-it\n")]);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        command.args(arguments).arg("--root").arg(system.path(""));
        command.env("HOME", "/home/one").env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME");
        command.output().expect("the command runs")
    };
    let before = system.files();
    let output = run(&["enable", "sync", "--user"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("it applies when the system in "), "{said}");
    let drop_in = system.path("home/one/.config/systemd/user/sync.service.d/polypath.conf");
    let written = fs::read_to_string(&drop_in).expect("the drop-in");
    assert!(written.contains(" preload -- /usr/bin/sync-it\n"), "{written}");
    let output = run(&["enable", "sync", "--user", "--engine", "tun"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("a user's service can't have a TUN device"), "{output:?}");
    assert!(run(&["disable", "--all", "--user"]).status.success() && !drop_in.exists());
    fs::remove_dir_all(system.path("home")).expect("the folder");
    assert_eq!(system.files(), before);
    system.refuses(&["enable", "sync"], &["sync.service", "no such unit"]);
    for command in ["enable", "disable"] {
        let mut missing = Command::new(env!("CARGO_BIN_EXE_polypath"));
        let output = missing.args([command, "sync", "--root", "/nonexist"]).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with("polypath: --root /nonexist: No such file or directory"), "{said}");
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn systemd_understands_what_is_written() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!(
            "SKIPPED what systemd makes of a drop-in: systemd-analyze is missing (apt-get install systemd)"
        );
        return;
    }
    let text = "[Service]\nType=simple\nExecStart=-/bin/sleep --help 'a b' $HOME %n\n";
    let system = System::new(&[(&unit("web.service"), text)]);
    // It looks for the program on this system.
    let polypath = env!("CARGO_BIN_EXE_polypath");
    system.does(&["enable", "web", "-I", "wlan0,priority=1", "--engine", "tun", "--command", polypath]);
    let search = [system.path("etc/systemd/system"), system.path(FOLDER)];
    let search = search.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":");
    let mut command = Command::new("systemd-analyze");
    // An empty name at the end adds the system's own folders.
    command
        .arg("verify")
        .arg(system.path(&unit("web.service")))
        .env("SYSTEMD_UNIT_PATH", format!("{search}:"));
    let output = command.env("SYSTEMD_LOG_LEVEL", "warning").output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    let about_ours: Vec<&str> =
        said.lines().filter(|line| line.contains("web") || line.contains("polypath")).collect();
    assert!(output.status.success() && about_ours.is_empty(), "{output:?}");
    // Is the drop-in read at all? What is wrong in it is told.
    let drop_in = system.path(DROP_IN);
    let text = fs::read_to_string(&drop_in).expect("the drop-in");
    fs::write(&drop_in, text.replace(&format!("-{polypath}"), "/no/such/program")).expect("a file");
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("/no/such/program"), "{output:?}");
    assert!(Path::new(&drop_in).exists());
}
