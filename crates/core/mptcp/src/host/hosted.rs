//! A Multipath TCP connection as the host's core has it.

use polypath_tcp::{Call, Hosted};
use polypath_units::Instant;
use polypath_wire::{FourTuple, IcmpMessage, Packet, Transport};

use super::budgets::{Budgets, counted_bytes};
use crate::config::HostConfig;
use crate::connection::{Connection, Context};
use crate::counters::Counters;
use crate::identifiers::SubflowId;
use crate::receive_window::ReceiveMemory;

/// What the connections of a host draw on together.
#[derive(Debug)]
pub(crate) struct Resources {
    pub(super) config: HostConfig,
    pub(super) counters: Counters,
    /// Promised by receive windows.
    pub(super) memory: ReceiveMemory,
    pub(super) budgets: Budgets,
}

impl Resources {
    pub(super) fn new(config: HostConfig) -> Self {
        Self {
            counters: Counters::default(),
            memory: ReceiveMemory::new(config.receive_memory_bytes),
            budgets: Budgets::new(&config.endpoints),
            config,
        }
    }
}

impl<'a> From<Call<'a, Resources>> for Context<'a> {
    #[inline]
    fn from(call: Call<'a, Resources>) -> Self {
        let Call { now, challenges, resources } = call;
        let Resources { config, counters, memory, budgets } = resources;
        Context {
            now,
            counters,
            endpoints: &config.endpoints,
            limits: config.limits,
            max_announced_addresses: config.max_announced_addresses,
            memory,
            budgets,
            challenges,
        }
    }
}

impl Hosted for Connection {
    type Resources = Resources;

    type Tag = SubflowId;

    const BURST_PACKETS: u32 = 16;

    #[inline]
    fn flow(&self, subflow: SubflowId) -> Option<FourTuple> {
        self.flow(subflow)
    }

    #[inline]
    fn handle_packet(&mut self, call: Call<'_, Resources>, subflow: SubflowId, packet: &mut Packet) {
        let mut cx = Context::from(call);
        if cx.budgets.are_in_use() {
            self.count_received(&mut cx, subflow, counted_bytes(packet));
        }
        let Transport::Tcp(segment) = &mut packet.transport else { return };
        self.handle_segment(&mut cx, subflow, segment);
    }

    fn handle_icmp(&mut self, call: Call<'_, Resources>, subflow: SubflowId, message: &IcmpMessage) {
        self.handle_icmp(&mut Context::from(call), subflow, message);
    }

    fn handle_timeout(&mut self, call: Call<'_, Resources>) {
        self.handle_timeout(&mut Context::from(call));
    }

    #[inline]
    fn poll_transmit(&mut self, call: Call<'_, Resources>) -> Option<Packet> {
        let mut cx = Context::from(call);
        if !cx.budgets.are_in_use() {
            // Made where it is returned, and not copied.
            return self.poll_transmit(&mut cx);
        }
        let packet = self.poll_transmit(&mut cx)?;
        self.count_transmitted(&mut cx, counted_bytes(&packet));
        Some(packet)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }
}
