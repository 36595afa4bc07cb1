//! Plays a case: virtual time, the packets that wait to be expected, the application's calls.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use polypath_units::{Duration, Instant};
use polypath_wire::{Endpoint, FourTuple, MptcpVersion, Packet, Transport};

use crate::host::{Driven, Kind, build};
use crate::keys;
use crate::peer::{Peer, SERVICE_PORT};
use crate::script::{Action, Line, PacketSpec, Script, SubflowSpec, When};
use crate::settings::Settings;

/// Timers that fire at one instant without end are an error.
const MOST_TIMERS: u32 = 10_000;

/// What must not happen unsaid.
const ENDINGS: [&str; 3] = ["closed", "fell back", "end of file"];

/// A packet of the host that no line has expected yet.
struct Waiting {
    at: Instant,
    flow: Option<usize>,
    packet: Packet,
}

struct Player {
    kind: Kind,
    settings: Settings,
    host: Option<Box<dyn Driven>>,
    peer: Peer,
    started: Instant,
    now: Instant,
    waiting: VecDeque<Waiting>,
    events: Vec<String>,
    written: u64,
    read: u64,
    unread: BytesMut,
    log: Vec<String>,
    /// The application has let go of the connection: nobody is told how it ends.
    released: bool,
}

/// Plays a script on a host; the error says where and why.
pub(crate) fn play(script: &Script, kind: Kind) -> Result<(), String> {
    let mut player = Player::new(kind);
    for line in &script.lines {
        player.line(line).map_err(|error| {
            let start = player.log.len().saturating_sub(12);
            let log = player.log[start..].join("\n    ");
            let at = player.now.since(player.started).as_secs_f64();
            format!("{} at {at:.6} s: {error}\n  line: {}\n  before:\n    {log}", line.place, line.text)
        })?;
    }
    player.end().map_err(|error| format!("at the end: {error}"))
}

impl Player {
    fn new(kind: Kind) -> Self {
        let started = Instant::from_secs(1000);
        let addr = |text: &str| text.parse().expect("an address");
        let main = SubflowSpec {
            name: "main".into(),
            host: Endpoint::new(addr("10.0.0.1"), 0),
            peer: Endpoint::new(addr("10.0.9.1"), 0),
        };
        Self {
            kind,
            settings: Settings::default(),
            host: None,
            peer: Peer::new(1, started, &main),
            started,
            now: started,
            waiting: VecDeque::new(),
            events: Vec::new(),
            written: 0,
            read: 0,
            unread: BytesMut::new(),
            log: Vec::new(),
            released: false,
        }
    }

    fn line(&mut self, line: &Line) -> Result<(), String> {
        match &line.action {
            Action::Set { name, value } if self.host.is_none() => {
                self.settings.set(name, value)?;
                self.peer.secrets.version = u8::from(self.settings.version() == MptcpVersion::V1);
                return Ok(());
            }
            Action::Set { .. } => return Err("settings come before all else".into()),
            Action::Endpoint(endpoint) if self.host.is_none() => {
                self.settings.endpoint(*endpoint);
                return Ok(());
            }
            Action::Subflow(spec) => {
                self.peer.add(spec);
                return Ok(());
            }
            Action::Expect { packet, optional } => return self.expect(line.when, packet, *optional),
            Action::Event { name, absent } => {
                self.advance(self.now + line.when.from)?;
                return self.event(name, *absent);
            }
            Action::Any => return self.overlook_until(self.now + line.when.from),
            _ => {}
        }
        self.nothing_waits()?;
        self.advance_quietly(line.when.from)?;
        self.act(&line.action)?;
        self.drain();
        Ok(())
    }

    fn host(&mut self) -> &mut dyn Driven {
        let (kind, settings) = (self.kind, &self.settings);
        &mut **self.host.get_or_insert_with(|| build(kind, settings))
    }

    // ---- what happens to the host

