//! Names: of output columns as Postgres gives them, and near misses for hints.

use crate::parse::fold;
use sqlparser::ast::{Expr, Ident, Query, SelectItem, SetExpr};

/// Marks where a column name stops and the number that makes it unique inside the planner begins.
const MARK: char = '\u{1}';

/// A column name without what made it unique.
pub(crate) fn shown(name: &str) -> &str {
    name.split(MARK).next().unwrap_or(name)
}

/// A name that prints the same and differs from all others.
pub(crate) fn unique(name: &str, number: usize) -> String {
    format!("{name}{MARK}{number}")
}

/// Gives every expression of a select list the name that Postgres gives it, and makes repeated names differ.
pub(crate) fn name_items(items: &mut [SelectItem]) {
    let mut seen = std::collections::BTreeSet::new();
    for (number, item) in items.iter_mut().enumerate() {
        let (name, expr) = match item {
            SelectItem::UnnamedExpr(expr) => (column_name(expr), expr.clone()),
            SelectItem::ExprWithAlias { expr, alias } => (fold(&alias.value, alias.quote_style.is_some()), expr.clone()),
            SelectItem::ExprWithAliases { .. } | SelectItem::QualifiedWildcard(..) | SelectItem::Wildcard(_) => continue,
        };
        let plain = matches!(item, SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_)));
        if !seen.insert(name.clone()) {
            *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', unique(&name, number)) };
        } else if !plain {
            // An internal name of its own: "?column?" could clash with nothing that a user can write, "count" could.
            *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) };
        }
    }
}

/// How a column without alias is called.
pub(crate) fn column_name(expr: &Expr) -> String {
    figure(expr).map_or_else(|| "?column?".to_string(), |(name, _)| name)
}

/// The name and whether it is a strong one (a cast then keeps it).
fn figure(expr: &Expr) -> Option<(String, bool)> {
    let strong = |name: &str| Some((name.to_string(), true));
    match expr {
        Expr::Identifier(ident) => Some((fold(&ident.value, ident.quote_style.is_some()), true)),
        Expr::CompoundIdentifier(parts) => parts.last().map(|i| (fold(&i.value, i.quote_style.is_some()), true)),
        Expr::CompoundFieldAccess { root, .. } => figure(root),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => figure(inner),
        Expr::Function(f) => {
            let last = f.name.0.last().and_then(|p| p.as_ident())?;
            Some((fold(&last.value, last.quote_style.is_some()), true))
        }
        Expr::Cast { expr, data_type, .. } => match figure(expr) {
            Some((name, true)) => Some((name, true)),
            _ => Some((type_name(data_type), false)),
        },
        Expr::TypedString(t) => Some((type_name(&t.data_type), false)),
        Expr::Interval(_) => Some(("interval".into(), false)),
        Expr::Case { else_result, .. } => match else_result.as_deref().and_then(figure) {
            Some((name, true)) => Some((name, true)),
            _ => Some(("case".into(), false)),
        },
        Expr::Array(_) => strong("array"),
        Expr::Exists { .. } => strong("exists"),
        Expr::Extract { .. } => strong("extract"),
        Expr::Position { .. } => strong("position"),
        Expr::Substring { .. } => strong("substring"),
        Expr::Overlay { .. } => strong("overlay"),
        Expr::Ceil { .. } => strong("ceil"),
        Expr::Floor { .. } => strong("floor"),
        Expr::AtTimeZone { .. } => strong("timezone"),
        Expr::Trim { trim_where, .. } => match trim_where {
            Some(sqlparser::ast::TrimWhereField::Leading) => strong("ltrim"),
            Some(sqlparser::ast::TrimWhereField::Trailing) => strong("rtrim"),
            _ => strong("btrim"),
        },
        Expr::Tuple(_) => strong("row"),
        Expr::Subquery(query) => first_item(query),
        Expr::Value(v) if matches!(v.value, sqlparser::ast::Value::Boolean(_)) => Some(("bool".into(), false)),
        _ => None,
    }
}

fn first_item(query: &Query) -> Option<(String, bool)> {
    match query.body.as_ref() {
        SetExpr::Select(select) => match select.projection.first()? {
            SelectItem::UnnamedExpr(e) => figure(e),
            SelectItem::ExprWithAlias { alias, .. } => Some((fold(&alias.value, alias.quote_style.is_some()), true)),
            _ => None,
        },
        _ => None,
    }
}

/// A type's name as Postgres uses it for a column.
fn type_name(sql: &sqlparser::ast::DataType) -> String {
    use arrow::datatypes::DataType as A;
    match super::types::arrow_type(sql) {
        Ok(A::Boolean) => "bool".into(),
        Ok(A::Int16) => "int2".into(),
        Ok(A::Int32) => "int4".into(),
        Ok(A::Int64) => "int8".into(),
        Ok(A::Float32) => "float4".into(),
        Ok(A::Float64) => "float8".into(),
        Ok(A::Utf8) if matches!(sql, sqlparser::ast::DataType::Text) => "text".into(),
        Ok(A::Utf8) => "varchar".into(),
        Ok(A::Decimal128(..)) => "numeric".into(),
        Ok(A::Binary) => "bytea".into(),
        Ok(A::Date32) => "date".into(),
        Ok(A::Time64(_)) => "time".into(),
        Ok(A::Timestamp(_, None)) => "timestamp".into(),
        Ok(A::Timestamp(_, Some(_))) => "timestamptz".into(),
        Ok(A::Interval(_)) => "interval".into(),
        _ => sql.to_string().to_lowercase(),
    }
}

/// The candidate that a mistyped name most probably means.
pub(crate) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).clamp(1, 3);
    candidates.map(|c| (distance(name, c), c)).filter(|(d, _)| *d > 0 && *d <= limit).min().map(|(_, c)| c)
}

/// Edits (insert, remove, replace, swap neighbours) between two words.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > 3 {
        return usize::MAX;
    }
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found() {
        assert_eq!(nearest("page_visit", ["flights", "page_visits"].into_iter()), Some("page_visits"));
        assert_eq!(nearest("filghts", ["flights"].into_iter()), Some("flights"));
        assert_eq!(nearest("x", ["flights"].into_iter()), None);
        assert_eq!(nearest("abc", ["abc"].into_iter()), None);
    }
}
