//! State tables: a sorted, vnode-partitioned table of one operator or one view.

use arrow::datatypes::SchemaRef;
use eddyline_types::{JobId, KeyField, Result, TableId, TableKeyCodec};
use serde::{Deserialize, Serialize};

/// One key column of a state table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyColumn {
    /// Position in the table's schema.
    pub column: usize,
    /// Larger values first.
    pub descending: bool,
    /// NULLs before all values.
    pub nulls_first: bool,
}

impl KeyColumn {
    /// Ascending, NULLS LAST.
    pub fn ascending(column: usize) -> Self {
        KeyColumn { column, descending: false, nulls_first: false }
    }
}

/// What is needed to write and read a state table. The whole row is stored in the value; the key is derived from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDesc {
    /// Unique in the cluster, never reused.
    pub id: TableId,
    /// The job that writes it.
    pub job: JobId,
    /// For people: `page_visits_agg_3.state`.
    pub name: String,
    /// Schema of the stored rows (all columns, keys included).
    pub schema: SchemaRef,
    /// Key columns, most significant first; unique together. Empty: the table has at most one row.
    pub key: Vec<KeyColumn>,
    /// How many leading key columns decide the vnode; 0 = a singleton on vnode 0.
    pub distribution: usize,
}

impl TableDesc {
    /// The codec of this table's keys.
    pub fn key_codec(&self) -> Result<TableKeyCodec> {
        let fields = self
            .key
            .iter()
            .map(|k| KeyField {
                data_type: self.schema.field(k.column).data_type().clone(),
                descending: k.descending,
                nulls_first: k.nulls_first,
            })
            .collect();
        TableKeyCodec::new(fields, self.distribution)
    }

    /// Positions of the key columns.
    pub fn key_columns(&self) -> Vec<usize> {
        self.key.iter().map(|k| k.column).collect()
    }
}
