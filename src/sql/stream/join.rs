//! Joins: equality on keys, with further conditions; IN and EXISTS as joins with distinct keys.

use super::aggregate::agg_plan;
use super::lower::{Lower, check, expression, filter_plan, plain_column, project_plan, refused};
use super::plan::{Dist, JoinOp, Op, StreamPlan, column_expr};
use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType, NullEquality};
use datafusion::logical_expr::{Expr as Logical, ExprSchemable, Join, lit};
use eddyline_expr::encode::{column_name, encode_positional};
use eddyline_expr::errors::from_datafusion;
use eddyline_protocol::plan::{Expr, JoinKind};
use eddyline_types::{Error, Result};

/// One input with its key columns at known positions.
struct Side {
    plan: StreamPlan,
    keys: Vec<usize>,
    /// Columns of the logical plan.
    visible: usize,
}

impl Lower<'_> {
    pub(super) fn join(&mut self, join: &Join, need_key: bool) -> Result<StreamPlan> {
        match join.join_type {
            JoinType::Inner => self.two_sided(join, JoinKind::Inner, need_key),
            JoinType::Left => self.two_sided(join, JoinKind::Left, need_key),
            JoinType::Right => self.two_sided(join, JoinKind::Right, need_key),
            JoinType::Full => self.two_sided(join, JoinKind::Full, need_key),
            JoinType::LeftSemi => self.semi(join, false, need_key),
            JoinType::LeftAnti if join.null_aware => {
                Err(refused("NOT IN (SELECT ...)", "Use NOT EXISTS, which treats NULLs as most people expect."))
            }
            JoinType::LeftAnti => self.semi(join, true, need_key),
            JoinType::LeftMark | JoinType::RightMark => {
                Err(refused("EXISTS or IN (SELECT ...) under OR", "Use UNION of two queries, or a LEFT JOIN."))
            }
            JoinType::RightSemi | JoinType::RightAnti => Err(refused("a right semi join", "Write it as a join.")),
        }
    }

    fn sides(&mut self, join: &Join) -> Result<(Side, Side)> {
        let left = self.lower(&join.left, true)?;
        let right = self.lower(&join.right, true)?;
        let (ls, rs) = (join.left.schema(), join.right.schema());
        let mut pairs = join.on.clone();
        if pairs.is_empty() {
            let single = |p: &StreamPlan| p.key.as_ref().is_some_and(|k| k.is_empty());
            if !single(&left) && !single(&right) {
                return Err(refused("a join without an equality between its sides", "Add a condition like a.x = b.y."));
            }
            // One side has one row: a constant key brings it to all rows of the other.
            pairs.push((lit(0i32), lit(0i32)));
        }
        let (mut left_exprs, mut right_exprs) = (Vec::new(), Vec::new());
        for (l, r) in pairs {
            let (lt, rt) = (l.get_type(ls).map_err(from_datafusion)?, r.get_type(rs).map_err(from_datafusion)?);
            let (l, r) = same_type(l, &lt, r, &rt)?;
            left_exprs.push(l);
            right_exprs.push(r);
        }
        Ok((side(left, ls, &left_exprs)?, side(right, rs, &right_exprs)?))
    }

    fn two_sided(&mut self, join: &Join, kind: JoinKind, need_key: bool) -> Result<StreamPlan> {
        let (left, right) = self.sides(join)?;
        let width = left.plan.schema.len();
        let residual = match &join.filter {
            None => None,
            Some(filter) => Some(residual(filter, join, left.visible, width)?),
        };
        let mut output: Vec<usize> = (0..left.visible).chain(width..width + right.visible).collect();
        let key = joined_key(kind, &left, &right);
        if need_key && let Some(key) = &key {
            let missing: Vec<usize> = key.iter().filter(|k| !output.contains(k)).copied().collect();
            output.extend(missing);
        }
        let mut schema = Vec::new();
        for (position, column) in output.iter().enumerate() {
            let (field, padded) = match column.checked_sub(width) {
                None => (&left.plan.schema[*column], matches!(kind, JoinKind::Right | JoinKind::Full)),
                Some(c) => (&right.plan.schema[c], matches!(kind, JoinKind::Left | JoinKind::Full)),
            };
            let name = join.schema.fields().get(position).map_or(field.name(), |f| f.name());
            schema.push(field.clone().with_name(name).with_nullable(field.is_nullable() || padded));
        }
        let null_equal = join.null_equality == NullEquality::NullEqualsNull;
        Ok(join_plan(left, right, kind, null_equal, residual, output, schema, key))
    }

    /// IN and EXISTS as an inner join with the distinct keys of the other side; NOT EXISTS as an outer one that keeps what found nothing.
    fn semi(&mut self, join: &Join, anti: bool, need_key: bool) -> Result<StreamPlan> {
        if join.filter.is_some() || join.on.is_empty() {
            let what = if anti { "NOT EXISTS with a condition other than equality" } else { "EXISTS with a condition other than equality" };
            return Err(refused(what, "Join with a subquery that has DISTINCT keys."));
        }
        if join.null_equality == NullEquality::NullEqualsNull {
            let what = if anti { "EXCEPT" } else { "INTERSECT" };
            return Err(refused(what, "Use GROUP BY with a count for each side."));
        }
        let (left, right) = self.sides(join)?;
        let keys = right.keys.len();
        let distinct = right.plan.select(right.keys.clone());
        let distinct = agg_plan(distinct, keys, &[], Vec::new(), Vec::new());
        let right = Side { plan: distinct, keys: (0..keys).collect(), visible: 0 };
        let width = left.plan.schema.len();
        let mut output: Vec<usize> = (0..left.visible).collect();
        let key = left.plan.key.clone();
        if need_key && let Some(key) = &key {
            output.extend(key.iter().filter(|k| **k >= left.visible).copied());
        }
        let kept = output.len();
        if anti {
            output.push(width);
        }
        let kind = if anti { JoinKind::Left } else { JoinKind::Inner };
        let schema: Vec<Field> = output
            .iter()
            .map(|c| if *c < width { left.plan.schema[*c].clone() } else { right.plan.schema[c - width].clone().with_nullable(true) })
            .collect();
        let marker = schema.last().cloned();
        let plan = join_plan(left, right, kind, false, None, output, schema, key);
        match marker {
            Some(field) if anti => {
                let condition = Logical::IsNull(Box::new(Logical::Column(Column::new_unqualified(column_name(kept)))));
                let predicate = Expr {
                    bytes: encode_positional(&condition)?,
                    text: format!("{} IS NULL", crate::bind_output_name(field.name())),
                    data_type: DataType::Boolean,
                    nullable: false,
                };
                Ok(filter_plan(plan, predicate).select((0..kept).collect()))
            }
            _ => Ok(plan),
        }
    }
}

