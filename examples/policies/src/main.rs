//! The command `polypath`, with our policies.

fn main() -> std::process::ExitCode {
    polypath_cli::run(&policies::policies())
}
