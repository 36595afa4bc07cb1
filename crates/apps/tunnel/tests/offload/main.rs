//! Frames of a TUN device with offloads: cut into packets, and joined again.

mod hostile;
mod joined;
mod packets;
mod segments;

use polypath_tunnel::offload::{Coalescer, FrameError, Segmenter};

/// All packets of a frame.
fn segments(frame: &[u8]) -> Result<Vec<Vec<u8>>, FrameError> {
    let mut segmenter = Segmenter::new(frame)?;
    let mut packets = Vec::new();
    let mut into = vec![0; segmenter.max_len_bytes()];
    while let Some(len) = segmenter.next_len_bytes() {
        assert_eq!(segmenter.write_next(&mut into[..len - 1]), None, "a buffer that is too short");
        assert_eq!(segmenter.write_next(&mut into), Some(len));
        packets.push(into[..len].to_vec());
    }
    assert_eq!(segmenter.write_next(&mut into), None);
    Ok(packets)
}

/// All frames of a batch.
fn frames(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    Coalescer::new(true).coalesce(packets, |parts| {
        frames.push(parts.iter().flat_map(|part| part.iter().copied()).collect());
    });
    frames
}

/// What comes out at the other end.
fn there_and_back(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    frames(packets).iter().flat_map(|frame| segments(frame).expect("a frame of ours")).collect()
}
