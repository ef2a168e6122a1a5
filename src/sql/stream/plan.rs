//! Our operators as a tree, before it is cut into fragments.

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::logical_expr::Expr as Logical;
use eddyline_expr::encode::{column_name, encode_positional};
use eddyline_protocol::Relation;
use eddyline_protocol::plan::{AggFunction, Expr, JoinKind};
use eddyline_types::Result;
use std::sync::Arc;

/// How rows are spread over the shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dist {
    /// One shard has them all.
    Single,
    /// By the vnode of these columns, in this order.
    Hash(Vec<usize>),
    /// Anyhow.
    Any,
}

/// A node and what is known about its output.
#[derive(Clone, Debug)]
pub(crate) struct StreamPlan {
    pub op: Op,
    pub inputs: Vec<StreamPlan>,
    pub schema: Vec<Field>,
    /// Columns whose values are unique among the rows; `None`: rows may repeat. `Some([])`: at most one row.
    pub key: Option<Vec<usize>>,
    pub append_only: bool,
    pub dist: Dist,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Reads a connector. With `row_id`, a unique column follows the connector's.
    Source {
        relation: Arc<Relation>,
        row_id: bool,
    },
    /// Reads a table or view: snapshot, then changes.
    Backfill {
        relation: Arc<Relation>,
        columns: Vec<usize>,
    },
    Filter {
        predicate: Expr,
    },
    Project {
        exprs: Vec<Expr>,
    },
    /// Columns of the input, in this order: no computation.
    Select {
        columns: Vec<usize>,
    },
    Agg {
        group: Vec<usize>,
        calls: Vec<Call>,
    },
    Join(Box<JoinOp>),
    /// All rows of all inputs.
    Union,
    /// Spreads rows by these columns; none: all to one shard.
    Exchange {
        hash: Vec<usize>,
    },
}

/// An aggregate call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub function: AggFunction,
    pub argument: Option<usize>,
    pub distinct: bool,
    pub filter: Option<usize>,
}

/// A join of the two inputs.
#[derive(Clone, Debug)]
pub(crate) struct JoinOp {
    pub kind: JoinKind,
    pub left_keys: Vec<usize>,
    pub right_keys: Vec<usize>,
    pub null_equal: bool,
    pub residual: Option<Expr>,
    /// Positions in left columns followed by right columns.
    pub output: Vec<usize>,
}

impl StreamPlan {
    pub(crate) fn arrow_schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.schema.clone()))
    }

    /// Some of the columns. Key and distribution stay known if their columns are among them.
    pub(crate) fn select(self, columns: Vec<usize>) -> StreamPlan {
        if columns.iter().copied().eq(0..self.schema.len()) {
            return self;
        }
        let schema: Vec<Field> = columns.iter().map(|c| self.schema[*c].clone()).collect();
        let find = |wanted: &[usize]| wanted.iter().map(|w| columns.iter().position(|c| c == w)).collect::<Option<Vec<_>>>();
        let key = self.key.as_deref().and_then(find);
        let dist = match &self.dist {
            Dist::Hash(hash) => find(hash).map_or(Dist::Any, Dist::Hash),
            other => other.clone(),
        };
        let append_only = self.append_only;
        let (op, inputs) = match self.op {
            // Operators that choose columns themselves take the choice over.
            Op::Select { columns: inner } => (Op::Select { columns: columns.iter().map(|c| inner[*c]).collect() }, self.inputs),
            Op::Project { exprs } => (Op::Project { exprs: columns.iter().map(|c| exprs[*c].clone()).collect() }, self.inputs),
            Op::Backfill { relation, columns: inner } => {
                (Op::Backfill { relation, columns: columns.iter().map(|c| inner[*c]).collect() }, self.inputs)
            }
            Op::Join(mut join) => {
                join.output = columns.iter().map(|c| join.output[*c]).collect();
                (Op::Join(join), self.inputs)
            }
            op => {
                let input = StreamPlan { op, ..self };
                (Op::Select { columns }, vec![input])
            }
        };
        StreamPlan { op, inputs, schema, key, append_only, dist }
    }

    /// The same rows on the shards that the hash of `columns` says; none: on one shard.
    pub(crate) fn exchange(self, hash: Vec<usize>) -> StreamPlan {
        StreamPlan {
            dist: if hash.is_empty() { Dist::Single } else { Dist::Hash(hash.clone()) },
            schema: self.schema.clone(),
            key: self.key.clone(),
            append_only: self.append_only,
            op: Op::Exchange { hash },
            inputs: vec![self],
        }
    }
}

/// A column as an expression.
pub(crate) fn column_expr(position: usize, field: &Field) -> Result<Expr> {
    let column = Logical::Column(datafusion::common::Column::new_unqualified(column_name(position)));
    Ok(Expr {
        bytes: encode_positional(&column)?,
        text: crate::bind_output_name(field.name()).to_string(),
        data_type: field.data_type().clone(),
        nullable: field.is_nullable(),
    })
}
