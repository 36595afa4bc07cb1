//! One connection of the kernel's TCP through a tunnel, whose every arrival is noted.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use polypath_system::Namespace;
use rustix::net::sockopt::set_tcp_congestion;

use crate::bench::outcome::monotonic_s;

/// Bytes that are handed over and asked for at a time: iperf3's choice.
const BLOCK_BYTES: usize = 128 << 10;
/// Between two looks at whether it is over.
const LOOK: Duration = Duration::from_millis(50);
/// Arrivals that are nearer to each other count as one, at the time of the first.
const RESOLUTION_S: f64 = 1e-3;

/// A connection that sends as fast as it goes, until it is told to end.
pub(super) struct Flow {
    is_over: Arc<AtomicBool>,
    sender: JoinHandle<io::Result<io::Result<()>>>,
    receiver: JoinHandle<io::Result<io::Result<Arrivals>>>,
}

/// Moments of the monotonic clock in seconds, and how many bytes had arrived by then.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Arrivals(Vec<(f64, u64)>);

impl Flow {
    /// Connects to this address in `to`, and begins to send, with this congestion control.
    pub(super) fn start([from, to]: [&Namespace; 2], addr: Ipv4Addr, congestion: &str) -> io::Result<Self> {
        let listener = to.run(|| TcpListener::bind((addr, 0)))??;
        let target = listener.local_addr()?;
        let sender = from.run(|| TcpStream::connect(target))??;
        let (receiver, _) = listener.accept()?;
        set_tcp_congestion(&sender, congestion)?;
        sender.set_write_timeout(Some(LOOK))?;
        receiver.set_read_timeout(Some(LOOK))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (one, other) = (is_over.clone(), is_over.clone());
        Ok(Self {
            is_over,
            sender: from.spawn(move || send(sender, &one)),
            receiver: to.spawn(move || receive(receiver, &other)),
        })
    }

    /// Ends it, with all that is still under way.
    pub(super) fn finish(self) -> io::Result<Arrivals> {
        let died = |_| io::Error::other("a thread of a connection died");
        self.is_over.store(true, Relaxed);
        let arrivals = self.receiver.join().map_err(died)???;
        self.sender.join().map_err(died)???;
        Ok(arrivals)
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

fn send(mut stream: TcpStream, is_over: &AtomicBool) -> io::Result<()> {
    let block = vec![0; BLOCK_BYTES];
    while !is_over.load(Relaxed) {
        match stream.write(&block) {
            Err(error) if !is_pause(&error) => {
                // The receiver has ended first.
                return if is_over.load(Relaxed) { Ok(()) } else { Err(error) };
            }
            _ => {}
        }
    }
    // What waits is dropped, instead of being sent for seconds.
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))
}

fn receive(mut stream: TcpStream, is_over: &AtomicBool) -> io::Result<Arrivals> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut arrivals = Arrivals::default();
    let mut total = 0;
    while !is_over.load(Relaxed) {
        match stream.read(&mut block) {
            Ok(0) => break,
            Ok(bytes) => {
                total += bytes as u64;
                arrivals.note(monotonic_s(), total);
            }
            Err(error) if is_pause(&error) => {}
            Err(error) => return if is_over.load(Relaxed) { Ok(arrivals) } else { Err(error) },
        }
    }
    Ok(arrivals)
}

impl Arrivals {
    fn note(&mut self, now_s: f64, total: u64) {
        match self.0.last_mut() {
            Some((at_s, last)) if now_s - *at_s < RESOLUTION_S => *last = total,
            _ => self.0.push((now_s, total)),
        }
    }

    /// Bytes that arrived between two moments.
    pub(super) fn bytes_between(&self, from_s: f64, to_s: f64) -> u64 {
        let until = |moment_s: f64| {
            let before = self.0.partition_point(|(at_s, _)| *at_s <= moment_s);
            before.checked_sub(1).map_or(0, |at| self.0[at].1)
        };
        until(to_s) - until(from_s)
    }

    /// The longest time without an arrival between two moments, of which the second may be before the next arrival.
    pub(super) fn longest_gap_s(&self, from_s: f64, to_s: f64) -> f64 {
        let inner = self.0.iter().map(|(at_s, _)| *at_s).filter(|at_s| (from_s..to_s).contains(at_s));
        let mut last_s = from_s;
        let mut longest_s = 0.0_f64;
        for at_s in inner.chain([to_s]) {
            longest_s = longest_s.max(at_s - last_s);
            last_s = at_s;
        }
        longest_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_tell_bytes_and_gaps() {
        let mut arrivals = Arrivals::default();
        for (at_s, total) in [(1.0, 10), (1.0005, 12), (1.1, 20), (1.5, 30), (1.6, 40)] {
            arrivals.note(at_s, total);
        }
        assert_eq!(arrivals.0.len(), 4);
        assert_eq!(arrivals.bytes_between(0.0, 9.0), 40);
        assert_eq!(arrivals.bytes_between(1.1, 1.5), 10);
        assert!((arrivals.longest_gap_s(1.05, 1.6) - 0.4).abs() < 1e-9);
        assert!((arrivals.longest_gap_s(1.55, 3.0) - 1.4).abs() < 1e-9);
        assert_eq!(Arrivals::default().longest_gap_s(1.0, 3.0), 2.0);
    }
}
