//! Chains of AND and OR as balanced trees.

use sqlparser::ast::{self, BinaryOperator, Expr as Sql};

/// `a OR b OR c OR d` is parsed as a left-deep tree; a balanced one means the same and needs little stack everywhere after.
pub(super) fn balance(expr: &mut Sql) {
    let Sql::BinaryOp { op, left, .. } = expr else { return };
    if !matches!(op, BinaryOperator::And | BinaryOperator::Or) {
        return;
    }
    let op = op.clone();
    if !matches!(left.as_ref(), Sql::BinaryOp { op: o, left: l, .. } if *o == op && matches!(l.as_ref(), Sql::BinaryOp { op: o, .. } if *o == op))
    {
        return;
    }
    let mut terms = Vec::new();
    let mut rest = std::mem::replace(expr, Sql::Value(ast::Value::Null.into()));
    loop {
        match rest {
            Sql::BinaryOp { left, op: o, right } if o == op => {
                terms.push(*right);
                rest = *left;
            }
            other => {
                terms.push(other);
                break;
            }
        }
    }
    terms.reverse();
    *expr = build(terms, &op);
}

fn build(mut terms: Vec<Sql>, op: &BinaryOperator) -> Sql {
    if terms.len() == 1 {
        return terms.remove(0);
    }
    let right = terms.split_off(terms.len() / 2);
    Sql::BinaryOp { left: Box::new(build(terms, op)), op: op.clone(), right: Box::new(build(right, op)) }
}
