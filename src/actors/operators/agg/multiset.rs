//! The values of a call per group, with signed counts: what DISTINCT and retractable min/max need.
//!
//! min and max keep an ordered map per group, DISTINCT one hash map over all groups. Counts may be negative for a while within an epoch.
//! Changes since the last checkpoint are remembered with whether the value was in the table.

use super::value::{Value, ValueCodec};
use crate::operators::state::keys::KeyTable;
use crate::operators::state::write::StateTable;
use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::DataType;
use eddyline_protocol::TableDesc;
use eddyline_store::TableWrite;
use eddyline_types::{Error, Result};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

enum Counts {
    Ordered(Vec<BTreeMap<Value, i64>>),
    Hashed { counts: HashMap<(u32, Value), i64, foldhash::fast::RandomState>, per_group: Vec<u32> },
}

/// See the module's documentation.
pub struct ValueSets {
    table: StateTable,
    codec: ValueCodec,
    counts: Counts,
    /// Changed entries, and whether each was in the table.
    changed: HashMap<(u32, Value), bool, foldhash::fast::RandomState>,
}

impl ValueSets {
    /// Empty sets. `ordered`: for min and max.
    pub fn new(desc: TableDesc, data_type: DataType, ordered: bool) -> Result<Self> {
        let counts =
            if ordered { Counts::Ordered(Vec::new()) } else { Counts::Hashed { counts: HashMap::default(), per_group: Vec::new() } };
        Ok(ValueSets { table: StateTable::new(desc)?, codec: ValueCodec::new(data_type)?, counts, changed: HashMap::default() })
    }

    /// The table that they are kept in.
    pub fn table(&self) -> eddyline_types::TableId {
        self.table.desc.id
    }

    /// Converts the values' column.
    pub fn codec(&self) -> &ValueCodec {
        &self.codec
    }

    /// Adds `weight` to a value's count; returns the counts before and after. `load`: it comes from the table.
    pub fn add(&mut self, group: u32, value: Value, weight: i64, load: bool) -> Result<(i64, i64)> {
        let overflow = || Error::internal("weight overflow");
        if weight == 0 {
            return Ok((0, 0));
        }
        let (old, new) = match &mut self.counts {
            Counts::Ordered(groups) => {
                if groups.len() <= group as usize {
                    groups.resize_with(group as usize + 1, BTreeMap::new);
                }
                let groups = &mut groups[group as usize];
                let count = groups.entry(value.clone()).or_insert(0);
                let old = *count;
                *count = old.checked_add(weight).ok_or_else(overflow)?;
                let new = *count;
                if new == 0 {
                    groups.remove(&value);
                }
                (old, new)
            }
            Counts::Hashed { counts, per_group } => {
                if per_group.len() <= group as usize {
                    per_group.resize(group as usize + 1, 0);
                }
                let key = (group, value.clone());
                let count = counts.entry(key).or_insert(0);
                let old = *count;
                *count = old.checked_add(weight).ok_or_else(overflow)?;
                let new = *count;
                per_group[group as usize] += u32::from(old == 0);
                if new == 0 {
                    counts.remove(&(group, value.clone()));
                    per_group[group as usize] -= 1;
                }
                (old, new)
            }
        };
        if !load {
            self.changed.entry((group, value)).or_insert(old != 0);
        }
        Ok((old, new))
    }

    /// The smallest or largest value of a group whose count is positive.
    pub fn extreme(&self, group: u32, max: bool) -> Option<&Value> {
        let Counts::Ordered(groups) = &self.counts else { return None };
        let mut values = groups.get(group as usize)?.iter();
        let positive = |(_, count): &(&Value, &i64)| **count > 0;
        let found = if max { values.rfind(positive) } else { values.find(positive) };
        found.map(|(value, _)| value)
    }

    /// Whether the group has no values.
    pub fn is_empty(&self, group: u32) -> bool {
        match &self.counts {
            Counts::Ordered(groups) => groups.get(group as usize).is_none_or(BTreeMap::is_empty),
            Counts::Hashed { per_group, .. } => per_group.get(group as usize).is_none_or(|n| *n == 0),
        }
    }

    fn count(&self, entry: &(u32, Value)) -> i64 {
        match &self.counts {
            Counts::Ordered(groups) => groups.get(entry.0 as usize).and_then(|g| g.get(&entry.1)).copied().unwrap_or(0),
            Counts::Hashed { counts, .. } => counts.get(entry).copied().unwrap_or(0),
        }
    }

    /// What changed since the last checkpoint.
    pub fn checkpoint(&mut self, keys: &KeyTable) -> Result<Option<TableWrite>> {
        let (mut entries, mut counts) = (Vec::new(), Vec::new());
        for (entry, existed) in std::mem::take(&mut self.changed) {
            let count = self.count(&entry);
            if count != 0 || existed {
                entries.push(entry);
                counts.push(count);
            }
        }
        let groups: Vec<u32> = entries.iter().map(|(g, _)| *g).collect();
        let mut columns: Vec<ArrayRef> = keys.key_columns(&groups)?;
        columns.push(self.codec.column(entries.iter().map(|(_, v)| v))?);
        let deleted: Vec<bool> = counts.iter().map(|c| *c == 0).collect();
        columns.push(Arc::new(Int64Array::from(counts)));
        self.table.write(columns, &deleted)
    }

    /// Bytes of memory held, roughly.
    pub fn memory_bytes(&self) -> usize {
        let entry = std::mem::size_of::<(u32, Value)>() + 8;
        match &self.counts {
            Counts::Ordered(groups) => groups.iter().map(|g| 24 + g.len() * entry * 2).sum(),
            Counts::Hashed { counts, per_group } => counts.capacity() * (entry + 1) + per_group.capacity() * 4,
        }
    }
}
