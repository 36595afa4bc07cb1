//! `polypath emulate`.

use std::path::{Path, PathBuf};
use std::time::{Duration as SystemDuration, Instant as SystemInstant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use polypath_config::Policies;
use polypath_config::quantity::parse_span;
use polypath_emulate::{
    DirectionStatistics, EmulateError, EmulatedLink, Emulation, LinkStatistics, PortStatistics,
};
use polypath_link::{Change, LinkConfig, LinkStats, Loss, QueueLimit};
use polypath_metrics::LinkSample;
use polypath_sim::scenario::{InterfaceLink, InterfaceLinks};
use polypath_system::{Namespace, Netlink};
use polypath_units::Duration;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::metrics::{LinkFigures, MetricsArguments};
use super::{Failure, complain, print_json, print_line, standard_input};

#[derive(Args, Debug)]
#[command(after_long_help = FORMAT)]
pub(super) struct Arguments {
    /// The links, and the interfaces between which they are; - for standard input
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// How long, such as 10s [default: what the file says, else until SIGINT or SIGTERM]
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    duration: Option<Duration>,
    /// Another seed than the file's
    #[arg(long)]
    seed: Option<u64>,
    /// Show what would be emulated, and end
    #[arg(long)]
    dry_run: bool,
    /// Print what the links have done as JSON at the end
    #[arg(long)]
    json: bool,
    /// Show no status line
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    metrics: MetricsArguments,
}

const FORMAT: &str = "\
The file has the words of a scenario's links; `between` names two interfaces of this network namespace, which should have \
no addresses:\n\n\
  [[links]]\n  \
  name = \"wifi\"\n  \
  between = [\"eth1\", \"eth2\"]\n  \
  rate = \"40mbit\"\n  \
  delay = \"10ms\"\n  \
  limit = \"80ms\"            # queue\n  \
  loss = \"0.1%\"\n  \
  reverse = { rate = \"10mbit\" }\n  \
  middleboxes = [\"nat\"]\n\n  \
  [[links.change]]\n  \
  at = \"5s\"\n  \
  down = true\n\n\
JSON: seconds; links, each: name, between; forward and backward, each: received_packets, received_bytes, delivered_packets, \
delivered_bytes, queue_drops, lost_packets, down_drops, too_big_drops, duplicated_packets, reordered_packets, \
max_queue_packets, max_queue_bytes, max_lateness_us, late_batches (more than 200 us); interfaces, two, each: missed_frames, \
unreadable_frames, refused_frames.";

#[derive(Serialize)]
struct Summary<'a> {
    seconds: f64,
    links: Vec<LinkSummary<'a>>,
}

#[derive(Serialize)]
struct LinkSummary<'a> {
    name: &'a str,
    between: &'a [String; 2],
    forward: DirectionSummary,
    backward: DirectionSummary,
    interfaces: [InterfaceSummary; 2],
}

#[derive(Serialize)]
struct DirectionSummary {
    received_packets: u64,
    received_bytes: u64,
    delivered_packets: u64,
    delivered_bytes: u64,
    queue_drops: u64,
    lost_packets: u64,
    down_drops: u64,
    too_big_drops: u64,
    duplicated_packets: u64,
    reordered_packets: u64,
    max_queue_packets: u64,
    max_queue_bytes: u64,
    max_lateness_us: u64,
    late_batches: u64,
}

#[derive(Serialize)]
struct InterfaceSummary {
    missed_frames: u64,
    unreadable_frames: u64,
    refused_frames: u64,
}

impl From<DirectionStatistics> for DirectionSummary {
    fn from(DirectionStatistics { link, max_lateness, late_batches }: DirectionStatistics) -> Self {
        Self {
            received_packets: link.sent_packets,
            received_bytes: link.sent_bytes,
            delivered_packets: link.delivered_packets,
            delivered_bytes: link.delivered_bytes,
            queue_drops: link.queue_drops,
            lost_packets: link.lost_packets,
            down_drops: link.down_drops,
            too_big_drops: link.too_big_drops,
            duplicated_packets: link.duplicated_packets,
            reordered_packets: link.reordered_packets,
            max_queue_packets: link.max_queue_packets,
            max_queue_bytes: link.max_queue_bytes,
            max_lateness_us: max_lateness.as_micros(),
            late_batches,
        }
    }
}

impl From<PortStatistics> for InterfaceSummary {
    fn from(port: PortStatistics) -> Self {
        let PortStatistics { missed_frames, unreadable_frames, refused_frames } = port;
        Self { missed_frames, unreadable_frames, refused_frames }
    }
}

