//! Packets made byte by byte, with checksums formed one word at a time.

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const URG: u8 = 0x20;
pub(crate) const ECE: u8 = 0x40;
pub(crate) const CWR: u8 = 0x80;

/// What a packet says of itself besides its payload.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) is_v4: bool,
    pub(crate) is_tcp: bool,
    pub(crate) port: u16,
    pub(crate) traffic_class: u8,
    pub(crate) ttl: u8,
    pub(crate) dont_fragment: bool,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    /// Words of options.
    pub(crate) options: Vec<u32>,
}

impl Flow {
    pub(crate) fn tcp(is_v4: bool) -> Self {
        Self {
            is_v4,
            is_tcp: true,
            port: 80,
            traffic_class: 0,
            ttl: 64,
            dont_fragment: true,
            ack: 7,
            window: 1000,
            options: vec![0x0101_080a, 1, 2],
        }
    }

    pub(crate) fn udp(is_v4: bool) -> Self {
        Self { is_tcp: false, options: Vec::new(), ..Self::tcp(is_v4) }
    }

    pub(crate) fn ip_bytes(&self) -> usize {
        if self.is_v4 { 20 } else { 40 }
    }

    pub(crate) fn header_bytes(&self) -> usize {
        self.ip_bytes() + if self.is_tcp { 20 + 4 * self.options.len() } else { 8 }
    }

    /// A whole packet. Sequence number and flags are TCP's, the identification is that of IPv4.
    pub(crate) fn packet(&self, sequence: u32, flags: u8, identification: u16, payload: &[u8]) -> Vec<u8> {
        let mut transport = Vec::new();
        transport.extend(4321_u16.to_be_bytes());
        transport.extend(self.port.to_be_bytes());
        let transport_bytes = self.header_bytes() - self.ip_bytes() + payload.len();
        let checksum_at = if self.is_tcp {
            transport.extend(sequence.to_be_bytes());
            transport.extend(self.ack.to_be_bytes());
            transport.extend([((5 + self.options.len()) << 4) as u8, flags]);
            transport.extend(self.window.to_be_bytes());
            transport.extend([0; 4]);
            transport.extend(self.options.iter().flat_map(|word| word.to_be_bytes()));
            16
        } else {
            transport.extend((transport_bytes as u16).to_be_bytes());
            transport.extend([0; 2]);
            6
        };
        transport.extend(payload);
        let protocol = if self.is_tcp { 6 } else { 17 };
        let (ip, addresses) = if self.is_v4 {
            let total = (20 + transport_bytes) as u16;
            let mut ip = vec![0x45, self.traffic_class];
            ip.extend(total.to_be_bytes());
            ip.extend(identification.to_be_bytes());
            ip.extend([u8::from(self.dont_fragment) << 6, 0, self.ttl, protocol, 0, 0]);
            ip.extend([10, 0, 0, 1, 192, 0, 2, 200]);
            let checksum = !sum(&ip);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            (ip, 12)
        } else {
            let mut ip = vec![0x60 | self.traffic_class >> 4, self.traffic_class << 4, 1, 2];
            ip.extend((transport_bytes as u16).to_be_bytes());
            ip.extend([protocol, self.ttl]);
            ip.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            ip.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            (ip, 8)
        };
        let pseudo =
            [&ip[addresses..], &(transport_bytes as u32).to_be_bytes(), &[0, 0, 0, protocol]].concat();
        let checksum = match (!sum(&[&pseudo[..], &transport].concat()), self.is_tcp) {
            (0, false) => 0xffff,
            (checksum, _) => checksum,
        };
        transport[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
        [ip, transport].concat()
    }

    /// The packets of a stream, `segment_bytes` each, as a sender with FIN and PSH on the last would send them.
    pub(crate) fn stream(
        &self,
        sequence: u32,
        identification: u16,
        payload: &[u8],
        segment_bytes: usize,
    ) -> Vec<Vec<u8>> {
        let parts = payload.chunks(segment_bytes).enumerate();
        let last = payload.len().div_ceil(segment_bytes) - 1;
        parts
            .map(|(index, part)| {
                let flags = if index == last { ACK | PSH } else { ACK };
                let sequence = sequence.wrapping_add((index * segment_bytes) as u32);
                self.packet(sequence, flags, identification.wrapping_add(index as u16), part)
            })
            .collect()
    }
}

/// Straight from RFC 1071 §4.1.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 167 + at / 251 * 13) as u8).collect()
}
