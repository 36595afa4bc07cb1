/// Why bytes could not be read as a packet or option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// Fewer bytes than the header or its length field says.
    #[error("truncated: {what} needs {needed} bytes, {available} are there")]
    Truncated {
        /// Which header or option.
        what: &'static str,
        /// Bytes needed.
        needed: usize,
        /// Bytes there.
        available: usize,
    },
    /// A field has a value that no version of the protocol allows.
    #[error("malformed: {0}")]
    Malformed(&'static str),
    /// A checksum does not match its bytes.
    #[error("wrong {0} checksum")]
    Checksum(&'static str),
    /// A protocol or version that Polypath does not speak.
    #[error("unsupported: {0}")]
    Unsupported(&'static str),
}
