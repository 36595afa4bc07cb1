//! Failures in the words of the settings that [`EngineChoice::parse`](crate::EngineChoice::parse) reads, where another setting
//! would help.

use std::io;

use polypath_netsetup::SetupError;
use polypath_netsetup::uplinks::UplinkError;
use polypath_stack::udp::UdpError;
use polypath_system::tun::TunError;

use crate::carried::{errno, numbered};

/// The same failure, with the settings that would help, for programs that choose by them.
#[must_use]
pub fn in_words_of_settings(error: io::Error) -> io::Error {
    let of_uplinks = error.get_ref().and_then(|inner| inner.downcast_ref::<UplinkError>());
    let message = match (UdpError::of(&error), of_uplinks) {
        (Some(UdpError::PortInUse { port, source }), _) => {
            format!(
                "can't use UDP port {port}: {source}; expected udp_port=NUMBER with another one, at both ends"
            )
        }
        (Some(UdpError::OnlyConnects), _) => {
            "nobody can reach this engine, which only connects; expected engine=udp,reachable".into()
        }
        (_, Some(UplinkError::Tun(TunError::Permission) | UplinkError::Setup(SetupError::Permission))) => {
            "engine=tun needs the capability CAP_NET_ADMIN; expected root, or engine=udp or engine=kernel"
                .into()
        }
        _ => return error,
    };
    numbered(errno(&error), &message)
}

/// Why there is no stack over UDP: a name that is no interface gives the number that it gives with a stack on the uplinks.
pub(super) fn without_interface(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::NotFound {
        return error;
    }
    numbered(libc::EINVAL, &format!("{error}; expected an interface that is there (`ip link` shows them)"))
}

/// Why there is no stack on the uplinks, with a kind and, where the system gave one, a number of errno.
pub(super) fn into_io(error: UplinkError) -> io::Error {
    let code = match &error {
        UplinkError::Io(error)
        | UplinkError::Setup(SetupError::Io(error))
        | UplinkError::Tun(TunError::Io { error, .. }) => Some(errno(error)),
        _ => None,
    };
    match code {
        Some(errno) => numbered(errno, &error.to_string()),
        None => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_setting_would_help_against_names_it() {
        let taken =
            UdpError::PortInUse { port: 6824, source: io::Error::from_raw_os_error(libc::EADDRINUSE) };
        for (error, expected, code) in [
            (taken.into(), "udp_port=NUMBER", libc::EADDRINUSE),
            (UdpError::OnlyConnects.into(), "engine=udp,reachable", libc::EOPNOTSUPP),
            (into_io(SetupError::Permission.into()), "engine=udp or engine=kernel", libc::EPERM),
            (io::Error::from_raw_os_error(libc::EMFILE), "Too many open files", libc::EMFILE),
        ] {
            let worded = in_words_of_settings(error);
            assert!(worded.to_string().contains(expected), "{worded}");
            assert_eq!(errno(&worded), code, "{worded}");
        }
    }

    #[test]
    fn descriptors_that_run_out_on_the_way_keep_their_number() {
        let error = polypath_system::in_context("nft", io::Error::from_raw_os_error(libc::EMFILE));
        let error = into_io(SetupError::Io(error).into());
        assert_eq!(errno(&error), libc::EMFILE);
        assert!(error.to_string().starts_with("can't set up the network: nft: Too many"), "{error}");
    }
}