/// Both sides of an equality in one type: equal values must be equal bytes, or they would not meet on one shard.
fn same_type(l: Logical, lt: &DataType, r: Logical, rt: &DataType) -> Result<(Logical, Logical)> {
    if lt == rt {
        return Ok((l, r));
    }
    let common = datafusion::logical_expr::type_coercion::binary::comparison_coercion(lt, rt)
        .ok_or_else(|| Error::internal(format!("a join compares {lt} with {rt}")))?;
    let cast = |e: Logical, t: &DataType| if *t == common { e } else { datafusion::logical_expr::cast(e, common.clone()) };
    Ok((cast(l, lt), cast(r, rt)))
}

/// Brings the key expressions of a side to columns.
fn side(plan: StreamPlan, schema: &DFSchema, keys: &[Logical]) -> Result<Side> {
    let visible = schema.fields().len();
    let plain: Vec<Option<usize>> = keys.iter().map(|k| plain_column(k, schema)).collect();
    if let Some(keys) = plain.iter().copied().collect::<Option<Vec<usize>>>() {
        return Ok(Side { plan, keys, visible });
    }
    let mut exprs: Vec<Expr> = plan.schema.iter().enumerate().map(|(i, f)| column_expr(i, f)).collect::<Result<_>>()?;
    let mut columns: Vec<Option<usize>> = (0..plan.schema.len()).map(Some).collect();
    let mut fields = plan.schema.clone();
    let mut positions = Vec::new();
    for (key, plain) in keys.iter().zip(plain) {
        match plain {
            Some(column) => positions.push(column),
            None => {
                let encoded = expression(key, schema)?;
                positions.push(exprs.len());
                fields.push(Field::new(&encoded.text, encoded.data_type.clone(), true));
                columns.push(None);
                exprs.push(encoded);
            }
        }
    }
    Ok(Side { plan: project_plan(plan, exprs, columns, fields, false)?, keys: positions, visible })
}

