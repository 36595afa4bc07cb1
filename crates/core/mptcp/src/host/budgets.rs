//! Data budgets of local addresses, counted over all connections.

use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_wire::{Packet, Transport};

use crate::path_manager::LocalEndpoint;

/// What went over the addresses that have a budget. Subflows hold the number of their account, so that a packet costs an
/// addition.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    /// Never removed, as the numbers are held elsewhere, and an uplink that comes back goes on where it was.
    accounts: Vec<Account>,
    /// Changes whenever an address may have got another account.
    generation: u32,
    /// An account was overdrawn, and nobody has seen to it.
    has_news: bool,
}

#[derive(Debug, Default)]
struct Account {
    addresses: Vec<IpAddr>,
    pool: u8,
    budget_bytes: u64,
    is_hard: bool,
    used_bytes: u64,
}

/// What a network counts for a packet: an aggregate leaves, or came, in parts with a header each.
pub(super) fn counted_bytes(packet: &Packet) -> u64 {
    let whole = packet.len_bytes();
    let further_headers = match &packet.transport {
        Transport::Tcp(segment) if segment.segment_size > 0 => {
            let parts = segment.payload.len().div_ceil(segment.segment_size.into());
            parts.saturating_sub(1) * whole.saturating_sub(segment.payload.len())
        }
        _ => 0,
    };
    (whole + further_headers) as u64
}

impl Account {
    fn is_spent(&self) -> bool {
        self.used_bytes >= self.budget_bytes
    }
}

impl Budgets {
    pub(super) fn new(endpoints: &[LocalEndpoint]) -> Self {
        let mut budgets = Self::default();
        endpoints.iter().for_each(|endpoint| budgets.set(endpoint));
        budgets
    }

    /// An endpoint is added, or takes the place of the one with its address.
    pub(super) fn set(&mut self, endpoint: &LocalEndpoint) {
        if endpoint.budget.is_none() && self.accounts.is_empty() {
            return;
        }
        self.generation += 1;
        let own = self.account_of(endpoint.addr).map(usize::from);
        let Some(budget) = endpoint.budget else {
            if let Some(account) = own.and_then(|at| self.accounts.get_mut(at)) {
                account.addresses.retain(|addr| *addr != endpoint.addr);
            }
            return;
        };
        let of_pool =
            self.accounts.iter().position(|account| budget.pool != 0 && account.pool == budget.pool);
        let at = of_pool.or(own).unwrap_or(self.accounts.len());
        if at == self.accounts.len() {
            self.accounts.push(Account { pool: budget.pool, ..Account::default() });
        }
        if let Some(account) = self.accounts.get_mut(at) {
            (account.budget_bytes, account.is_hard) = (budget.bytes, budget.is_hard);
            if !account.addresses.contains(&endpoint.addr) {
                account.addresses.push(endpoint.addr);
            }
            self.has_news |= account.is_spent();
        }
    }

    /// Any address has, or had, a budget.
    pub(crate) fn are_in_use(&self) -> bool {
        !self.accounts.is_empty()
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Number of the account that `addr` draws on.
    pub(crate) fn account_of(&self, addr: IpAddr) -> Option<u16> {
        let at = self.accounts.iter().position(|account| account.addresses.contains(&addr))?;
        u16::try_from(at).ok()
    }

    pub(crate) fn count(&mut self, account: u16, bytes: u64) {
        if let Some(account) = self.accounts.get_mut(usize::from(account)) {
            let was_spent = account.is_spent();
            account.used_bytes += bytes;
            self.has_news |= account.is_spent() && !was_spent;
        }
    }

    /// Bytes that the account of `addr` has been charged; `None` if it draws on none.
    pub(super) fn used_bytes(&self, addr: IpAddr) -> Option<u64> {
        let account = self.account_of(addr)?;
        Some(self.accounts.get(usize::from(account))?.used_bytes)
    }

    /// Whether an account was overdrawn since this was asked last.
    pub(super) fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.has_news)
    }

    /// What is left of an endpoint that may have spent its budget.
    pub(super) fn allowed(&self, mut endpoint: LocalEndpoint) -> Option<LocalEndpoint> {
        let account = self.account_of(endpoint.addr).and_then(|at| self.accounts.get(usize::from(at)));
        match account {
            Some(account) if account.is_spent() && account.is_hard => return None,
            Some(account) if account.is_spent() => endpoint.backup = true,
            _ => {}
        }
        Some(endpoint)
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;
    use crate::path_manager::Budget;

    fn addr(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    fn endpoint(last: u8, bytes: u64, is_hard: bool, pool: u8) -> LocalEndpoint {
        LocalEndpoint::subflow(addr(last), last).budget(Budget { bytes, is_hard, pool })
    }

    #[test]
    fn addresses_of_one_pool_count_together_and_others_for_themselves() {
        let endpoints = [endpoint(1, 100, false, 1), endpoint(2, 100, false, 1), endpoint(3, 100, true, 0)];
        let mut budgets = Budgets::new(&endpoints);
        let accounts = [1, 2, 3, 4].map(|last| budgets.account_of(addr(last)));
        assert_eq!(accounts, [Some(0), Some(0), Some(1), None]);
        budgets.count(0, 60);
        assert!(!budgets.has_news);
        budgets.count(0, 40);
        assert!(budgets.has_news);
        for endpoint in &endpoints[..2] {
            assert_eq!(budgets.allowed(*endpoint), Some(endpoint.backup()));
        }
        assert_eq!(budgets.allowed(endpoints[2]), Some(endpoints[2]));
        budgets.count(1, 1000);
        assert_eq!(budgets.allowed(endpoints[2]), None);
    }

    #[test]
    fn an_aggregate_counts_as_the_packets_that_it_is() {
        let tuple = polypath_wire::FourTuple {
            local: polypath_wire::Endpoint::new(addr(1), 1),
            remote: polypath_wire::Endpoint::new(addr(2), 2),
        };
        let payload: polypath_wire::Payload = alloc::vec![0; 3000].into();
        let segment = polypath_wire::Segment { segment_size: 1000, payload, ..Default::default() };
        assert_eq!(counted_bytes(&Packet::tcp(tuple, segment.clone())), 3 * (40 + 1000));
        let alone = polypath_wire::Segment { segment_size: 0, ..segment };
        assert_eq!(counted_bytes(&Packet::tcp(tuple, alone)), 40 + 3000);
    }

    #[test]
    fn what_was_used_stays_when_the_budget_changes() {
        let mut budgets = Budgets::new(&[endpoint(1, 100, true, 0)]);
        budgets.count(0, 150);
        let raised = endpoint(1, 200, true, 0);
        budgets.set(&raised);
        assert_eq!((budgets.allowed(raised), budgets.accounts.len()), (Some(raised), 1));
        let generation = budgets.generation();
        let free = LocalEndpoint::subflow(addr(1), 1);
        budgets.set(&free);
        assert_eq!((budgets.account_of(addr(1)), budgets.allowed(free)), (None, Some(free)));
        assert_ne!(budgets.generation(), generation, "subflows have to ask again");
    }
}
