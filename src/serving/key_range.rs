//! Which part of a table a predicate needs: equalities and ranges on a prefix of the key, as ranges of table keys.
//!
//! The ranges may hold more rows than the predicate wants, never fewer: the predicate itself is still evaluated afterwards.

use crate::reader::KeyRange;
use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::scalar::ScalarValue;
use eddyline_protocol::TableDesc;
use eddyline_types::{Result, VNODE_COUNT, VNode, vnode};
use std::ops::Bound;

/// Combinations of IN lists that are looked up one by one; more than these are scanned.
const MAX_POINTS: usize = 1024;

/// What the predicate says about one column.
#[derive(Clone, Debug, Default)]
struct Constraint {
    /// The column is one of these.
    values: Option<Vec<ScalarValue>>,
    lower: Option<Edge>,
    upper: Option<Edge>,
    /// No value can satisfy the predicate.
    empty: bool,
}

#[derive(Clone, Debug)]
struct Edge {
    value: ScalarValue,
    inclusive: bool,
}

/// The key ranges that hold all rows of `vnodes` that satisfy `filters`, in key order; an empty list: no row can satisfy them.
/// Filters refer to columns by name.
pub fn ranges(desc: &TableDesc, filters: &[Expr], vnodes: std::ops::Range<VNode>) -> Result<Vec<KeyRange>> {
    let mut constraints: Vec<Constraint> = vec![Constraint::default(); desc.key.len()];
    for filter in filters {
        collect(desc, filter, &mut constraints);
    }
    if constraints.iter().any(|c| c.empty) {
        return Ok(Vec::new());
    }
    let points = points(&constraints);
    let width = points.first().map_or(0, Vec::len);
    // The key column after the fixed ones may be bounded; only in ascending order are its bounds the order of the bytes.
    let next = constraints.get(width).filter(|_| !desc.key[width].descending);
    let bounds = next.map(|c| (c.lower.clone(), c.upper.clone())).filter(|(l, u)| l.is_some() || u.is_some());
    if width == 0 && bounds.is_none() {
        return Ok(vec![vnode_range(vnodes)]);
    }
    let mut ranges = Vec::new();
    for point in points {
        let (low, high) = key_bounds(desc, &point, bounds.as_ref())?;
        let owners = match owner(desc, &point)? {
            Some(owner) if vnodes.contains(&owner) => owner..owner + 1,
            Some(_) => continue,
            None => vnodes.clone(),
        };
        // Without the vnode every one of them must be searched: worth it only if little is read from each.
        if owners.len() > 1 && width == 0 && !bounds.as_ref().is_some_and(|(l, u)| l.is_some() && u.is_some()) {
            return Ok(vec![vnode_range(vnodes)]);
        }
        ranges.extend(owners.map(|vnode| in_vnode(vnode, &low, &high)));
    }
    ranges.sort_by(|a, b| start(a).cmp(start(b)));
    ranges.dedup();
    Ok(ranges)
}

/// All keys of a range of vnodes.
pub fn vnode_range(vnodes: std::ops::Range<VNode>) -> KeyRange {
    let end = if vnodes.end as usize >= VNODE_COUNT { Bound::Unbounded } else { Bound::Excluded(vnodes.end.to_be_bytes().to_vec()) };
    (Bound::Included(vnodes.start.to_be_bytes().to_vec()), end)
}

/// The keys that start with the given values of the first key columns, which must cover the distribution.
pub fn prefix_range(desc: &TableDesc, values: &[ScalarValue]) -> Result<KeyRange> {
    let owner = owner(desc, values)?.ok_or_else(|| eddyline_types::Error::internal("a key prefix must cover the distribution"))?;
    let (low, high) = key_bounds(desc, values, None)?;
    Ok(in_vnode(owner, &low, &high))
}

/// The whole table key of the given values of all key columns.
pub fn whole_key(desc: &TableDesc, values: &[ScalarValue]) -> Result<Vec<u8>> {
    let owner = owner(desc, values)?.ok_or_else(|| eddyline_types::Error::internal("a key must cover the distribution"))?;
    Ok([&owner.to_be_bytes()[..], &encode(desc, values)?].concat())
}

