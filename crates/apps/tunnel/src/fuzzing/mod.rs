//! What fuzz targets do, shared with the short runs of fixed bytes in the tests: each panics where a promise of this crate is broken.

mod pair;
mod parsers;
mod repair;
mod script;

pub use parsers::{device_frame, frame, inner_packet, joined, message, text};
pub use repair::repair;
pub use script::engine;

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    /// Bytes without sense, and bytes that are nearly all small.
    fn run(target: fn(&[u8]), inputs: u64, most_bytes: u32) {
        for seed in 0..inputs {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let len = random.next_u32() % most_bytes;
            let small = seed % 2 == 1;
            let bytes: Vec<u8> =
                (0..len).map(|_| (random.next_u32() >> if small { 28 } else { 24 }) as u8).collect();
            target(&bytes);
        }
    }

    #[test]
    fn parsers_bear_any_bytes() {
        for target in [super::message, super::frame, super::inner_packet, super::device_frame, super::text] {
            run(target, 20_000, 200);
        }
        run(super::joined, 2_000, 600);
    }

    #[test]
    fn any_repair_packets_are_borne() {
        run(super::repair, 2_000, 1_000);
    }

    #[test]
    fn the_engine_bears_any_script() {
        run(super::engine, 40, 300);
    }
}
