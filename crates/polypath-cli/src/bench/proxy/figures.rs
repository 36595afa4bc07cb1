//! What is measured of one system: delays, throughput, requests, memory.

use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use polypath_system::Namespace;

use super::client::{Way, ask_moment};
use super::origin::{BLOCK_BYTES, Order, PATIENCE};
use crate::bench::host::MachineTime;
use crate::bench::outcome::monotonic_s;
use crate::bench::program::Program;

/// Clients that ask at the same time.
pub(super) const CLIENTS: usize = 32;
/// Connections whose memory is counted.
pub(super) const IDLE_CONNECTIONS: usize = 1000;
/// Part of a measurement at its begin that does not count.
const BEGIN: u32 = 5;
/// Of exchanges, too.
const BEGIN_EXCHANGES: usize = 10;
/// Between two looks at whether it is over.
const LOOK: Duration = Duration::from_millis(100);
/// For what a proxy still does after connections have ended.
const REST: Duration = Duration::from_millis(300);

/// Seconds, sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Times(Vec<f64>);

impl Times {
    pub(super) fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        Self(seconds)
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// What so many of 100 are not above.
    pub(super) fn percentile_us(&self, percent: f64) -> f64 {
        let rank = (self.0.len() as f64 * percent / 100.0).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).map_or(f64::NAN, |seconds| seconds * 1e6)
    }
}

/// From clients' calls on, one connection at a time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Delays {
    /// From the call of `connect` until the server has the connection.
    pub(super) syn: Times,
    /// From that call until the answer to the client's first bytes is there.
    pub(super) first_byte: Times,
    /// The same question again, on the connection that is there.
    pub(super) echo: Times,
}

/// Opens so many connections, one after the other.
pub(super) fn delays(client: &Namespace, way: Way, count: usize) -> io::Result<Delays> {
    client.run(|| {
        let [mut syn, mut first_byte, mut echo] = [const { Vec::new() }; 3];
        for number in 0..count + count / BEGIN_EXCHANGES {
            let called_s = monotonic_s();
            let mut stream = way.connect()?;
            let moment = ask_moment(&mut stream)?;
            let first_s = monotonic_s();
            ask_moment(&mut stream)?;
            let second_s = monotonic_s();
            if number >= count / BEGIN_EXCHANGES {
                syn.push(moment.accepted_s - called_s);
                first_byte.push(first_s - called_s);
                echo.push(second_s - first_s);
            }
            // The next one begins when the proxy is done with this one.
            stream.shutdown(Shutdown::Write)?;
            read_to_end(&mut stream, &mut [0; 64])?;
        }
        Ok(Delays { syn: Times::of(syn), first_byte: Times::of(first_byte), echo: Times::of(echo) })
    })?
}

/// Waits until a proxy is done with connections that have ended: it takes a new one, and time has passed.
pub(super) fn settle(client: &Namespace, way: Way) -> io::Result<()> {
    client.run(|| ask_moment(&mut way.connect()?))??;
    thread::sleep(REST);
    Ok(())
}

/// Counts what comes until the connection's end.
fn read_to_end(stream: &mut TcpStream, block: &mut [u8]) -> io::Result<u64> {
    let mut total = 0;
    loop {
        match stream.read(block)? {
            0 => return Ok(total),
            bytes => total += bytes as u64,
        }
    }
}

/// Of one or several connections together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Throughput {
    pub(super) gbit_per_s: f64,
    /// User and system time of the proxy for 1e9 bytes; nothing without one, or if it took less than the system's clock can tell.
    pub(super) cpu_s_per_gb: Option<f64>,
    /// Busy time of the whole machine for them, client and server included.
    pub(super) machine_s_per_gb: f64,
}

