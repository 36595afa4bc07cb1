//! The delay equalizer of NAMA between a sender and two paths without a network (Kaspar 2011, 4.2.2): packets of 1480 bytes at 6 Mbit/s by turns.

use polypath_tunnel::nama::DelayEqualizer;
use polypath_tunnel::reordering::{ReorderBufferDensity, ReorderDensity};
use polypath_units::{BitRate, Duration, Instant};
use rand_core::Rng;
use rand_pcg::Pcg32;

const PACKETS: u64 = 20_000;

struct Received {
    density: ReorderDensity,
    buffer: ReorderBufferDensity,
}

/// What arrives over paths with such delays. `means` are what the equalizer knows of them; without it, nothing.
fn receive(means: Option<[u64; 2]>, mut delay: impl FnMut(usize) -> Duration) -> Received {
    let mut equalizer = DelayEqualizer::new(1000);
    for (path, mean) in means.into_iter().flatten().enumerate() {
        equalizer.handle_delay(path, Duration::from_millis(mean));
    }
    let spacing = BitRate::from_mbps(6).time_to_send(1480);
    let mut arrivals = Vec::new();
    let mut leave = |equalizer: &mut DelayEqualizer<u64>, now: Instant| {
        while let Some((path, sequence)) = equalizer.poll_transmit(now) {
            arrivals.push((now + delay(path), sequence));
        }
    };
    for sequence in 0..PACKETS {
        let now = Instant::from_nanos(spacing.as_nanos() * sequence);
        while let Some(due) = equalizer.poll_timeout().filter(|due| *due <= now) {
            leave(&mut equalizer, due);
        }
        equalizer.handle_packet(now, (sequence % 2) as usize, sequence);
        leave(&mut equalizer, now);
    }
    while let Some(due) = equalizer.poll_timeout() {
        leave(&mut equalizer, due);
    }
    arrivals.sort_unstable();
    let (mut density, mut buffer) = (ReorderDensity::new(200), ReorderBufferDensity::new(200, 0));
    for (_, sequence) in arrivals {
        density.handle_arrival(sequence);
        buffer.handle_arrival(sequence);
    }
    density.finish();
    assert_eq!(density.evaluated(), PACKETS);
    Received { density, buffer }
}

/// Kaspar 2011, Fig. 4.7(a): paths that differ need a large buffer without the equalizer, and with it none.
#[test]
fn paths_of_constant_delay_become_alike() {
    let mut last = 0;
    for slow in [20, 50, 110, 210] {
        let delays = [10, slow];
        let of = |path: usize| Duration::from_millis(delays[path]);
        let plain = receive(None, of).buffer.percentile(0.99).unwrap();
        assert!(plain > last, "{slow} ms: {plain}");
        last = plain;
        let equal = receive(Some(delays), of);
        assert_eq!((equal.density.density(0), equal.buffer.density(0)), (1.0, 1.0), "{slow} ms");
    }
}

/// Kaspar 2011, Fig. 4.7(b): 10 ± 5 ms normally and 50 ± 15 ms evenly distributed. Packets are displaced by about ten positions without the equalizer, and by none or few
/// with it. The 99th percentile of the buffer is 18 and 9 packets there.
#[test]
fn with_jitter_two_peaks_become_one() {
    let jitter = || {
        let mut random = Pcg32::new(7, 1);
        let mut uniform = move || f64::from(random.next_u32()) / f64::from(u32::MAX);
        move |path: usize| {
            let millis = match path {
                // The sum of twelve is close to normal.
                0 => 10.0 + 5.0 * ((0..12).map(|_| uniform()).sum::<f64>() - 6.0),
                _ => 50.0 + 15.0 * (2.0 * uniform() - 1.0),
            };
            Duration::from_secs_f64(millis / 1e3)
        }
    };
    let plain = receive(None, jitter());
    let equal = receive(Some([10, 50]), jitter());
    let peak = |density: &ReorderDensity| {
        let (displacement, _) = density.iter().max_by(|one, other| one.1.total_cmp(&other.1)).unwrap();
        displacement
    };
    assert_eq!((peak(&plain.density), peak(&equal.density)), (-10, 0));
    assert!(plain.density.density(0) < 0.01 && plain.density.late_by_at_least(5) > 0.4);
    assert!(equal.density.density(0) > 0.1);
    assert!(equal.density.entropy() < plain.density.entropy());
    assert_eq!(plain.buffer.percentile(0.99), Some(18));
    assert!(equal.buffer.percentile(0.99) <= Some(9), "{:?}", equal.buffer.percentile(0.99));
}
