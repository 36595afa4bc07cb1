//! One interface: everything that comes in at it, and frames out of it, past the kernel's own network stack.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use socket2::{Domain, Protocol, Socket, Type};

use super::error::EmulateError;
use super::frame::{Cutter, Frame};

// Not in every version of the C library's headers (linux/if_packet.h, linux/ethtool.h).
const PACKET_ADD_MEMBERSHIP: libc::c_int = 1;
const PACKET_STATISTICS: libc::c_int = 6;
const PACKET_VNET_HDR: libc::c_int = 15;
const PACKET_QDISC_BYPASS: libc::c_int = 20;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
const PACKET_MR_PROMISC: u16 = 1;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;
const ARPHRD_ETHER: u16 = 1;

/// Frames that one system call takes in or gives out.
const BATCH: usize = 64;
/// Longest aggregate, virtio and Ethernet header included. Longer ones exist ("BIG TCP") where an administrator wants them.
const SLOT_BYTES: usize = 68 * 1024;
/// What may wait in the kernel until this process reads it: 0.1 s at 1 Gbit/s, and what the kernel counts on top.
const BUFFER_BYTES: libc::c_int = 64 << 20;
/// Frames that may wait until a full interface takes them.
const OUTBOX_FRAMES: usize = 4096;

/// What went wrong with frames at an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStatistics {
    /// Frames that came and were dropped by the kernel, because this process was too slow.
    pub missed_frames: u64,
    /// Frames that came and were too long to be read or made no sense.
    pub unreadable_frames: u64,
    /// Frames that the interface did not take: it was down or full, or they were longer than its MTU.
    pub refused_frames: u64,
}

/// An open interface.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) name: String,
    receiver: Socket,
    sender: Socket,
    cutter: Cutter,
    slots: Vec<u8>,
    outbox: VecDeque<Frame>,
    statistics: PortStatistics,
    /// It went down, and has not been seen up since.
    pub(super) is_down: bool,
    /// Generic receive offload was on, and is to be on again.
    restore_gro: bool,
    /// Held as long as the port: no other emulation gets it.
    _claim: UnixDatagram,
}

/// Claims an interface of the calling thread's namespace. Abstract names are the namespace's own, and are free when their process has ended in
/// any way.
fn claim(index: u32) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(format!("polypath-emulate-{index}"))?)
}