    fn act(&mut self, action: &Action) -> Result<(), String> {
        let now = self.now;
        match action {
            Action::Send(spec) => {
                let packet = self.peer.packet(now, spec)?;
                self.note('<', &packet);
                let packet = over_the_wire(&packet)?;
                self.host().handle_packet(now, packet);
            }
            Action::Icmp(spec) => {
                let packet = self.peer.icmp(spec);
                self.note('<', &packet);
                self.host().handle_packet(now, packet);
            }
            Action::Listen => {
                let local = Endpoint::new(self.peer.flows[0].host.addr, SERVICE_PORT);
                self.host().listen(local)?;
            }
            Action::Connect => {
                let flow = &self.peer.flows[0];
                let port = if flow.peer.port == 0 { SERVICE_PORT } else { flow.peer.port };
                let (local, remote) = (flow.host.addr, Endpoint::new(flow.peer.addr, port));
                self.host().connect(now, local, remote)?;
            }
            Action::Write(bytes) => self.write(*bytes)?,
            Action::Read { bytes, changed } => self.read(*bytes, *changed)?,
            Action::Shutdown => self.host().shutdown(now),
            Action::Close => {
                self.released = true;
                self.host().close(now);
            }
            Action::Abort => self.host().abort(now),
            Action::Priority { subflow, backup } => {
                let flow = &self.peer.flows[self.peer.named(subflow)?];
                let tuple = FourTuple { local: flow.host, remote: flow.peer };
                self.host().set_backup(now, tuple, *backup);
            }
            Action::Endpoint(endpoint) => self.host().add_endpoint(now, *endpoint),
            Action::RemoveEndpoint(addr) => self.host().remove_endpoint(now, *addr),
            _ => {}
        }
        Ok(())
    }

    fn write(&mut self, bytes: u64) -> Result<(), String> {
        let data = Bytes::from(keys::stream(self.written, bytes as usize));
        let taken = self.host().write(data)?;
        self.written += taken as u64;
        if taken as u64 == bytes { Ok(()) } else { Err(format!("only {taken} bytes were taken")) }
    }

    fn read(&mut self, bytes: u64, changed: bool) -> Result<(), String> {
        while (self.unread.len() as u64) < bytes.max(1)
            && let Some(payload) = self.host().read()
        {
            self.unread.extend_from_slice(&payload.to_vec());
        }
        if (self.unread.len() as u64) < bytes || bytes == 0 && !self.unread.is_empty() {
            return Err(format!("{} bytes are there to read", self.unread.len()));
        }
        let data = self.unread.split_to(bytes as usize);
        let expected = keys::stream(self.read, bytes as usize);
        let wrong = data.iter().zip(&expected).filter(|(a, b)| a != b).count();
        self.read += bytes;
        match (wrong, changed) {
            (0, true) => Err("nothing was changed on the way".into()),
            (1.., false) => Err(format!("{wrong} bytes are not those of the stream")),
            _ => Ok(()),
        }
    }

    // ---- what comes of it

    /// Takes packets and events from the host.
    fn drain(&mut self) {
        let now = self.now;
        while let Some(packet) = self.host().poll_transmit(now) {
            self.note('>', &packet);
            let flow = self.peer.flow_of(&packet);
            self.waiting.push_back(Waiting { at: now, flow, packet });
        }
        while let Some(event) = self.host().poll_event() {
            self.log.push(format!("{:.6} event {event}", now.since(self.started).as_secs_f64()));
            self.events.push(event);
        }
    }

    fn note(&mut self, way: char, packet: &Packet) {
        let at = self.now.since(self.started).as_secs_f64();
        self.log.push(format!("{at:.6} {way} {packet}"));
    }

