//! Which addresses a subflow joins, and what either end wants to use it for (RFC 8684 §3.2, §3.3.8).

use crate::identifiers::AddressId;

/// Addresses and priority of a subflow.
#[derive(Debug)]
pub(crate) struct Role {
    local_id: AddressId,
    remote_id: AddressId,
    /// This end asked for backup.
    is_backup_here: bool,
    /// The peer asked for backup.
    is_backup_there: bool,
    /// The peer is asked not to send here while another subflow works, for what that holds up: see [`crate::reception`]. Our own data is
    /// not concerned.
    is_aside: bool,
    /// Its MP_JOIN said so.
    joined_aside: bool,
}

impl Role {
    pub(super) const fn new() -> Self {
        Self {
            local_id: AddressId::INITIAL,
            remote_id: AddressId::INITIAL,
            is_backup_here: false,
            is_backup_there: false,
            is_aside: false,
            joined_aside: false,
        }
    }

    // ---- what happened

    /// This end joins from an address, as a backup or set aside until it is tried.
    pub(crate) fn begin_join(&mut self, local_id: AddressId, is_backup: bool, is_aside: bool) {
        self.local_id = local_id;
        self.is_backup_here = is_backup;
        (self.is_aside, self.joined_aside) = (is_aside, is_aside);
    }

    /// The peer joins an address of ours, whose subflows may be backups.
    pub(crate) fn accept_join(&mut self, local_id: AddressId, is_backup_here: bool) {
        self.local_id = local_id;
        self.is_backup_here = is_backup_here;
    }

    /// What the peer's MP_JOIN says.
    pub(crate) fn handle_join(&mut self, remote_id: AddressId, is_backup_there: bool) {
        self.remote_id = remote_id;
        self.is_backup_there = is_backup_there;
    }

    /// MP_PRIO of the peer's.
    pub(crate) fn handle_prio(&mut self, is_backup_there: bool) {
        self.is_backup_there = is_backup_there;
    }

    /// This end asks for backup, or not any more.
    pub(crate) fn set_backup(&mut self, is_backup_here: bool) {
        self.is_backup_here = is_backup_here;
    }

    /// The peer is asked not to send here, or to do so again.
    pub(crate) fn set_aside(&mut self, is_aside: bool) {
        self.is_aside = is_aside;
    }

    // ---- what holds

    /// Identifier of the local address.
    pub(crate) const fn local_id(&self) -> AddressId {
        self.local_id
    }

    /// Identifier of the remote address.
    pub(crate) const fn remote_id(&self) -> AddressId {
        self.remote_id
    }

    /// A backup by the word of this end.
    pub(crate) const fn is_backup_here(&self) -> bool {
        self.is_backup_here
    }

    /// A backup by the word of either end.
    #[inline]
    pub(crate) const fn is_backup(&self) -> bool {
        self.is_backup_here || self.is_backup_there
    }

    /// See [`Role::set_aside`].
    pub(crate) const fn is_aside(&self) -> bool {
        self.is_aside
    }

    /// What MP_JOIN and MP_PRIO tell the peer.
    pub(crate) const fn asks_for_backup(&self) -> bool {
        self.is_backup_here || self.is_aside
    }

    /// It joined set aside, and the peer is to use it all the same.
    pub(crate) const fn is_tried(&self) -> bool {
        self.joined_aside && !self.is_aside
    }
}
