//! TCP options as they stand in a TCP header (RFC 9293 §3.1).

use std::collections::BTreeSet;
use std::fmt;

use super::tlv::padded;

/// The kind of a TCP option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OptionKind(pub u8);

impl OptionKind {
    /// The end of the list.
    pub const END: Self = Self(0);
    /// Nothing, in one octet.
    pub const NO_OPERATION: Self = Self(1);
    /// Maximum segment size.
    pub const MAXIMUM_SEGMENT_SIZE: Self = Self(2);
    /// Window scale.
    pub const WINDOW_SCALE: Self = Self(3);
    /// That selective acknowledgments may come.
    pub const SACK_PERMITTED: Self = Self(4);
    /// Selective acknowledgments.
    pub const SACK: Self = Self(5);
    /// Timestamps.
    pub const TIMESTAMPS: Self = Self(8);
    /// TCP-AO.
    pub const AUTHENTICATION: Self = Self(29);
    /// Multipath TCP.
    pub const MULTIPATH_TCP: Self = Self(30);
    /// TCP Fast Open.
    pub const FAST_OPEN: Self = Self(34);
}

impl fmt::Display for OptionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Kinds of TCP options. The end of the list, which is padding, is none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionKinds(BTreeSet<OptionKind>);

impl OptionKinds {
    /// Whether it has the kind.
    #[must_use]
    pub fn contains(&self, kind: OptionKind) -> bool {
        self.0.contains(&kind)
    }

    /// In ascending order.
    pub fn iter(&self) -> impl Iterator<Item = OptionKind> + '_ {
        self.0.iter().copied()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn parse(value: &[u8]) -> Self {
        value.iter().map(|kind| OptionKind(*kind)).collect()
    }

    pub(super) fn to_octets(&self) -> Vec<u8> {
        self.iter().map(|kind| kind.0).collect()
    }
}

impl FromIterator<OptionKind> for OptionKinds {
    fn from_iter<I: IntoIterator<Item = OptionKind>>(kinds: I) -> Self {
        Self(kinds.into_iter().filter(|kind| *kind != OptionKind::END).collect())
    }
}

impl fmt::Display for OptionKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, kind) in self.iter().enumerate() {
            write!(f, "{}{kind}", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// One TCP option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOption<'a> {
    /// What it is.
    pub kind: OptionKind,
    /// What stands behind kind and length. In a Connect TLV, nothing means that the converter chooses.
    pub value: &'a [u8],
}

/// Why options can't stand in a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TcpOptionsError {
    /// They are too many.
    #[error("more TCP options than a header has room for: expected at most 40 octets")]
    TooLong,
    /// The length of one is less than 2, or goes past the end.
    #[error("a TCP option whose length can't be: expected 2 or more, and all of it")]
    Length,
}

/// A list of TCP options, padded to a multiple of four octets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions(Vec<u8>);

impl TcpOptions {
    /// Octets of options that a TCP header has room for (RFC 9293 §3.1).
    pub const MOST_OCTETS: usize = 40;

    /// Takes them as they stand in a TCP header.
    pub fn new(octets: &[u8]) -> Result<Self, TcpOptionsError> {
        let options = Self::copied(octets)?;
        match options.octets_that_are_read() {
            Some(_) => Ok(options),
            None => Err(TcpOptionsError::Length),
        }
    }

    /// Takes them whatever they say: they are for a reader who stops where nothing can be read.
    pub(super) fn copied(octets: &[u8]) -> Result<Self, TcpOptionsError> {
        if octets.len() > Self::MOST_OCTETS {
            return Err(TcpOptionsError::TooLong);
        }
        let mut options = octets.to_vec();
        options.resize(padded(octets.len()), 0);
        Ok(Self(options))
    }

    /// With one more.
    pub fn with(mut self, kind: OptionKind, value: &[u8]) -> Result<Self, TcpOptionsError> {
        // These two are of one octet, and padding alone.
        let has_length = !matches!(kind, OptionKind::END | OptionKind::NO_OPERATION);
        let end = self.octets_that_are_read().filter(|_| has_length).ok_or(TcpOptionsError::Length)?;
        self.0.truncate(end);
        let octets = u8::try_from(value.len() + 2).map_err(|_| TcpOptionsError::TooLong)?;
        self.0.extend([kind.0, octets]);
        self.0.extend(value);
        Self::new(&self.0)
    }

