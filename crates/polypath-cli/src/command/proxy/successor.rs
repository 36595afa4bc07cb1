//! From root to a user who may less, once what only root may is done.

use std::ffi::CString;

use nix::unistd::{Gid, Uid, User, getgrouplist, setgroups, setresgid, setresuid};

use super::super::Failure;

/// The user whom a proxy becomes.
#[derive(Debug)]
pub(super) struct Successor {
    name: String,
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl Successor {
    /// Finds the user. From now on no program that this process starts has more rights than it. To be called before there are threads, which would
    /// not know of that.
    pub(super) fn find(name: &str) -> Result<Self, Failure> {
        if !Uid::effective().is_root() {
            return Err(Failure::Input("--user: expected root, who alone can become somebody else".into()));
        }
        let found = User::from_name(name).map_err(Failure::run)?;
        let Some(user) = found else {
            return Err(Failure::Input(format!("--user: there is no user {name}")));
        };
        if user.uid.is_root() {
            return Err(Failure::Input(format!("--user: {name} has all rights: expected another user")));
        }
        let text = CString::new(name).map_err(Failure::run)?;
        let groups = getgrouplist(&text, user.gid).map_err(Failure::run)?;
        rustix::thread::set_no_new_privs(true).map_err(Failure::run)?;
        Ok(Self { name: name.into(), uid: user.uid, gid: user.gid, groups })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The numbers of the user and of its group.
    pub(super) fn ids(&self) -> (u32, u32) {
        (self.uid.as_raw(), self.gid.as_raw())
    }

    /// Gives up root's rights, for good and in all threads, of which the C library sees to the others.
    pub(super) fn succeed(&self) -> Result<(), Failure> {
        // Groups first: who is not root any more can't leave them.
        let changed = setgroups(&self.groups)
            .and_then(|()| setresgid(self.gid, self.gid, self.gid))
            .and_then(|()| setresuid(self.uid, self.uid, self.uid));
        changed.map_err(|error| Failure::Run(format!("--user: can't become {}: {error}", self.name)))?;
        let root = Uid::from_raw(0);
        if setresuid(root, root, root).is_ok() {
            return Err(Failure::Run(
                "--user: root's rights could be taken back: expected to be without".into(),
            ));
        }
        Ok(())
    }
}
