//! What an end is made from.

use polypath_congestion::Policy;

use crate::allowed_ips::Network;
use crate::key::{PresharedKey, PrivateKey, PublicKey};
use crate::rules::Rules;
use crate::tcp_split::TcpSplitConfig;

/// Number of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(usize);

impl PeerId {
    pub(super) const fn new(index: usize) -> Self {
        Self(index)
    }

    pub(crate) const fn index(self) -> usize {
        self.0
    }
}

/// Settings of an end.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Who we are.
    pub private_key: PrivateKey,
    /// Whom we talk to.
    pub peers: Vec<PeerConfig>,
    /// Longest IP packet that is carried.
    pub mtu_bytes: usize,
    /// Congestion control of each path.
    pub congestion: Policy,
    /// The processor has instructions for AES-GCM; the driver knows. Where both ends have, paths are encrypted by it: a
    /// packet then costs the engine half as much as with ChaCha20-Poly1305. Default false.
    pub has_fast_aes: bool,
    /// Bounds of TCP flows that end here, for those whose peers or whose own rules split them. `None`: none is split, whoever asks.
    /// Default: some, see there.
    pub tcp_split: Option<TcpSplitConfig>,
}

impl EngineConfig {
    /// An IP packet so long fits into datagrams of 1500 bytes, over IPv6 too.
    pub const MTU_BYTES: usize = 1_400;

    /// No peers yet, and the defaults: BBR on each path, packets of up to 1400 bytes.
    #[must_use]
    pub fn new(private_key: PrivateKey) -> Self {
        let congestion = "bbr".parse().expect("BBR is built in");
        Self {
            private_key,
            peers: Vec::new(),
            mtu_bytes: Self::MTU_BYTES,
            congestion,
            has_fast_aes: false,
            tcp_split: Some(TcpSplitConfig::default()),
        }
    }
}

/// Settings of a peer.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// Who it is.
    pub public_key: PublicKey,
    /// A secret that both know beforehand.
    pub preshared_key: PresharedKey,
    /// The addresses behind it.
    pub allowed_ips: Vec<Network>,
    /// How packets to it are treated.
    pub rules: Rules,
}

impl PeerConfig {
    /// A peer with this key, and no addresses yet.
    #[must_use]
    pub fn new(public_key: PublicKey) -> Self {
        let preshared_key = PresharedKey::default();
        Self { public_key, preshared_key, allowed_ips: Vec::new(), rules: Rules::default() }
    }
}
