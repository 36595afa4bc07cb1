//! Datagrams through a tunnel: at a steady rate, to see what becomes of them, and there and back, to see how long it takes.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use polypath_system::Namespace;
use polypath_tunnel::reordering::{Arrival, ArrivalOrder, ReorderedRatio};
use serde::Serialize;

use crate::bench::outcome::monotonic_s;

/// Payload of a datagram of a stream: as calls and games have it at most.
const STREAM_BYTES: usize = 1200;
/// IPv4 and UDP.
const HEADERS_BYTES: usize = 28;
/// For what is still under way when the last one was sent.
const STRAGGLERS: Duration = Duration::from_secs(1);
/// Between two datagrams that are sent back.
const ECHO_INTERVAL: Duration = Duration::from_millis(20);
/// Number and time of sending.
const STAMP_BYTES: usize = 16;

/// What became of a stream of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Stream {
    /// What was sent, headers of IP included.
    pub mbit_per_s: f64,
    /// Share that did not arrive.
    pub loss: f64,
    /// Share of what arrived that came after one that was sent later (RFC 4737).
    pub reordered: f64,
    /// Mean difference of the times that two datagrams took which arrived one after the other (as RFC 3550 has it, not smoothed).
    pub jitter_ms: f64,
}

fn stamp(number: u64) -> [u8; STAMP_BYTES] {
    let mut stamp = [0; STAMP_BYTES];
    stamp[..8].copy_from_slice(&number.to_be_bytes());
    stamp[8..].copy_from_slice(&monotonic_s().to_be_bytes());
    stamp
}

/// Number and time of sending, if it is one of ours.
fn stamped(datagram: &[u8]) -> Option<(u64, f64)> {
    let (number, rest) = datagram.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), f64::from_be_bytes(*rest.first_chunk()?)))
}

/// Sends at a rate for some time.
pub(super) fn stream(
    [from, to]: [&Namespace; 2],
    addr: Ipv4Addr,
    mbit_per_s: f64,
    length: Duration,
) -> io::Result<Stream> {
    let receiver = to.run(|| UdpSocket::bind((addr, 0)))??;
    receiver.set_read_timeout(Some(Duration::from_millis(50)))?;
    let sender = from.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))??;
    sender.connect(receiver.local_addr()?)?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let mut arrived = Vec::new();
            let mut datagram = [0; STREAM_BYTES];
            while !is_over.load(Relaxed) {
                if let Ok(bytes) = receiver.recv(&mut datagram)
                    && let Some((number, sent_s)) = stamped(&datagram[..bytes])
                {
                    arrived.push((number, monotonic_s() - sent_s));
                }
            }
            arrived
        });
        let interval_s = (STREAM_BYTES + HEADERS_BYTES) as f64 * 8.0 / (mbit_per_s * 1e6);
        let count = (length.as_secs_f64() / interval_s) as u64;
        let started_s = monotonic_s();
        let mut datagram = [0; STREAM_BYTES];
        for number in 0..count {
            let wait_s = started_s + number as f64 * interval_s - monotonic_s();
            thread::sleep(Duration::from_secs_f64(wait_s.max(0.0)));
            datagram[..STAMP_BYTES].copy_from_slice(&stamp(number));
            // One that the system has no room for is lost.
            let _ = sender.send(&datagram);
        }
        let seconds = monotonic_s() - started_s;
        thread::sleep(STRAGGLERS);
        is_over.store(true, Relaxed);
        let arrived = receiving.join().map_err(|_| io::Error::other("a thread of a stream died"))?;
        let sent_bits = (count as usize * (STREAM_BYTES + HEADERS_BYTES)) as f64 * 8.0;
        Ok(evaluate(count, &arrived, sent_bits / seconds / 1e6))
    })
}

/// Numbers and times under way, in the order of arrival.
fn evaluate(sent: u64, arrived: &[(u64, f64)], mbit_per_s: f64) -> Stream {
    let mut order = ArrivalOrder::default();
    let mut ratio = ReorderedRatio::default();
    for (number, _) in arrived {
        ratio.handle_arrival(&order.handle_arrival(Arrival::of(*number)));
    }
    let mut numbers: Vec<u64> = arrived.iter().map(|(number, _)| *number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let differences: f64 = arrived.windows(2).map(|pair| (pair[1].1 - pair[0].1).abs()).sum();
    Stream {
        mbit_per_s,
        loss: 1.0 - numbers.len() as f64 / sent.max(1) as f64,
        reordered: if arrived.is_empty() { 0.0 } else { ratio.ratio() },
        jitter_ms: differences * 1e3 / arrived.len().saturating_sub(1).max(1) as f64,
    }
}

/// Sends back what comes, until it is over.
fn send_back(socket: &UdpSocket, is_over: &AtomicBool) {
    let mut datagram = [0; STAMP_BYTES];
    while !is_over.load(Relaxed) {
        if let Ok((bytes, sender)) = socket.recv_from(&mut datagram) {
            // One that can't be sent is missed by the other end.
            let _ = socket.send_to(&datagram[..bytes], sender);
        }
    }
}

/// Times there and back, in milliseconds, of datagrams that are sent until it was long enough. With `is_first_enough` the first answer ends it.
pub(super) fn round_trips_ms(
    [from, to]: [&Namespace; 2],
    addr: Ipv4Addr,
    length: Duration,
    is_first_enough: bool,
) -> io::Result<Vec<f64>> {
    let mirror = to.run(|| UdpSocket::bind((addr, 0)))??;
    mirror.set_read_timeout(Some(ECHO_INTERVAL))?;
    let socket = from.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))??;
    socket.connect(mirror.local_addr()?)?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| send_back(&mirror, &is_over));
        let started_s = monotonic_s();
        let mut round_trips_ms = Vec::new();
        for number in 0.. {
            let next_s = started_s + (number + 1) as f64 * ECHO_INTERVAL.as_secs_f64();
            if next_s - started_s > length.as_secs_f64() || is_first_enough && !round_trips_ms.is_empty() {
                break;
            }
            let _ = socket.send(&stamp(number));
            loop {
                let left_s = next_s - monotonic_s();
                if left_s <= 0.0 {
                    break;
                }
                let mut datagram = [0; STAMP_BYTES];
                socket.set_read_timeout(Some(Duration::from_secs_f64(left_s.max(1e-6))))?;
                match socket.recv(&mut datagram) {
                    Ok(bytes) => {
                        let sent = stamped(&datagram[..bytes]);
                        round_trips_ms.extend(sent.map(|(_, sent_s)| (monotonic_s() - sent_s) * 1e3));
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // The other end's port is told as closed by an error of earlier datagrams.
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }
        }
        is_over.store(true, Relaxed);
        Ok(round_trips_ms)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_told_by_what_arrived() {
        let whole = evaluate(3, &[(0, 0.1), (1, 0.1), (2, 0.1)], 1.0);
        assert_eq!((whole.loss, whole.reordered, whole.jitter_ms), (0.0, 0.0, 0.0));
        let mixed = evaluate(4, &[(0, 0.1), (2, 0.1), (1, 0.3)], 1.0);
        assert_eq!(mixed.loss, 0.25);
        assert!((mixed.reordered - 1.0 / 3.0).abs() < 1e-9 && (mixed.jitter_ms - 100.0).abs() < 1e-9);
        assert_eq!(evaluate(4, &[], 1.0).loss, 1.0);
    }

    #[test]
    fn a_stamp_is_read_as_it_was_written() {
        assert_eq!(stamped(&stamp(7)).map(|(number, _)| number), Some(7));
        assert_eq!(stamped(&[0; STAMP_BYTES - 1]), None);
    }
}
