//! An open-addressing index from 32-bit hashes to numbers. Equality is the caller's.
//!
//! One 8-byte entry: number plus 1 above, hash below. The home position is the hash's low bits, so entries move (growth, removal) without
//! looking at what they name.

/// An entry that is free.
pub const EMPTY: u64 = 0;

/// See the module's documentation.
#[derive(Debug)]
pub struct HashIndex {
    entries: Vec<u64>,
    len: usize,
}

/// Where a search ended.
pub enum Found {
    /// The number with this hash that the caller accepted.
    Number(u32),
    /// There is none; it would be put at this position.
    Vacant(usize),
}

impl Default for HashIndex {
    fn default() -> Self {
        HashIndex { entries: vec![EMPTY; 64], len: 0 }
    }
}

impl HashIndex {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The entry at a hash's home position: a hint for searches of many hashes, to be read in one pass.
    #[inline(always)]
    pub fn home(&self, hash: u32) -> u64 {
        self.entries[hash as usize & (self.entries.len() - 1)]
    }

    /// Reads the home entries of hashes, so that the loads overlap; searches then find them near.
    pub fn touch(&self, hashes: impl Iterator<Item = u32>) {
        std::hint::black_box(hashes.fold(0u64, |sum, hash| sum ^ self.home(hash)));
    }

    /// The number of an entry that has the hash; `None` if it has another.
    #[inline(always)]
    pub fn number(entry: u64, hash: u32) -> Option<u32> {
        if entry as u32 == hash { ((entry >> 32) as u32).checked_sub(1) } else { None }
    }

    /// Finds a number with this hash that `same` accepts.
    #[inline]
    pub fn find(&self, hash: u32, mut same: impl FnMut(u32) -> bool) -> Found {
        let mask = self.entries.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let entry = self.entries[at];
            if entry == EMPTY {
                return Found::Vacant(at);
            }
            if let Some(number) = Self::number(entry, hash)
                && same(number)
            {
                return Found::Number(number);
            }
            at = (at + 1) & mask;
        }
    }

    /// Fills a position that `find` gave, with nothing in between.
    #[inline]
    pub fn occupy(&mut self, at: usize, hash: u32, number: u32) {
        self.entries[at] = (u64::from(number) + 1) << 32 | u64::from(hash);
        self.len += 1;
    }

    /// Room for `more` entries at a load of at most 5/8.
    pub fn reserve(&mut self, more: usize) {
        let need = (self.len + more) * 8 / 5;
        if need <= self.entries.len() {
            return;
        }
        let mask = need.next_power_of_two() - 1;
        let mut entries = vec![EMPTY; mask + 1];
        for entry in self.entries.iter().filter(|e| **e != EMPTY) {
            let mut at = *entry as u32 as usize & mask;
            while entries[at] != EMPTY {
                at = (at + 1) & mask;
            }
            entries[at] = *entry;
        }
        self.entries = entries;
    }

    /// Removes a number that is there.
    pub fn remove(&mut self, hash: u32, number: u32) {
        let mask = self.entries.len() - 1;
        let mut hole = hash as usize & mask;
        while self.entries[hole] >> 32 != u64::from(number) + 1 {
            assert!(self.entries[hole] != EMPTY, "the number is in the index");
            hole = (hole + 1) & mask;
        }
        // Entries behind the hole move up, unless that would put them before their home position.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = self.entries[at];
            if entry == EMPTY {
                break;
            }
            let home = entry as u32 as usize & mask;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.entries[hole] = entry;
                hole = at;
            }
        }
        self.entries[hole] = EMPTY;
        self.len -= 1;
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity() * 8
    }
}
