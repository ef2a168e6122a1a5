//! Bytes of scalar expressions in plans, which are replicated and outlive a process.
//!
//! One version byte, then the protobuf form that `datafusion-proto` gives a logical expression whose columns were renamed to
//! `c0`, `c1`, ... by position. Functions are written by name and looked up in [`crate::registry`] when they are read.
//! A version that cannot be read is an error of kind `Corruption`: the job must then be planned again from its SQL text.

use crate::errors::from_datafusion;
use crate::registry;
use arrow::datatypes::{Field, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::Expr;
use datafusion_proto::bytes::Serializeable;
use eddyline_types::{Error, Result, SqlState};

/// Version of the encoding.
const VERSION: u8 = 1;

/// The name of the column at a position in an encoded expression.
pub fn column_name(position: usize) -> String {
    format!("c{position}")
}

/// Encodes an expression over the columns of `schema`. It must hold no subquery, aggregate or window function.
pub fn encode(expr: &Expr, schema: &DFSchema) -> Result<Vec<u8>> {
    let positional = expr
        .clone()
        .transform_up(|e| match e {
            Expr::Column(c) => {
                let position = schema.index_of_column(&c)?;
                Ok(Transformed::yes(Expr::Column(Column::new_unqualified(column_name(position)))))
            }
            Expr::Alias(alias) => Ok(Transformed::yes(*alias.expr)),
            other => Ok(Transformed::no(other)),
        })
        .map_err(from_datafusion)?
        .data;
    encode_positional(&positional)
}

/// Encodes an expression whose columns are named by position already.
pub fn encode_positional(expr: &Expr) -> Result<Vec<u8>> {
    let body = expr.to_bytes().map_err(|e| {
        let text = e.to_string();
        if text.contains("recursion limit") {
            Error::user(SqlState::STATEMENT_TOO_COMPLEX, "an expression is nested too deeply")
                .with_hint("Split it into several columns of a subquery.")
        } else {
            from_datafusion(e)
        }
    })?;
    let mut bytes = Vec::with_capacity(body.len() + 1);
    bytes.push(VERSION);
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// The expression back, with columns named by position.
pub fn decode(bytes: &[u8]) -> Result<Expr> {
    let (version, body) = bytes.split_first().ok_or_else(|| Error::corruption("an encoded expression is empty"))?;
    if *version != VERSION {
        return Err(Error::corruption(format!("an expression has version {version}, this program reads {VERSION}")));
    }
    Expr::from_bytes_with_ctx(body, &registry::task_context()).map_err(|e| Error::corruption(format!("cannot decode an expression: {e}")))
}

/// The schema that decoded expressions refer to: `input` with its columns named by position.
pub fn positional_schema(input: &Schema) -> Result<DFSchema> {
    let fields: Vec<Field> =
        input.fields().iter().enumerate().map(|(i, f)| Field::new(column_name(i), f.data_type().clone(), f.is_nullable())).collect();
    DFSchema::try_from(Schema::new(fields)).map_err(from_datafusion)
}
