//! The Supported TCP Extensions TLV: which options are converted (RFC 8803 §6.2.4).

use bytes::BytesMut;

use super::options::{OptionKind, OptionKinds};
use super::tlv;

/// The TCP options that a converter converts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SupportedExtensions(OptionKinds);

/// Octets before the kinds.
const UNASSIGNED: usize = 2;

impl SupportedExtensions {
    /// Those of the kinds that may be announced.
    #[must_use]
    pub fn new(kinds: impl IntoIterator<Item = OptionKind>) -> Self {
        Self(kinds.into_iter().filter(|kind| may_be_announced(*kind)).collect())
    }

    /// Their kinds.
    #[must_use]
    pub fn kinds(&self) -> &OptionKinds {
        &self.0
    }

    pub(super) fn parse(value: &[u8]) -> Self {
        Self::new(OptionKinds::parse(value.get(UNASSIGNED..).unwrap_or_default()).iter())
    }

    pub(super) fn write(&self, out: &mut BytesMut) {
        tlv::write(out, tlv::SUPPORTED_TCP_EXTENSIONS, &[&[0; UNASSIGNED], &self.0.to_octets()]);
    }
}

/// Some belong to every stack or to one connection, and TCP-AO holds between two ends (RFC 8803 §7.1, §7.2, §7.3, §7.7).
fn may_be_announced(kind: OptionKind) -> bool {
    !is_ignored(kind) && kind != OptionKind::AUTHENTICATION
}

/// Whether a converter takes no notice of the option in a Connect TLV (RFC 8803 §7.1, §7.2, §7.3).
pub(super) fn is_ignored(kind: OptionKind) -> bool {
    matches!(
        kind,
        OptionKind::END
            | OptionKind::NO_OPERATION
            | OptionKind::MAXIMUM_SEGMENT_SIZE
            | OptionKind::WINDOW_SCALE
            | OptionKind::SACK
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_of_kinds_and_padded() {
        let supported = SupportedExtensions::new([34, 30, 4].map(OptionKind));
        let mut out = BytesMut::new();
        supported.write(&mut out);
        assert_eq!(out[..], [0x15, 2, 0, 0, 4, 30, 34, 0]);
        assert_eq!(SupportedExtensions::parse(&out[2..]), supported);
        assert_eq!(SupportedExtensions::parse(&[9, 9, 34, 4, 30, 30]), supported);
    }

    #[test]
    fn what_must_not_be_announced_is_left_out() {
        let all = SupportedExtensions::new((0..=u8::MAX).map(OptionKind));
        let missing: Vec<u8> =
            (0..=u8::MAX).filter(|kind| !all.kinds().contains(OptionKind(*kind))).collect();
        assert_eq!(missing, [0, 1, 2, 3, 5, 29]);
        let mut out = BytesMut::new();
        all.write(&mut out);
        assert_eq!((out.len(), out[1]), (256, 64));
    }
}
