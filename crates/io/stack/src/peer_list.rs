//! Which subflows a stack has, in a file that another process reads when this one has been killed: whom it has to tell, and by
//! which key they believe it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::FileExt;

use polypath_wire::{Endpoint, FourTuple};

/// Subflows that fit in; peers of further ones learn by their own timers.
const MOST: u32 = 1 << 16;

/// So many are not worth a look for those that are gone.
const LEAST: usize = 64;

/// Bytes of a place in the file: its kind, addresses, ports and key.
const PLACE_BYTES: usize = 48;
const KIND: usize = 0;
const PORTS: usize = 4;
const KEY: usize = 8;
const LOCAL: usize = 16;
const REMOTE: usize = 32;

/// Kinds of places; zero is an empty one.
const V4: u8 = 1;
const V6: u8 = 2;
/// Set beside them where there is a key.
const HAS_KEY: u8 = 4;

/// The subflows that are open.
#[derive(Debug)]
pub struct PeerList {
    file: File,
    places: HashMap<FourTuple, u32>,
    free: Vec<u32>,
    end: u32,
    /// How many there were when those that were gone had been taken out.
    least: usize,
}

/// A subflow that was open, and the key of the peer if it is one of a Multipath TCP connection.
pub type Known = (FourTuple, Option<u64>);

impl PeerList {
    /// An empty list in an empty file.
    pub fn new(file: File) -> Self {
        Self { file, places: HashMap::new(), free: Vec::new(), end: 0, least: 0 }
    }

    /// Notes an open subflow, with the key of its path where there is one.
    pub fn add(&mut self, tuple: FourTuple, key: Option<u64>) {
        let place = match self.places.get(&tuple) {
            Some(place) => *place,
            None if self.free.is_empty() && self.end == MOST => return,
            None => self.free.pop().unwrap_or_else(|| {
                self.end += 1;
                self.end - 1
            }),
        };
        self.places.insert(tuple, place);
        // Without it, this peer learns by its own timers.
        let _ = self.file.write_all_at(&written(&tuple, key), offset(place));
    }

    /// Forgets a subflow that ended.
    pub fn remove(&mut self, tuple: &FourTuple) {
        if let Some(place) = self.places.remove(tuple) {
            let _ = self.file.write_all_at(&[0; PLACE_BYTES], offset(place));
            self.free.push(place);
        }
    }

    /// Whether half of it may be gone.
    pub fn is_overgrown(&self) -> bool {
        self.places.len() > 2 * self.least + LEAST
    }

    /// Takes out all but these.
    pub fn retain(&mut self, open: &HashSet<FourTuple>) {
        let gone: Vec<FourTuple> =
            self.places.keys().filter(|tuple| !open.contains(*tuple)).copied().collect();
        gone.iter().for_each(|tuple| self.remove(tuple));
        self.least = self.places.len();
    }
}

/// What is in a list that its process can't change any more.
pub fn read(file: &File) -> io::Result<Vec<Known>> {
    let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut content = vec![0; bytes.min(MOST as usize * PLACE_BYTES)];
    file.read_exact_at(&mut content, 0)?;
    Ok(content.chunks_exact(PLACE_BYTES).filter_map(parsed).collect())
}

fn offset(place: u32) -> u64 {
    u64::from(place) * PLACE_BYTES as u64
}

fn written(tuple: &FourTuple, key: Option<u64>) -> [u8; PLACE_BYTES] {
    let mut place = [0; PLACE_BYTES];
    let kind = if tuple.local.addr.is_ipv4() { V4 } else { V6 };
    place[KIND] = kind | if key.is_some() { HAS_KEY } else { 0 };
    place[PORTS..PORTS + 2].copy_from_slice(&tuple.local.port.to_be_bytes());
    place[PORTS + 2..PORTS + 4].copy_from_slice(&tuple.remote.port.to_be_bytes());
    place[KEY..KEY + 8].copy_from_slice(&key.unwrap_or_default().to_be_bytes());
    for (at, addr) in [(LOCAL, tuple.local.addr), (REMOTE, tuple.remote.addr)] {
        let octets = match addr {
            IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
            IpAddr::V6(addr) => addr.octets(),
        };
        place[at..at + 16].copy_from_slice(&octets);
    }
    place
}

fn parsed(place: &[u8]) -> Option<Known> {
    let kind = *place.get(KIND)?;
    let addr = |at: usize| -> Option<IpAddr> {
        let addr = Ipv6Addr::from(<[u8; 16]>::try_from(place.get(at..at + 16)?).ok()?);
        if kind & V4 == 0 { Some(addr.into()) } else { addr.to_ipv4_mapped().map(IpAddr::from) }
    };
    let port = |at: usize| Some(u16::from_be_bytes(place.get(at..at + 2)?.try_into().ok()?));
    if kind & (V4 | V6) == 0 {
        return None;
    }
    let local = Endpoint::new(addr(LOCAL)?, port(PORTS)?);
    let remote = Endpoint::new(addr(REMOTE)?, port(PORTS + 2)?);
    let key = u64::from_be_bytes(place.get(KEY..KEY + 8)?.try_into().ok()?);
    Some((FourTuple { local, remote }, (kind & HAS_KEY != 0).then_some(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_read_and_nothing_else() {
        let file = tempfile::tempfile().expect("a file");
        let mut list = PeerList::new(file.try_clone().expect("a descriptor"));
        let tuple = |local: &str, port| FourTuple {
            local: Endpoint::new(local.parse().expect("an address"), port),
            remote: Endpoint::new(local.parse().expect("an address"), 80),
        };
        let (one, two) = (tuple("198.18.0.1", 1), tuple("fd70:6f6c:7970::1", 2));
        list.add(one, Some(7));
        list.add(two, None);
        assert_eq!(read(&file).expect("a list"), [(one, Some(7)), (two, None)]);
        list.remove(&one);
        assert_eq!(read(&file).expect("a list"), [(two, None)]);
        let three = tuple("198.18.0.2", 3);
        list.add(three, Some(u64::MAX));
        assert_eq!(read(&file).expect("a list"), [(three, Some(u64::MAX)), (two, None)]);
        list.retain(&HashSet::from([two]));
        assert_eq!(read(&file).expect("a list"), [(two, None)]);
        assert_eq!(file.metadata().expect("a file").len(), 2 * PLACE_BYTES as u64, "places are used again");
    }
}