/// A key of the output, as positions in left columns followed by right columns.
fn joined_key(kind: JoinKind, left: &Side, right: &Side) -> Option<Vec<usize>> {
    let width = left.plan.schema.len();
    let (lk, rk) = (left.plan.key.as_ref()?, right.plan.key.as_ref()?);
    // A side with at most one row for each join key repeats no row of the other side.
    let right_unique = rk.iter().all(|k| right.keys.contains(k));
    let left_unique = lk.iter().all(|k| left.keys.contains(k));
    // A row whose key is NULL throughout looks like a missing one: both sides may have such a row without a match.
    let may_be_null = |side: &Side, key: &[usize]| key.iter().all(|k| side.plan.schema[*k].is_nullable());
    if kind == JoinKind::Full && may_be_null(left, lk) && may_be_null(right, rk) {
        return None;
    }
    let rk: Vec<usize> = rk.iter().map(|k| k + width).collect();
    Some(match kind {
        JoinKind::Inner | JoinKind::Left if right_unique => lk.clone(),
        JoinKind::Inner | JoinKind::Right if left_unique => rk,
        _ => lk.iter().copied().chain(rk).collect(),
    })
}

/// A further condition, over our columns.
fn residual(filter: &Logical, join: &Join, visible: usize, width: usize) -> Result<Expr> {
    check(filter)?;
    let schema = join.left.schema().join(join.right.schema()).map_err(from_datafusion)?;
    let field = filter.to_field(&schema).map_err(from_datafusion)?.1;
    let positional = filter
        .clone()
        .transform_up(|e| match e {
            Logical::Column(c) => {
                let position = schema.index_of_column(&c)?;
                let position = if position < visible { position } else { position - visible + width };
                Ok(Transformed::yes(Logical::Column(Column::new_unqualified(column_name(position)))))
            }
            other => Ok(Transformed::no(other)),
        })
        .map_err(from_datafusion)?
        .data;
    Ok(Expr {
        bytes: encode_positional(&positional)?,
        text: crate::encode::text(filter),
        data_type: field.data_type().clone(),
        nullable: field.is_nullable(),
    })
}

/// The join over inputs that are spread by their keys. `output` and `key` are positions in left columns followed by right columns.
#[allow(clippy::too_many_arguments)]
fn join_plan(
    left: Side,
    right: Side,
    kind: JoinKind,
    null_equal: bool,
    residual: Option<Expr>,
    output: Vec<usize>,
    schema: Vec<Field>,
    key: Option<Vec<usize>>,
) -> StreamPlan {
    let width = left.plan.schema.len();
    let single = left.plan.dist == Dist::Single && right.plan.dist == Dist::Single;
    let find = |wanted: &[usize]| wanted.iter().map(|w| output.iter().position(|c| c == w)).collect::<Option<Vec<_>>>();
    let right_columns: Vec<usize> = right.keys.iter().map(|k| k + width).collect();
    // Padded rows have NULL keys and are where the other side's key says.
    let by_left = if matches!(kind, JoinKind::Inner | JoinKind::Left) { find(&left.keys) } else { None };
    let by_right = if matches!(kind, JoinKind::Inner | JoinKind::Right) { find(&right_columns) } else { None };
    let dist = match (single, by_left.or(by_right)) {
        (true, _) => Dist::Single,
        (false, Some(hash)) => Dist::Hash(hash),
        (false, None) => Dist::Any,
    };
    let append_only = kind == JoinKind::Inner && left.plan.append_only && right.plan.append_only;
    let key = key.and_then(|k| find(&k));
    let spread = |side: StreamPlan, keys: &[usize]| side.exchange(if single { Vec::new() } else { keys.to_vec() });
    let inputs = vec![spread(left.plan, &left.keys), spread(right.plan, &right.keys)];
    let op = JoinOp { kind, left_keys: left.keys, right_keys: right.keys, null_equal, residual, output };
    StreamPlan { op: Op::Join(Box::new(op)), inputs, schema, key, append_only, dist }
}
