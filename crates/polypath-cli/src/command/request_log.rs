//! Lines for whoever reads them. Whoever reads slowly, or not at all, holds up nobody: lines go missing, and are counted.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lines that wait to be written.
const MOST_LINES: usize = 1024;
/// Longer ones are cut.
const MOST_CHARACTERS: usize = 2048;

/// Lines on their way to a thread that writes them.
#[derive(Debug)]
pub(super) struct Log {
    lines: SyncSender<String>,
    /// Lines that there was no room for since the last that there was room for.
    missing: Arc<Mutex<u64>>,
}

fn lock(missing: &Mutex<u64>) -> MutexGuard<'_, u64> {
    missing.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(missing: u64) -> String {
    format!("({missing} lines are missing: they were not read in time)")
}

/// Ends when all is written.
#[derive(Debug)]
pub(super) struct Written(Receiver<()>);

impl Log {
    /// Errors: there can be no further thread.
    pub(super) fn new(
        mut output: impl Write + Send + 'static,
        tell: impl Fn(&str) + Send + 'static,
    ) -> io::Result<(Self, Written)> {
        let (lines, waiting) = sync_channel::<String>(MOST_LINES);
        let (done, written) = sync_channel(1);
        let missing = Arc::<Mutex<u64>>::default();
        let missing_last = missing.clone();
        std::thread::Builder::new().name("log".into()).spawn(move || {
            let _done = done;
            let mut has_failed = false;
            for line in waiting {
                match writeln!(output, "{line}") {
                    Ok(()) => has_failed = false,
                    // Whoever reads it may have gone; that is no failure of ours.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                    Err(error) => {
                        if !has_failed {
                            tell(&format!(
                                "requests can't be logged: {error}; it is tried again with each line"
                            ));
                        }
                        has_failed = true;
                    }
                }
            }
            let missing = *lock(&missing_last);
            if missing > 0 {
                let _ = writeln!(output, "{}", note(missing));
            }
        })?;
        Ok((Self { lines, missing }, Written(written)))
    }

    /// Never waits.
    pub(super) fn line(&self, text: &str) {
        let mut missing = lock(&self.missing);
        if self.tell(*missing) {
            *missing = 0;
            let line = text.chars().take(MOST_CHARACTERS).collect();
            *missing += u64::from(self.lines.try_send(line).is_err());
        } else {
            *missing += 1;
        }
    }

    /// Says that lines are missing, if there is room for that.
    fn tell(&self, missing: u64) -> bool {
        missing == 0 || self.lines.try_send(note(missing)).is_ok()
    }

    /// Waits until all is written, but not longer than this.
    pub(super) fn finish(self, written: &Written, limit: Duration) {
        drop(self.lines);
        // Either way it is over.
        let _ = written.0.recv_timeout(limit);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// A reader that takes nothing until it is told to.
    struct Reader {
        go_on: Receiver<()>,
        read: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Reader {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            // The end of the other side lets it read for good.
            let _ = self.go_on.recv();
            self.read.lock().expect("one thread").extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A disk with room for nothing but some of the writes.
    struct Disk(std::vec::IntoIter<bool>);

    impl Write for Disk {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let has_room = !text.ends_with(b"\n") || self.0.next().unwrap_or(true);
            if has_room { Ok(text.len()) } else { Err(io::ErrorKind::StorageFull.into()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_is_full_is_told_once() {
        let (said, heard) = channel();
        let disk = Disk(vec![true, false, false, true, false].into_iter());
        let (log, written) = Log::new(disk, move |line| drop(said.send(line.to_string()))).expect("a thread");
        (0..6).for_each(|number| log.line(&number.to_string()));
        log.finish(&written, Duration::from_secs(60));
        let told: Vec<String> = heard.iter().collect();
        assert_eq!(told.len(), 2, "once, and once again after there was room: {told:?}");
        assert!(told[0].starts_with("requests can't be logged: no storage space; "), "{told:?}");
    }

    #[test]
    fn a_reader_that_stops_holds_up_nobody_and_is_told_what_is_missing() {
        let (hold, go_on) = channel();
        let read = Arc::new(Mutex::new(Vec::new()));
        let (log, written) = Log::new(Reader { go_on, read: read.clone() }, |_| {}).expect("a thread");
        let lines = 10 * MOST_LINES;
        for number in 0..lines {
            log.line(&format!("{number}{}", "x".repeat(2 * MOST_CHARACTERS)));
        }
        drop(hold);
        log.finish(&written, Duration::from_secs(60));
        let read = String::from_utf8(read.lock().expect("one thread").clone()).expect("UTF-8");
        // One or two are with the thread when the others have filled the room.
        let whole = read.lines().filter(|line| line.len() == MOST_CHARACTERS).count();
        assert!((MOST_LINES..=MOST_LINES + 1).contains(&whole), "{whole}");
        // Where the thread took its first line late, there was room for a first note.
        let told = |line: &str| -> Option<usize> {
            let (number, rest) = line.strip_prefix('(')?.split_once(' ')?;
            (rest == "lines are missing: they were not read in time)").then(|| number.parse().ok())?
        };
        assert_eq!(read.lines().filter_map(told).sum::<usize>(), lines - whole);
        assert!(read.lines().last().and_then(told).is_some(), "the last word is what is missing");
    }
}