fn load(file: &Path, policies: &Policies) -> Result<InterfaceLinks, Failure> {
    if !standard_input::is_meant(file) {
        return InterfaceLinks::load(file, policies).map_err(Failure::input);
    }
    let text = standard_input::read("links between interfaces")?;
    InterfaceLinks::parse(standard_input::NAME, &text, policies).map_err(Failure::input)
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let plan = load(&arguments.file, policies)?;
    if arguments.dry_run {
        return show(&plan);
    }
    let seed = arguments.seed.unwrap_or(plan.seed);
    let links = plan.links.iter().zip(1u64..).map(|(link, number)| EmulatedLink {
        a: link.between[0].clone(),
        b: link.between[1].clone(),
        forward: link.forward.clone(),
        backward: link.backward.clone(),
        middleboxes: link.middleboxes.clone(),
        seed: seed.wrapping_mul(number),
    });
    let links: Vec<EmulatedLink> = links.collect();
    let namespace = Namespace::current().map_err(Failure::run)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Run(format!("can't start the runtime: {error}")))?;
    runtime.block_on(async {
        // Before there is anything to take down.
        let mut stop = Vec::new();
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            stop.push(signal(kind).map_err(Failure::run)?);
        }
        let figures = arguments.metrics.offer_links()?;
        let started_at = SystemInstant::now();
        let emulation = Emulation::start(&namespace, links).map_err(refusal)?;
        let statistics = watch(arguments, &plan, &emulation, &figures, &mut stop).await?;
        let seconds = started_at.elapsed().as_secs_f64();
        drop(emulation);
        report(arguments, &plan.links, &statistics, seconds)
    })
}

/// What the user can set right is an input.
fn refusal(error: EmulateError) -> Failure {
    match error {
        EmulateError::Missing { .. } | EmulateError::NotEthernet { .. } | EmulateError::Twice { .. } => {
            Failure::input(error)
        }
        _ => Failure::run(error),
    }
}

