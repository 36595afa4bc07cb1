//! `polypath completions`.

use clap::{Args, Command};
use clap_complete::Shell;
use polypath_config::Policies;

use super::{Failure, help, print_line};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// For which shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let mut script = Vec::new();
    let mut command = shown(&help::command(policies));
    clap_complete::generate(arguments.shell, &mut command, "polypath", &mut script);
    print_line(String::from_utf8_lossy(&script).trim_end())
}

/// The command without what people don't call, which shells would be told of.
fn shown(command: &Command) -> Command {
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set()).map(shown);
    let mut copy =
        Command::new(command.get_name().to_string()).args(command.get_arguments()).subcommands(inner);
    copy = copy.disable_help_subcommand(!command.has_subcommands());
    if let Some(version) = command.get_version() {
        copy = copy.version(version.to_string());
    }
    match command.get_about() {
        Some(about) => copy.about(about.clone()),
        None => copy,
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn each_shell_is_told_of_all_commands_that_are_shown() {
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            let mut command = shown(&help::command(&Policies::default()));
            clap_complete::generate(*shell, &mut command, "polypath", &mut script);
            let script = String::from_utf8(script).expect("text");
            for word in ["doctor", "never-slower", "scheduler"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
            assert!(!script.contains(super::super::run::INSIDE), "{shell}");
        }
    }
}
