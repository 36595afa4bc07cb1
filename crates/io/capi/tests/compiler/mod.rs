//! Programs in C against the header and the library.

use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use polypath_testbed::built;

/// The name by which programs ask for the shared library.
pub(crate) const SONAME: &str = "libpolypath.so.0";

/// Compiles a C source against the header and the shared library, which it finds beside itself.
pub(crate) fn compile(source: &str, to: &Path) {
    let libraries = built();
    let beside = to.with_file_name(SONAME);
    match symlink(libraries.join("libpolypath.so"), beside) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        result => result.expect("a link"),
    }
    let mut cc = cc(source, to);
    cc.arg("-L").arg(libraries).args(["-lpolypath", "-Wl,--enable-new-dtags,-rpath,$ORIGIN"]);
    assert!(cc.status().expect("cc").success(), "{source} compiles");
}

pub(crate) fn cc(source: &str, to: &Path) -> Command {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-I"]);
    cc.arg(folder.join("include")).arg(folder.join(source)).arg("-o").arg(to);
    cc
}

pub(crate) fn has_compiler(what: &str) -> bool {
    let has_compiler = Command::new("cc").arg("--version").output().is_ok();
    if !has_compiler {
        eprintln!("SKIPPED {what}: cc is missing");
    }
    has_compiler
}
