//! Users, and their passwords.

use std::collections::BTreeMap;
use std::fmt;

use ctutils::CtEq as _;

use crate::negotiation::Authority;

/// Octets of the longest name and the longest password: what a client of SOCKS can say (RFC 1929 §2).
const LONGEST: usize = 255;

/// A password in a place of one size, so that comparing two tells of neither how long it is.
#[derive(Clone, PartialEq, Eq)]
struct Password {
    octets: [u8; LONGEST],
    length: u8,
}

impl Password {
    /// None longer than passwords are.
    fn new(text: &[u8]) -> Option<Self> {
        let mut octets = [0; LONGEST];
        octets.get_mut(..text.len())?.copy_from_slice(text);
        Some(Self { octets, length: u8::try_from(text.len()).ok()? })
    }

    fn is(&self, other: &Self) -> bool {
        (self.octets.ct_eq(&other.octets) & self.length.ct_eq(&other.length)).to_bool()
    }
}

/// Users with their passwords.
#[derive(Clone, Default)]
pub struct UserList {
    users: BTreeMap<Box<[u8]>, Password>,
}

/// Why a text is no list of users.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct UserListError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: UserListProblem,
}

/// What is wrong with a line of a list of users. It never has the password in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserListProblem {
    /// There is no colon.
    #[error("no colon: expected NAME:PASSWORD")]
    NoColon,
    /// Nothing stands before the colon.
    #[error("no name before the colon: expected NAME:PASSWORD")]
    NoName,
    /// Nothing stands behind the colon.
    #[error("user {0:?} has no password")]
    NoPassword(Box<str>),
    /// The name or the password can't be said in SOCKS.
    #[error("a name or a password of more than 255 octets")]
    TooLong,
    /// It is there already.
    #[error("user {0:?} stands in two lines")]
    Twice(Box<str>),
}

impl UserList {
    /// Takes `NAME:PASSWORD` from each line. Empty lines, and those that begin with `#`, say nothing. A password may have colons and blanks in it.
    pub fn parse(text: &str) -> Result<Self, UserListError> {
        let mut list = Self::default();
        for (index, line) in text.lines().enumerate() {
            if !line.trim().is_empty() && !line.starts_with('#') {
                list.add(line).map_err(|problem| UserListError { line: index + 1, problem })?;
            }
        }
        Ok(list)
    }

    fn add(&mut self, line: &str) -> Result<(), UserListProblem> {
        let (name, password) = line.split_once(':').ok_or(UserListProblem::NoColon)?;
        match (name, password) {
            ("", _) => return Err(UserListProblem::NoName),
            (_, "") => return Err(UserListProblem::NoPassword(name.into())),
            _ if name.len() > LONGEST => return Err(UserListProblem::TooLong),
            _ => {}
        }
        let password = Password::new(password.as_bytes()).ok_or(UserListProblem::TooLong)?;
        match self.users.insert(name.as_bytes().into(), password) {
            Some(_) => Err(UserListProblem::Twice(name.into())),
            None => Ok(()),
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether somebody is called so.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.users.contains_key(name.as_bytes())
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }
}

impl Authority for UserList {
    fn knows(&self, name: &[u8], password: &[u8]) -> bool {
        let Some(said) = Password::new(password) else { return false };
        // For a name that nobody has, something is compared as well; an empty password is nobody's.
        let nobody = Password { octets: [0; LONGEST], length: 0 };
        let user = self.users.get(name);
        let is_right = user.unwrap_or(&nobody).is(&said);
        is_right & user.is_some()
    }
}

impl fmt::Debug for UserList {
    /// Without names and passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserList").field("users", &self.users.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn users_are_known_by_name_and_password() {
        let users = UserList::parse("# who may\n\nalice:secret\nbob:pass: word \r\n  \n").unwrap();
        assert_eq!(users.len(), 2);
        assert!(users.has("bob") && !users.has("Bob") && !users.has(""));
        assert!(users.knows(b"alice", b"secret"));
        assert!(users.knows(b"bob", b"pass: word "));
        for (name, password) in [
            (&b"alice"[..], &b"secre"[..]),
            (b"alice", b"secret\0"),
            (b"alice", b"Secret"),
            (b"alice", b""),
            (b"Alice", b"secret"),
            (b"bob", b"secret"),
            (b"", b""),
            (b"carol", b""),
            (b"carol", &[b'x'; 256]),
            (b"alice", &[b'x'; 256]),
        ] {
            assert!(!users.knows(name, password), "{name:?} {password:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_without_the_password() {
        for (text, said) in [
            ("alice:a\nbob", "line 2: no colon: expected NAME:PASSWORD"),
            (":secret", "line 1: no name before the colon: expected NAME:PASSWORD"),
            ("# users\nbob:", "line 2: user \"bob\" has no password"),
            ("bob:a\n\nbob:secret", "line 3: user \"bob\" stands in two lines"),
        ] {
            assert_eq!(UserList::parse(text).unwrap_err().to_string(), said);
        }
        let long = format!("bob:{}", "x".repeat(256));
        assert_eq!(UserList::parse(&long).unwrap_err().problem, UserListProblem::TooLong);
        assert_eq!(UserList::parse(&long[..long.len() - 1]).map(|users| users.len()), Ok(1));
        assert_eq!(format!("{:?}", UserList::parse("bob:secret").unwrap()), "UserList { users: 1 }");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: String, name: Vec<u8>, password: Vec<u8>) {
            if let Ok(users) = UserList::parse(&text) {
                let knows = users.knows(&name, &password);
                prop_assert!(!knows || text.contains(':'));
            }
        }
    }
}
