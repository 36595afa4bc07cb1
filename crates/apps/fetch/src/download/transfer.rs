//! One file under way from one URL.

mod answers;
mod brought;
mod held;
mod mirrors;
mod paths;
mod piecewise;
mod shorter;
mod speeds;
mod state;
mod turn;
mod verdicts;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{self, sleep_until};

use super::error::DownloadError;
use super::options::Progress;
use super::path::{Event, Told};
use super::way::Dial;
use crate::schedule::RequestId;

pub(super) use self::state::{Ended, Transfer};

/// What paths may tell before it is dealt with: then they read no more.
const MOST_TOLD: usize = 16;
/// How often it is written down what is there.
const SAVING: Duration = Duration::from_secs(1);

impl Transfer<'_> {
    /// Fetches, until all is there or the server sends elsewhere.
    pub(super) async fn run(
        &mut self,
        ways: &mut mpsc::Receiver<Arc<dyn Dial>>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Ended, DownloadError> {
        let (events, mut told) = mpsc::channel(MOST_TOLD);
        self.events = events;
        for number in 0..self.ways.len() {
            self.add_path(number, self.sources.lead(), self.url.clone(), 0)?;
        }
        while let Ok(way) = ways.try_recv() {
            self.add_way(way)?;
        }
        let mut saving = time::interval(SAVING);
        let mut has_more_ways = true;
        let outcome = loop {
            self.engage(progress);
            self.ask();
            if self.schedule.is_complete() {
                break Ok(Ended::Complete);
            }
            let too_late = self.options.most_time.map(|most| self.began + most);
            let handled = tokio::select! {
                biased;
                () = &mut stop => Err(DownloadError::Interrupted { kept: None }),
                error = self.wait_for_the_end() => Err(error),
                _ = saving.tick() => match self.save() {
                    Ok(()) => self.judge_speeds(progress).map(|()| None),
                    Err(error) => Err(error),
                },
                () = self.wait_for_verdict() => self.conclude(progress).await,
                () = sleep_until(self.paused_until.unwrap_or(self.began)), if self.paused_until.is_some() => {
                    self.paused_until = None;
                    Ok(None)
                }
                // Whoever takes the file may be in no hurry.
                Some(event) = told.recv(), if self.paused_until.is_none() => tokio::select! {
                    biased;
                    () = &mut stop => Err(DownloadError::Interrupted { kept: None }),
                    () = sleep_until(too_late.unwrap_or(self.began)), if too_late.is_some() => {
                        Err(DownloadError::TooLong(self.options.most_time.unwrap_or_default()))
                    }
                    handled = self.handle(event, progress) => handled,
                },
                way = ways.recv(), if has_more_ways => {
                    match way {
                        Some(way) => self.add_way(way).map(|()| None),
                        None => {
                            has_more_ways = false;
                            let nothing = || DownloadError::Unreachable(vec!["no interface leads there".into()]);
                            if self.paths.is_empty() { Err(nothing()) } else { Ok(None) }
                        }
                    }
                }
                () = self.wait_for_timeout() => {
                    self.handle_timeout(progress);
                    Ok(None)
                }
            };
            match handled {
                Ok(None) => {}
                Ok(Some(ended)) => break Ok(ended),
                Err(error) => break Err(error),
            }
        };
        if !matches!(outcome, Ok(Ended::Complete)) {
            // What it failed for is said already.
            let _ = self.save();
        }
        match outcome {
            Err(DownloadError::Interrupted { .. }) => Err(DownloadError::Interrupted { kept: self.kept() }),
            outcome => outcome,
        }
    }

    async fn wait_for_timeout(&self) {
        match self.schedule.poll_timeout() {
            Some(at) => sleep_until(self.began + Duration::from_nanos(at.as_nanos())).await,
            None => std::future::pending().await,
        }
    }

    fn handle_timeout(&mut self, progress: &mut impl FnMut(Progress)) {
        let now = self.now();
        self.schedule.handle_timeout(now);
        while let Some(gone) = self.schedule.poll_gone(now) {
            let path = &mut self.paths[gone.index()];
            path.renew(Duration::ZERO);
            let cause = format!("{}: nothing comes", path.name);
            path.cause = Some(cause.clone());
            self.tell_lost(gone.index(), cause, progress);
        }
    }

    async fn wait_for_the_end(&self) -> DownloadError {
        let silent = async {
            match self.options.silence {
                Some(silence) => sleep_until(self.last_progress + silence).await,
                None => std::future::pending().await,
            }
        };
        let too_long = async {
            match self.options.most_time {
                Some(most) => sleep_until(self.began + most).await,
                None => std::future::pending().await,
            }
        };
        let no_turn = async {
            match self.turn_ends() {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = silent => DownloadError::Stalled {
                silent_for: self.options.silence.unwrap_or_default(),
                causes: self.causes(),
            },
            () = no_turn => DownloadError::Stalled {
                silent_for: self.turned_at.max(self.last_progress).elapsed(),
                causes: self.causes(),
            },
            () = too_long => DownloadError::TooLong(self.options.most_time.unwrap_or_default()),
        }
    }

    async fn handle(
        &mut self,
        told: Told,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Option<Ended>, DownloadError> {
        let Told { path: at, connection, event } = told;
        let now = self.now();
        let is_helper = self.is_helper(at);
        let path = &mut self.paths[at];
        match event {
            _ if path.is_out => {}
            Event::Opened { round_trip } => {
                path.connection = Some(connection);
                path.was_connected = true;
                (path.failed_in_row, path.came_bytes) = (0, 0);
                path.asked.clear();
                self.schedule.handle_opened(now, path.id);
                if let Some(round_trip) = round_trip {
                    self.schedule.note_round_trip(path.id, round_trip.into());
                }
                progress(Progress::Connected { path: path.way });
            }
            // That says over which way.
            Event::Failed { cause } => {
                path.attempts += 1;
                path.failed_in_row += 1;
                path.cause = Some(cause.clone());
                if self.is_of_no_use(at) {
                    self.drop_path(at, cause, false, progress)?;
                    return Ok(None);
                }
                let path = &self.paths[at];
                if !self.has_answer && self.schedule.only() == Some(path.id) {
                    // Others may be asked again.
                    self.schedule.set_any();
                    self.is_single = false;
                }
                self.tell_lost(at, cause, progress);
                self.check_reachable()?;
            }
            // Of an earlier connection.
            _ if path.connection != Some(connection) => {}
            Event::Lost { cause, left_unasked, is_cut_off } => {
                if is_cut_off && self.note_cut_off(at, progress)? {
                    return Ok(None);
                }
                let path = &mut self.paths[at];
                // It is asked for again.
                path.held = None;
                path.connection = None;
                self.schedule.handle_closed(now, path.id);
                if left_unasked {
                    self.schedule.note_unanswered(path.id);
                }
                if let Some(cause) = cause {
                    let cause = format!("{}: {cause}", path.name);
                    path.cause = Some(cause.clone());
                    self.tell_lost(at, cause, progress);
                }
                self.restart_if_whole(progress)?;
            }
            Event::Head { id, head, round_trip } => {
                if let Some(round_trip) = round_trip {
                    self.schedule.note_round_trip(path.id, round_trip.into());
                }
                if is_helper {
                    return self.handle_head_of_helper(at, id, &head, progress).map(|()| None);
                }
                return self.handle_head(at, id, &head, progress).await;
            }
            Event::Data { id, bytes } => {
                if !self.hold_bytes(at, id, &bytes) {
                    self.handle_data(at, id, bytes, progress).await?;
                }
            }
            Event::End { id } => {
                if !self.hold_end(at, id) {
                    self.handle_end(at, id, progress)?;
                }
            }
        }
        Ok(None)
    }

    fn handle_end(
        &mut self,
        at: usize,
        id: RequestId,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), DownloadError> {
        let Some(asked) = self.paths[at].asked.remove(&id) else { return Ok(()) };
        // The end of a refusal or the like.
        if !self.has_answer {
            return Ok(());
        }
        if self.schedule.total_bytes().is_none() {
            self.schedule.set_total_bytes(asked.start + asked.came_bytes);
        } else if self.end_of(asked).is_some_and(|end| asked.start + asked.came_bytes < end) {
            self.give_up(at, "the server sent less than it had said".into(), progress)?;
        } else {
            let path = &mut self.paths[at];
            (path.failures, path.cut_off) = (0, 0);
        }
        Ok(())
    }
}