fn start(range: &KeyRange) -> &[u8] {
    match &range.0 {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => &[],
    }
}

fn in_vnode(vnode: VNode, low: &[u8], high: &Option<Vec<u8>>) -> KeyRange {
    let with = |key: &[u8]| [&vnode.to_be_bytes()[..], key].concat();
    let end = match high {
        Some(high) => Bound::Excluded(with(high)),
        None => vnode_range(vnode..vnode + 1).1,
    };
    (Bound::Included(with(low)), end)
}

/// Lower bound (inclusive) and upper bound (exclusive; `None`: the end of the vnode) of the memcomparable part.
fn key_bounds(
    desc: &TableDesc,
    point: &[ScalarValue],
    bounds: Option<&(Option<Edge>, Option<Edge>)>,
) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
    let prefix = encode(desc, point)?;
    let mut low = prefix.clone();
    let mut high = successor(prefix);
    if let Some((lower, upper)) = bounds {
        let with = |edge: &Edge| encode(desc, &[point, std::slice::from_ref(&edge.value)].concat());
        if let Some(edge) = lower {
            let key = with(edge)?;
            low = if edge.inclusive { key } else { successor(key).unwrap_or_default() };
        }
        if let Some(edge) = upper {
            let key = with(edge)?;
            high = if edge.inclusive { successor(key) } else { Some(key) };
        }
    }
    Ok((low, high))
}

/// The smallest bytes that are larger than everything that starts with `prefix`; `None`: there are none.
fn successor(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            return Some(prefix);
        }
    }
    None
}

fn arrays(values: &[ScalarValue]) -> Result<Vec<ArrayRef>> {
    values.iter().map(|v| v.to_array().map_err(crate::failure::from_datafusion)).collect()
}

fn encode(desc: &TableDesc, values: &[ScalarValue]) -> Result<Vec<u8>> {
    if values.is_empty() {
        return Ok(Vec::new());
    }
    let keys = desc.key_codec()?.codec().encode(&arrays(values)?, 1)?;
    Ok(keys.value(0).to_vec())
}

/// The vnode of a key prefix; `None`: the prefix does not cover the distribution.
fn owner(desc: &TableDesc, values: &[ScalarValue]) -> Result<Option<VNode>> {
    if values.len() < desc.distribution {
        return Ok(None);
    }
    Ok(vnode::of_columns(&arrays(&values[..desc.distribution])?, 1)?.first().copied())
}

/// All combinations of the values of the leading key columns that are fixed to a few values each.
fn points(constraints: &[Constraint]) -> Vec<Vec<ScalarValue>> {
    let mut points: Vec<Vec<ScalarValue>> = vec![Vec::new()];
    for constraint in constraints {
        let Some(values) = &constraint.values else { break };
        if points.len() * values.len() > MAX_POINTS {
            break;
        }
        points = points.iter().flat_map(|p| values.iter().map(move |v| [p.as_slice(), std::slice::from_ref(v)].concat())).collect();
    }
    points
}

/// Adds what one conjunct says; what is not understood adds nothing.
fn collect(desc: &TableDesc, filter: &Expr, constraints: &mut [Constraint]) {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            collect(desc, left, constraints);
            collect(desc, right, constraints);
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (position, value, op) = match (key_position(desc, left), literal(right)) {
                (Some(position), Some(value)) => (position, value, *op),
                _ => match (key_position(desc, right), literal(left), op.swap()) {
                    (Some(position), Some(value), Some(op)) => (position, value, op),
                    _ => return,
                },
            };
            narrow(&mut constraints[position], column_type(desc, position), op, value);
        }
        Expr::Between(between) if !between.negated => {
            if let (Some(position), Some(low), Some(high)) =
                (key_position(desc, &between.expr), literal(&between.low), literal(&between.high))
            {
                let data_type = column_type(desc, position);
                narrow(&mut constraints[position], data_type, Operator::GtEq, low);
                narrow(&mut constraints[position], data_type, Operator::LtEq, high);
            }
        }
        Expr::InList(list) if !list.negated => {
            let Some(position) = key_position(desc, &list.expr) else { return };
            let Some(values) = list.list.iter().map(literal).collect::<Option<Vec<_>>>() else { return };
            let data_type = column_type(desc, position);
            // A NULL in the list matches nothing; a value that the column cannot have makes the list useless here.
            let values = values.into_iter().filter(|v| !v.is_null()).map(|v| exact(v, data_type)).collect::<Option<Vec<_>>>();
            if let Some(values) = values {
                constraints[position].set(values);
            }
        }
        Expr::Column(_) => {
            if let Some(position) = key_position(desc, filter) {
                narrow(&mut constraints[position], &DataType::Boolean, Operator::Eq, &ScalarValue::Boolean(Some(true)));
            }
        }
        _ => {}
    }
}

