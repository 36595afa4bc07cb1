//! The thread between inside and outside.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use polypath_system::WallClock;
use polypath_system::tun::Tun;
use polypath_units::{Duration, Instant};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::command::{self, Handle};
use super::device::Device;
use super::losses::{self, OwnLosses};
use super::sockets::{SocketId, Sockets};

use crate::engine::{Engine, Random};
use crate::transmit::LocalId;

/// Frames that are read from the device before datagrams get their turn.
const MOST_FRAMES: usize = 8;
/// Without anything to do, the thread looks at itself so often.
const MOST_SLEEP: Duration = Duration::from_secs(60);

/// The driver's first moment: a second after zero, so that spans may reach back.
const BEGIN: Instant = Instant::from_secs(1);

/// Random bytes of the system.
#[must_use]
pub fn system_random() -> Random {
    Box::new(|bytes| {
        let mut filled = 0;
        while filled < bytes.len() {
            match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                // The system call is as old as the kernels that have what a tunnel needs.
                Err(error) => panic!("no random bytes: {error}"),
            }
        }
    })
}

/// Whether the processor has instructions for AES-GCM.
#[must_use]
pub fn has_fast_aes() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    let has = std::is_x86_feature_detected!("aes") && std::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    let has = std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    let has = false;
    has
}

/// What an [`Engine`] calls the time at its beginning, for one that this driver runs.
#[must_use]
pub fn zero_since_1970() -> Duration {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let (seconds, nanos) = (u64::try_from(since.tv_sec).unwrap_or(0), since.tv_nsec.unsigned_abs());
    (Duration::from_secs(seconds) + Duration::from_nanos(nanos)).saturating_sub(BEGIN.since(Instant::ZERO))
}

/// Runs an engine.
pub struct Driver {
    engine: Engine,
    device: Device,
    sockets: Sockets,
    commands: command::Receiver<Driver>,
    clock: WallClock,
    /// Datagrams on their way out.
    outgoing: Vec<u8>,
}

impl Driver {
    /// A driver between a device and sockets, which [`Driver::open_socket`] makes.
    pub fn new(engine: Engine, tun: Tun) -> io::Result<(Self, Handle<Self>)> {
        let (handle, commands) = command::channel()?;
        let driver = Self {
            engine,
            device: Device::new(tun),
            sockets: Sockets::new(),
            commands,
            clock: WallClock::starting_at(BEGIN),
            outgoing: Vec::with_capacity(1 << 16),
        };
        Ok((driver, handle))
    }

    /// The engine, and the time that it is told.
    pub fn engine(&mut self) -> (&mut Engine, Instant) {
        (&mut self.engine, self.clock.now())
    }

    /// A UDP socket on a port, 0 for any; with an interface, bound to that.
    pub fn open_socket(&mut self, is_v4: bool, port: u16, interface: Option<&str>) -> io::Result<SocketId> {
        self.sockets.open(is_v4, port, interface)
    }

    /// Closes one.
    pub fn close_socket(&mut self, socket: SocketId) {
        self.sockets.close(socket);
    }

    /// What the engine calls a socket.
    #[must_use]
    pub fn local_id(&mut self, socket: SocketId) -> LocalId {
        self.sockets.local_id(socket, None)
    }

    /// What was lost between the engine and the network, as far as it is known here.
    #[must_use]
    pub fn losses(&self) -> OwnLosses {
        let (unwritten_packets, malformed_frames) = self.device.losses();
        OwnLosses {
            unsent_datagrams: self.sockets.unsent(),
            unwritten_packets,
            malformed_frames,
            inodes: losses::inodes(self.sockets.descriptors()),
            device: self.device.name().to_owned(),
        }
    }

    /// The port of a socket.
    pub fn port(&self, socket: SocketId) -> io::Result<u16> {
        self.sockets.port(socket)
    }

    /// Runs until it is told to stop, in the calling thread.
    pub fn run(mut self) -> io::Result<()> {
        loop {
            if self.run_commands() {
                return self.leave();
            }
            let had_frames = self.read_device()?;
            let had_datagrams = self.read_sockets()?;
            let now = self.clock.now();
            let device = &mut self.device;
            if self.engine.poll_timeout().is_some_and(|at| at <= now) {
                self.engine.handle_timeout(now, &mut |packet| device.push(packet));
                self.device.flush()?;
            }
            self.transmit();
            if !had_frames && !had_datagrams {
                self.sleep()?;
            }
        }
    }

    /// Runs what others asked for. True if it is over.
    fn run_commands(&mut self) -> bool {
        while let Some(command) = self.commands.next() {
            match command {
                Some(command) => command(self),
                None => return true,
            }
        }
        false
    }

    fn leave(mut self) -> io::Result<()> {
        let now = self.clock.now();
        self.engine.leave(now);
        self.transmit();
        Ok(())
    }

    fn read_device(&mut self) -> io::Result<bool> {
        let now = self.clock.now();
        let engine = &mut self.engine;
        let mut frames = 0;
        while frames < MOST_FRAMES && self.device.read(&mut |packet| engine.handle_packet(now, packet))? {
            frames += 1;
            // What paths can take leaves before more is read: less waits, and it is still in the caches.
            Self::send_all(engine, now, &mut self.outgoing, &mut self.sockets);
        }
        Ok(frames > 0)
    }

    fn read_sockets(&mut self) -> io::Result<bool> {
        let (engine, device, clock) = (&mut self.engine, &mut self.device, &self.clock);
        let had_some = self.sockets.receive(&mut |local, remote, datagrams| {
            let now = clock.now();
            for datagram in datagrams {
                engine.handle_datagram(now, local, remote, datagram, &mut |packet| device.push(packet));
            }
        })?;
        self.device.flush()?;
        Ok(had_some)
    }

    fn transmit(&mut self) {
        let now = self.clock.now();
        Self::send_all(&mut self.engine, now, &mut self.outgoing, &mut self.sockets);
    }

    fn send_all(engine: &mut Engine, now: Instant, outgoing: &mut Vec<u8>, sockets: &mut Sockets) {
        loop {
            outgoing.clear();
            let Some(transmit) = engine.poll_transmit(now, outgoing) else { return };
            sockets.send(&transmit, outgoing);
        }
    }

    /// Waits for something to do.
    fn sleep(&mut self) -> io::Result<()> {
        let now = self.clock.now();
        let until = self.engine.poll_timeout().unwrap_or(now + MOST_SLEEP);
        let span = until.since(now).min(MOST_SLEEP);
        if span.is_zero() {
            return Ok(());
        }
        let timeout = Timespec {
            tv_sec: (span.as_nanos() / 1_000_000_000) as i64,
            tv_nsec: (span.as_nanos() % 1_000_000_000) as i64,
        };
        let inside: BorrowedFd<'_> = self.device.as_fd();
        let mut watched = vec![
            PollFd::from_borrowed_fd(inside, PollFlags::IN),
            PollFd::from_borrowed_fd(self.commands.as_fd(), PollFlags::IN),
        ];
        watched.extend(self.sockets.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        match rustix::event::poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
