//! What players need before segments: as much of it as was used last.

use bytes::Bytes;

use crate::manifest::Resource;

/// What is kept for segments that may need it again.
const MOST_BYTES: usize = 32 << 20;

#[derive(Debug, Default)]
pub(super) struct Inits {
    /// The one that was used last is the last.
    known: Vec<(Resource, Init)>,
}

#[derive(Clone, Debug)]
enum Init {
    Coming,
    There(Bytes),
}

/// What is there of something that a segment needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Need {
    There(Bytes),
    /// It is waited for.
    Coming,
    /// It is to be fetched, and counts as coming now.
    Missing,
}

impl Inits {
    /// A segment needs it.
    pub(super) fn need(&mut self, resource: &Resource) -> Need {
        let Some(at) = self.known.iter().position(|(known, _)| known == resource) else {
            self.known.push((resource.clone(), Init::Coming));
            return Need::Missing;
        };
        let used = self.known.remove(at);
        let need = match &used.1 {
            Init::Coming => Need::Coming,
            Init::There(bytes) => Need::There(bytes.clone()),
        };
        self.known.push(used);
        need
    }

    /// It is there. What was not used for longest makes room for it.
    pub(super) fn insert(&mut self, resource: Resource, bytes: Bytes) {
        self.known.retain(|(known, _)| *known != resource);
        self.known.push((resource, Init::There(bytes)));
        let mut left = MOST_BYTES;
        let mut is_first = true;
        let known = std::mem::take(&mut self.known).into_iter().rev();
        let kept = known.filter(|(_, init)| match init {
            Init::Coming => true,
            // The newest stays, however long it is.
            Init::There(bytes) => match left.checked_sub(bytes.len()) {
                Some(rest) => {
                    (left, is_first) = (rest, false);
                    true
                }
                None => std::mem::replace(&mut is_first, false),
            },
        });
        self.known = kept.collect();
        self.known.reverse();
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    #[test]
    fn what_was_not_used_for_long_is_let_go() {
        let resource = |at: usize| {
            Resource::new(Url::parse(&format!("http://h.example/{at}.mp4")).expect("a URL"), None)
        };
        let mut inits = Inits::default();
        for at in 0..100 {
            assert_eq!(inits.need(&resource(at)), Need::Missing);
            assert_eq!(inits.need(&resource(at)), Need::Coming);
            inits.insert(resource(at), vec![0; 8 << 20].into());
            assert!(matches!(inits.need(&resource(0)), Need::There(_)), "it is used all the time");
        }
        assert!(inits.known.len() <= 4, "{}", inits.known.len());
        assert!(matches!(inits.need(&resource(99)), Need::There(_)));
        assert_eq!(inits.need(&resource(50)), Need::Missing);
        inits.insert(resource(7), vec![0; 64 << 20].into());
        assert!(matches!(inits.need(&resource(7)), Need::There(_)), "the newest stays");
    }
}
