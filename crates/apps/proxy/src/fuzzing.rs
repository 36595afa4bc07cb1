//! What fuzz targets do, shared with the short runs of fixed bytes in the tests: each panics where a promise of this crate is broken.

pub use crate::convert::fuzzing::{convert_client, convert_message, convert_server};
pub use crate::proxy_protocol::fuzzing::proxy_header;
pub use crate::socks::fuzzing::socks;

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

    /// As [`run`], behind what a whole one begins with: few inputs would come far without that.
    fn run_behind(target: fn(&[u8]), begins: &'static [&'static [u8]], inputs: u64) {
        for seed in 0..inputs {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let mut bytes = begins[seed as usize % begins.len()].to_vec();
            for _ in 0..random.next_u32() % 40 {
                bytes.push((random.next_u32() >> if seed % 3 == 0 { 24 } else { 29 }) as u8);
            }
            target(&bytes);
        }
    }

    #[test]
    fn socks_bears_any_bytes() {
        run(super::socks, 20_000, 200);
        const BEGINS: [&[u8]; 6] = [
            b"\x00\x05\x01\x00\x05\x01\x00",
            b"\x02\x05\x01\x00\x05\x03\x00",
            b"\x01\x05\x01\x02\x01",
            b"\x03\x05\x01\x02\x01\x01a\x01b\x05\x01\x00",
            b"\x00\x00\x00\x00\x01",
            b"\x00\x00\x00\x00\x04",
        ];
        run_behind(super::socks, &BEGINS, 20_000);
    }

    #[test]
    fn headers_of_the_proxy_protocol_bear_any_bytes() {
        run(super::proxy_header, 20_000, 200);
        const BEGINS: [&[u8]; 5] = [
            b"PROXY TCP4 192.0.2.1 198.51.100.1 ",
            b"PROXY UNKNOWN ",
            b"\r\n\r\n\0\r\nQUIT\n",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x24",
        ];
        run_behind(super::proxy_header, &BEGINS, 20_000);
    }
}
