//! The kernel's table of connections that pass address translation.

use std::io;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Has the kernel forget the connections of a family that have this mark, in the calling thread's network namespace. Kernels
/// before 5.2 forget those of the other family too.
pub fn forget(mark: u32, is_v4: bool) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::NETFILTER))?;
    let kernel = SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&socket, &request(mark, is_v4), SendFlags::empty(), &kernel)?;
    let mut answer = [0; 256];
    let (_, len_bytes) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    result(&answer[..len_bytes.min(answer.len())])
}

/// `NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_DELETE` of linux/netfilter/nfnetlink_conntrack.h.
const DELETE: u16 = 1 << 8 | 2;
/// Attributes of the same.
const MARK: u16 = 8;
const MARK_MASK: u16 = 21;
/// `NLM_F_REQUEST | NLM_F_ACK`.
const FLAGS: u16 = 1 | 4;
const NLMSG_ERROR: u16 = 2;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const HEADER_BYTES: usize = 16;

/// A header of netlink, one of nfnetlink, and two attributes.
fn request(mark: u32, is_v4: bool) -> Vec<u8> {
    let mut body = Vec::with_capacity(20);
    // With version 0 the kernel takes no notice of the family.
    body.extend([if is_v4 { AF_INET } else { AF_INET6 }, 1, 0, 0]);
    for (kind, value) in [(MARK, mark), (MARK_MASK, u32::MAX)] {
        body.extend(8_u16.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value.to_be_bytes());
    }
    let len_bytes = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX);
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend(len_bytes.to_ne_bytes());
    message.extend(DELETE.to_ne_bytes());
    message.extend(FLAGS.to_ne_bytes());
    message.extend(1_u32.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend(body);
    message
}

/// What the kernel's answer says: a negative number of an error, or 0.
fn result(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let number = answer.get(HEADER_BYTES..HEADER_BYTES + 4).and_then(|bytes| bytes.try_into().ok());
    match (kind, number.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(number)) => Err(io::Error::from_raw_os_error(-number)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is none to what was asked")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_laid_out_as_the_kernel_wants_it() {
        let message = request(0x7070_0001, true);
        assert_eq!(message.len(), 36);
        assert_eq!(message[..4], 36_u32.to_ne_bytes());
        assert_eq!(message[16..18], [AF_INET, 1]);
        assert_eq!(message[24..28], [0x70, 0x70, 0, 1]);
        assert_eq!(message[32..], [0xff; 4]);
    }

    #[test]
    fn an_answer_is_an_error_or_none() {
        let answer = |number: i32| {
            let mut bytes = [0; 20];
            bytes[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
            bytes[16..].copy_from_slice(&number.to_ne_bytes());
            result(&bytes)
        };
        assert!(answer(0).is_ok());
        assert_eq!(answer(-1).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(result(&[]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
