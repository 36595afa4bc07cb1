//! The Cookie TLV: that a client gets what is sent to its address (RFC 8803 §6.2.7).

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ctutils::CtEq;
use siphasher::sip128::SipHasher24;

use super::tlv::{self, padded};

/// What a converter gave a client, to be shown on its next connections.
#[derive(Clone, PartialEq, Eq)]
pub struct Cookie(Bytes);

/// Why something is no cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CookieError {
    /// It is longer than a client keeps.
    #[error("a cookie that is too long: expected at most 256 octets")]
    TooLong,
}

/// Octets between head and cookie.
const ZERO: usize = 2;

impl Cookie {
    /// Octets of the longest that is kept. A message has room for it beside all else that it may have.
    pub const MOST_OCTETS: usize = 256;

    /// Takes octets, and pads them to a multiple of four, which is what the other side sees.
    pub fn new(octets: &[u8]) -> Result<Self, CookieError> {
        if octets.len() > Self::MOST_OCTETS {
            return Err(CookieError::TooLong);
        }
        let mut cookie = octets.to_vec();
        cookie.resize(padded(octets.len()), 0);
        Ok(Self(cookie.into()))
    }

    /// Its octets.
    #[must_use]
    pub fn as_octets(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn parse(value: &[u8]) -> Result<Self, CookieError> {
        Self::new(value.get(ZERO..).unwrap_or_default())
    }

    pub(super) fn write(&self, out: &mut BytesMut) {
        tlv::write(out, tlv::COOKIE, &[&[0; ZERO], &self.0]);
    }
}

/// Whoever has a cookie can take the client's place, so only its length is shown.
impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cookie({} octets)", self.0.len())
    }
}

/// The number of the span of time in which a cookie is made. It is good until the next one ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookiePeriod(u64);

impl CookiePeriod {
    /// The one in which a time falls, if each is as long as `length`. Times count from any start that a converter keeps to.
    #[must_use]
    pub fn of(time: Duration, length: Duration) -> Self {
        Self(time.as_secs() / length.as_secs().max(1))
    }

    fn before(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }
}

/// The secret of which a converter makes cookies. They hold for an address and a span of time, so that nothing is kept for a client.
#[derive(Clone)]
pub struct CookieKey([u8; 16]);

impl CookieKey {
    /// Takes random octets. Another key makes all cookies invalid.
    #[must_use]
    pub fn new(secret: [u8; 16]) -> Self {
        Self(secret)
    }

    /// The cookie of a client.
    #[must_use]
    pub fn cookie(&self, client: IpAddr, period: CookiePeriod) -> Cookie {
        Cookie(Bytes::copy_from_slice(&self.hash(client, period)))
    }

    /// Whether it was made for this address, in this span of time or the one before.
    #[must_use]
    pub fn is_valid(&self, cookie: &Cookie, client: IpAddr, period: CookiePeriod) -> bool {
        let is_of = |period| self.hash(client, period)[..].ct_eq(cookie.as_octets()).to_bool();
        is_of(period) || period.before().is_some_and(is_of)
    }

    fn hash(&self, client: IpAddr, period: CookiePeriod) -> [u8; 16] {
        // An IPv4 client comes with the same address through a socket of either family.
        let address = match client {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let mut input = [0; 24];
        input[..16].copy_from_slice(&address.octets());
        input[16..].copy_from_slice(&period.0.to_be_bytes());
        SipHasher24::new_with_key(&self.0).hash(&input).as_bytes()
    }
}

impl fmt::Debug for CookieKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieKey(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn a_cookie_is_padded() {
        let cookie = Cookie::new(&[1, 2, 3, 4, 5]).expect("short");
        let mut out = BytesMut::new();
        cookie.write(&mut out);
        assert_eq!(out[..], [0x16, 3, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0]);
        assert_eq!(Cookie::parse(&out[2..]), Ok(cookie));
        assert_eq!(Cookie::new(&[0; 257]), Err(CookieError::TooLong));
        assert_eq!(Cookie::new(&[0; 256]).map(|cookie| cookie.as_octets().len()), Ok(256));
    }

    #[test]
    fn a_cookie_is_of_one_client_and_two_spans() {
        let key = CookieKey::new([7; 16]);
        let cookie = key.cookie(CLIENT, CookiePeriod(5));
        let valid: Vec<u64> =
            (0..9).filter(|period| key.is_valid(&cookie, CLIENT, CookiePeriod(*period))).collect();
        assert_eq!(valid, [5, 6]);
        assert!(!key.is_valid(&cookie, IpAddr::from([192, 0, 2, 2]), CookiePeriod(5)));
        assert!(!CookieKey::new([8; 16]).is_valid(&cookie, CLIENT, CookiePeriod(5)));
        let mapped = "::ffff:192.0.2.1".parse().expect("an address");
        assert!(key.is_valid(&cookie, mapped, CookiePeriod(5)));
        for octets in [0, 12, 20] {
            let other = Cookie::new(&[cookie.as_octets(), &[0; 4]].concat()[..octets]).expect("short");
            assert!(!key.is_valid(&other, CLIENT, CookiePeriod(5)), "{octets} octets");
        }
    }

    #[test]
    fn a_time_falls_in_a_span() {
        let hour = Duration::from_secs(3600);
        assert_eq!(CookiePeriod::of(Duration::from_secs(7199), hour), CookiePeriod(1));
        assert_eq!(CookiePeriod::of(Duration::from_secs(7200), hour), CookiePeriod(2));
        assert_eq!(CookiePeriod::of(Duration::from_secs(3), Duration::ZERO), CookiePeriod(3));
    }

    #[test]
    fn secrets_are_not_shown() {
        let key = CookieKey::new([0xab; 16]);
        let shown = format!("{key:?} {:?}", key.cookie(CLIENT, CookiePeriod(0)));
        assert_eq!(shown, "CookieKey(secret) Cookie(16 octets)");
    }
}
