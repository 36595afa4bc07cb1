use super::limits::{MAX_FIELDS, MAX_HEAD_BYTES};

/// What a server sent that is no HTTP/1.1, or could be read in two ways. The connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Bytes came when no request waited for an answer.
    #[error("the server sent bytes that nothing was asked for")]
    Unasked,
    /// The answer begins with something else than `HTTP/1.`.
    #[error("the server doesn't speak HTTP/1.1")]
    NotHttp,
    /// A status line or a field is malformed.
    #[error("the head of the server's answer is malformed")]
    MalformedHead,
    /// A field goes on in the next line, which readers understand differently.
    #[error("a field of the server's answer is folded over several lines")]
    FoldedField,
    /// The head is longer than [`MAX_HEAD_BYTES`].
    #[error("the head of the server's answer is longer than {MAX_HEAD_BYTES} bytes")]
    HeadTooLong,
    /// The head has more than [`MAX_FIELDS`] fields.
    #[error("the server's answer has more than {MAX_FIELDS} fields")]
    TooManyFields,
    /// Answer after answer that only announces one.
    #[error("the server announces an answer again and again, and gives none")]
    TooManyInterimAnswers,
    /// The server goes over to another protocol, which nobody asked for.
    #[error("the server changes to another protocol, which wasn't asked for")]
    ProtocolChanged,
    /// Both Transfer-Encoding and Content-Length.
    #[error("the server's answer gives its length twice: Transfer-Encoding and Content-Length")]
    TwoFramings,
    /// Several Content-Lengths that differ.
    #[error("the server's answer has Content-Lengths that differ")]
    DifferentLengths,
    /// A Content-Length that is no number, or too large a one.
    #[error("the Content-Length of the server's answer is no number of bytes")]
    MalformedLength,
    /// A Transfer-Encoding that is not `chunked` alone, or in HTTP/1.0, which has none.
    #[error("the server's answer has a Transfer-Encoding that wasn't asked for; expected \"chunked\"")]
    UnknownTransferEncoding,
    /// A chunk's size, end or trailer is malformed.
    #[error("a chunk of the server's answer is malformed")]
    MalformedChunk,
    /// A line between chunks, or the trailer, is too long.
    #[error("a chunk of the server's answer has too long a line or trailer")]
    ChunkLineTooLong,
}
