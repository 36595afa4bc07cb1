//! `polypath bench emulate`: how exact emulated links are, seen from the hosts at their ends.
//!
//! The emulating thread has one processor for itself; one thread on another sends and receives, without sleeping, so that
//! no wake-up of its own is taken for the emulator's.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration as SystemDuration, Instant as SystemInstant};

use polypath_emulate::{EmulatedLink, Emulation, LinkStatistics};
use polypath_link::{LinkConfig, QueueLimit};
use polypath_system::Namespace;
use polypath_testbed::Testbed;
use polypath_units::{BitRate, Duration};
use rustix::net::sockopt::{set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

use super::BenchError;

/// What the emulator should keep to.
pub(crate) const MAX_DELAY_ERROR_MS: f64 = 0.2;
/// Of the rate, in percent.
pub(crate) const MAX_RATE_ERROR_PERCENT: f64 = 1.0;

/// Longest wait in the emulated queue.
const QUEUE: Duration = Duration::from_millis(100);
/// Delay of the link for TCP, whose window is to fill it.
const TCP_DELAY: Duration = Duration::from_millis(2);
/// Of packets for rates; IP and UDP headers come on top.
const LARGE_BYTES: usize = 1400;
/// Of packets for delays.
const SMALL_BYTES: usize = 172;
const HEADER_BYTES: usize = 28;
const ETHERNET_HEADER_BYTES: u64 = 14;
/// Sockets hold what arrives while the measuring thread does not run: 0.1 s at 1 Gbit/s.
const SOCKET_BUFFER_BYTES: usize = 64 << 20;
/// Time between packets for delays.
const PROBE_INTERVAL: SystemDuration = SystemDuration::from_millis(1);
/// The measuring thread looks for packets more often than this, unless something else had its processor.
const LOOKS: SystemDuration = SystemDuration::from_micros(20);
/// Of packets that were not sent in time, only so many are sent at once.
const CATCH_UP: SystemDuration = SystemDuration::from_millis(2);
/// Before rates are measured.
const WARM_UP: SystemDuration = SystemDuration::from_millis(700);

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct EmulateConfig {
    /// Rates of the link, in Mbit/s.
    pub rates_mbit_per_s: Vec<u32>,
    /// Delay in each direction.
    pub delay: Duration,
    /// How long each measurement takes.
    pub seconds: f64,
}

/// A load that was more than the link takes, or TCP's.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct RateError {
    /// What arrived, IP headers included, in Mbit/s.
    pub mbit_per_s: f64,
    /// More (or less, if negative) than configured, in percent.
    pub error_percent: f64,
    /// Share of one processor that the emulating thread used, in percent.
    pub cpu_percent: f64,
}

/// One-way delays beyond the delay and the time on the wire that are configured.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct DelayError {
    /// Packets measured.
    pub packets: usize,
    /// Packets that arrived (or left) while the measuring thread had lost its processor, so that nobody knows when.
    pub unobserved_packets: usize,
    /// How late a packet left the emulator at most, by its own account.
    pub max_lateness_ms: f64,
    /// Least.
    pub min_ms: f64,
    /// Half are larger.
    pub median_ms: f64,
    /// One of a hundred is larger.
    pub p99_ms: f64,
    /// Largest.
    pub max_ms: f64,
    /// Share of one processor that the emulating thread used, in percent.
    pub cpu_percent: f64,
}

/// A load of 95 % of the rate.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct BelowRate {
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets that did not arrive.
    pub lost_packets: u64,
    /// Of these, dropped by the emulated queue.
    pub queue_drops: u64,
    /// Of these, missed by the emulator because it was too slow, or refused by the interface.
    pub missed_packets: u64,
    /// Share of one processor that the emulating thread used, in percent.
    pub cpu_percent: f64,
}

