//! Lets a client say what it wants.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::leg::Leg;
use super::session::Ending;
use crate::negotiation::{Negotiation, Request, Step};

/// Room for what a client says; no request of any protocol is longer.
const INPUT_BYTES: usize = 2048;
/// How long a client may take to close a connection on which it was refused.
const FAREWELL: Duration = Duration::from_secs(2);

/// Until the client has asked for something. What it said beyond that is left in `input`.
pub(super) async fn negotiate(
    stream: &mut Leg,
    negotiation: &mut impl Negotiation,
    input: &mut BytesMut,
) -> Result<Request, Ending> {
    loop {
        match negotiation.poll_step(input) {
            Step::Ask(request) => return Ok(request),
            Step::Send(bytes) => stream.write_all(&bytes).await.map_err(|_| Ending::Unasked)?,
            Step::Refuse(bytes, refusal) => {
                say_farewell(stream, &bytes).await;
                return Err(Ending::Refused(refusal));
            }
            Step::Wait => {
                input.reserve(INPUT_BYTES);
                match stream.read_buf(input).await {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => return Err(Ending::Unasked),
                }
            }
        }
    }
}

/// The last that a client is told. It has some time to read it: closing with bytes unread would reset the connection.
pub(super) async fn say_farewell(stream: &mut Leg, bytes: &Bytes) {
    let farewell = async {
        if stream.write_all(bytes).await.is_ok() && stream.shutdown().await.is_ok() {
            let mut rest = [0; 512];
            while let Ok(1..) = stream.read(&mut rest).await {}
        }
    };
    let _ = timeout(FAREWELL, farewell).await;
}
