use hashbrown::HashTable;

/// Token → connection, in constant time (Paasch 5.2). Tokens are the output of a cryptographic hash, so they serve as
/// their own hash.
#[derive(Debug, Default)]
pub(super) struct TokenTable {
    table: HashTable<(u32, u32)>,
}

impl TokenTable {
    fn hash(token: u32) -> u64 {
        // The table takes its tag from the high bits.
        u64::from(token) << 32 | u64::from(token)
    }

    pub(super) fn get(&self, token: u32) -> Option<u32> {
        self.table.find(Self::hash(token), |(known, _)| *known == token).map(|(_, index)| *index)
    }

    /// False if the token is taken.
    pub(super) fn insert(&mut self, token: u32, index: u32) -> bool {
        if self.get(token).is_some() {
            return false;
        }
        self.table.insert_unique(Self::hash(token), (token, index), |(token, _)| Self::hash(*token));
        true
    }

    /// Removes the token if it leads to `index`.
    pub(super) fn remove(&mut self, token: u32, index: u32) {
        if let Ok(entry) = self.table.find_entry(Self::hash(token), |known| *known == (token, index)) {
            entry.remove();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_to_one_connection() {
        let mut table = TokenTable::default();
        for token in 0..1000 {
            assert!(table.insert(token * 7, token));
        }
        assert!(!table.insert(7, 3));
        assert_eq!((table.get(7), table.get(8), table.len()), (Some(1), None, 1000));
        table.remove(7, 2);
        assert_eq!(table.get(7), Some(1), "not that connection's");
        table.remove(7, 1);
        assert_eq!(table.get(7), None);
    }
}