/// One rate.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct EmulateRow {
    /// As configured.
    pub rate_mbit_per_s: u32,
    /// UDP, 10 % more than the link takes.
    pub udp: RateError,
    /// One TCP connection of the kernel.
    pub tcp: RateError,
    /// A packet in each millisecond.
    pub delay: DelayError,
    /// UDP, 5 % less than the link takes.
    pub below_rate: BelowRate,
    /// Within 1 % of the rate, 0.2 ms of the delay in 99 of 100 packets, and nothing lost below the rate.
    pub is_within_bars: bool,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EmulateResult {
    /// Delay in each direction.
    pub delay_ms: f64,
    /// How long each measurement took.
    pub seconds: f64,
    /// The emulating thread had a processor for itself.
    pub is_pinned: bool,
    /// One for each rate.
    pub rows: Vec<EmulateRow>,
}

/// Measures; `on_step` is told what comes next.
///
/// # Errors
/// What the system refused.
pub(crate) fn run(
    config: &EmulateConfig,
    mut on_step: impl FnMut(&str),
) -> Result<EmulateResult, BenchError> {
    let processors = Processors::of_this_thread()?;
    // As the emulating thread does. Not everyone may ask for this.
    let _ = rustix::process::setpriority_process(None, -20);
    let mut rows = Vec::new();
    for &rate in &config.rates_mbit_per_s {
        let ground = |delay| Ground::new(&processors, rate, delay);
        let time = SystemDuration::from_secs_f64(config.seconds);
        on_step(&format!("{rate} Mbit/s: delay"));
        let delay = ground(config.delay)?.measure_delay(time)?;
        on_step(&format!("{rate} Mbit/s: load below the rate"));
        let below_rate = ground(config.delay)?.load_below_rate(time)?;
        on_step(&format!("{rate} Mbit/s: UDP beyond the rate"));
        let udp = ground(config.delay)?.overload(time)?;
        on_step(&format!("{rate} Mbit/s: TCP"));
        let tcp = ground(TCP_DELAY)?.load_by_tcp(time)?;
        let is_right = |rate: &RateError| rate.error_percent.abs() <= MAX_RATE_ERROR_PERCENT;
        let is_within_bars = is_right(&udp)
            && is_right(&tcp)
            && delay.min_ms >= -MAX_DELAY_ERROR_MS
            && delay.p99_ms <= MAX_DELAY_ERROR_MS
            && below_rate.lost_packets == 0;
        rows.push(EmulateRow { rate_mbit_per_s: rate, udp, tcp, delay, below_rate, is_within_bars });
    }
    enter(&processors.all)?;
    let delay_ms = config.delay.as_millis_f64();
    Ok(EmulateResult { delay_ms, seconds: config.seconds, is_pinned: processors.are_apart(), rows })
}

/// Which processors do what.
#[derive(Debug)]
struct Processors {
    all: CpuSet,
    emulating: CpuSet,
    measuring: CpuSet,
}

impl Processors {
    fn of_this_thread() -> io::Result<Self> {
        let all = sched_getaffinity(None)?;
        let mut numbers = (0..CpuSet::MAX_CPU).filter(|&number| all.is_set(number));
        let (Some(first), Some(second)) = (numbers.next(), numbers.next()) else {
            return Ok(Self { all, emulating: all, measuring: all });
        };
        let only = |number| {
            let mut set = CpuSet::new();
            set.set(number);
            set
        };
        Ok(Self { all, emulating: only(second), measuring: only(first) })
    }

    fn are_apart(&self) -> bool {
        self.emulating != self.measuring
    }
}

/// From now on this thread runs on these processors only.
fn enter(set: &CpuSet) -> io::Result<()> {
    Ok(sched_setaffinity(None, set)?)
}

/// A link, and a socket at each end of it.
#[derive(Debug)]
struct Ground {
    rate: BitRate,
    delay: Duration,
    sender: UdpSocket,
    receiver: UdpSocket,
    emulation: Emulation,
    testbed: Testbed,
}

