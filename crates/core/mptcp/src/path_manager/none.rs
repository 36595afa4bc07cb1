use alloc::vec::Vec;

use super::{PathAction, PathEvent, PathManager, PathView, upkeep};

/// Opens and announces nothing: for applications that are happy with the one subflow that they opened, and those that the
/// peer joins. Budgets hold all the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct None;

impl PathManager for None {
    fn name(&self) -> &'static str {
        "none"
    }

    fn handle_event(&mut self, event: &PathEvent, view: &PathView<'_>, actions: &mut Vec<PathAction>) {
        if let PathEvent::LocalChanged(addr) = *event {
            upkeep::follow_flags(view, addr, actions);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{addr, after, initial_subflow, view};
    use super::super::{LocalEndpoint, RemoteAddress};
    use super::*;
    use crate::identifiers::AddressId;

    #[test]
    fn nothing_is_opened_or_announced() {
        let endpoints = [LocalEndpoint::subflow(addr(1), 1), LocalEndpoint::signal(addr(2), 2)];
        let subflows = [initial_subflow()];
        let announced = [RemoteAddress { id: AddressId(9), addr: addr(101), port: Option::None }];
        let view = PathView { announced: &announced, ..view(&endpoints, &subflows) };
        let events = [PathEvent::Established, PathEvent::Announced(announced[0]), PathEvent::Wake];
        for event in events {
            assert_eq!(after(&mut None, event, &view), []);
        }
    }
}
