//! An honest client that comes along while a crowd is there.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use polypath_system::Namespace;
use serde::Serialize;

use super::super::client::{Service, Way};
use super::super::figures::Times;
use crate::bench::outcome::monotonic_s;

/// Between two times that it comes.
const PASSING: Duration = Duration::from_millis(50);
/// What it asks and is answered.
const WORDS_BYTES: usize = 64;

/// From the call of `connect` until the answer to the first bytes is there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Delay {
    pub(crate) median: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    pub(crate) times: usize,
}

impl Delay {
    pub(super) fn of(waits: &[Wait]) -> Self {
        let times = Times::of(waits.iter().map(|wait| wait.ms / 1e3).collect());
        let ms = |percent| times.percentile_us(percent) / 1e3;
        Self { median: ms(50.0), p99: ms(99.0), max: ms(100.0), times: times.count() }
    }
}

/// One of these times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Wait {
    pub(crate) service: Service,
    /// When it began.
    pub(crate) at_s: f64,
    pub(crate) ms: f64,
}

/// A client that comes again and again, asks one thing and goes.
pub(super) struct PasserBy {
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<io::Result<io::Result<Vec<Wait>>>>,
}

impl PasserBy {
    pub(super) fn begin(client: &Namespace, origin: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, client) = (is_over.clone(), client.clone());
        let thread = thread::spawn(move || client.run(|| pass_by(origin, &over)));
        Self { is_over, thread }
    }

    pub(super) fn end(self) -> io::Result<Vec<Wait>> {
        self.is_over.store(true, Relaxed);
        self.thread.join().map_err(|_| io::Error::other("a thread of a client died"))??
    }
}

fn pass_by(origin: SocketAddr, is_over: &AtomicBool) -> io::Result<Vec<Wait>> {
    let mut waits = Vec::new();
    for service in Service::ALL.into_iter().cycle() {
        if is_over.load(Relaxed) {
            break;
        }
        let at_s = monotonic_s();
        let mut stream = Way { service: Some(service), origin }.connect()?;
        stream.write_all(&[7; WORDS_BYTES])?;
        stream.read_exact(&mut [0; WORDS_BYTES])?;
        waits.push(Wait { service, at_s, ms: (monotonic_s() - at_s) * 1e3 });
        stream.shutdown(Shutdown::Write)?;
        if stream.read(&mut [0])? != 0 {
            return Err(io::Error::other("an answer was longer than its question"));
        }
        thread::sleep(PASSING);
    }
    Ok(waits)
}