impl Constraint {
    fn set(&mut self, values: Vec<ScalarValue>) {
        let values: Vec<ScalarValue> = match self.values.take() {
            Some(before) => before.into_iter().filter(|v| values.contains(v)).collect(),
            None => values,
        };
        self.empty |= values.is_empty();
        self.values = Some(values);
    }
}

fn narrow(constraint: &mut Constraint, data_type: &DataType, op: Operator, value: &ScalarValue) {
    if value.is_null() {
        constraint.empty |= matches!(op, Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq);
        return;
    }
    let Some(value) = exact(value, data_type) else { return };
    match op {
        Operator::Eq | Operator::IsNotDistinctFrom => constraint.set(vec![value]),
        Operator::Gt | Operator::GtEq => {
            let edge = Edge { inclusive: op == Operator::GtEq, value };
            if constraint.lower.as_ref().is_none_or(|old| old.value.partial_cmp(&edge.value).is_some_and(|o| o.is_lt())) {
                constraint.lower = Some(edge);
            }
        }
        Operator::Lt | Operator::LtEq => {
            let edge = Edge { inclusive: op == Operator::LtEq, value };
            if constraint.upper.as_ref().is_none_or(|old| old.value.partial_cmp(&edge.value).is_some_and(|o| o.is_gt())) {
                constraint.upper = Some(edge);
            }
        }
        _ => {}
    }
}

/// The value in the column's type, if it is the same value there.
fn exact(value: &ScalarValue, data_type: &DataType) -> Option<ScalarValue> {
    if value.data_type() == *data_type {
        return Some(value.clone());
    }
    let cast = value.cast_to(data_type).ok()?;
    (!cast.is_null() && cast.cast_to(&value.data_type()).ok()? == *value).then_some(cast)
}

fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value),
        Expr::Alias(alias) => literal(&alias.expr),
        _ => None,
    }
}

fn column_type(desc: &TableDesc, position: usize) -> &DataType {
    desc.schema.field(desc.key[position].column).data_type()
}

/// Position in the key of the column that the expression is.
fn key_position(desc: &TableDesc, expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Column(column) => desc.key.iter().position(|k| desc.schema.field(k.column).name() == column.name()),
        Expr::Alias(alias) => key_position(desc, &alias.expr),
        // A widening cast of the column compares like the column with a value that fits into its type.
        Expr::Cast(cast) => {
            let position = key_position(desc, &cast.expr)?;
            widens(column_type(desc, position), cast.field.data_type()).then_some(position)
        }
        _ => None,
    }
}

