//! `polypath bench attacks`.

use crate::bench::attacks::groups;
use clap::Args;
use polypath_sim::attack::{self, Attack};
use serde::Serialize;

use super::super::{Failure, print_json, print_line};
use super::progress;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Json {
    attacks: Vec<Attack>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let groups = groups();
    let bar = progress(groups.len() as u64);
    let attacks = attack::run(&groups, |group| {
        bar.set_message(group);
        bar.inc(1);
    });
    bar.finish_and_clear();
    let open = attacks.iter().filter(|attack| !attack.held).count();
    if arguments.json {
        print_json(&Json { attacks })?;
    } else {
        let width = attacks.iter().map(|attack| attack.name.chars().count()).max().unwrap_or(0);
        for Attack { name, held, figure, bound, unit } in &attacks {
            let mark = if *held { '✓' } else { '✗' };
            print_line(&format!("{mark} {name:<width$}  {figure:>10.2} of at most {bound} {unit}"))?;
        }
    }
    match open {
        0 => Ok(()),
        count => Err(Failure::run(format!("{count} attacks cost more than they may"))),
    }
}
