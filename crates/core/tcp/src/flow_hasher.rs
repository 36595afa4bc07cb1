use core::net::IpAddr;

use polypath_wire::FourTuple;

/// A hash function of 4-tuples with secrets.
///
/// Hashing all 36 bytes of a key with a general function costs more than the rest of a look-up. Here IPv4
/// needs one multiplication of 64 × 64 bits whose halves are folded together, and IPv6 three, each operand
/// mixed with a secret of 64 bits. Whoever does not know the seed can't compute tuples that collide; the
/// function is not a pseudo-random one in the cryptographic sense, and a peer that can measure single
/// look-ups might learn about it. A table of flows has a second defence: a host bounds half-open connections,
/// so each entry costs the peer a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowHasher {
    secrets: [u64; 4],
}

impl FlowHasher {
    pub(crate) fn new(seed: u64) -> Self {
        // SplitMix64 (Steele, Lea, Flood 2014) spreads the seed over the secrets.
        let mut state = seed;
        let secrets = core::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        });
        Self { secrets }
    }

    #[inline]
    pub(crate) fn hash(&self, tuple: &FourTuple) -> u64 {
        let [k0, k1, k2, k3] = self.secrets;
        let addresses = match (tuple.local.addr, tuple.remote.addr) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits())
            }
            (local, remote) => {
                let (local, remote) = (wide(local), wide(remote));
                fold((local >> 64) as u64 ^ k2, local as u64 ^ k3)
                    ^ fold((remote >> 64) as u64 ^ k3, remote as u64 ^ k2).rotate_left(32)
            }
        };
        fold(addresses ^ k0, ports(tuple) ^ k1)
    }
}

#[inline]
fn ports(tuple: &FourTuple) -> u64 {
    u64::from(tuple.local.port) << 16 | u64::from(tuple.remote.port)
}

fn wide(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => u128::from(addr.to_bits()),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

/// The two halves of a product, folded: each bit of the result depends on all bits of both factors.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use polypath_wire::Endpoint;

    use super::*;

    fn v4(host: u32, port: u16) -> FourTuple {
        FourTuple {
            local: Endpoint::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 443),
            remote: Endpoint::new(IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + host)), port),
        }
    }

    fn v6(host: u128, port: u16) -> FourTuple {
        FourTuple {
            local: Endpoint::new(IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | 1)), 443),
            remote: Endpoint::new(IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | host)), port),
        }
    }

    /// Tuples as they come in practice (counting ports, counting hosts) must spread over the low bits, which
    /// choose the place, and the high ones, which hashbrown compares; and the secret must change where they
    /// go.
    #[test]
    fn the_hash_spreads_regular_tuples_under_any_seed() {
        for seed in 0..8 {
            let hasher = FlowHasher::new(seed);
            for family in [v4(1, 1), v6(1, 1)] {
                let (mut low, mut high) = ([0_u32; 256], [0_u32; 128]);
                for port in 0..32_768 {
                    let mut tuple = family;
                    tuple.remote.port = port;
                    let hash = hasher.hash(&tuple);
                    low[(hash & 255) as usize] += 1;
                    high[(hash >> 57) as usize] += 1;
                }
                assert!(low.iter().all(|&count| (64..192).contains(&count)), "{low:?}");
                assert!(high.iter().all(|&count| (128..384).contains(&count)), "{high:?}");
            }
        }
        assert_ne!(FlowHasher::new(1).hash(&v4(1, 1)), FlowHasher::new(2).hash(&v4(1, 1)));
    }
}