/// Shows how it goes until it is to end; then what the links have done.
async fn watch(
    arguments: &Arguments,
    plan: &InterfaceLinks,
    emulation: &Emulation,
    figures: &LinkFigures,
    stop: &mut [tokio::signal::unix::Signal],
) -> Result<Vec<LinkStatistics>, Failure> {
    let duration = arguments.duration.or(plan.duration);
    let limit = duration.map_or(SystemDuration::MAX, Into::into);
    let bar = if arguments.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    let style = ProgressStyle::with_template("{elapsed_precise} {wide_msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    let mut tick = tokio::time::interval(SystemDuration::from_secs(1));
    let mut last: Option<Vec<LinkStatistics>> = None;
    let end = tokio::time::sleep(limit);
    tokio::pin!(end);
    loop {
        let stopped = std::future::poll_fn(|cx| {
            let is_stopped = stop.iter_mut().any(|signal| signal.poll_recv(cx).is_ready());
            if is_stopped { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        });
        tokio::select! {
            () = stopped => break,
            () = &mut end => break,
            _ = tick.tick() => {}
        }
        // Fails when the emulation has ended by itself.
        let now = emulation.statistics().map_err(Failure::run)?;
        figures.set(samples(&plan.links, &now));
        if let Some(last) = last.replace(now.clone()) {
            bar.set_message(status(&plan.links, &last, &now));
        }
        bar.tick();
    }
    bar.finish_and_clear();
    emulation.statistics().map_err(Failure::run)
}

/// Both directions of each link, as figures.
fn samples(links: &[InterfaceLink], now: &[LinkStatistics]) -> Vec<LinkSample> {
    let directions = links.iter().zip(now).flat_map(|(link, done)| {
        let [a, b] = &link.between;
        [(a, done.forward.link), (b, done.backward.link)]
    });
    let sample = |(interface, link): (&String, LinkStats)| LinkSample {
        interface: interface.clone(),
        received_bytes: link.sent_bytes,
        delivered_bytes: link.delivered_bytes,
        dropped_packets: vec![
            ("queue", link.queue_drops),
            ("loss", link.lost_packets),
            ("down", link.down_drops),
            ("too_big", link.too_big_drops),
        ],
    };
    directions.map(sample).collect()
}

/// What each link has carried in the last second.
fn status(links: &[InterfaceLink], last: &[LinkStatistics], now: &[LinkStatistics]) -> String {
    let mbps = |last: &DirectionStatistics, now: &DirectionStatistics| {
        now.link.delivered_bytes.saturating_sub(last.link.delivered_bytes) as f64 * 8e-6
    };
    let line = links.iter().zip(last.iter().zip(now)).map(|(link, (last, now))| {
        let drops = now.forward.link.dropped_packets() + now.backward.link.dropped_packets();
        format!(
            "{} → {:.1} ← {:.1} Mbit/s, {drops} dropped",
            link.name,
            mbps(&last.forward, &now.forward),
            mbps(&last.backward, &now.backward)
        )
    });
    line.collect::<Vec<_>>().join(" | ")
}

fn report(
    arguments: &Arguments,
    links: &[InterfaceLink],
    statistics: &[LinkStatistics],
    seconds: f64,
) -> Result<(), Failure> {
    if arguments.json {
        let links = links.iter().zip(statistics).map(|(link, done)| LinkSummary {
            name: &link.name,
            between: &link.between,
            forward: done.forward.into(),
            backward: done.backward.into(),
            interfaces: [done.a.into(), done.b.into()],
        });
        return print_json(&Summary { seconds, links: links.collect() });
    }
    for (link, done) in links.iter().zip(statistics) {
        for (arrow, way) in [("→", &done.forward), ("←", &done.backward)] {
            print_line(&format!(
                "{} {arrow} {} packets, {:.2} MB delivered; {} dropped by the queue, {} lost, {} while down; at most {} us late",
                link.name,
                way.link.delivered_packets,
                way.link.delivered_bytes as f64 / 1e6,
                way.link.queue_drops,
                way.link.lost_packets,
                way.link.down_drops,
                way.max_lateness.as_micros(),
            ))?;
        }
        let missed = done.a.missed_frames + done.b.missed_frames;
        if missed > 0 {
            complain(&format!("{}: {missed} frames were missed, as this machine was too slow", link.name));
        }
    }
    Ok(())
}

fn show(plan: &InterfaceLinks) -> Result<(), Failure> {
    let netlink = Netlink::new().map_err(Failure::run)?;
    for link in &plan.links {
        for name in &link.between {
            netlink.link_index(name).map_err(Failure::input)?;
        }
        let [a, b] = &link.between;
        print_line(&format!("{}:", link.name))?;
        print_line(&format!("  {a} → {b}  {}", describe(&link.forward)))?;
        print_line(&format!("  {b} → {a}  {}", describe(&link.backward)))?;
        let boxes: Vec<&str> = link.middleboxes.iter().map(|kind| kind.name()).collect();
        if !boxes.is_empty() {
            print_line(&format!("  middleboxes: {}", boxes.join(", ")))?;
        }
        for (at, change) in &link.forward.schedule {
            print_line(&format!("  at {:.3} s: {}", at.as_secs_f64(), changed(change)))?;
        }
    }
    Ok(())
}

fn changed(change: &Change) -> String {
    match change {
        Change::Rate(Some(rate)) => format!("{} Mbit/s", rate.as_bps() as f64 / 1e6),
        Change::Rate(None) => "no limit".into(),
        Change::Delay(delay) => format!("{} ms", delay.as_millis_f64()),
        Change::Queue(limit) => queue(*limit),
        Change::Loss(model) => loss(*model),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn queue(limit: QueueLimit) -> String {
    match limit {
        QueueLimit::Bytes(bytes) => format!("queue {bytes} bytes"),
        QueueLimit::Packets(packets) => format!("queue {packets} packets"),
        QueueLimit::Delay(span) => format!("queue {} ms", span.as_millis_f64()),
        QueueLimit::Unlimited => "queue without limit".into(),
    }
}

fn loss(loss: Loss) -> String {
    match loss {
        Loss::None => "no loss".into(),
        Loss::Random(share) => format!("loss {} %", percent(share)),
        Loss::GilbertElliott { p, r, bad_loss, good_loss } => {
            let [p, r, bad, good] = [p, r, bad_loss, good_loss].map(percent);
            format!("loss {good} % in the good state, {bad} % in the bad one; into it {p} %, out of it {r} %")
        }
    }
}

/// A share in hundredths, without the noise of its last binary digits.
fn percent(share: f64) -> f64 {
    (share * 1e8).round() / 1e6
}

fn describe(config: &LinkConfig) -> String {
    let rate = config.rate.map_or("no limit".into(), |rate| format!("{} Mbit/s", rate.as_bps() as f64 / 1e6));
    let mut words = vec![rate, format!("{} ms", config.delay.as_millis_f64())];
    if !config.jitter.amount.is_zero() {
        words.push(format!("± {} ms", config.jitter.amount.as_millis_f64()));
    }
    words.push(queue(config.queue));
    if config.loss != Loss::None {
        words.push(loss(config.loss));
    }
    words.extend(config.impairments.iter().map(ToString::to_string));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use polypath_units::BitRate;

    use super::*;

    #[test]
    fn a_link_is_told_in_words() {
        let ms = Duration::from_millis;
        let link = LinkConfig::new(BitRate::from_mbps(10), ms(40), QueueLimit::Delay(ms(80)));
        assert_eq!(describe(&link), "10 Mbit/s, 40 ms, queue 80 ms");
        let link = LinkConfig { loss: Loss::Random(0.07), queue: QueueLimit::Packets(5), ..link };
        assert_eq!(describe(&link), "10 Mbit/s, 40 ms, queue 5 packets, loss 7 %");
        assert_eq!(changed(&Change::Queue(QueueLimit::Bytes(3000))), "queue 3000 bytes");
        assert_eq!(changed(&Change::Up), "up");
    }
}
