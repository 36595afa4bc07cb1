//! What fuzz targets do, shared with the short runs of fixed bytes in the tests: each panics where a promise of this crate is broken.

pub use crate::convert::fuzzing::{convert_client, convert_message, convert_server};

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
                (0..len).map(|_| (random.next_u32() >> if small { 27 } else { 24 }) as u8).collect();
            target(&bytes);
        }
    }

    #[test]
    fn convert_bears_any_bytes() {
        run(super::convert_message, 50_000, 200);
        run(super::convert_server, 20_000, 200);
        run(super::convert_client, 5_000, 200);
    }
}
