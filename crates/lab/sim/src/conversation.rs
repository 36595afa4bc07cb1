//! A connection between two hosts, with planned traffic at both ends.

use std::net::IpAddr;
use std::sync::Arc;

use polypath_mptcp::ConnectionConfig;
use polypath_tcp::ListenConfig;
use polypath_units::Instant;
use polypath_wire::Endpoint;

use crate::app::{App, SendPlan, StackInfo, Traffic, TrafficPlan, TrafficReport};
use crate::network::{AppId, Network, NodeId, NodeKind};

/// A connection to be opened, and what its ends do.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The host that opens the connection.
    pub from: NodeId,
    /// The address that it opens it from.
    pub local: IpAddr,
    /// The host that accepts it.
    pub to: NodeId,
    /// Address and port that it accepts it at. Two conversations of one network never have the same.
    pub remote: Endpoint,
    /// When it is opened.
    pub start: Instant,
    /// Settings of the end that opens; those of its host if `None`. The end that accepts has those of its
    /// host.
    pub config: Option<Arc<ConnectionConfig>>,
    /// What the end that opens does.
    pub opener: TrafficPlan,
    /// What the end that accepts does.
    pub acceptor: TrafficPlan,
}

/// One end of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficEnd {
    /// The host.
    pub node: NodeId,
    /// The application there.
    pub app: AppId,
}

/// Both ends of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The end that opens.
    pub opener: TrafficEnd,
    /// The end that accepts.
    pub acceptor: TrafficEnd,
}

impl Conversation {
    /// Number `index` of a network's conversations: `bytes` go up (from the opener) and `bytes` go down,
    /// where `None` is nothing at all; streams are numbered so that no two have the same content.
    pub fn plans(index: u64, up: Option<u64>, down: Option<u64>) -> (TrafficPlan, TrafficPlan) {
        let plan = |sends: Option<u64>, send_stream, receive_stream| TrafficPlan {
            send: SendPlan::Bytes(sends.unwrap_or(0)),
            send_stream,
            receive_stream,
            ..TrafficPlan::default()
        };
        (plan(up, 2 * index, 2 * index + 1), plan(down, 2 * index + 1, 2 * index))
    }
}

impl Network {
    /// Makes one host listen, and the other connect when it is time. Either may be a plain TCP host.
    ///
    /// # Panics
    /// If one of the nodes is no host.
    pub fn converse(&mut self, conversation: Conversation) -> Ends {
        let Conversation { from, local, to, remote, start, config, opener, acceptor } = conversation;
        let mut opener_app = Traffic::new(opener.clone());
        let mut acceptor_app = Traffic::new(acceptor.clone());
        if let SendPlan::Blocks { block_bytes, .. } = opener.send {
            acceptor_app.expect_blocks(block_bytes);
        }
        if let SendPlan::Blocks { block_bytes, .. } = acceptor.send {
            opener_app.expect_blocks(block_bytes);
        }
        let acceptor = self.with_kind(to, |_, kind| {
            // A port that is taken shows in the end that opens.
            match kind {
                NodeKind::Mptcp(host) => {
                    let _listener = host.stack.listen(remote);
                    host.accept(remote.port, App::Traffic(Box::new(acceptor_app)))
                }
                NodeKind::Tcp(host) => {
                    let _listener = host.stack.listen(remote, ListenConfig::default());
                    host.accept(remote.port, App::Traffic(Box::new(acceptor_app)))
                }
                _ => panic!("node {} is no host", to.index()),
            }
        });
        let opener = self.with_kind(from, |_, kind| match kind {
            NodeKind::Mptcp(host) => host.add(App::Traffic(Box::new(opener_app))),
            NodeKind::Tcp(host) => host.add(App::Traffic(Box::new(opener_app))),
            _ => panic!("node {} is no host", from.index()),
        });
        let local = Endpoint::new(local, 0);
        let connect = move |network: &mut Network| {
            network.with_kind(from, |now, kind| match kind {
                NodeKind::Mptcp(host) => {
                    let id = host.stack.connect(now, local, remote, config).ok();
                    host.bind_or_refuse(now, id, opener);
                }
                NodeKind::Tcp(host) => {
                    let id = host.stack.connect(now, local, remote).ok();
                    host.bind_or_refuse(now, id, opener);
                }
                _ => {}
            });
        };
        if start <= self.now() {
            connect(self);
        } else {
            self.schedule(start, connect);
        }
        Ends {
            opener: TrafficEnd { node: from, app: opener },
            acceptor: TrafficEnd { node: to, app: acceptor },
        }
    }

    /// The application at one end.
    ///
    /// # Panics
    /// If it is no planned traffic.
    pub fn traffic(&self, end: TrafficEnd) -> &Traffic {
        let traffic = match self.kind(end.node) {
            NodeKind::Mptcp(host) => host.app(end.app).traffic(),
            NodeKind::Tcp(host) => host.app(end.app).traffic(),
            _ => None,
        };
        traffic.unwrap_or_else(|| panic!("{end:?} is no planned traffic"))
    }

    /// What happened at one end so far.
    pub fn report(&self, end: TrafficEnd) -> &TrafficReport {
        self.traffic(end).report()
    }

    /// The connection of one end in numbers, while there is one.
    pub fn connection_info(&self, end: TrafficEnd) -> Option<StackInfo> {
        if self.traffic(end).is_over() {
            return None;
        }
        match self.kind(end.node) {
            NodeKind::Mptcp(host) => host.info(end.app),
            NodeKind::Tcp(host) => host.info(end.app),
            _ => None,
        }
    }
}