    /// Each but padding, up to the first whose length can't be.
    pub fn iter(&self) -> impl Iterator<Item = TcpOption<'_>> {
        let mut rest = self.0.as_slice();
        std::iter::from_fn(move || {
            loop {
                let (next, after) = split_first(rest)?;
                rest = after;
                match next {
                    Next::Option(option) => return Some(option),
                    Next::NoOperation => {}
                    Next::End => return None,
                }
            }
        })
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Whether one is of the kind.
    #[must_use]
    pub fn has(&self, kind: OptionKind) -> bool {
        self.iter().any(|option| option.kind == kind)
    }

    /// As they stand in a TCP header.
    #[must_use]
    pub fn as_octets(&self) -> &[u8] {
        &self.0
    }

    /// Octets before the end of the list, if every length is right.
    fn octets_that_are_read(&self) -> Option<usize> {
        let mut rest = self.0.as_slice();
        while !rest.is_empty() {
            match split_first(rest)? {
                (Next::End, _) => break,
                (_, after) => rest = after,
            }
        }
        Some(self.0.len() - rest.len())
    }
}

enum Next<'a> {
    Option(TcpOption<'a>),
    NoOperation,
    End,
}

fn split_first(octets: &[u8]) -> Option<(Next<'_>, &[u8])> {
    let (&kind, after) = octets.split_first()?;
    match OptionKind(kind) {
        OptionKind::END => Some((Next::End, after)),
        OptionKind::NO_OPERATION => Some((Next::NoOperation, after)),
        kind => {
            let (&octets_of_option, after) = after.split_first()?;
            let (value, after) = after.split_at_checked(usize::from(octets_of_option).checked_sub(2)?)?;
            Some((Next::Option(TcpOption { kind, value }), after))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_in_a_tcp_header() {
        let options =
            TcpOptions::new(&[1, 2, 4, 5, 180, 4, 2, 30, 4, 0, 1, 34, 2, 0, 9, 9]).expect("options");
        let found: Vec<_> = options.iter().map(|option| (option.kind.0, option.value)).collect();
        assert_eq!(found, [(2, &[5, 180][..]), (4, &[]), (30, &[0, 1]), (34, &[])]);
        assert!(options.has(OptionKind::MULTIPATH_TCP) && !options.has(OptionKind(9)), "behind the end");
    }

    #[test]
    fn an_option_is_added_before_the_padding() {
        let options = TcpOptions::default().with(OptionKind(30), &[]).expect("room");
        assert_eq!(options.as_octets(), [30, 2, 0, 0]);
        let options = options.with(OptionKind(34), &[1, 2, 3]).expect("room");
        assert_eq!(options.as_octets(), [30, 2, 34, 5, 1, 2, 3, 0]);
        assert_eq!(options.clone().with(OptionKind(253), &[7; 31]).map(|_| ()), Ok(()), "40 octets");
        assert_eq!(options.clone().with(OptionKind(253), &[7; 32]), Err(TcpOptionsError::TooLong));
        assert_eq!(options.clone().with(OptionKind(253), &[7; 254]), Err(TcpOptionsError::TooLong));
        assert_eq!(options.with(OptionKind::NO_OPERATION, &[]), Err(TcpOptionsError::Length));
    }

    #[test]
    fn lengths_that_can_t_be_are_refused_and_what_is_before_them_is_read() {
        for octets in [&[30, 0, 0, 0][..], &[30, 1, 0, 0], &[4, 2, 30, 3], &[4, 2, 1, 30]] {
            assert_eq!(TcpOptions::new(octets), Err(TcpOptionsError::Length), "{octets:?}");
            let copied = TcpOptions::copied(octets).expect("not too long");
            assert_eq!(copied.has(OptionKind(4)), octets[0] == 4);
            assert!(!copied.has(OptionKind(30)));
        }
        assert_eq!(TcpOptions::new(&[1; 41]), Err(TcpOptionsError::TooLong));
        assert!(TcpOptions::new(&[1; 40]).is_ok_and(|options| options.is_empty()));
    }
}
