//! The cache of decoded blocks and section metadata: one byte budget, evicted by use.

use crate::block::Block;
use crate::sst::read::Section;
use foyer::{Cache as Foyer, CacheBuilder};
use metrics::{Counter, counter};
use std::sync::Arc;

/// What is cached: file (a number of this process, never reused) and offset in it.
pub(crate) type CacheKey = (u64, u64);

/// A cached value. A section is under the offset of its index, which no block has.
#[derive(Clone)]
enum Cached {
    Block(Arc<Block>),
    Section(Arc<Section>),
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Cache {
    foyer: Foyer<CacheKey, Cached>,
    counters: Arc<Counters>,
}

struct Counters {
    block_hits: Counter,
    block_misses: Counter,
    section_hits: Counter,
    section_misses: Counter,
}

impl Cache {
    pub(crate) fn new(bytes: usize) -> Self {
        let foyer = CacheBuilder::new(bytes.max(1))
            .with_shards(8)
            .with_weighter(|_: &CacheKey, value: &Cached| match value {
                Cached::Block(block) => block.memory_bytes(),
                Cached::Section(section) => section.memory_bytes(),
            })
            .build();
        let lookups = |kind: &'static str, outcome: &'static str| counter!("eddyline_store_cache_lookups_total", "kind" => kind, "outcome" => outcome);
        let counters = Counters {
            block_hits: lookups("block", "hit"),
            block_misses: lookups("block", "miss"),
            section_hits: lookups("meta", "hit"),
            section_misses: lookups("meta", "miss"),
        };
        Cache { foyer, counters: Arc::new(counters) }
    }

    pub(crate) fn block(&self, key: CacheKey) -> Option<Arc<Block>> {
        let found = self.foyer.get(&key).and_then(|entry| match entry.value() {
            Cached::Block(block) => Some(block.clone()),
            Cached::Section(_) => None,
        });
        let counter = if found.is_some() { &self.counters.block_hits } else { &self.counters.block_misses };
        counter.increment(1);
        found
    }

    pub(crate) fn section(&self, key: CacheKey) -> Option<Arc<Section>> {
        let found = self.foyer.get(&key).and_then(|entry| match entry.value() {
            Cached::Section(section) => Some(section.clone()),
            Cached::Block(_) => None,
        });
        let counter = if found.is_some() { &self.counters.section_hits } else { &self.counters.section_misses };
        counter.increment(1);
        found
    }

    pub(crate) fn insert_block(&self, key: CacheKey, block: &Arc<Block>) {
        self.foyer.insert(key, Cached::Block(block.clone()));
    }

    pub(crate) fn insert_section(&self, key: CacheKey, section: &Arc<Section>) {
        self.foyer.insert(key, Cached::Section(section.clone()));
    }

    /// Bytes held now.
    pub(crate) fn usage_bytes(&self) -> usize {
        self.foyer.usage()
    }
}
