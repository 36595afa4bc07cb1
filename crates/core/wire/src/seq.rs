use core::fmt;

/// A TCP sequence number: 32 bits that wrap (RFC 9293 §3.4). No operation panics.
///
/// There is no `Ord`: "less" on a circle is [`SeqNumber::before`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// This number moved forward by `bytes`, modulo 2³².
    #[must_use]
    pub const fn add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// This number moved back by `bytes`, modulo 2³².
    #[must_use]
    pub const fn sub(self, bytes: u32) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }

    /// Signed distance from `other` to `self`, in bytes.
    #[must_use]
    pub const fn diff(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// True if `self` comes before `other`.
    #[must_use]
    pub const fn before(self, other: Self) -> bool {
        self.diff(other) < 0
    }

    /// True if `self` comes after `other`.
    #[must_use]
    pub const fn after(self, other: Self) -> bool {
        self.diff(other) > 0
    }

    /// The later of the two.
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        if self.before(other) { other } else { self }
    }

    /// The earlier of the two.
    #[must_use]
    pub const fn min(self, other: Self) -> Self {
        if self.before(other) { self } else { other }
    }
}

impl fmt::Debug for SeqNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for SeqNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A Multipath TCP data sequence number: 64 bits that wrap (RFC 8684 §3.3.1). No operation panics, and it
/// can't be mixed up with a subflow's [`SeqNumber`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DataSeq(pub u64);

impl DataSeq {
    /// This number moved forward by `bytes`, modulo 2⁶⁴.
    #[must_use]
    pub const fn add(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Signed distance from `other` to `self`, in bytes.
    #[must_use]
    pub const fn diff(self, other: Self) -> i64 {
        self.0.wrapping_sub(other.0) as i64
    }

    /// True if `self` comes before `other`.
    #[must_use]
    pub const fn before(self, other: Self) -> bool {
        self.diff(other) < 0
    }

    /// True if `self` comes after `other`.
    #[must_use]
    pub const fn after(self, other: Self) -> bool {
        self.diff(other) > 0
    }

    /// The later of the two.
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        if self.before(other) { other } else { self }
    }

    /// The number whose low 32 bits are `low` and that is nearest to `self`: what a 4-byte form on the wire
    /// means.
    #[must_use]
    pub const fn nearest(self, low: u32) -> Self {
        let ahead = low.wrapping_sub(self.0 as u32) as i32;
        Self(self.0.wrapping_add(ahead as i64 as u64))
    }
}

impl fmt::Debug for DataSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for DataSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_the_wrap() {
        let last = SeqNumber(u32::MAX);
        assert!(last.before(last.add(1)));
        assert_eq!(last.add(10).diff(last), 10);
        assert_eq!(SeqNumber(5).sub(10), SeqNumber(u32::MAX - 4));
        assert!(DataSeq(u64::MAX).before(DataSeq(3)));
    }

    #[test]
    fn short_form_is_the_nearest_long_one() {
        let near = DataSeq(0x1_ffff_fff0);
        assert_eq!(near.nearest(0xffff_fffa), DataSeq(0x1_ffff_fffa));
        assert_eq!(near.nearest(0x0000_0010), DataSeq(0x2_0000_0010));
        assert_eq!(DataSeq(0x2_0000_0010).nearest(0xffff_fff0), near);
    }
}
