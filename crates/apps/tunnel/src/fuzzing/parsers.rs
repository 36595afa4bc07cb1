//! Bytes and text that come from outside.

use crate::allowed_ips::Network;
use crate::frame::{DataHeader, Frame, RepairHeader};
use crate::inner_packet::InnerPacket;
use crate::key::{PresharedKey, PrivateKey, PublicKey};
use crate::noise::{Message, PATH_HEADER_BYTES, PLAIN_HEADER_BYTES, parse};
use crate::offload::{Coalescer, Segmenter, VNET_HEADER_BYTES, VnetHeader};

/// Any bytes as a datagram: the header that was read is within it.
pub fn message(bytes: &[u8]) {
    match parse(bytes) {
        Some(Message::OnPath { path, .. }) => {
            assert!(bytes.len() >= PATH_HEADER_BYTES && path.index() < crate::noise::PATHS);
        }
        Some(Message::Plain { .. }) => assert!(bytes.len() >= PLAIN_HEADER_BYTES),
        _ => {}
    }
}

/// Any bytes as what was decrypted: what was read is read again when it is written.
pub fn frame(bytes: &[u8]) {
    match Frame::parse(bytes) {
        Some(Frame::Data(header, at)) => {
            let mut written = [0; crate::frame::MOST_DATA_HEADER_BYTES];
            header.write(&mut written);
            assert_eq!((at, &written[..at]), (DataHeader::len_bytes(&header), &bytes[..at]));
        }
        Some(Frame::Repair(header)) => {
            let mut written = [0; RepairHeader::BYTES];
            header.write(&mut written);
            assert_eq!(&written[..], &bytes[..RepairHeader::BYTES]);
        }
        Some(frame) => {
            let mut written = Vec::new();
            frame.write(&mut written);
            assert_eq!(Frame::parse(&written), Some(frame));
        }
        None => {}
    }
}

/// Any bytes as a packet of the inside.
pub fn inner_packet(bytes: &[u8]) {
    if let Some(packet) = InnerPacket::parse(bytes) {
        assert!(packet.len_bytes <= bytes.len() && packet.len_bytes >= 20);
        assert_eq!(packet.flow(7), packet.flow(7));
        let cut = &bytes[..packet.len_bytes];
        assert_eq!(InnerPacket::parse(cut), Some(packet), "what is behind it counts");
        assert_eq!(InnerPacket::parse(&cut[..cut.len() - 1]), None);
    }
}

/// Any bytes as a frame of the device: the packets that it is cut into hold together what it held.
pub fn device_frame(bytes: &[u8]) {
    let Ok(mut segments) = Segmenter::new(bytes) else { return };
    let len_bytes = bytes.len() - VNET_HEADER_BYTES;
    let (mut packet, mut total, mut count) = (vec![0; 1 << 16], 0, 0);
    while let Some(len) = segments.write_next(&mut packet) {
        total += len;
        count += 1;
        assert!(len <= len_bytes && count <= len_bytes, "a packet that is longer than all of them");
    }
    assert!(count > 0 && total >= len_bytes);
    let (header, _) = VnetHeader::split(bytes).expect("it was cut");
    assert_eq!(VnetHeader::split(&header.to_bytes()).map(|(header, _)| header), Some(header));
}

/// Any packets, each behind a byte that says how long it is: what they are joined to has all their bytes, or its packets come back.
pub fn joined(bytes: &[u8]) {
    let mut packets = Vec::new();
    let mut rest = bytes;
    while let Some((&len, after)) = rest.split_first() {
        let (packet, after) = after.split_at(after.len().min(len.into()));
        packets.push(packet);
        rest = after;
    }
    let mut parts = 0;
    Coalescer::new(true).coalesce(&packets, |frame| {
        let whole = frame.iter().flat_map(|part| part.iter().copied()).collect::<Vec<u8>>();
        assert!(whole.len() >= VNET_HEADER_BYTES);
        let mut packet = vec![0; 1 << 16];
        let mut segments = Segmenter::new(&whole);
        while let Some(_len) = segments.as_mut().ok().and_then(|segments| segments.write_next(&mut packet)) {
            parts += 1;
        }
        // What is no packet of IP passes alone.
        parts += usize::from(segments.is_err());
    });
    assert!(parts >= packets.iter().filter(|packet| !packet.is_empty()).count());
}

/// Any text as a key, or a network of a configuration.
pub fn text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(network) = text.parse::<Network>() {
        assert_eq!(network.to_string().parse(), Ok(network));
        assert!(network.contains(network.address()));
    }
    if let Ok(key) = text.parse::<PublicKey>() {
        assert_eq!(key.to_string().parse(), Ok(key));
    }
    if let Ok(key) = text.parse::<PrivateKey>() {
        assert_eq!(key.to_secret_text(), text.trim());
    }
    assert_eq!(text.parse::<PresharedKey>().is_ok(), text.parse::<PublicKey>().is_ok());
}
