//! Split-block Bloom filters over table keys: a miss is certain, a hit is right about 99 times in 100.
//!
//! Blocks of 32 bytes, eight 32-bit words; a key sets one bit in each word of one block (Putze, Sanders, Singler: "Cache-,
//! hash- and space-efficient Bloom filters", 2007; the salts are those of the Parquet format). One cache line per question.

/// Bits per key. With eight bits set in one block about 1 % of absent keys are reported.
const BITS_PER_KEY: usize = 11;

const SALTS: [u32; 8] = [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// The hash of a table key that filters use. It is on disk.
pub(crate) fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// A filter of a whole section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    blocks: Vec<[u32; 8]>,
}

impl Filter {
    /// Builds from the hashes of all keys.
    pub(crate) fn build(hashes: &[u64]) -> Self {
        let count = (hashes.len() * BITS_PER_KEY).div_ceil(256);
        let mut blocks = vec![[0u32; 8]; count];
        for hash in hashes {
            let block = &mut blocks[index(*hash, count)];
            for (word, salt) in block.iter_mut().zip(SALTS) {
                *word |= bit(*hash, salt);
            }
        }
        Filter { blocks }
    }

    /// False: the key is not there.
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        if self.blocks.is_empty() {
            return false;
        }
        let block = &self.blocks[index(hash, self.blocks.len())];
        block.iter().zip(SALTS).all(|(word, salt)| word & bit(hash, salt) != 0)
    }

    /// Little-endian words.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.blocks.iter().flatten().flat_map(|w| w.to_le_bytes()).collect()
    }

    /// `None` if the length is not that of whole blocks.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if !bytes.len().is_multiple_of(32) {
            return None;
        }
        let block = |bytes: &[u8]| std::array::from_fn(|i| u32::from_le_bytes(bytes[i * 4..i * 4 + 4].try_into().expect("four bytes")));
        Some(Filter { blocks: bytes.chunks_exact(32).map(block).collect() })
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.blocks.len() * 32
    }
}

/// The upper half of the hash picks the block (multiply-shift), the lower half the bits.
fn index(hash: u64, count: usize) -> usize {
    (((hash >> 32) * count as u64) >> 32) as usize
}

fn bit(hash: u64, salt: u32) -> u32 {
    1 << ((hash as u32).wrapping_mul(salt) >> 27)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_all_keys_and_few_others() {
        let hashes: Vec<u64> = (0..20_000u64).map(|i| hash(&i.to_be_bytes())).collect();
        let filter = Filter::build(&hashes);
        assert!(hashes.iter().all(|h| filter.may_contain(*h)));
        let wrong = (20_000..120_000u64).filter(|i| filter.may_contain(hash(&i.to_be_bytes()))).count();
        assert!(wrong < 1_500, "{wrong} of 100,000 absent keys pass");
        assert_eq!(Filter::from_bytes(&filter.to_bytes()).unwrap(), filter);
        assert!(!Filter::build(&[]).may_contain(7));
        assert!(Filter::from_bytes(&[0; 31]).is_none());
    }
}
