//! Engine auto: our own stack where the host allows it, else the kernel's Multipath TCP, else plain TCP.

use std::io;

use polypath_netsetup::abilities::{Abilities, KernelMultipath};
use polypath_system::Namespace;

use crate::choices::EngineChoice;
use crate::lack::Lack;

impl EngineChoice {
    /// The choice, with engine auto decided by what this host allows; and where that is not our own stack, why. An error if
    /// something is wanted that our own stack alone has, which can't start.
    pub fn decided(self) -> io::Result<(Self, Option<String>)> {
        match self {
            Self::Auto { .. } => {
                let namespace = Namespace::current()?;
                let abilities = Abilities::look(&namespace)?;
                Ok((self.decided_by(&abilities)?, Lack::reason(&abilities)))
            }
            other => Ok((other, None)),
        }
    }

    fn decided_by(self, abilities: &Abilities) -> io::Result<Self> {
        let Self::Auto { ours, is_particular } = self else { return Ok(self) };
        match (Lack::all(abilities).first(), Lack::reason(abilities)) {
            (Some(lack), Some(reason)) if is_particular => {
                let expected = "expected engine=auto alone, or engine=udp";
                Err(io::Error::new(
                    lack.kind(),
                    format!(
                        "engine=auto with settings of our own stack, which can't start: {reason}; {expected}"
                    ),
                ))
            }
            (Some(_), _) if abilities.kernel == KernelMultipath::On => Ok(Self::Kernel),
            (Some(_), _) => Ok(Self::PlainTcp),
            (None, _) => Ok(Self::Relay(ours)),
        }
    }
}

#[cfg(test)]
mod tests {
    use polypath_netsetup::abilities::{TunAccess, Uplink};

    use super::*;

    #[test]
    fn the_best_that_the_host_allows_is_taken() {
        let able = Abilities {
            is_admin: true,
            is_root: true,
            tun: TunAccess::Open,
            has_nft: true,
            uplinks: vec![Uplink { name: "wifi".into(), addresses: vec![[192, 0, 2, 1].into()] }],
            kernel: KernelMultipath::On,
            kernel_paths: None,
        };
        let decide =
            |text: &str, abilities: &Abilities| EngineChoice::parse(text).expect(text).decided_by(abilities);
        let ours = decide("engine=auto,scheduler=redundant", &able);
        assert!(matches!(ours, Ok(EngineChoice::Relay(_))), "{ours:?}");
        let user = Abilities { is_admin: false, ..able.clone() };
        assert_eq!(decide("engine=auto,keepalive=30", &user).expect("it falls back"), EngineChoice::Kernel);
        let reason = "this user may not change the network (CAP_NET_ADMIN)";
        assert_eq!(Lack::reason(&able), None);
        assert_eq!(Lack::reason(&Abilities { is_root: false, ..user.clone() }).as_deref(), Some(reason));
        assert!(Lack::reason(&user).is_some_and(|reason| reason.starts_with("this container may not")));
        let refused = decide("engine=auto,interface=wifi", &user).expect_err("the kernel can't");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(refused.to_string().contains("--cap-add=NET_ADMIN"), "{refused}");
        let nobody = Abilities { is_root: false, tun: TunAccess::Forbidden, ..user.clone() };
        let refused = decide("engine=auto,scheduler=redundant", &nobody).expect_err("the kernel can't");
        assert!(Lack::reason(&nobody).is_some_and(|all| refused.to_string().contains(&all)), "{refused}");
        assert!(
            refused.to_string().contains("/dev/net/tun") && refused.to_string().contains("CAP_NET_ADMIN")
        );
        let old = Abilities { has_nft: false, kernel: KernelMultipath::Off, ..able };
        assert_eq!(decide("engine=auto", &old).expect("it falls back"), EngineChoice::PlainTcp);
        assert_eq!(decide("engine=tcp", &old).expect("no question"), EngineChoice::PlainTcp);
    }
}
