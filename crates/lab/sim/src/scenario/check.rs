//! A scenario file under examination: the names in it, and mistakes.

use std::net::{IpAddr, Ipv4Addr};

use polypath_config::{FileError, Policies, Source};

use super::file::{File, HostFile};

/// The file, where it comes from, and the policies that it can name.
#[derive(Clone, Copy)]
pub(super) struct Check<'a> {
    pub(super) source: Source<'a>,
    pub(super) file: &'a File,
    pub(super) policies: &'a Policies,
}

impl Check<'_> {
    /// A mistake in the value of `key`.
    pub(super) fn wrong(&self, key: impl Into<String>, message: impl Into<String>) -> FileError {
        self.source.wrong(key, message)
    }

    /// A name that is none of `known`.
    pub(super) fn unknown<'n>(
        &self,
        key: impl Into<String>,
        what: &str,
        name: &str,
        known: impl IntoIterator<Item = &'n str>,
    ) -> FileError {
        self.source.unknown(key, what, name, known)
    }

    pub(super) fn names(&self) -> Result<(), FileError> {
        let hosts = self.file.hosts.iter().map(|host| host.name.as_str());
        let routers = self.file.routers.iter().map(|router| router.name.as_str());
        let mut seen: Vec<&str> = Vec::new();
        for (index, name) in hosts.chain(routers).enumerate() {
            let key = match index.checked_sub(self.file.hosts.len()) {
                None => format!("hosts[{index}].name"),
                Some(router) => format!("routers[{router}].name"),
            };
            if name.is_empty() {
                return Err(self.wrong(key, "is empty; expected a name"));
            }
            if seen.contains(&name) {
                return Err(self.wrong(key, format!("\"{name}\" is taken; expected a name of its own")));
            }
            seen.push(name);
        }
        if self.file.hosts.len() < 2 {
            return Err(self.wrong("hosts", "has fewer than two hosts; expected two ends at least"));
        }
        Ok(())
    }

    /// The number of the node of this name.
    pub(super) fn node(&self, key: &str, name: &str) -> Result<usize, FileError> {
        let hosts = self.file.hosts.iter().map(|host| host.name.as_str());
        let mut all = hosts.chain(self.file.routers.iter().map(|router| router.name.as_str()));
        all.clone().position(|known| known == name).ok_or_else(|| self.unknown(key, "node", name, &mut all))
    }

    pub(super) fn host(&self, key: &str, name: &str) -> Result<usize, FileError> {
        let mut hosts = self.file.hosts.iter().map(|host| host.name.as_str());
        hosts
            .clone()
            .position(|known| known == name)
            .ok_or_else(|| self.unknown(key, "host", name, &mut hosts))
    }

    /// True if the host opens connections.
    pub(super) fn opens(&self, host: &HostFile) -> bool {
        self.file.connections.iter().any(|connection| connection.from == host.name)
    }

    /// The address of a node at one end of link number `link`, if the file gives none there.
    pub(super) fn default_address(&self, node: usize, link: usize, end: usize) -> Option<IpAddr> {
        let host = self.file.hosts.get(node)?;
        let automatic = if self.opens(host) {
            // The link's own network; 172.16/12 has room for 4096 links.
            Ipv4Addr::new(172, 16 + (link >> 8) as u8, link as u8, 1 + end as u8)
        } else {
            Ipv4Addr::new(10, 0, (node >> 8) as u8, node as u8)
        };
        Some(host.address.unwrap_or(IpAddr::V4(automatic)))
    }
}
