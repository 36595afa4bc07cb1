//! This library as another process: the one that takes down what engine tun has set up when the program is killed.
//!
//! It is the program itself where the library is a part of that, or else a program that does nothing, with this library in it.
//! Either way the library runs before `main`, which is never reached.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use polypath_relay::{DetachedGuardian, guard_detached};

/// The argument that makes a process a guardian.
const MARK: &CStr = c"polypath-set-up-guardian";

/// Programs that do nothing.
const IDLE: [&str; 2] = ["/bin/true", "/usr/bin/true"];

/// What runs first in each process that has this library.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn(c_int, *const *const c_char) = at_start;

/// The C library gives what `main` gets.
extern "C" fn at_start(count: c_int, words: *const *const c_char) {
    // SAFETY: so many words are there, each a string that ends with a zero.
    let word = |index: c_int| (index < count).then(|| unsafe { CStr::from_ptr(*words.add(index as usize)) });
    if word(1) != Some(MARK) || has_rights_of_its_file() {
        return;
    }
    let result = catch_unwind(|| {
        // What this process starts, such as nft, is not to be one as well.
        // SAFETY: there is no other thread yet.
        unsafe { std::env::remove_var("LD_PRELOAD") };
        word(2).is_some_and(|word| guard_detached(Path::new(OsStr::from_bytes(word.to_bytes()))).is_ok())
    });
    // SAFETY: ends the process, and nothing of the program's is to run.
    unsafe { libc::_exit(c_int::from(!result.unwrap_or(false))) }
}

/// Whoever starts it may lack what it may do: it takes no orders by its arguments.
fn has_rights_of_its_file() -> bool {
    // SAFETY: the function takes a number.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// How to start one; none where that can't be.
pub(crate) fn guardian() -> Option<DetachedGuardian> {
    // Part of the archive, it is linked if it is needed.
    let here = *std::hint::black_box(&AT_START) as usize;
    let file = file_at(here)?;
    let arguments = vec![OsStr::from_bytes(MARK.to_bytes()).into()];
    let itself = Path::new("/proc/self/exe");
    if std::fs::read_link(itself).is_ok_and(|program| program == file) {
        // Such a process takes no orders, see above, and would be the program once more.
        return (!has_rights_of_its_file()).then(|| DetachedGuardian {
            program: itself.into(),
            arguments,
            library: None,
        });
    }
    // Those end a name in a list of libraries.
    let is_nameable = !file.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte)) && file.is_file();
    let program = IDLE.iter().map(PathBuf::from).find(|program| program.is_file())?;
    is_nameable.then_some(DetachedGuardian { program, arguments, library: Some(file) })
}

/// The file that has what is in memory at an address.
fn file_at(address: usize) -> Option<PathBuf> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    let line = maps.split(|byte| *byte == b'\n').find(|line| {
        let range = line.split(|byte| *byte == b' ').next().and_then(|range| std::str::from_utf8(range).ok());
        let ends = range.and_then(|range| range.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16).ok();
        ends.and_then(|(from, to)| Some(number(from)?..number(to)?))
            .is_some_and(|range| range.contains(&address))
    })?;
    let path = line.iter().position(|byte| *byte == b'/')?;
    Some(PathBuf::from(OsStr::from_bytes(&line[path..])))
}