/// The server sends as fast as it goes, over so many connections.
pub(super) fn throughput(
    client: &Namespace,
    way: Way,
    connections: usize,
    length: Duration,
    proxy: Option<&Program>,
) -> io::Result<Throughput> {
    let (received, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    client.run(|| {
        let streams: Vec<TcpStream> =
            (0..connections).map(|_| way.order(Order::Bytes(u64::MAX))).collect::<io::Result<_>>()?;
        thread::scope(|scope| {
            let receiving = |stream| scope.spawn(|| receive(stream, &received, &is_over));
            let receivers: Vec<_> = streams.into_iter().map(receiving).collect();
            let measured = measure(&received, length, proxy);
            is_over.store(true, Relaxed);
            for receiver in receivers {
                receiver.join().map_err(|_| io::Error::other("a thread of a client died"))??;
            }
            measured
        })
    })?
}

fn receive(mut stream: TcpStream, received: &AtomicU64, is_over: &AtomicBool) -> io::Result<()> {
    stream.set_read_timeout(Some(LOOK))?;
    let mut block = vec![0; BLOCK_BYTES];
    while !is_over.load(Relaxed) {
        match stream.read(&mut block) {
            Ok(0) => return Err(io::Error::other("a transfer ended in its middle")),
            Ok(bytes) => drop(received.fetch_add(bytes as u64, Relaxed)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn measure(received: &AtomicU64, length: Duration, proxy: Option<&Program>) -> io::Result<Throughput> {
    let look = || -> io::Result<_> {
        let cpu_s = proxy.map(Program::cpu_s).transpose()?;
        let machine = MachineTime::now().map_err(io::Error::other)?;
        Ok((monotonic_s(), received.load(Relaxed), cpu_s, machine))
    };
    thread::sleep(length / BEGIN);
    let (from_s, bytes_from, cpu_from_s, machine_from) = look()?;
    sleep_until_more(received, bytes_from, length, "no byte came")?;
    let (to_s, bytes_to, cpu_to_s, machine_to) = look()?;
    let gigabytes = (bytes_to - bytes_from) as f64 / 1e9;
    let cpu_s = cpu_from_s.zip(cpu_to_s).map(|(from_s, to_s)| to_s - from_s);
    Ok(Throughput {
        gbit_per_s: gigabytes * 8.0 / (to_s - from_s),
        cpu_s_per_gb: cpu_s.filter(|cpu_s| *cpu_s > 0.0).map(|cpu_s| cpu_s / gigabytes),
        machine_s_per_gb: machine_to.since(machine_from).0 / gigabytes,
    })
}

/// Sleeps so long, and longer if nothing was counted meanwhile: a busy machine may need more than a short time for the first.
fn sleep_until_more(count: &AtomicU64, from: u64, length: Duration, why_not: &'static str) -> io::Result<()> {
    thread::sleep(length);
    let begun = Instant::now();
    while count.load(Relaxed) == from {
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other(why_not));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Requests that are answered with so many bytes in a second, each on a connection of its own, by [`CLIENTS`] at a time.
pub(super) fn requests_per_s(client: &Namespace, way: Way, bytes: u64, length: Duration) -> io::Result<f64> {
    let (answered, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let ask_on = || {
        let mut block = vec![0; BLOCK_BYTES];
        while !is_over.load(Relaxed) {
            let came =
                way.order(Order::Bytes(bytes)).and_then(|mut stream| read_to_end(&mut stream, &mut block));
            match came {
                Ok(came) if came == bytes => drop(answered.fetch_add(1, Relaxed)),
                // The others need not go on.
                wrong => {
                    is_over.store(true, Relaxed);
                    return wrong.and_then(|came| {
                        Err(io::Error::other(format!("an answer of {bytes} bytes had {came}")))
                    });
                }
            }
        }
        Ok(())
    };
    client.run(|| {
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(ask_on)).collect();
            thread::sleep(length / BEGIN);
            let (from_s, from) = (monotonic_s(), answered.load(Relaxed));
            let slept = sleep_until_more(&answered, from, length, "no request was answered");
            let (to_s, to) = (monotonic_s(), answered.load(Relaxed));
            is_over.store(true, Relaxed);
            for client in clients {
                client.join().map_err(|_| io::Error::other("a thread of a client died"))??;
            }
            slept?;
            Ok((to - from) as f64 / (to_s - from_s))
        })
    })?
}

/// Memory of a proxy's processes for each of [`IDLE_CONNECTIONS`], after bytes went each way.
pub(super) fn memory_per_connection(client: &Namespace, way: Way, proxy: &Program) -> io::Result<f64> {
    let before = proxy.memory_bytes()?;
    let open = || {
        let mut stream = way.order(Order::Stay)?;
        stream.read_exact(&mut [0])?;
        Ok(stream)
    };
    let streams: Vec<TcpStream> =
        client.run(|| (0..IDLE_CONNECTIONS).map(|_| open()).collect::<io::Result<_>>())??;
    thread::sleep(REST);
    let after = proxy.memory_bytes()?;
    drop(streams);
    Ok((after as f64 - before as f64) / IDLE_CONNECTIONS as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_seen() {
        let times = Times::of((1..=200).rev().map(|us| f64::from(us) / 1e6).collect());
        assert!((times.percentile_us(50.0) - 100.0).abs() < 1e-6);
        assert!((times.percentile_us(99.0) - 198.0).abs() < 1e-6);
        assert!((Times::of(vec![1e-6]).percentile_us(99.0) - 1.0).abs() < 1e-6);
        assert!(Times::default().percentile_us(50.0).is_nan());
    }
}