impl Ground {
    fn new(processors: &Processors, rate_mbit_per_s: u32, delay: Duration) -> Result<Self, BenchError> {
        let testbed = Testbed::with_middle(1).map_err(BenchError::Namespaces)?;
        let rate = BitRate::from_mbps(rate_mbit_per_s.into());
        let config = LinkConfig::new(rate, delay, QueueLimit::Delay(QUEUE));
        let link = EmulatedLink {
            a: "client0".into(),
            b: "server0".into(),
            forward: config.clone(),
            backward: config,
            middleboxes: Vec::new(),
            seed: 1,
        };
        let middle = testbed.middle.as_ref().ok_or_else(|| io::Error::other("nothing between the hosts"))?;
        // A thread begins where the one that starts it is.
        enter(&processors.emulating)?;
        let emulation = Emulation::start(middle, vec![link]).map_err(io::Error::from);
        enter(&processors.measuring)?;
        let emulation = emulation?;
        let bind = |namespace: &Namespace, addr| namespace.run(|| UdpSocket::bind((addr, 0)))?;
        let receiver = bind(&testbed.server, Testbed::server_v4(0))?;
        let sender = bind(&testbed.client, Testbed::client_v4(0))?;
        sender.connect(receiver.local_addr()?)?;
        set_socket_recv_buffer_size_force(&receiver, SOCKET_BUFFER_BYTES).map_err(io::Error::from)?;
        set_socket_send_buffer_size_force(&sender, SOCKET_BUFFER_BYTES).map_err(io::Error::from)?;
        // Address resolution takes a round trip.
        receiver.set_read_timeout(Some(SystemDuration::from_secs(5)))?;
        sender.send(&[0; SMALL_BYTES])?;
        receiver.recv(&mut [0; SMALL_BYTES])?;
        receiver.set_nonblocking(true)?;
        Ok(Self { rate, delay, sender, receiver, emulation, testbed })
    }

    fn statistics(&self) -> io::Result<LinkStatistics> {
        self.emulation.statistics()?.pop().ok_or_else(|| io::Error::other("no link"))
    }

    /// Sends packets of so many bytes at a steady rate for some time, and takes in what arrives until some time later;
    /// what was not sent in time, as the processor was another's, is made up for by a burst of at most `catch_up`;
    /// `each` gets the time and the content of what arrived, and whether the time is known. Returns the number of packets sent.
    fn exchange(
        &self,
        bytes: usize,
        interval: SystemDuration,
        time: SystemDuration,
        catch_up: SystemDuration,
        mut each: impl FnMut(SystemInstant, &[u8], bool),
    ) -> io::Result<u64> {
        let started = SystemInstant::now();
        let rest = SystemDuration::from(self.delay + QUEUE) + SystemDuration::from_millis(100);
        let mut packet = vec![0; bytes];
        let mut sent = 0u64;
        let mut buffer = [0; 2048];
        // Of packets, whether it is known when they left.
        let mut is_known = Vec::new();
        let mut looked = started;
        let mut due = SystemDuration::ZERO;
        // Nothing waits in the socket since before the last look.
        let mut is_watched = true;
        loop {
            let elapsed = started.elapsed();
            if elapsed > time + rest {
                return Ok(sent);
            }
            if elapsed < time && elapsed >= due {
                due = (due + interval).max(elapsed.saturating_sub(catch_up));
                packet[8..16].copy_from_slice(&sent.to_be_bytes());
                let stamp = started.elapsed();
                packet[..8].copy_from_slice(&(stamp.as_nanos() as u64).to_be_bytes());
                self.sender.send(&packet)?;
                is_known.push(started.elapsed() - stamp < 2 * LOOKS);
                sent += 1;
            }
            let received = self.receiver.recv(&mut buffer);
            let now = SystemInstant::now();
            is_watched &= now - looked < LOOKS;
            match received {
                Ok(bytes) => {
                    let packet = buffer.get(..bytes).unwrap_or_default();
                    let number =
                        packet.get(8..16).and_then(<[u8]>::first_chunk).map(|n| u64::from_be_bytes(*n));
                    let is_known = number.is_some_and(|number| is_known.get(number as usize) == Some(&true));
                    each(now, packet, is_known && is_watched);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    is_watched = now - looked < LOOKS;
                }
                Err(error) => return Err(error),
            }
            looked = now;
        }
    }

