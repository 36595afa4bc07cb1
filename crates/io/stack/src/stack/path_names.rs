//! Names of paths, those too that are gone.

use std::net::IpAddr;

/// Addresses whose names are kept: as many as a host counts for themselves, and one for all others.
const MOST_NAMES: usize = 17;

#[derive(Debug, Default)]
pub(super) struct PathNames(Vec<(IpAddr, String)>);

impl PathNames {
    /// The name of an address now, or its last one.
    pub(super) fn name(&mut self, addr: IpAddr, now: Option<String>) -> Option<String> {
        let has_room = self.0.len() < MOST_NAMES;
        match (self.0.iter_mut().find(|(known, _)| *known == addr), now) {
            (Some((_, name)), Some(now)) => name.clone_from(&now),
            (Some((_, name)), None) => return Some(name.clone()),
            (None, Some(now)) if has_room => self.0.push((addr, now)),
            (None, now) => return now,
        }
        self.0.iter().find(|(known, _)| *known == addr).map(|(_, name)| name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outlive_their_interfaces() {
        let mut names = PathNames::default();
        let addr = IpAddr::from([10, 0, 0, 1]);
        assert_eq!(names.name(addr, None), None);
        assert_eq!(names.name(addr, Some("wifi".into())).as_deref(), Some("wifi"));
        assert_eq!(names.name(addr, None).as_deref(), Some("wifi"));
    }
}
