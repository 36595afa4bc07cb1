//! What applications keep with connections.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::any::Any;

use polypath_tcp::ConnectionId;

use super::Host;

/// Anything that an application knows of a connection.
pub type Attachment = Arc<dyn Any + Send + Sync>;

/// By connection; most have nothing.
#[derive(Debug, Default)]
pub(super) struct Attached(BTreeMap<ConnectionId, Attachment>);

impl Attached {
    pub(super) fn remove(&mut self, id: ConnectionId) {
        self.0.remove(&id);
    }
}

impl Host {
    /// Keeps something with a connection, in place of what was kept with it before, until the host forgets the connection: that is not before
    /// the peer has all that was sent, though the application let go long ago. A connection that is forgotten keeps nothing.
    pub fn attach(&mut self, id: ConnectionId, what: Attachment) {
        if self.core.get(id).is_some() {
            self.attached.0.insert(id, what);
        }
    }

    /// What is kept with a connection.
    #[must_use]
    pub fn attached(&self, id: ConnectionId) -> Option<&Attachment> {
        self.attached.0.get(&id)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use polypath_units::{Duration, Instant};
    use polypath_wire::{Endpoint, Packet};

    use super::*;
    use crate::{Event, HostConfig};

    const AT: Instant = Instant::from_secs(1);

    fn packets(host: &mut Host, now: Instant) -> Vec<Packet> {
        core::iter::from_fn(|| host.poll_transmit(now)).collect()
    }

    fn exchange(one: &mut Host, other: &mut Host, now: Instant) {
        for _ in 0..9 {
            packets(one, now).into_iter().for_each(|packet| other.handle_packet(now, packet));
            packets(other, now).into_iter().for_each(|packet| one.handle_packet(now, packet));
        }
    }

    #[test]
    fn what_is_kept_with_a_connection_is_gone_with_it_and_not_before() {
        let at = Endpoint::new([10, 0, 0, 2].into(), 80);
        let (mut client, mut server) =
            (Host::new(HostConfig::default(), 1), Host::new(HostConfig::default(), 2));
        server.listen(at).expect("the port is free");
        let near = client.connect(AT, Endpoint::new([10, 0, 0, 1].into(), 0), at, None).expect("a free port");
        exchange(&mut client, &mut server, AT);
        let mut events = core::iter::from_fn(|| server.poll());
        let far = events.find_map(|(id, event)| matches!(event, Event::Accepted { .. }).then_some(id));
        let far = far.expect("it is accepted");
        let (first, second): (Attachment, Attachment) = (Arc::new("first"), Arc::new("second"));
        server.attach(far, first.clone());
        server.attach(far, second.clone());
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 2));
        assert!(server.attached(far).is_some_and(|kept| kept.is::<&str>()));

        // The application lets go, and the client has nothing yet.
        server.send(far, (&[7; 1000][..]).into()).expect("it is open");
        server.release(AT, far);
        let lost = packets(&mut server, AT);
        assert!(!lost.is_empty() && server.attached(far).is_some());
        lost.into_iter().for_each(|packet| client.handle_packet(AT, packet));
        exchange(&mut client, &mut server, AT);
        assert!(client.recv(near).is_some() && server.attached(far).is_some());

        client.release(AT, near);
        exchange(&mut client, &mut server, AT);
        let mut now = AT;
        while server.population().connections > 0 {
            now += Duration::from_secs(1);
            server.handle_timeout(now);
            exchange(&mut client, &mut server, now);
            assert!(now < Instant::from_secs(1000), "it is closed");
        }
        assert!(server.attached(far).is_none() && Arc::strong_count(&second) == 1);
        server.attach(far, second.clone());
        assert_eq!(Arc::strong_count(&second), 1, "nothing is kept with what is gone");
    }
}
