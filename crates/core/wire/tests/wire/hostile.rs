//! The fuzz targets for a fixed number of inputs: seeds, seeds with mutations, and noise.

use polypath_wire::fuzzing;

use crate::seeds::seeds;

/// SplitMix64: enough for mutations, the same on every platform.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Values at which lengths and offsets go wrong.
const INTERESTING: [u8; 12] = [0, 1, 2, 3, 4, 8, 0x1e, 0x28, 0x45, 0x60, 0x7f, 0xff];

fn mutate(random: &mut Random, bytes: &mut Vec<u8>, others: &[(String, Vec<u8>)]) {
    let at = random.below(bytes.len());
    match random.below(8) {
        0 | 1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        2 | 3 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = INTERESTING[random.below(INTERESTING.len())];
            }
        }
        4 => bytes.truncate(at),
        5 => bytes.insert(at, random.next() as u8),
        6 => {
            if !bytes.is_empty() {
                bytes.remove(at);
            }
        }
        _ => {
            let other = &others[random.below(others.len())].1;
            bytes.truncate(at);
            bytes.extend(&other[random.below(other.len())..]);
        }
    }
}

fn run(target: fn(&[u8]), folder: &str, count: usize) {
    let seeds = seeds(folder);
    seeds.iter().for_each(|(_, bytes)| target(bytes));
    let mut random = Random(0x5eed);
    for _ in 0..count {
        let mut bytes = seeds[random.below(seeds.len())].1.clone();
        for _ in 0..=random.below(4) {
            mutate(&mut random, &mut bytes, &seeds);
        }
        target(&bytes);
    }
    for _ in 0..count / 10 {
        let noise: Vec<u8> = (0..random.below(120)).map(|_| random.next() as u8).collect();
        target(&noise);
    }
}

#[test]
fn packets_of_any_bytes() {
    run(fuzzing::packet, "packet", 200_000);
}

#[test]
fn options_of_any_bytes() {
    run(fuzzing::options, "options", 200_000);
}

#[test]
fn mutations_do_get_through() {
    // Were every mutation refused at the first field, the runs above would show nothing.
    let seeds = seeds("packet");
    let mut random = Random(1);
    let mut understood = 0;
    for _ in 0..1000 {
        let mut bytes = seeds[random.below(seeds.len())].1.clone();
        mutate(&mut random, &mut bytes, &seeds);
        let parsed = polypath_wire::Packet::parse_with(bytes.into(), polypath_wire::Checksums::Ignore);
        understood += u32::from(parsed.is_ok());
    }
    assert!((300..=900).contains(&understood), "{understood} of 1000");
}
