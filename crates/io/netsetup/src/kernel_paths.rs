//! What the kernel's path manager may do.

use std::io;
use std::net::IpAddr;

use futures_util::TryStreamExt;
use mptcp_pm::{
    MptcpPathManagerAddressAttr, MptcpPathManagerAddressAttrFlag, MptcpPathManagerAttr,
    MptcpPathManagerError, MptcpPathManagerLimitsAttr,
};

/// What the kernel's path manager may do, and with which addresses (`ip mptcp limits`, `ip mptcp endpoint`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelPaths {
    /// Subflows that a connection may have besides its first.
    pub subflows: u32,
    /// Addresses from which subflows are opened.
    pub subflow_endpoints: Vec<IpAddr>,
    /// Addresses that are announced to peers, which open subflows to them.
    pub signal_endpoints: Vec<IpAddr>,
}

/// Asks about the calling thread's network namespace; the thread must run no runtime of tokio's.
pub(crate) fn path_manager() -> io::Result<KernelPaths> {
    let runtime = polypath_system::build_runtime(tokio::runtime::Builder::new_current_thread().enable_io())?;
    runtime.block_on(async {
        let (connection, handle, _) = mptcp_pm::new_connection()?;
        tokio::spawn(connection);
        let mut manager = KernelPaths::default();
        let mut limits = handle.limits().get().execute().await;
        while let Some(message) = limits.try_next().await.map_err(into_io)? {
            for attribute in message.payload.nlas {
                if let MptcpPathManagerAttr::Limits(MptcpPathManagerLimitsAttr::Subflows(count)) = attribute {
                    manager.subflows = count;
                }
            }
        }
        let mut addresses = handle.address().get().execute().await;
        while let Some(message) = addresses.try_next().await.map_err(into_io)? {
            let (mut addr, mut opens, mut announces) = (None, false, false);
            for attribute in message.payload.nlas {
                let MptcpPathManagerAttr::Address(attribute) = attribute else { continue };
                match attribute {
                    MptcpPathManagerAddressAttr::Addr4(v4) => addr = Some(IpAddr::V4(v4)),
                    MptcpPathManagerAddressAttr::Addr6(v6) => addr = Some(IpAddr::V6(v6)),
                    MptcpPathManagerAddressAttr::Flags(flags) => {
                        opens = flags.contains(&MptcpPathManagerAddressAttrFlag::Subflow);
                        announces = flags.contains(&MptcpPathManagerAddressAttrFlag::Signal);
                    }
                    _ => {}
                }
            }
            manager.subflow_endpoints.extend(addr.filter(|_| opens));
            manager.signal_endpoints.extend(addr.filter(|_| announces));
        }
        Ok(manager)
    })
}

fn into_io(error: MptcpPathManagerError) -> io::Error {
    match error {
        MptcpPathManagerError::NetlinkError(message) => message.to_io(),
        error => io::Error::other(error.to_string()),
    }
}
