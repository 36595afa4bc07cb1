//! `polypath man`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;
use polypath_config::Policies;

use super::{Failure, help};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// Where they go, such as /usr/local/share/man/man1; it is made if it is not there
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let directory = &arguments.directory;
    let mut command = help::command(policies).disable_help_subcommand(true);
    command.build();
    let written = fs::create_dir_all(directory).and_then(|()| write(&command, directory));
    written.map_err(|error| {
        Failure::Input(format!("{}: can't be written ({error}); expected a folder", directory.display()))
    })
}

/// The page of a command, and those of the commands in it.
fn write(command: &Command, directory: &Path) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write(inner, directory)?;
    }
    let version = command.get_version().unwrap_or_default();
    let page = Man::new(command.clone()).source(format!("polypath {version}")).manual("Polypath");
    let mut text = Vec::new();
    page.render(&mut text)?;
    // What follows the options is called something else there.
    let text = String::from_utf8_lossy(&text).replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n");
    fs::write(directory.join(page.get_filename()), text)
}
