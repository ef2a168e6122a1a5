//! Scalar expressions of plans: bytes for the engine, text for people.

use datafusion::common::DFSchema;
use datafusion::logical_expr::{BinaryExpr, Case, Expr, ExprSchemable, Operator};
use eddyline_expr::checked::as_checked;
use eddyline_expr::errors::from_datafusion;
use eddyline_expr::{encode, pg_types};
use eddyline_protocol::plan;
use eddyline_types::Result;

/// An expression over the columns of `schema`, for a plan.
pub(crate) fn encode_expr(expr: &Expr, schema: &DFSchema) -> Result<plan::Expr> {
    let field = expr.to_field(schema).map_err(from_datafusion)?.1;
    Ok(plan::Expr {
        bytes: encode::encode(expr, schema)?,
        text: text(expr),
        data_type: field.data_type().clone(),
        nullable: field.is_nullable(),
    })
}

/// An expression as a person would write it.
pub(crate) fn text(expr: &Expr) -> String {
    write(expr, 0)
}

/// `strength` is that of the operator around: weaker ones inside get parentheses.
fn write(expr: &Expr, strength: u8) -> String {
    match expr {
        Expr::Column(c) => crate::bind_output_name(&c.name).to_string(),
        Expr::Literal(value, _) => literal(value),
        Expr::Alias(a) => write(&a.expr, strength),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let own = match op {
                Operator::Or => 1,
                Operator::And => 2,
                Operator::Plus | Operator::Minus => 5,
                Operator::Multiply | Operator::Divide | Operator::Modulo => 6,
                _ => 4,
            };
            wrap(format!("{} {op} {}", write(left, own), write(right, own + 1)), own < strength)
        }
        Expr::Not(e) => wrap(format!("NOT {}", write(e, 3)), strength > 3),
        Expr::Negative(e) => format!("-{}", write(e, 7)),
        Expr::IsNull(e) => wrap(format!("{} IS NULL", write(e, 4)), strength > 4),
        Expr::IsNotNull(e) => wrap(format!("{} IS NOT NULL", write(e, 4)), strength > 4),
        Expr::Cast(c) => match c.expr.as_ref() {
            // The rounding before a cast to an integer is part of the cast.
            Expr::ScalarFunction(f) if f.func.name() == "eddy_rint" && f.args.len() == 1 => {
                format!("{}::{}", write(&f.args[0], 8), pg_types::name(c.field.data_type()))
            }
            inner => format!("{}::{}", write(inner, 8), pg_types::name(c.field.data_type())),
        },
        Expr::Between(b) => {
            let not = if b.negated { "NOT " } else { "" };
            wrap(format!("{} {not}BETWEEN {} AND {}", write(&b.expr, 4), write(&b.low, 4), write(&b.high, 4)), strength > 3)
        }
        Expr::InList(l) => {
            let not = if l.negated { "NOT " } else { "" };
            let list: Vec<String> = l.list.iter().map(|e| write(e, 0)).collect();
            wrap(format!("{} {not}IN ({})", write(&l.expr, 4), list.join(", ")), strength > 3)
        }
        Expr::Like(l) => {
            let not = if l.negated { "NOT " } else { "" };
            let op = if l.case_insensitive { "ILIKE" } else { "LIKE" };
            wrap(format!("{} {not}{op} {}", write(&l.expr, 4), write(&l.pattern, 4)), strength > 3)
        }
        Expr::ScalarFunction(f) => {
            if let (Some(op), [left, right]) = (as_checked(&f.func), f.args.as_slice()) {
                let own = if matches!(op.symbol(), "+" | "-") { 5 } else { 6 };
                return wrap(format!("{} {} {}", write(left, own), op.symbol(), write(right, own + 1)), own < strength);
            }
            let args: Vec<String> = f.args.iter().map(|e| write(e, 0)).collect();
            format!("{}({})", f.func.name(), args.join(", "))
        }
        Expr::Case(Case { expr, when_then_expr, else_expr }) => {
            let mut out = String::from("CASE");
            if let Some(e) = expr {
                out.push_str(&format!(" {}", write(e, 0)));
            }
            for (when, then) in when_then_expr {
                out.push_str(&format!(" WHEN {} THEN {}", write(when, 0), write(then, 0)));
            }
            if let Some(e) = else_expr {
                out.push_str(&format!(" ELSE {}", write(e, 0)));
            }
            out.push_str(" END");
            out
        }
        other => other.to_string(),
    }
}

fn wrap(text: String, parentheses: bool) -> String {
    if parentheses { format!("({text})") } else { text }
}

fn literal(value: &datafusion::scalar::ScalarValue) -> String {
    use arrow::datatypes::DataType as A;
    if value.is_null() {
        return "NULL".into();
    }
    match value.data_type() {
        A::Utf8 | A::LargeUtf8 | A::Utf8View => format!("'{}'", value.to_string().replace('\'', "''")),
        A::Date32 | A::Timestamp(..) | A::Interval(_) | A::Time64(_) => {
            let shown = arrow::util::display::array_value_to_string;
            match value.to_array().ok().and_then(|a| shown(&a, 0).ok()) {
                Some(text) => format!("'{text}'"),
                None => value.to_string(),
            }
        }
        A::Decimal128(..) => {
            value.to_array().ok().and_then(|a| arrow::util::display::array_value_to_string(&a, 0).ok()).unwrap_or_else(|| value.to_string())
        }
        _ => value.to_string(),
    }
}
