//! Answers of servers: whether they are of the stream, and what comes with them.

use std::time::Duration;

use bytes::Bytes;
use tokio::time;
use url::Url;

use super::state::Session;
use crate::answer::{Answer, Extent, Unusable};
use crate::download::redirection;
use crate::http1::Head;
use crate::schedule::{RequestId, Rest};
use crate::stream::{Arrived, UnitNumber};
use crate::streaming::error::StreamError;
use crate::streaming::line::LineId;
use crate::streaming::options::Told;
use crate::streaming::paths::{Asked, Purpose};
use crate::streaming::small::MOST_REDIRECTS;
use crate::streaming::trust::{Doubt, Facts, Found};

/// Hardly a segment is so short, and many an answer that is no segment.
const LEAST_CREDIBLE_BYTES: u64 = 256;
/// Nobody holds more of one segment.
const MOST_SEGMENT_BYTES: u64 = 256 << 20;

impl Session<'_> {
    pub(super) fn handle_head(
        &mut self,
        LineId { path: at, line }: LineId,
        id: RequestId,
        head: &Head,
        told: &mut impl FnMut(Told),
    ) -> Result<(), StreamError> {
        let Some(asked) = self.paths[at].asked_on(line, id).map(|asked| asked.clone()) else { return Ok(()) };
        if redirection::is_one(head) {
            return self.redirect(at, id, &asked, head, told);
        }
        match &asked.purpose {
            Purpose::Probe(facts) => self.handle_probe(at, &asked, facts, head, told),
            Purpose::Unit(unit) => self.handle_answer(at, id, *unit, &asked, head, told),
        }
    }

    /// A server sends elsewhere. It is asked there, with what belongs there.
    fn redirect(
        &mut self,
        at: usize,
        id: RequestId,
        asked: &Asked,
        head: &Head,
        told: &mut impl FnMut(Told),
    ) -> Result<(), StreamError> {
        let to = match redirection::to(head, asked.at()) {
            Ok(_) if asked.redirections >= MOST_REDIRECTS => {
                Err(format!("more than {MOST_REDIRECTS} redirections"))
            }
            to => to,
        };
        match to {
            Ok(to) => {
                // By http, what the path says here is not compared with anything.
                self.fields.note_cookies_if_sure(asked.at(), head);
                self.paths[at].redirect(id, to);
            }
            Err(cause) => {
                self.paths[at].forget_redirection(&asked.url);
                return self.give_up(at, fetch_error(&asked.url, cause), told);
            }
        }
        Ok(())
    }

    /// A path that is not believed says what it has of something that is known.
    fn handle_probe(
        &mut self,
        at: usize,
        asked: &Asked,
        facts: &Facts,
        head: &Head,
        told: &mut impl FnMut(Told),
    ) -> Result<(), StreamError> {
        let answer = Answer::read(head, Some(asked.range));
        // It may be gone by now, and nobody knows better.
        let is_refusal = matches!(answer, Err(Unusable::Status(_) | Unusable::NoSuchRange { .. }));
        if is_refusal && !self.trust.is_another_believed(at) {
            self.trust.believe(at);
            return Ok(());
        }
        let checked = match answer {
            Ok(answer) => self.trust.check_probe(facts, &Found::read(head, &answer)),
            Err(cause) => Err(cause.to_string()),
        };
        match checked {
            Ok(()) => {
                self.trust.believe(at);
                Ok(())
            }
            Err(cause) => {
                self.paths[at].forget_redirection(&asked.url);
                self.give_up(at, fetch_error(&asked.url, cause), told)
            }
        }
    }

    fn handle_answer(
        &mut self,
        at: usize,
        id: RequestId,
        unit: UnitNumber,
        asked: &Asked,
        head: &Head,
        told: &mut impl FnMut(Told),
    ) -> Result<(), StreamError> {
        let now = self.now();
        let url = || Box::new(asked.url.clone());
        // The segment itself may be gone, where others brought it.
        let is_part = asked.is_part();
        let answer = match Answer::read(head, Some(asked.range)) {
            Ok(answer) => answer,
            Err(Unusable::NoSuchRange { asked: range, total: Some(total) }) if !is_part => {
                let known = self.coming.get(&unit).and_then(|coming| coming.facts.as_ref());
                let is_known_otherwise =
                    known.and_then(|facts| facts.found.version.total()).is_some_and(|known| known != total);
                if is_known_otherwise || total > range.first {
                    let cause = Box::new(Unusable::NoSuchRange { asked: range, total: Some(total) });
                    return self.resolve(at, unit, StreamError::Answer { url: url(), cause }, told);
                }
                if known.is_none() && total < LEAST_CREDIBLE_BYTES && self.doubts(at, unit) {
                    return Ok(());
                }
                if let Some(asked) = self.paths[at].asked.get_mut(&id) {
                    asked.next = None;
                }
                return match self.stream.handle_no_such_range(now, id, Some(total)) {
                    Ok(()) => Ok(()),
                    Err(cause) => self.resolve(at, unit, StreamError::Changed { url: url(), cause }, told),
                };
            }
            Err(Unusable::Status(status)) => {
                self.paths[at].forget_redirection(&asked.url);
                let refusal = (asked.url.clone(), format!("the server says {status}"));
                return self.refuse(at, unit, refusal, told);
            }
            Err(cause) => {
                let error = StreamError::Answer { url: url(), cause: Box::new(cause) };
                return self.give_up(at, error, told);
            }
        };
        let found = Found::read(head, &answer);
        let known = self.coming.get(&unit).and_then(|coming| coming.facts.as_ref());
        match self.trust.check(at, known, &found) {
            Ok(()) => {}
            Err(Doubt::Path(cause)) => return self.give_up(at, fetch_error(&asked.url, cause.into()), told),
            Err(Doubt::Against(_, cause)) => {
                let error = StreamError::Answer { url: url(), cause: Box::new(cause) };
                return self.resolve(at, unit, error, told);
            }
        }
        let length = answer.version.total().filter(|_| !is_part);
        if let Some(bytes) = length.filter(|bytes| *bytes > MOST_SEGMENT_BYTES) {
            return self.give_up(at, StreamError::TooLong { url: url(), bytes }, told);
        }
        let is_new = self.coming.get(&unit).is_none_or(|coming| coming.facts.is_none());
        if is_new && length.is_some_and(|bytes| bytes < LEAST_CREDIBLE_BYTES) && self.doubts(at, unit) {
            return Ok(());
        }
        if let Err(cause) = self.stream.handle_head(now, id, length) {
            return self.resolve(at, unit, StreamError::Changed { url: url(), cause }, told);
        }
        let is_whole = answer.extent == Extent::Whole;
        if is_whole && !(!is_part && length.is_some() && self.stream.handle_whole(id)) {
            let refusal = (asked.url.clone(), "the server gives no part of a file".into());
            return self.refuse(at, unit, refusal, told);
        }
        if let Some(asked) = self.paths[at].asked.get_mut(&id) {
            match answer.extent {
                Extent::Whole => (asked.next, asked.end) = (Some(0), length),
                Extent::Part { last, .. } => asked.end = Some(last.saturating_add(1) - asked.offset()),
            }
        }
        let facts = Facts { url: asked.url.clone(), byte: asked.range.first, found, by: at };
        self.trust.note(&facts);
        self.fields.note_cookies(asked.at(), head);
        let coming = self.coming.entry(unit).or_default();
        coming.facts.get_or_insert(facts);
        Ok(())
    }

    pub(super) fn handle_data(
        &mut self,
        LineId { path: at, line }: LineId,
        id: RequestId,
        bytes: &Bytes,
        told: &mut impl FnMut(Told),
    ) -> Result<(), StreamError> {
        let now = self.now();
        let path = &mut self.paths[at];
        let Some(asked) = path.asked_on(line, id) else { return Ok(()) };
        let (&Purpose::Unit(unit), Some(first)) = (&asked.purpose, asked.next) else { return Ok(()) };
        let end = first + bytes.len() as u64;
        asked.next = Some(end);
        // A whole segment may come where its end was asked for.
        let asked_first = asked.range.first - asked.offset();
        let (url, said_end) = (asked.url.clone(), asked.end);
        if said_end.is_some_and(|said| end > said) {
            let cause = "the server sent more than it had said".into();
            return self.give_up(at, fetch_error(&url, cause), told);
        }
        if end > MOST_SEGMENT_BYTES {
            return self.give_up(at, StreamError::TooLong { url: Box::new(url), bytes: end }, told);
        }
        path.bytes += bytes.len() as u64;
        told(Told::Bytes { path: at, bytes: bytes.len() as u64 });
        self.last_progress = time::Instant::now();
        // It may be that all of it is there already.
        if self.units.place(unit).is_some() {
            let there = self.coming.entry(unit).or_default();
            if !there.by.contains(&at) {
                there.by.push(at);
            }
            let end = end as usize;
            if there.bytes.len() < end {
                there.bytes.resize(end, 0);
            }
            there.bytes[first as usize..end].copy_from_slice(bytes);
        }
        let wanted = end.saturating_sub(asked_first.max(first));
        if wanted == 0 {
            return Ok(());
        }
        let rest = self.stream.handle_bytes(now, id, wanted);
        if let Some(Arrived { rest: Rest::Superfluous, .. }) = rest {
            self.renew(at, Duration::ZERO);
        }
        Ok(())
    }
}

fn fetch_error(url: &Url, cause: String) -> StreamError {
    StreamError::Fetch { url: Box::new(url.clone()), cause }
}