impl Port {
    /// Opens an interface of the calling thread's namespace.
    pub(super) fn open(name: &str) -> Result<Self, EmulateError> {
        let failed = |what: &'static str| {
            move |error: io::Error| EmulateError::Interface { name: name.into(), what, error }
        };
        let raw = || {
            Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0))).map_err(|error| {
                match error.kind() {
                    io::ErrorKind::PermissionDenied => EmulateError::Permission,
                    _ => failed("no packet socket")(error),
                }
            })
        };
        let (receiver, sender) = (raw()?, raw()?);
        let index = rustix::net::netdevice::name_to_index(&receiver, name)
            .map_err(|_| EmulateError::Missing { name: name.into() })?;
        if hardware_type(&receiver, name).map_err(failed("no hardware address"))? != ARPHRD_ETHER {
            return Err(EmulateError::NotEthernet { name: name.into() });
        }
        if !is_up(&receiver, name).map_err(failed("no flags"))? {
            return Err(EmulateError::Down { name: name.into() });
        }
        let claim = claim(index).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => EmulateError::Busy { name: name.into() },
            _ => failed("can't be claimed")(error),
        })?;
        for socket in [&receiver, &sender] {
            socket.set_nonblocking(true).map_err(failed("can't be polled"))?;
        }
        // Aggregates of received segments are no packets of the wire, and cutting them again would be a guess.
        let restore_gro = ethtool(&receiver, name, ETHTOOL_GGRO, 0).is_ok_and(|value| value != 0)
            && ethtool(&receiver, name, ETHTOOL_SGRO, 0).is_ok();
        let port = Self {
            name: name.into(),
            receiver,
            sender,
            cutter: Cutter::default(),
            slots: vec![0; BATCH * SLOT_BYTES],
            outbox: VecDeque::new(),
            statistics: PortStatistics::default(),
            is_down: false,
            restore_gro,
            _claim: claim,
        };
        port.prepare(index).map_err(failed("can't be opened"))?;
        Ok(port)
    }

    fn prepare(&self, index: u32) -> io::Result<()> {
        // Its own frames would come back as received ones.
        set_option(&self.receiver, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1)?;
        set_option(&self.receiver, libc::SOL_PACKET, PACKET_VNET_HDR, &1)?;
        set_option(&self.receiver, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1)?;
        // Beyond the system's limit where that is allowed, else up to it.
        if set_option(&self.receiver, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &BUFFER_BYTES).is_err() {
            set_option(&self.receiver, libc::SOL_SOCKET, libc::SO_RCVBUF, &BUFFER_BYTES)?;
        }
        if set_option(&self.sender, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &BUFFER_BYTES).is_err() {
            set_option(&self.sender, libc::SOL_SOCKET, libc::SO_SNDBUF, &BUFFER_BYTES)?;
        }
        // No queue but the emulated one. Not every driver allows it.
        let _ = set_option(&self.sender, libc::SOL_PACKET, PACKET_QDISC_BYPASS, &1);
        let promiscuous = libc::packet_mreq {
            mr_ifindex: index as libc::c_int,
            mr_type: PACKET_MR_PROMISC,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set_option(&self.receiver, libc::SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous)?;
        bind(&self.sender, 0, index)?;
        bind(&self.receiver, (libc::ETH_P_ALL as u16).to_be(), index)
    }

    /// Takes in a batch of frames, each with how long ago it came. True if there may be more.
    pub(super) fn receive(&mut self, mut each: impl FnMut(Duration, Frame)) -> io::Result<bool> {
        /// Room for a time stamp.
        #[repr(C, align(8))]
        struct Control([u8; 64]);
        let mut control = [const { Control([0; 64]) }; BATCH];
        let mut slices: Vec<libc::iovec> = Vec::with_capacity(BATCH);
        let mut messages: Vec<libc::mmsghdr> = Vec::with_capacity(BATCH);
        for slot in self.slots.chunks_mut(SLOT_BYTES) {
            slices.push(libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: SLOT_BYTES });
        }
        for (slice, control) in slices.iter_mut().zip(&mut control) {
            messages.push(message(slice, Some(&mut control.0)));
        }
        // SAFETY: each message points to its own slot and control buffer, which outlive the call, with their lengths.
        #[allow(unsafe_code)]
        let count = unsafe {
            libc::recvmmsg(
                self.receiver.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return if would_block(&error) { Ok(false) } else { Err(error) };
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for (message, slot) in messages.iter().zip(self.slots.chunks(SLOT_BYTES)).take(count) {
            let received = slot.get(..message.msg_len as usize).unwrap_or_default();
            let is_whole = message.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
            let age = time_stamp(&message.msg_hdr).map_or(Duration::ZERO, |at| now.saturating_sub(at));
            // The system's clock may be set; the kernel keeps nothing for us that long.
            let age = if age > Duration::from_secs(1) { Duration::ZERO } else { age };
            if !is_whole || !self.cutter.cut(received, |frame| each(age, frame)) {
                self.statistics.unreadable_frames += 1;
            }
        }
        Ok(count == BATCH)
    }

    /// Gives a frame out; [`Self::flush`] does it.
    pub(super) fn push(&mut self, frame: Frame) {
        if self.outbox.len() < OUTBOX_FRAMES {
            self.outbox.push_back(frame);
        } else {
            self.statistics.refused_frames += 1;
        }
    }

    /// Gives out what waits; what an interface that is full does not take waits on.
    pub(super) fn flush(&mut self) {
        while !self.outbox.is_empty() {
            let mut slices: Vec<libc::iovec> = Vec::with_capacity(BATCH);
            let mut messages: Vec<libc::mmsghdr> = Vec::with_capacity(BATCH);
            for Frame { bytes, .. } in self.outbox.iter().take(BATCH) {
                slices.push(libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() });
            }
            for slice in &mut slices {
                messages.push(message(slice, None));
            }
            // SAFETY: each message points to the bytes of a frame in the outbox, which stays as it is during the call and
            // which sendmmsg only reads.
            #[allow(unsafe_code)]
            let sent = unsafe {
                libc::sendmmsg(
                    self.sender.as_raw_fd(),
                    messages.as_mut_ptr(),
                    messages.len() as libc::c_uint,
                    libc::MSG_DONTWAIT,
                )
            };
            match usize::try_from(sent) {
                Ok(sent) => drop(self.outbox.drain(..sent)),
                Err(_) => match io::Error::last_os_error() {
                    error if would_block(&error) || error.raw_os_error() == Some(libc::ENOBUFS) => return,
                    _ => {
                        self.outbox.pop_front();
                        self.statistics.refused_frames += 1;
                    }
                },
            }
        }
    }

    /// Frames wait for the interface.
    pub(super) fn is_full(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// True if the interface is there no more.
    pub(super) fn is_gone(&self) -> bool {
        rustix::net::netdevice::name_to_index(&self.receiver, &self.name).is_err()
    }

    pub(super) fn is_up(&self) -> bool {
        is_up(&self.receiver, &self.name).unwrap_or(false)
    }

    pub(super) fn statistics(&mut self) -> PortStatistics {
        // Reading sets the kernel's counters to zero.
        let mut counters = [0u32; 2];
        let mut len = size_of_val(&counters) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, the size of `tpacket_stats`: two u32.
        #[allow(unsafe_code)]
        let result = unsafe {
            libc::getsockopt(
                self.receiver.as_raw_fd(),
                libc::SOL_PACKET,
                PACKET_STATISTICS,
                counters.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        if result == 0 {
            self.statistics.missed_frames += u64::from(counters[1]);
        }
        self.statistics
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if self.restore_gro {
            // An interface that is gone needs nothing restored.
            let _ = ethtool(&self.receiver, &self.name, ETHTOOL_SGRO, 1);
        }
    }
}

fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn message(slice: &mut libc::iovec, control: Option<&mut [u8]>) -> libc::mmsghdr {
    // SAFETY: `mmsghdr` is numbers and pointers, for which zero is a value.
    #[allow(unsafe_code)]
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_iov = slice;
    message.msg_hdr.msg_iovlen = 1;
    if let Some(control) = control {
        message.msg_hdr.msg_control = control.as_mut_ptr().cast();
        message.msg_hdr.msg_controllen = control.len() as _;
    }
    message
}

/// When the kernel got a frame, since the epoch.
fn time_stamp(header: &libc::msghdr) -> Option<Duration> {
    // SAFETY: the kernel has filled the control buffer and set its length; CMSG_FIRSTHDR returns null or a whole header in
    // it, behind which there is a `timespec` if the type says so.
    #[allow(unsafe_code)]
    let time = unsafe {
        let first = libc::CMSG_FIRSTHDR(header).as_ref()?;
        if (first.cmsg_level, first.cmsg_type) != (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) {
            return None;
        }
        libc::CMSG_DATA(first).cast::<libc::timespec>().read_unaligned()
    };
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

fn set_option<T>(socket: &Socket, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as the value has.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn bind(socket: &Socket, protocol: u16, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol,
        sll_ifindex: index as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the address is what an AF_PACKET socket expects, with its length.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            std::ptr::from_ref(&address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A request about an interface, by name.
fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is numbers and pointers, for which zero is a value.
    #[allow(unsafe_code)]
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn control(socket: &Socket, number: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: these requests read and write an `ifreq`, and for SIOCETHTOOL what its pointer leads to, which is the caller's.
    #[allow(unsafe_code)]
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), number as _, std::ptr::from_mut(request)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn hardware_type(socket: &Socket, name: &str) -> io::Result<u16> {
    let mut request = request(name)?;
    control(socket, libc::SIOCGIFHWADDR as _, &mut request)?;
    // SAFETY: SIOCGIFHWADDR has written this field.
    #[allow(unsafe_code)]
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    Ok(address.sa_family)
}

fn is_up(socket: &Socket, name: &str) -> io::Result<bool> {
    let mut request = request(name)?;
    control(socket, libc::SIOCGIFFLAGS as _, &mut request)?;
    // SAFETY: SIOCGIFFLAGS has written this field.
    #[allow(unsafe_code)]
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(libc::c_int::from(flags) & libc::IFF_UP != 0)
}

/// One ethtool word with a value in and out.
fn ethtool(socket: &Socket, name: &str, command: u32, value: u32) -> io::Result<u32> {
    let mut words = [command, value];
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    control(socket, libc::SIOCETHTOOL as _, &mut request)?;
    Ok(words[1])
}
