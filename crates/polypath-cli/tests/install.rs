//! What `make install` puts in place works from there.

use std::path::Path;
use std::process::{Command, Output};

use polypath_testbed::built;

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

fn text(output: Output) -> String {
    String::from_utf8(output.stdout).expect("text").trim().to_string()
}

#[test]
fn programs_build_and_run_with_what_is_installed() {
    for program in ["make", "cc", "pkg-config"] {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!("SKIPPED installing: {program} is missing");
            return;
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (root, workspace) = (folder.path().join("root"), Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    let mut install = Command::new("make");
    install.current_dir(&workspace).args(["--no-print-directory", "install-built", "PREFIX=/opt/polypath"]);
    install.arg(format!("BUILT={}", built().display())).arg(format!("DESTDIR={}", root.display()));
    run(&mut install);
    let prefix = root.join("opt/polypath");

    let pkg_config = |words: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.args(words).arg("polypath").env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        text(run(command.env("PKG_CONFIG_SYSROOT_DIR", &root)))
    };
    assert_eq!(pkg_config(&["--modversion"]), env!("CARGO_PKG_VERSION"));
    let example = workspace.join("examples/c/get.c");
    let says_usage = |program: &Path| {
        let output = Command::new(program).env("LD_LIBRARY_PATH", prefix.join("lib")).output();
        let output = output.expect("it runs");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: "), "{output:?}");
    };
    let shared = folder.path().join("shared");
    let words = pkg_config(&["--cflags", "--libs"]);
    run(Command::new("cc").arg(&example).arg("-o").arg(&shared).args(words.split(' ')));
    says_usage(&shared);

    let whole = folder.path().join("static");
    let words = pkg_config(&["--static", "--cflags", "--libs"]);
    let archive = prefix.join("lib/libpolypath.a").display().to_string();
    let words = words.split(' ').map(|word| if word == "-lpolypath" { &*archive } else { word });
    run(Command::new("cc").arg(&example).arg("-o").arg(&whole).args(words));
    std::fs::remove_file(prefix.join("lib/libpolypath.so")).expect("it was installed");
    says_usage(&whole);

    for file in ["man/man1/polypath-bench-sim.1", "bash-completion/completions/polypath"] {
        let text = std::fs::read_to_string(prefix.join("share").join(file)).expect("it was installed");
        assert!(text.contains("polypath"), "{file}");
    }
    if Command::new("man").arg("--version").output().is_ok() {
        let page = prefix.join("share/man/man1/polypath-run.1");
        let output =
            Command::new("man").args(["--warnings", "-l"]).arg(page).env("LC_ALL", "C.UTF-8").output();
        let output = output.expect("it runs");
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(output.stderr.is_empty() && shown.contains("polypath run"), "{output:?}");
    }

    let polypath = prefix.join("bin/polypath");
    assert!(text(run(Command::new(&polypath).arg("--version"))).contains(env!("CARGO_PKG_VERSION")));
    let mut preload = Command::new(&polypath);
    preload.args(["preload", "--engine", "udp", "--", "env"]);
    let variables = text(run(&mut preload));
    let library = variables.lines().find_map(|line| line.strip_prefix("LD_PRELOAD=")).expect("a library");
    let installed = prefix.join("lib/libpolypath_preload.so").canonicalize().expect("it was installed");
    assert_eq!(Path::new(library).canonicalize().expect("it is there"), installed);

    // A file of somebody else's stays.
    let other = prefix.join("share/man/man1/other.1");
    std::fs::write(&other, "").expect("room");
    let mut uninstall = Command::new("make");
    uninstall.current_dir(&workspace).args(["--no-print-directory", "uninstall", "PREFIX=/opt/polypath"]);
    run(uninstall.arg(format!("DESTDIR={}", root.display())));
    let left = text(run(Command::new("find").arg(&root).args(["-not", "-type", "d"])));
    assert_eq!(Path::new(&left), other);
}
