//! Our own stack, observed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::SystemTime;

use polypath_mptcp::{ConnectionId, Event, SubflowError};
use polypath_stack::stack::{Stack, WeakStack};
use polypath_wire::FourTuple;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::report::{error_number, fallback_words};
use super::{
    Change, ChangeError, ConnectionReport, EventKind, EventReport, FiguresReport, ListenerReport, Observed,
    PathsReport, SubflowReport,
};

/// Events that a slow monitor may lag behind.
const BACKLOG: usize = 1024;

/// Microseconds since 1970.
fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// As people write it: an address of IPv4 is one, however the stack has it.
fn canonical(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

impl Observed for WeakStack {
    fn connections(&self) -> Vec<ConnectionReport> {
        let Some(stack) = self.upgrade() else { return Vec::new() };
        stack.connections().iter().map(|(_, info)| ConnectionReport::from(info).seen_from(&stack)).collect()
    }

    fn listeners(&self) -> Vec<ListenerReport> {
        let Some(stack) = self.upgrade() else { return Vec::new() };
        let listeners = stack.listeners().into_iter();
        let report = |(local, waiting, most): (_, usize, usize)| ListenerReport {
            local: stack.seen_at(local),
            waiting: waiting as u64,
            most_waiting: most as u64,
        };
        let mut reports: Vec<ListenerReport> = listeners.map(report).collect();
        reports.sort_by_key(|report| (report.local.port(), report.local));
        reports
    }

    fn subscribe(&self) -> broadcast::Receiver<EventReport> {
        let (sender, receiver) = broadcast::channel(BACKLOG);
        let Some(stack) = self.upgrade() else { return receiver };
        let mut events = stack.subscribe();
        let known = stack.connections().into_iter();
        let known = known.map(|(id, info)| (id, Known::new(&stack, &info))).collect();
        let mut narrator = Narrator { stack: self.clone(), known };
        tokio::spawn(async move {
            loop {
                let reports = tokio::select! {
                    event = events.recv() => match event {
                        Ok((_, id, event)) => narrator.tell(id, &event),
                        Err(RecvError::Lagged(count)) => {
                            let reason = Some(format!("{count}_events"));
                            vec![EventReport { reason, ..EventReport::new(EventKind::Missed, 0) }]
                        }
                        Err(RecvError::Closed) => return,
                    },
                    () = sender.closed() => return,
                };
                let time_us = now_us();
                for report in reports {
                    if sender.send(EventReport { time_us, ..report }).is_err() {
                        return;
                    }
                }
            }
        });
        receiver
    }

    fn figures(&self) -> FiguresReport {
        match self.upgrade() {
            Some(stack) => FiguresReport::of(&stack),
            None => FiguresReport::new(self.figures(), 0, &[]),
        }
    }

    fn paths(&self) -> Option<PathsReport> {
        Some(PathsReport::of(&self.upgrade()?))
    }

    fn change(&self, change: &Change) -> Result<(), ChangeError> {
        super::paths::change(&self.upgrade().ok_or(ChangeError::Ended)?, change)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters()
    }
}

/// Turns the stack's events into reports. Those name addresses and tokens, which it remembers beyond their end.
struct Narrator {
    stack: WeakStack,
    known: HashMap<ConnectionId, Known>,
}

/// What is remembered of a connection.
#[derive(Debug, Default)]
struct Known {
    token: u32,
    /// The peer opened it.
    is_server_side: bool,
    subflows: Vec<SubflowReport>,
    /// The subflow that made the connection: nobody tells that it is established.
    first: Option<u8>,
}

impl ConnectionReport {
    /// With the addresses by which the network knows both ends, and the interface.
    fn seen_from(mut self, stack: &Stack) -> Self {
        self.local = self.local.map(|local| canonical(stack.seen_at(local)));
        self.remote = self.remote.map(|remote| canonical(stack.peer_at(remote)));
        self.subflows = self.subflows.into_iter().map(|subflow| subflow.seen_from(stack)).collect();
        self
    }
}

impl SubflowReport {
    fn seen_from(mut self, stack: &Stack) -> Self {
        let own = FourTuple { local: self.local.into(), remote: self.remote.into() };
        self.interface = stack.subflow_path_name(own);
        self.local = canonical(stack.seen_at(self.local));
        self.remote = canonical(stack.peer_at(self.remote));
        self
    }
}

impl Known {
    fn new(stack: &Stack, info: &polypath_mptcp::ConnectionInfo) -> Self {
        let subflows = info.subflows.iter().map(|info| SubflowReport::from(info).seen_from(stack));
        let subflows: Vec<SubflowReport> = subflows.collect();
        let first = subflows.iter().find(|subflow| subflow.local_id == 0).map(|subflow| subflow.id);
        Self { token: info.local_token, is_server_side: !info.is_client, subflows, first }
    }
}

impl Known {
    fn report(&self, kind: EventKind) -> EventReport {
        EventReport { server_side: self.is_server_side, ..EventReport::new(kind, self.token) }
    }

    fn of_connection(&self, kind: EventKind) -> EventReport {
        match self.subflows.first() {
            Some(subflow) => self.report(kind).with_subflow(subflow),
            None => self.report(kind),
        }
    }

    fn of_subflow(&self, kind: EventKind, id: u8) -> EventReport {
        let report = self.report(kind);
        let Some(subflow) = self.subflows.iter().find(|subflow| subflow.id == id) else { return report };
        EventReport { backup: Some(subflow.is_backup), ..report.with_subflow(subflow) }
    }

    /// The end of a subflow, which may never have been seen: one that the peer refused is gone when its first event comes.
    fn of_end(
        &self,
        id: u8,
        tuple: FourTuple,
        error: Option<SubflowError>,
        stack: Option<&Stack>,
    ) -> EventReport {
        let mut report = self.of_subflow(EventKind::SfClosed, id);
        if report.local.is_none() {
            let seen = stack.map_or(tuple, |stack| stack.seen_subflow(tuple));
            report.local = Some(canonical(seen.local.into()));
            report.remote = Some(canonical(seen.remote.into()));
            report.interface = stack.and_then(|stack| stack.subflow_path_name(tuple));
        }
        EventReport {
            error: error.map(error_number),
            reset_reason: match error {
                Some(SubflowError::Reset(reason)) => reason.map(|reason| reason.0),
                _ => None,
            },
            ..report
        }
    }
}

impl Narrator {
    fn tell(&mut self, id: ConnectionId, event: &Event) -> Vec<EventReport> {
        let mut reports = Vec::new();
        let is_new = !self.known.contains_key(&id);
        let stack = self.stack.upgrade();
        let info = stack.as_ref().and_then(|stack| Some((stack, stack.connection(id)?)));
        if is_new {
            // What was never open and is gone has no token to be named by.
            let Some((stack, info)) = &info else { return reports };
            self.known.insert(id, Known::new(stack, info));
        }
        let Some(known) = self.known.get_mut(&id) else { return reports };
        if let Some((stack, info)) = &info {
            known.token = info.local_token;
            for subflow in info.subflows.iter().map(|info| SubflowReport::from(info).seen_from(stack)) {
                match known.subflows.iter_mut().find(|old| old.id == subflow.id) {
                    Some(old) => *old = subflow,
                    None => known.subflows.push(subflow),
                }
            }
        }
        if is_new && !matches!(event, Event::Closed(_)) {
            reports.push(known.of_connection(EventKind::Created));
        }
        match *event {
            Event::Accepted { .. } | Event::Connected => {
                reports.push(known.of_connection(EventKind::Established));
            }
            Event::SubflowEstablished { subflow, .. } if known.first != Some(subflow.0) => {
                reports.push(known.of_subflow(EventKind::SfEstablished, subflow.0));
            }
            Event::SubflowStale { subflow, .. } => {
                reports.push(known.of_subflow(EventKind::SfStale, subflow.0));
            }
            Event::SubflowRecovered { subflow, .. } => {
                reports.push(known.of_subflow(EventKind::SfRecovered, subflow.0));
            }
            Event::SubflowSetAside { subflow, .. } => reports.push(EventReport {
                backup: Some(true),
                reason: Some("it held up the rest".into()),
                ..known.of_subflow(EventKind::SfPriority, subflow.0)
            }),
            Event::SubflowTried { subflow, .. } => reports.push(EventReport {
                backup: Some(false),
                reason: Some("to see what it brings".into()),
                ..known.of_subflow(EventKind::SfPriority, subflow.0)
            }),
            Event::SubflowClosed { subflow, tuple, error } => {
                reports.push(known.of_end(subflow.0, tuple, error, stack.as_ref()));
                known.subflows.retain(|old| old.id != subflow.0);
            }
            Event::Announced { id, remote } => reports.push(EventReport {
                remid: Some(id.0),
                remote: Some(canonical(remote.into())),
                ..known.report(EventKind::Announced)
            }),
            Event::Removed { id } => {
                reports.push(EventReport { remid: Some(id.0), ..known.report(EventKind::Removed) });
            }
            Event::FellBack(reason) => reports.push(EventReport {
                reason: Some(fallback_words(reason).into()),
                ..known.report(EventKind::FellBack)
            }),
            Event::Closed(_) => {
                reports.push(known.report(EventKind::Closed));
                self.known.remove(&id);
            }
            _ => {}
        }
        reports
    }
}

#[cfg(test)]
mod tests {
    use polypath_wire::Endpoint;

    use super::*;

    #[test]
    fn the_end_of_a_subflow_that_was_never_seen_has_its_addresses() {
        let known = Known { token: 7, is_server_side: false, subflows: Vec::new(), first: None };
        let end = |last: u8, port| Endpoint::new(std::net::IpAddr::from([192, 0, 2, last]), port);
        let tuple = FourTuple { local: end(1, 40_000), remote: end(2, 443) };
        let report = known.of_end(3, tuple, Some(SubflowError::Reset(None)), None);
        assert_eq!((report.event, report.token, report.backup), (EventKind::SfClosed, 7, None));
        assert_eq!((report.local, report.remote), (Some(tuple.local.into()), Some(tuple.remote.into())));
        assert!(report.error.is_some());
    }
}
