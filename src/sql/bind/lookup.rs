//! Queries that are reads of one key or key prefix.

use crate::statement::{Lookup, LookupValue};
use arrow::datatypes::DataType;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::scalar::ScalarValue;
use eddyline_expr::bound::RelationSource;
use eddyline_protocol::{Catalog, Relation};
use eddyline_types::ObjectId;
use std::collections::BTreeMap;

/// The query as a key read, if its plan is nothing but columns of one table or view, equality on a prefix of the key, and LIMIT.
pub(crate) fn recognise(plan: &LogicalPlan, catalog: &Catalog) -> Option<Lookup> {
    let (plan, limit) = match plan {
        LogicalPlan::Limit(l) => {
            if l.skip.as_deref().is_some_and(|s| count(s) != Some(0)) {
                return None;
            }
            (l.input.as_ref(), Some(count(l.fetch.as_deref()?)?))
        }
        other => (other, None),
    };
    let mut equal = BTreeMap::new();
    let (relation, columns) = walk(plan, catalog, &mut equal)?;
    let table = catalog.table(relation.table?)?;
    let mut key = Vec::new();
    for column in table.key_columns() {
        match equal.remove(&column) {
            Some(value) => key.push(value),
            None => break,
        }
    }
    // A condition that is left over, or a prefix that does not name its vnode, is for the query engine.
    if !equal.is_empty() || key.is_empty() || key.len() < table.distribution {
        return None;
    }
    // Multiplicities are stored apart from the columns: the query engine knows how to read them.
    if table.schema.fields().len() != relation.columns.len() {
        return None;
    }
    let whole_key = key.len() == table.key.len();
    Some(Lookup { relation: relation.id, key, whole_key, columns, limit })
}

fn count(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Literal(ScalarValue::Int64(Some(n)), _) => usize::try_from(*n).ok(),
        _ => None,
    }
}

/// The relation that a plan reads and which of its columns the plan's columns are. Equalities are put into `equal` by column.
fn walk<'c>(plan: &LogicalPlan, catalog: &'c Catalog, equal: &mut BTreeMap<usize, LookupValue>) -> Option<(&'c Relation, Vec<usize>)> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let source = scan.source.downcast_ref::<RelationSource>()?;
            if !scan.filters.is_empty() || scan.fetch.is_some() {
                return None;
            }
            let relation = catalog.relations.get(&ObjectId(source.relation.0))?;
            let columns = scan.projection.clone().unwrap_or_else(|| (0..relation.columns.len()).collect());
            Some((relation, columns))
        }
        LogicalPlan::SubqueryAlias(alias) => walk(&alias.input, catalog, equal),
        LogicalPlan::Projection(projection) => {
            let (relation, input) = walk(&projection.input, catalog, equal)?;
            let schema = projection.input.schema();
            let mut columns = Vec::new();
            for expr in &projection.expr {
                let Expr::Column(c) = unalias(expr) else { return None };
                columns.push(input[schema.index_of_column(c).ok()?]);
            }
            Some((relation, columns))
        }
        LogicalPlan::Filter(filter) => {
            let (relation, input) = walk(&filter.input, catalog, equal)?;
            let schema = filter.input.schema();
            for condition in split_conjunction(&filter.predicate) {
                let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else { return None };
                let (column, value) = match (column_of(left), column_of(right)) {
                    (Some(c), None) => (c, right.as_ref()),
                    (None, Some(c)) => (c, left.as_ref()),
                    _ => return None,
                };
                let position = input[schema.index_of_column(column).ok()?];
                let data_type = &relation.columns[position].data_type;
                let cast = !matches!(left.as_ref(), Expr::Column(_)) && !matches!(right.as_ref(), Expr::Column(_));
                if cast && !data_type.is_integer() {
                    return None;
                }
                let value = value_of(value, data_type)?;
                if equal.insert(position, value).is_some() {
                    return None;
                }
            }
            Some((relation, input))
        }
        _ => None,
    }
}

fn unalias(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(a) => unalias(&a.expr),
        other => other,
    }
}

/// The column of a side, also below the cast that a wider literal caused.
fn column_of(expr: &Expr) -> Option<&datafusion::common::Column> {
    match expr {
        Expr::Column(c) => Some(c),
        Expr::Cast(c) if c.field.data_type().is_integer() => match c.expr.as_ref() {
            Expr::Column(column) => Some(column),
            _ => None,
        },
        _ => None,
    }
}

/// A constant or parameter in the column's type; `None` if it has no exact counterpart there.
fn value_of(expr: &Expr, data_type: &DataType) -> Option<LookupValue> {
    match expr {
        Expr::Placeholder(p) => {
            let number = p.id.strip_prefix('$')?.parse::<usize>().ok()?;
            (p.field.as_ref()?.data_type() == data_type).then(|| LookupValue::Parameter(number - 1))
        }
        Expr::Cast(c) => match c.expr.as_ref() {
            Expr::Literal(value, _) => {
                let cast = value.cast_to(c.field.data_type()).ok()?;
                exact(cast, data_type)
            }
            // The parameter's own type decides; a wider one than the column's is for the query engine.
            _ => None,
        },
        Expr::Literal(value, _) => exact(value.clone(), data_type),
        _ => None,
    }
}

fn exact(value: ScalarValue, data_type: &DataType) -> Option<LookupValue> {
    if value.data_type() == *data_type {
        return Some(LookupValue::Constant(value));
    }
    if value.is_null() {
        return Some(LookupValue::Constant(ScalarValue::try_from(data_type).ok()?));
    }
    let cast = value.cast_to(data_type).ok()?;
    (cast.cast_to(&value.data_type()).ok()? == value).then_some(LookupValue::Constant(cast))
}
