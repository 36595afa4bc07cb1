//! `polypath bench tunnel --flavours`.

use std::time::Duration;

use super::super::progress;
use crate::bench::tunnel::flavours::{self, FlavourRow, FlavoursResult, Plan};
use crate::command::{Failure, complain, print_json, print_line};

pub(super) fn run(only: &str, rounds: u32, length: Duration, json: bool) -> Result<(), Failure> {
    let plan = Plan::read(only).map_err(|error| Failure::run(format!("what this kernel can do: {error}")))?;
    for (name, why) in &plan.skipped {
        complain(&format!("SKIPPED {name}: {why}"));
    }
    if plan.flavours.is_empty() {
        return Err(Failure::Input(format!("--only: no flavour has {only:?} in its name")));
    }
    let bar = progress(flavours::steps(&plan, rounds));
    let result = flavours::run(plan, rounds, length, |message| {
        bar.set_message(message);
        bar.inc(1);
    });
    bar.finish_and_clear();
    let result = result.map_err(Failure::run)?;
    if json { print_json(&result) } else { print_table(&result) }
}

fn print_table(result: &FlavoursResult) -> Result<(), Failure> {
    let FlavoursResult { rounds, seconds, wlan, hspa, .. } = result;
    print_line(&format!(
        "One TCP of the kernel through our tunnel: WLAN of {} Mbit/s and {} ms, HSPA of {} Mbit/s and {} ms, queues of 200 packets; {seconds} s each, medians of {rounds}",
        wlan.mbit_per_s, wlan.rtt_ms, hspa.mbit_per_s, hspa.rtt_ms
    ))?;
    print_line(&format!(
        "{:<16}{:>10}{:>10}{:>12}{:>10}{:>16}{:>12}{:>10}{:>16}",
        "Mbit/s", "WLAN", "HSPA", "WLAN first", "benefit", "its range", "HSPA first", "benefit", "its range"
    ))?;
    result.rows.iter().try_for_each(|row| print_line(&line(row)))
}

fn line(row: &FlavourRow) -> String {
    let mut line = format!(
        "{:<16}{:>10.2}{:>10.2}",
        row.flavour.name, row.wlan_mbit_per_s.median, row.hspa_mbit_per_s.median
    );
    for both in [row.wlan_first, row.hspa_first] {
        let benefit = both.benefit_over_tcp;
        let range = format!("{:.2} to {:.2}", benefit.min, benefit.max);
        line += &format!("{:>12.2}{:>10.2}{range:>16}", both.mbit_per_s.median, benefit.median);
    }
    line
}
