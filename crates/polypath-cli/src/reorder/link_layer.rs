//! What stands before the IP packet in a captured frame.

use pcap_parser::Linktype;

/// BSD's own numbers for packets without a link layer.
const RAW_OF_BSD: [i32; 2] = [12, 14];

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Tags of virtual networks: 802.1Q, 802.1ad and what came before it.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carried {
    /// An IP packet, behind so many bytes. Linux says of some captures that the host itself sent it.
    Ip { offset: usize, is_outbound: bool },
    /// Something else.
    Other,
    /// Nobody here knows this link layer.
    UnknownLink,
}

pub(super) fn carried(link: Linktype, frame: &[u8]) -> Carried {
    let ip = |offset| Carried::Ip { offset, is_outbound: false };
    match link {
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 => ip(0),
        Linktype(number) if RAW_OF_BSD.contains(&number) => ip(0),
        // The family of addresses, whose numbers differ by system; the packet itself says its version.
        Linktype::NULL | Linktype::LOOP => ip(4),
        Linktype::ETHERNET => behind_type(frame, 12, false),
        Linktype::LINUX_SLL => behind_type(frame, 14, frame.get(..2) == Some(&[0, 4])),
        Linktype::LINUX_SLL2 => match frame.get(..2) {
            Some(&[high, low]) if is_ip(u16::from_be_bytes([high, low])) => {
                Carried::Ip { offset: 20, is_outbound: frame.get(10) == Some(&4) }
            }
            _ => Carried::Other,
        },
        _ => Carried::UnknownLink,
    }
}

const fn is_ip(kind: u16) -> bool {
    matches!(kind, IPV4 | IPV6)
}

/// Behind a type at this place, and tags.
fn behind_type(frame: &[u8], mut at: usize, is_outbound: bool) -> Carried {
    while let Some(kind) = frame.get(at..at + 2).and_then(|kind| kind.first_chunk::<2>()) {
        let kind = u16::from_be_bytes(*kind);
        if is_ip(kind) {
            return Carried::Ip { offset: at + 2, is_outbound };
        }
        if !TAGS.contains(&kind) {
            break;
        }
        at += 4;
    }
    Carried::Other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packet_is_found_behind_each_link_layer() {
        let ip = |offset, is_outbound| Carried::Ip { offset, is_outbound };
        let with = |before: &[u8], kind: u16| [before, &kind.to_be_bytes(), &[0x45; 20]].concat();
        assert_eq!(carried(Linktype::ETHERNET, &with(&[0; 12], IPV4)), ip(14, false));
        let tagged = with(&[&[0; 12][..], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2]].concat(), IPV6);
        assert_eq!(carried(Linktype::ETHERNET, &tagged), ip(22, false));
        assert_eq!(carried(Linktype::ETHERNET, &with(&[0; 12], 0x0806)), Carried::Other);
        assert_eq!(carried(Linktype::ETHERNET, &[0; 13]), Carried::Other);
        let cooked = [&[0, 4][..], &[0; 12]].concat();
        assert_eq!(carried(Linktype::LINUX_SLL, &with(&cooked, IPV4)), ip(16, true));
        assert_eq!(carried(Linktype::LINUX_SLL, &with(&[0; 14], IPV4)), ip(16, false));
        let mut cooked = with(&[], IPV4);
        cooked[10] = 4;
        assert_eq!(carried(Linktype::LINUX_SLL2, &cooked), ip(20, true));
        assert_eq!(carried(Linktype::NULL, &[0; 24]), ip(4, false));
        assert_eq!(carried(Linktype(12), &[]), ip(0, false));
        assert_eq!(carried(Linktype(147), &[]), Carried::UnknownLink);
    }
}
