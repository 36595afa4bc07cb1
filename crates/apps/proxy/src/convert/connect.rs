//! The Connect TLV: where the client wants to go (RFC 8803 §6.2.5).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::BytesMut;

use super::options::{TcpOptions, TcpOptionsError};
use super::tlv;

/// Octets of port and address, which is all of a Base Connect TLV.
const BASE: usize = 18;

/// Where a connection shall lead, and with what TCP options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Connect {
    remote: SocketAddr,
    options: Option<TcpOptions>,
}

/// Why a Connect TLV can't be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// It is too short for port and address.
    #[error("a Connect TLV without port and address")]
    Short,
    /// The port is zero.
    #[error("a Connect TLV with port 0")]
    Port,
    /// The address is of no single other host.
    #[error("a Connect TLV with a multicast, broadcast, loopback or unspecified address")]
    Address,
    /// The options are none.
    #[error(transparent)]
    Options(#[from] TcpOptionsError),
}

impl Connect {
    /// A Base Connect TLV.
    pub(super) fn new(remote: SocketAddr) -> Result<Self, ConnectError> {
        // An IPv4 address within IPv6 is an IPv4 address: a mapped loopback address is one of loopback.
        let address = remote.ip().to_canonical();
        if remote.port() == 0 {
            return Err(ConnectError::Port);
        }
        let is_broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
        if address.is_multicast() || is_broadcast || address.is_loopback() || address.is_unspecified() {
            return Err(ConnectError::Address);
        }
        Ok(Self { remote: SocketAddr::new(address, remote.port()), options: None })
    }

    /// An Extended Connect TLV: the converter shall send these options to the server, and tell which ones the server sent. Without any it is a
    /// Base Connect TLV.
    #[must_use]
    pub(super) fn with_options(self, options: TcpOptions) -> Self {
        Self { options: (!options.as_octets().is_empty()).then_some(options), ..self }
    }

    /// The server.
    #[must_use]
    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// The options of an Extended Connect TLV.
    #[must_use]
    pub(super) fn options(&self) -> Option<&TcpOptions> {
        self.options.as_ref()
    }

    pub(super) fn parse(value: &[u8]) -> Result<Self, ConnectError> {
        let (base, options) = value.split_first_chunk::<BASE>().ok_or(ConnectError::Short)?;
        let [port_high, port_low, address @ ..] = *base;
        let port = u16::from_be_bytes([port_high, port_low]);
        let connect = Self::new(SocketAddr::new(Ipv6Addr::from(address).into(), port))?;
        Ok(connect.with_options(TcpOptions::new(options)?))
    }

    pub(super) fn write(&self, out: &mut BytesMut) {
        let address = match self.remote.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let options = self.options.as_ref().map(TcpOptions::as_octets).unwrap_or_default();
        tlv::write(out, tlv::CONNECT, &[&self.remote.port().to_be_bytes(), &address.octets(), options]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::OptionKind;

    fn written(connect: &Connect) -> Vec<u8> {
        let mut out = BytesMut::new();
        connect.write(&mut out);
        out.to_vec()
    }

    #[test]
    fn a_base_connect_tlv_has_port_and_address() {
        let connect = Connect::new("192.0.2.7:443".parse().expect("an address")).expect("a server");
        let octets = [10, 5, 1, 187, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 192, 0, 2, 7];
        assert_eq!(written(&connect), octets);
        assert_eq!(Connect::parse(&octets[2..]), Ok(connect));

        let connect = Connect::new("[2001:db8::1]:80".parse().expect("an address")).expect("a server");
        let octets = [10, 5, 0, 80, 32, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(written(&connect), octets);
        assert_eq!(Connect::parse(&octets[2..]), Ok(connect));
    }

    #[test]
    fn an_extended_connect_tlv_has_options_behind_them() {
        let options = TcpOptions::default().with(OptionKind::MULTIPATH_TCP, &[]).expect("room");
        let connect = Connect::new("[2001:db8::1]:80".parse().expect("an address"))
            .expect("a server")
            .with_options(options);
        let octets = [10, 6, 0, 80, 32, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 30, 2, 0, 0];
        assert_eq!(written(&connect), octets);
        assert_eq!(Connect::parse(&octets[2..]), Ok(connect));
    }

    #[test]
    fn addresses_of_no_single_other_host_are_refused() {
        for address in [
            "0.0.0.0:1",
            "127.1.2.3:1",
            "224.0.0.1:1",
            "255.255.255.255:1",
            "[::]:1",
            "[::1]:1",
            "[ff02::1]:1",
            "[::ffff:127.0.0.1]:1",
            "[::ffff:224.0.0.1]:1",
            "[::ffff:255.255.255.255]:1",
            "[::ffff:0.0.0.0]:1",
        ] {
            let remote = address.parse().expect("an address");
            assert_eq!(Connect::new(remote), Err(ConnectError::Address), "{address}");
        }
        assert_eq!(Connect::new("192.0.2.1:0".parse().expect("an address")), Err(ConnectError::Port));
    }

    #[test]
    fn what_is_short_or_has_broken_options_is_refused() {
        let value = [0, 80, 32, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        for octets in 0..value.len() {
            assert_eq!(Connect::parse(&value[..octets]), Err(ConnectError::Short));
        }
        let with = |options: &[u8]| Connect::parse(&[&value[..], options].concat()).map(|_| ());
        assert_eq!(with(&[]), Ok(()));
        assert_eq!(with(&[30, 5, 0, 0]), Err(TcpOptionsError::Length.into()));
        assert_eq!(with(&[0; 44]), Err(TcpOptionsError::TooLong.into()));
    }
}
