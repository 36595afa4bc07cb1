//! The engine's side of a connection: with our own stack, data passes without being copied.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use polypath_stack::engine::Stream;
use polypath_stack::stack::{OwnedReadHalf, OwnedWriteHalf};
use polypath_wire::Payload;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

/// What is read at a time: grows with what comes, so that an idle connection holds little.
const READ_BYTES: std::ops::RangeInclusive<usize> = 8 << 10..=256 << 10;

/// What comes from the destination.
pub(super) enum Reader {
    Stack(OwnedReadHalf),
    Kernel {
        half: ReadHalf<Stream>,
        /// How much to ask for.
        room_bytes: usize,
    },
}

/// What goes there.
pub(super) enum Writer {
    Stack(OwnedWriteHalf),
    Kernel(WriteHalf<Stream>),
}

pub(super) fn split(stream: Stream) -> (Reader, Writer) {
    match stream {
        Stream::Stack(stream) => {
            let (reader, writer) = stream.into_split();
            (Reader::Stack(reader), Writer::Stack(writer))
        }
        stream => {
            let (half, writer) = tokio::io::split(stream);
            (Reader::Kernel { half, room_bytes: *READ_BYTES.start() }, Writer::Kernel(writer))
        }
    }
}

/// Ends the connection at once, so that the destination sees a reset.
pub(super) fn abort(reader: Reader, writer: Writer) {
    match (reader, writer) {
        (Reader::Kernel { half, .. }, Writer::Kernel(writer)) => half.unsplit(writer).abort(),
        (_, Writer::Stack(writer)) => writer.abort(),
        // Halves of different connections: nobody makes such a pair.
        (Reader::Stack(_), Writer::Kernel(_)) => {}
    }
}

impl Reader {
    /// The next data; empty at the end.
    pub(super) async fn read(&mut self) -> io::Result<Payload> {
        match self {
            Self::Stack(half) => half.as_ref().read_payload().await,
            Self::Kernel { half, room_bytes } => {
                let mut buffer = BytesMut::with_capacity(*room_bytes);
                let read = half.read_buf(&mut buffer).await?;
                let wanted = if read == *room_bytes { 2 * read } else { (2 * read).next_power_of_two() };
                *room_bytes = wanted.clamp(*READ_BYTES.start(), *READ_BYTES.end());
                Ok(buffer.freeze().into())
            }
        }
    }
}

impl Writer {
    /// Writes all of it.
    pub(super) async fn write(&mut self, mut data: Bytes) -> io::Result<()> {
        match self {
            Self::Stack(half) => {
                while !data.is_empty() {
                    let taken = half.as_ref().write_bytes(&data).await?;
                    data.advance(taken);
                }
                Ok(())
            }
            Self::Kernel(half) => half.write_all(&data).await,
        }
    }

    /// Ends the stream after what was written.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Stack(half) => half.shutdown().await,
            Self::Kernel(half) => half.shutdown().await,
        }
    }
}
