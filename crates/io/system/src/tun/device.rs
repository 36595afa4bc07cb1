use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

/// Settings of a TUN device.
#[derive(Clone, Debug)]
pub struct TunConfig {
    /// Its name, at most 15 bytes; `%d` in it becomes a free number. Default `polypath%d`.
    pub name: String,
    /// Queues: each can be read by a thread of its own. Default 1.
    pub queues: u16,
    /// Whether the kernel may hand over datagrams of UDP unsegmented, up to 64 KB in one frame (`VIRTIO_NET_HDR_GSO_UDP_L4`), where it can (Linux
    /// 6.2); [`Tun::segments_udp`] tells. Default false.
    pub udp_segmentation: bool,
}

impl Default for TunConfig {
    fn default() -> Self {
        Self { name: "polypath%d".to_string(), queues: 1, udp_segmentation: false }
    }
}

/// Why there is no TUN device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunError {
    /// The device node is missing.
    #[error(
        "/dev/net/tun is missing: load the kernel module with `modprobe tun`, or pass the device into the container"
    )]
    Missing,
    /// The process may not make one.
    #[error("a TUN device needs the capability CAP_NET_ADMIN: run as root, or choose engine udp or kernel")]
    Permission,
    /// The process may not open the device node.
    #[error(
        "this user may not open /dev/net/tun: expected its mode to be 0666 (`sudo chmod 0666 /dev/net/tun`), or root, or engine udp or kernel"
    )]
    Forbidden,
    /// Another process has it.
    #[error("the TUN device {0} is in use by another process; choose another name")]
    Busy(String),
    /// Not a name of an interface.
    #[error("{0:?} is no name for an interface: expected 1 to 15 bytes without slash and space")]
    Name(String),
    /// Anything else.
    #[error("can't make the TUN device {name}: {error}")]
    Io {
        /// Its name.
        name: String,
        /// What the system said.
        error: io::Error,
    },
}

/// A TUN device; it vanishes with the last clone.
#[derive(Clone, Debug)]
pub struct Tun {
    name: String,
    queues: Vec<Arc<OwnedFd>>,
    segments_udp: bool,
}

impl Tun {
    /// Makes a device in the calling thread's network namespace.
    pub fn create(config: &TunConfig) -> Result<Self, TunError> {
        let bytes = config.name.as_bytes();
        if bytes.is_empty() || bytes.len() > 15 || config.name.contains(['/', ' ', '\0']) {
            return Err(TunError::Name(config.name.clone()));
        }
        let mut tun =
            Self { name: config.name.clone(), queues: Vec::new(), segments_udp: config.udp_segmentation };
        for _ in 0..config.queues.max(1) {
            let (queue, name) = open_queue(&tun.name, config.queues > 1)?;
            tun.segments_udp = tun.segments_udp && may_segment_udp(&queue);
            tun.name = name;
            tun.queues.push(Arc::new(queue));
        }
        Ok(tun)
    }

    /// A descriptor of the device, for a process that answers when this one can't.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.queues[0].try_clone()
    }

    /// The device behind a descriptor that another process made it with, by [`Tun::create`] and one queue.
    #[must_use]
    pub fn from_queue(name: &str, queue: OwnedFd) -> Self {
        Self { name: name.to_string(), queues: vec![Arc::new(queue)], segments_udp: false }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether frames with many datagrams of UDP come from it, and may be written to it.
    #[must_use]
    pub fn segments_udp(&self) -> bool {
        self.segments_udp
    }

    /// Its queues' descriptors, not blocking.
    pub fn queues(&self) -> &[Arc<OwnedFd>] {
        &self.queues
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queues[0].as_fd()
    }
}

fn open_queue(name: &str, is_one_of_several: bool) -> Result<(OwnedFd, String), TunError> {
    let into_error = |errno: io::Error| match errno.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => TunError::Missing,
        Some(libc::EPERM | libc::EACCES) => TunError::Permission,
        Some(libc::EBUSY) => TunError::Busy(name.to_string()),
        _ => TunError::Io { name: name.to_string(), error: errno },
    };
    let queue =
        rustix::fs::open("/dev/net/tun", OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
            .map_err(|errno| match errno {
                rustix::io::Errno::ACCESS | rustix::io::Errno::PERM => TunError::Forbidden,
                errno => into_error(errno.into()),
            })?;
    let mut flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if is_one_of_several {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    let name = attach(&queue, name, flags).map_err(into_error)?;
    set_offloads(&queue, OFFLOADS).map_err(into_error)?;
    Ok((queue, name))
}

/// What every kernel of today leaves to us.
const OFFLOADS: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;

/// Asks the kernel to leave the segmentation of UDP to us as well. Before Linux 6.2 it refuses, and all stays as it was.
fn may_segment_udp(queue: &OwnedFd) -> bool {
    set_offloads(queue, OFFLOADS | libc::TUN_F_USO4 | libc::TUN_F_USO6).is_ok()
}

/// `TUNSETIFF`: the device of that name, made if it isn't there. Returns the name that it got.
#[allow(unsafe_code)]
fn attach(queue: &OwnedFd, name: &str, flags: libc::c_int) -> io::Result<String> {
    // SAFETY: an ifreq of zeros is a valid one: numbers, and bytes of a name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which `request` is, and the descriptor is open.
    let result = unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let name = request.ifr_name.iter().take_while(|&&byte| byte != 0);
    Ok(name.map(|&byte| char::from(byte as u8)).collect())
}

/// `TUNSETOFFLOAD`: what the kernel may leave to us.
#[allow(unsafe_code)]
fn set_offloads(queue: &OwnedFd, offloads: libc::c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value, and the descriptor is open.
    let result =
        unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use polypath_testbed::is_root_or_skip;

    use super::*;
    use crate::{Namespace, Netlink};

    #[test]
    fn a_device_comes_and_goes() {
        if !is_root_or_skip("TUN device") {
            return;
        }
        let namespace = Namespace::create().unwrap();
        namespace
            .run(|| {
                let tun = Tun::create(&TunConfig { queues: 2, ..TunConfig::default() }).unwrap();
                assert_eq!(tun.name(), "polypath0");
                let netlink = Netlink::new().unwrap();
                netlink.set_up("polypath0").unwrap();
                let again = TunConfig { name: "polypath0".to_string(), ..TunConfig::default() };
                assert!(Tun::create(&again).is_err());
                drop(tun);
                assert_eq!(netlink.link_index("polypath0").unwrap_err().kind(), io::ErrorKind::NotFound);
            })
            .unwrap();
    }

    /// A kernel before 6.2 refuses the flags; the device is there all the same.
    #[test]
    fn udp_is_segmented_where_it_is_asked_for_and_known() {
        if !is_root_or_skip("TUN device") {
            return;
        }
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
        let is_known = (numbers.next(), numbers.next()) >= (Some(6), Some(2));
        let namespace = Namespace::create().unwrap();
        namespace
            .run(|| {
                let plain = Tun::create(&TunConfig::default()).unwrap();
                assert!(!plain.segments_udp());
                for queues in [1, 2] {
                    let config = TunConfig { queues, udp_segmentation: true, ..TunConfig::default() };
                    assert_eq!(Tun::create(&config).unwrap().segments_udp(), is_known, "Linux {release}");
                }
            })
            .unwrap();
    }

    #[test]
    fn a_bad_name_is_refused_before_the_system_is_asked() {
        for name in ["", "much-too-long-a-name", "a/b"] {
            let config = TunConfig { name: name.to_string(), ..TunConfig::default() };
            assert!(matches!(Tun::create(&config), Err(TunError::Name(_))), "{name}");
        }
    }
}