    /// Lets time pass until `until`, or until the host sends something.
    fn advance(&mut self, until: Instant) -> Result<(), String> {
        for _ in 0..MOST_TIMERS {
            if self.host.is_none() || !self.waiting.is_empty() {
                self.now = if self.waiting.is_empty() { until } else { self.now };
                return Ok(());
            }
            match self.host().poll_timeout().filter(|at| *at <= until) {
                Some(at) => self.now = self.now.max(at),
                None => {
                    self.now = until;
                    return Ok(());
                }
            }
            let now = self.now;
            self.host().handle_timeout(now);
            self.drain();
        }
        Err("timers fire without end".into())
    }

    fn advance_quietly(&mut self, wait: Duration) -> Result<(), String> {
        let until = self.now + wait;
        self.advance(until)?;
        self.nothing_waits()
    }

    fn nothing_waits(&self) -> Result<(), String> {
        match self.waiting.front() {
            Some(waiting) => Err(format!("the host sent what no line expects: {}", waiting.packet)),
            None => Ok(()),
        }
    }

    fn expect(&mut self, when: When, spec: &PacketSpec, optional: bool) -> Result<(), String> {
        let flow = self.peer.named(&spec.subflow)?;
        let (from, to) = (self.now + when.from, self.now + when.to);
        self.drain();
        if self.waiting.is_empty() {
            self.advance(to)?;
        }
        let found = self.waiting.iter().position(|waiting| waiting.flow == Some(flow));
        let Some(found) = found else {
            if optional {
                return Ok(());
            }
            self.nothing_waits()?;
            return Err("nothing came".into());
        };
        let Waiting { at, packet, .. } = &self.waiting[found];
        let (at, packet) = (*at, packet.clone());
        let checked = match at < from || at > to {
            true => Err(format!("it came {:.6} s early", from.since(at).as_secs_f64())),
            false => self.peer.check(flow, spec, &packet),
        };
        match checked {
            Err(_) if optional => Ok(()),
            Err(error) => Err(format!("{error}\n  got: {packet}")),
            Ok(()) => {
                self.waiting.remove(found);
                same_on_the_wire(&packet)
            }
        }
    }

    /// What does not matter still tells where the host is in its sequence space.
    fn overlook_until(&mut self, until: Instant) -> Result<(), String> {
        loop {
            while let Some(Waiting { flow, packet, .. }) = self.waiting.pop_front() {
                if let (Some(flow), Transport::Tcp(segment)) = (flow, &packet.transport) {
                    self.peer.flows[flow].note_host(segment);
                }
            }
            self.advance(until)?;
            if self.waiting.is_empty() {
                return Ok(());
            }
        }
    }

    fn event(&mut self, name: &str, absent: bool) -> Result<(), String> {
        let is_it = |event: &String| event == name || event.starts_with(&format!("{name}:"));
        let found = self.events.iter().position(is_it);
        match (found, absent) {
            (Some(_), true) => Err(format!("`{name}` happened")),
            (None, false) => Err(format!("`{name}` did not happen, but {:?}", self.events)),
            (Some(found), false) => {
                self.events.remove(found);
                Ok(())
            }
            (None, true) => Ok(()),
        }
    }

    fn end(&self) -> Result<(), String> {
        self.nothing_waits()?;
        let ends = |event: &&String| ENDINGS.iter().any(|ending| event.starts_with(ending));
        match self.events.iter().find(ends) {
            Some(event) if !self.released => Err(format!("`{event}` happened, and no line says so")),
            _ => Ok(()),
        }
    }
}

/// A packet as bytes, and read again: what comes in is what a driver would hand over.
fn over_the_wire(packet: &Packet) -> Result<Packet, String> {
    let mut bytes = Vec::new();
    packet.emit(&mut bytes);
    Packet::parse(bytes.into()).map_err(|error| format!("the packet can't be: {error}"))
}

/// What the host sends must survive its own bytes: an option too many would be lost there.
fn same_on_the_wire(packet: &Packet) -> Result<(), String> {
    let again = over_the_wire(packet)?;
    if again.len_bytes() == packet.len_bytes() { Ok(()) } else { Err("it does not fit its header".into()) }
}