    /// Of a packet with so many bytes of payload.
    fn interval(&self, payload_bytes: usize, load: f64) -> SystemDuration {
        let bits = (payload_bytes + HEADER_BYTES) as f64 * 8.0;
        SystemDuration::from_secs_f64(bits / (self.rate.as_bps() as f64 * load))
    }

    fn measure_delay(&self, time: SystemDuration) -> Result<DelayError, BenchError> {
        let usage = Usage::begin()?;
        let expected = SystemDuration::from(self.delay) + self.interval(SMALL_BYTES, 1.0);
        let started = SystemInstant::now();
        let mut errors_ms = Vec::new();
        let mut unobserved_packets = 0;
        let sent = self.exchange(SMALL_BYTES, PROBE_INTERVAL, time, CATCH_UP, |at, packet, is_known| {
            if !is_known {
                unobserved_packets += 1;
                return;
            }
            let stamp = packet.first_chunk().map(|stamp| u64::from_be_bytes(*stamp)).unwrap_or_default();
            errors_ms
                .push(((at - started).as_nanos() as f64 - stamp as f64 - expected.as_nanos() as f64) / 1e6);
        })?;
        let cpu_percent = usage.percent()?;
        errors_ms.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = (share * (errors_ms.len().saturating_sub(1)) as f64).round() as usize;
            errors_ms.get(index).copied()
        };
        let (Some(min_ms), Some(median_ms), Some(p99_ms), Some(max_ms)) =
            (at(0.0), at(0.5), at(0.99), at(1.0))
        else {
            return Err(io::Error::other(format!("none of {sent} packets arrived")).into());
        };
        let max_lateness_ms = self.statistics()?.forward.max_lateness.as_millis_f64();
        let packets = errors_ms.len();
        Ok(DelayError {
            packets,
            unobserved_packets,
            max_lateness_ms,
            min_ms,
            median_ms,
            p99_ms,
            max_ms,
            cpu_percent,
        })
    }

    fn load_below_rate(&self, time: SystemDuration) -> Result<BelowRate, BenchError> {
        let usage = Usage::begin()?;
        let mut received = 0;
        let sent_packets =
            self.exchange(LARGE_BYTES, self.interval(LARGE_BYTES, 0.95), time, CATCH_UP, |_, _, _| {
                received += 1
            })?;
        let cpu_percent = usage.percent()?;
        let LinkStatistics { forward, a, b, .. } = self.statistics()?;
        Ok(BelowRate {
            sent_packets,
            lost_packets: sent_packets - received,
            queue_drops: forward.link.queue_drops,
            missed_packets: a.missed_frames + b.refused_frames,
            cpu_percent,
        })
    }

    fn overload(&self, time: SystemDuration) -> Result<RateError, BenchError> {
        let usage = Usage::begin()?;
        let started = SystemInstant::now();
        let mut counts: Vec<io::Result<(SystemInstant, u64)>> = Vec::new();
        let load = self.interval(LARGE_BYTES, 1.1);
        self.exchange(LARGE_BYTES, load, WARM_UP + time, SystemDuration::MAX, |at, _, _| {
            let moments = [WARM_UP, WARM_UP + time];
            if moments.get(counts.len()).is_some_and(|&moment| at - started >= moment) {
                counts.push(self.arrived_bytes());
            }
        })?;
        let cpu_percent = usage.percent()?;
        let mut counts = counts.into_iter();
        let (Some(before), Some(after)) = (counts.next(), counts.next()) else {
            return Err(io::Error::other("packets stopped arriving").into());
        };
        Ok(self.rate_error(before?, after?, cpu_percent))
    }

    fn rate_error(
        &self,
        before: (SystemInstant, u64),
        after: (SystemInstant, u64),
        cpu_percent: f64,
    ) -> RateError {
        let mbit_per_s = (after.1 - before.1) as f64 * 8e-6 / (after.0 - before.0).as_secs_f64();
        let error_percent = 100.0 * (mbit_per_s * 1e6 / self.rate.as_bps() as f64 - 1.0);
        RateError { mbit_per_s, error_percent, cpu_percent }
    }

    fn load_by_tcp(&self, time: SystemDuration) -> Result<RateError, BenchError> {
        let server = self.testbed.server.run(|| TcpListener::bind((Testbed::server_v4(0), 0)))??;
        let to = server.local_addr()?;
        let mut client = self.testbed.client.run(|| TcpStream::connect(to))??;
        let (mut server, _) = server.accept()?;
        thread::scope(|scope| {
            // Both end with the connection.
            scope.spawn(move || {
                let block = [0; 128 << 10];
                while client.write(&block).is_ok() {}
            });
            let closing = server.try_clone()?;
            scope.spawn(move || {
                let mut block = [0; 128 << 10];
                while server.read(&mut block).is_ok_and(|bytes| bytes > 0) {}
            });
            let measured = (|| {
                thread::sleep(WARM_UP);
                let usage = Usage::begin()?;
                let before = self.arrived_bytes()?;
                thread::sleep(time);
                Ok(self.rate_error(before, self.arrived_bytes()?, usage.percent()?))
            })();
            closing.shutdown(std::net::Shutdown::Both)?;
            measured
        })
    }

    /// At the server's interface, IP headers included, and when.
    fn arrived_bytes(&self) -> io::Result<(SystemInstant, u64)> {
        let read = || -> io::Result<(SystemInstant, String)> {
            // While this thread waits for its processor, more arrives.
            for _ in 0..20 {
                let before = SystemInstant::now();
                let table = std::fs::read_to_string("/proc/thread-self/net/dev")?;
                if before.elapsed() < SystemDuration::from_micros(500) {
                    return Ok((before, table));
                }
            }
            Ok((SystemInstant::now(), std::fs::read_to_string("/proc/thread-self/net/dev")?))
        };
        let (at, table) = self.testbed.server.run(read)??;
        let name = format!("{}:", Testbed::interface(0));
        let line = table.lines().find_map(|line| line.trim_start().strip_prefix(&name)).unwrap_or_default();
        let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        let (Some(bytes), Some(packets)) = (numbers.next(), numbers.next()) else {
            return Err(io::Error::other("the interface has no counters"));
        };
        Ok((at, bytes - packets * ETHERNET_HEADER_BYTES))
    }
}

/// Processor time of the emulating thread.
#[derive(Debug)]
struct Usage {
    begun: SystemInstant,
    busy_s: f64,
}

impl Usage {
    fn begin() -> io::Result<Self> {
        Ok(Self { begun: SystemInstant::now(), busy_s: busy_s()? })
    }

    /// Share of one processor since then.
    fn percent(&self) -> io::Result<f64> {
        Ok(100.0 * (busy_s()? - self.busy_s) / self.begun.elapsed().as_secs_f64())
    }
}

/// Of the emulating thread until now, as the scheduler counts.
fn busy_s() -> io::Result<f64> {
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if std::fs::read_to_string(task.join("comm"))?.trim() == "emulation" {
            let text = std::fs::read_to_string(task.join("schedstat"))?;
            let nanos = text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
            return Ok(nanos.unwrap_or_default() / 1e9);
        }
    }
    Err(io::Error::other("the emulation has ended"))
}