/// Whether all values of `from` keep their value and order in `to`.
fn widens(from: &DataType, to: &DataType) -> bool {
    from == to || (from.is_signed_integer() && to.is_signed_integer() && from.primitive_width() <= to.primitive_width())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{Field, Schema};
    use datafusion::logical_expr::{col, lit};
    use eddyline_protocol::table::KeyColumn;
    use eddyline_types::{JobId, TableId};
    use std::sync::Arc;

    fn desc(distribution: usize) -> TableDesc {
        TableDesc {
            id: TableId(1),
            job: JobId(1),
            name: "t".into(),
            schema: Arc::new(Schema::new(vec![
                Field::new("a", DataType::Int64, true),
                Field::new("b", DataType::Int32, true),
                Field::new("v", DataType::Utf8, true),
            ])),
            key: vec![KeyColumn::ascending(0), KeyColumn::ascending(1)],
            distribution,
        }
    }

    fn contains(ranges: &[KeyRange], key: &[u8]) -> bool {
        ranges.iter().any(|(low, high)| {
            let above = match low {
                Bound::Included(k) => key >= k.as_slice(),
                Bound::Excluded(k) => key > k.as_slice(),
                Bound::Unbounded => true,
            };
            let below = match high {
                Bound::Included(k) => key <= k.as_slice(),
                Bound::Excluded(k) => key < k.as_slice(),
                Bound::Unbounded => true,
            };
            above && below
        })
    }

    fn key(desc: &TableDesc, a: i64, b: i32) -> Vec<u8> {
        whole_key(desc, &[ScalarValue::Int64(Some(a)), ScalarValue::Int32(Some(b))]).expect("a key")
    }

    #[test]
    fn a_whole_key_is_one_range_in_one_vnode() {
        let desc = desc(1);
        let ranges = ranges(&desc, &[col("a").eq(lit(7i64)).and(col("b").eq(lit(3i32)))], 0..256).expect("ranges");
        assert_eq!(ranges.len(), 1);
        assert!(contains(&ranges, &key(&desc, 7, 3)));
        assert!(!contains(&ranges, &key(&desc, 7, 4)));
        assert!(!contains(&ranges, &key(&desc, 8, 3)));
    }

    #[test]
    fn contradictions_read_nothing() {
        let desc = desc(1);
        let none = ranges(&desc, &[col("a").eq(lit(7i64)), col("a").eq(lit(8i64))], 0..256).expect("ranges");
        assert!(none.is_empty());
        let null = ranges(&desc, &[col("a").eq(lit(ScalarValue::Int64(None)))], 0..256).expect("ranges");
        assert!(null.is_empty());
    }

    #[test]
    fn ranges_never_lose_a_row() {
        // All predicates of a small grammar over a small domain, against evaluating them.
        let ops = [Operator::Eq, Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq];
        let holds = |op: Operator, x: i64, y: i64| match op {
            Operator::Eq => x == y,
            Operator::Lt => x < y,
            Operator::LtEq => x <= y,
            Operator::Gt => x > y,
            _ => x >= y,
        };
        let compare =
            |column: &str, op: Operator, value: Expr| Expr::BinaryExpr(BinaryExpr::new(Box::new(col(column)), op, Box::new(value)));
        for distribution in 0..=2 {
            let desc = desc(distribution);
            for (op_a, op_b) in ops.iter().flat_map(|a| ops.iter().map(move |b| (*a, *b))) {
                for (x, y) in [(0i64, 0i32), (2, -1), (-3, 3)] {
                    let filters = [compare("a", op_a, lit(x)), compare("b", op_b, lit(y))];
                    let all = ranges(&desc, &filters, 0..256).expect("ranges");
                    for (a, b) in (-4..5i64).flat_map(|a| (-4..5i32).map(move |b| (a, b))) {
                        if holds(op_a, a, x) && holds(op_b, b as i64, y as i64) {
                            assert!(contains(&all, &key(&desc, a, b)), "{op_a} {op_b} {x} {y}: row {a} {b} at distribution {distribution}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn partitions_of_vnodes_share_the_points() {
        let desc = desc(1);
        let filter = [col("a").in_list((0..20).map(|i| lit(i as i64)).collect(), false)];
        let whole = ranges(&desc, &filter, 0..256).expect("ranges");
        let parts: usize = [0..100, 100..200, 200..256].into_iter().map(|v| ranges(&desc, &filter, v).expect("ranges").len()).sum();
        assert_eq!((whole.len(), parts), (20, 20));
    }

    #[test]
    fn a_value_outside_the_columns_type_is_not_used() {
        let desc = desc(0);
        let cast = datafusion::logical_expr::cast(col("b"), DataType::Int64);
        let all = ranges(&desc, &[col("a").eq(lit(1i64)), cast.eq(lit(5_000_000_000i64))], 0..256).expect("ranges");
        assert!(contains(&all, &key(&desc, 1, 9)));
    }
}
