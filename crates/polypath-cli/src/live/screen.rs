//! The view on a terminal. It wakes up for each sample and each key, and not between them.

use std::fs::{File, OpenOptions};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use polypath_system::console::{self, Held};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use tokio::sync::oneshot;

use super::draw::{Surroundings, draw};
use super::proxies::ProxySample;
use super::view::{Key, Sample, View};

/// What stacks and proxies told at one time.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub(crate) stacks: Vec<Sample>,
    pub(crate) proxies: Vec<ProxySample>,
}

/// What asks the stacks, once for each sample.
pub(crate) type Sampler = Box<dyn FnMut() -> Samples + Send>;

/// The process has a terminal, wherever its output goes.
pub(crate) fn has_terminal() -> bool {
    tty().is_ok()
}

fn tty() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty")
}

/// A view on the process's terminal, which is as it was when this is dropped. What the command prints there meanwhile comes
/// afterwards.
#[derive(Debug)]
pub(crate) struct Screen {
    drawing: Arc<Mutex<Option<Drawing>>>,
    quit: oneshot::Receiver<()>,
}

#[derive(Debug)]
struct Drawing {
    terminal: Terminal<CrosstermBackend<File>>,
    view: View,
    around: Surroundings,
    held: Held,
}

impl Screen {
    /// Draws a sample after each interval.
    pub(crate) fn open(title: &str, interval: Duration, sampler: Sampler) -> io::Result<Self> {
        let mut tty = tty()?;
        restore_before_panics();
        enable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::Relaxed);
        let terminal = execute!(tty, EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(tty)))
            .inspect_err(|_| {
                IS_TAKEN.store(false, Ordering::Relaxed);
                let _ = disable_raw_mode();
            })?;
        let is_coloured = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let around = Surroundings { title: title.into(), is_coloured, message: None };
        let drawing = Drawing { terminal, view: View::default(), around, held: console::hold() };
        let drawing = Arc::new(Mutex::new(Some(drawing)));
        let (quitting, quit) = oneshot::channel();
        let drawn = drawing.clone();
        std::thread::spawn(move || {
            // Without a terminal any more, there is nobody to tell.
            let _ = follow(&drawn, interval, sampler);
            close(&drawn);
            let _ = quitting.send(());
        });
        Ok(Self { drawing, quit })
    }

    /// Waits until somebody wants it closed.
    pub(crate) async fn quit(&mut self) {
        let _ = (&mut self.quit).await;
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        close(&self.drawing);
    }
}

fn lock(drawing: &Mutex<Option<Drawing>>) -> MutexGuard<'_, Option<Drawing>> {
    drawing.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A view has the terminal.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// A panic ends the process where nothing is dropped any more, and what it says is for a terminal that can be read. Whoever panics
/// may hold the view.
fn restore_before_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if IS_TAKEN.swap(false, Ordering::Relaxed) {
                if let Ok(mut tty) = tty() {
                    let _ = execute!(tty, LeaveAlternateScreen, Show);
                }
                let _ = disable_raw_mode();
            }
            before(info);
        }));
    });
}

fn close(drawing: &Mutex<Option<Drawing>>) {
    let Some(mut open) = lock(drawing).take() else { return };
    IS_TAKEN.store(false, Ordering::Relaxed);
    // A terminal that has gone needs no care.
    let _ = execute!(open.terminal.backend_mut(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
    drop(open.held);
}

/// Samples and keys, until the view is closed.
fn follow(drawing: &Mutex<Option<Drawing>>, interval: Duration, mut sampler: Sampler) -> io::Result<()> {
    let started = Instant::now();
    loop {
        let next = Instant::now() + interval;
        let samples = sampler();
        {
            let mut drawing = lock(drawing);
            let Some(open) = drawing.as_mut() else { return Ok(()) };
            open.view.handle_samples(started.elapsed(), &samples.stacks);
            open.view.handle_proxies(started.elapsed(), &samples.proxies);
            open.draw()?;
        }
        while let Some(left) = next.checked_duration_since(Instant::now()) {
            // Not under the lock: whoever closes the view does not wait for a key.
            if !event::poll(left)? {
                break;
            }
            let event = event::read()?;
            let mut drawing = lock(drawing);
            let Some(open) = drawing.as_mut() else { return Ok(()) };
            match event {
                Event::Key(key) if key.kind != KeyEventKind::Release => match meaning(key) {
                    Some(Meaning::View(key)) => open.view.handle_key(key),
                    Some(Meaning::Quit) => return Ok(()),
                    Some(Meaning::Interrupt) => {
                        interrupt();
                        return Ok(());
                    }
                    None => {}
                },
                Event::Resize(..) => {}
                _ => continue,
            }
            open.draw()?;
        }
    }
}

impl Drawing {
    fn draw(&mut self) -> io::Result<()> {
        self.around.message = self.held.latest();
        let Self { terminal, view, around, .. } = self;
        terminal.draw(|frame| draw(frame, view, around))?;
        Ok(())
    }
}

enum Meaning {
    View(Key),
    Quit,
    Interrupt,
}

fn meaning(key: KeyEvent) -> Option<Meaning> {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if is_control => Meaning::Interrupt,
        KeyCode::Char('q') | KeyCode::Esc => Meaning::Quit,
        KeyCode::Up | KeyCode::Char('k') => Meaning::View(Key::Up),
        KeyCode::Down | KeyCode::Char('j') => Meaning::View(Key::Down),
        KeyCode::Char('p') => Meaning::View(Key::Pause),
        KeyCode::Char('s') => Meaning::View(Key::Sort),
        _ => return None,
    })
}

/// What the terminal would have done, had it not been for the view.
fn interrupt() {
    let own = rustix::process::getpid();
    let _ = rustix::process::kill_process(own, rustix::process::Signal::INT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_gives_the_terminal_back() {
        restore_before_panics();
        IS_TAKEN.store(true, Ordering::Relaxed);
        let panicked = std::panic::catch_unwind(|| panic!("as it should not"));
        assert!(panicked.is_err() && !IS_TAKEN.load(Ordering::Relaxed));
    }
}
