//! Subflows, and beside each what coupled congestion control sees of it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use polypath_congestion::FlowView;

use crate::subflow::Subflow;

/// Two columns of equal length: congestion control is shown the views of all in one piece. Only [`SubflowTable::push`] and
/// [`SubflowTable::remove`] change the length.
#[derive(Debug, Default)]
pub(super) struct SubflowTable {
    // Boxed: a subflow is large and the table is reordered when one goes.
    #[allow(clippy::vec_box, reason = "see above")]
    subflows: Vec<Box<Subflow>>,
    /// What coupled congestion control sees of the subflow at the same position: as it was after its last segment or timeout, see
    /// [`Flows::all`](polypath_congestion::Flows::all).
    views: Vec<FlowView>,
}

impl SubflowTable {
    pub(super) fn push(&mut self, subflow: Box<Subflow>) {
        self.views.push(subflow.tcp.flow_view());
        self.subflows.push(subflow);
        self.check();
    }

    /// Takes out the subflow at `position`; those behind it move up.
    pub(super) fn remove(&mut self, position: usize) -> Option<Box<Subflow>> {
        if position >= self.subflows.len() {
            return None;
        }
        self.views.remove(position);
        let subflow = self.subflows.remove(position);
        self.check();
        Some(subflow)
    }

    fn check(&self) {
        debug_assert_eq!(self.subflows.len(), self.views.len(), "a view for each subflow");
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.subflows.len()
    }

    #[inline]
    pub(super) fn get(&self, position: usize) -> Option<&Subflow> {
        self.subflows.get(position).map(|subflow| &**subflow)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, position: usize) -> Option<&mut Subflow> {
        self.subflows.get_mut(position).map(|subflow| &mut **subflow)
    }

    #[inline]
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Subflow> + ExactSizeIterator {
        self.subflows.iter().map(|subflow| &**subflow)
    }

    #[inline]
    pub(super) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Subflow> + ExactSizeIterator {
        self.subflows.iter_mut().map(|subflow| &mut **subflow)
    }

    /// The subflow at `position`, and the views of all.
    #[inline]
    pub(super) fn with_views(&mut self, position: usize) -> Option<(&mut Subflow, &[FlowView])> {
        Some((self.subflows.get_mut(position)?, &self.views))
    }

    /// The view of the subflow at `position` is as of now.
    #[inline]
    pub(super) fn refresh_view(&mut self, position: usize) {
        if let (Some(view), Some(subflow)) = (self.views.get_mut(position), self.subflows.get(position)) {
            *view = subflow.tcp.flow_view();
        }
    }

    /// Gives back the memory that an idle connection does not need.
    pub(super) fn trim(&mut self) {
        self.views.shrink_to(0);
    }
}
