//! Statements about the session: variables, transactions, prepared statements; and those that are accepted or refused by name.

use super::{Binder, drop};
use crate::statement::Bound;
use datafusion::common::DFSchema;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::scalar::ScalarValue;
use datafusion::sql::planner::{ParserOptions, PlannerContext, SqlToRel};
use eddyline_types::{Error, Result, SqlState};
use sqlparser::ast::{self, Ident, ObjectName, ObjectType, Set, Statement};
use std::sync::Arc;

pub(super) fn bind_session(binder: &Binder<'_>, statement: &Statement) -> Result<Bound> {
    match statement {
        Statement::Set(set) => bind_set(set),
        Statement::ShowVariable { variable } => Ok(show_variable(variable)),
        Statement::Commit { .. } => Ok(Bound::Commit),
        Statement::Rollback { savepoint: None, .. } => Ok(Bound::Rollback),
        Statement::Rollback { .. } | Statement::Savepoint { .. } | Statement::ReleaseSavepoint { .. } => {
            Err(Error::unsupported("savepoints are not supported").with_hint("Use BEGIN and COMMIT alone."))
        }
        Statement::CreateSchema { schema_name, if_not_exists, .. } => bind_create_schema(binder, schema_name, *if_not_exists),
        Statement::Drop { object_type: ObjectType::Schema, names, if_exists, cascade, .. } => {
            drop::bind_drop_schema(binder, names, *if_exists, *cascade)
        }
        Statement::Deallocate { name, .. } => {
            let name = if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all") { None } else { Some(fold(name)) };
            Ok(Bound::Deallocate { name })
        }
        Statement::Execute { name: Some(name), parameters, using, .. } if using.is_empty() => {
            let values = parameters.iter().map(|p| constant(binder, p)).collect::<Result<_>>()?;
            Ok(Bound::Execute { name: binder.qualified(name)?.name, values })
        }
        Statement::Discard { .. } => Ok(Bound::Discard),
        Statement::LISTEN { .. } => Ok(Bound::Nothing { tag: "LISTEN" }),
        Statement::UNLISTEN { .. } => Ok(Bound::Nothing { tag: "UNLISTEN" }),
        Statement::Analyze(_) => Ok(Bound::Nothing { tag: "ANALYZE" }),
        Statement::Vacuum(_) => Ok(Bound::Nothing { tag: "VACUUM" }),
        other => Err(Error::unsupported(format!("{} is not supported", words(other)))),
    }
}

fn fold(ident: &Ident) -> String {
    crate::parse::fold(&ident.value, ident.quote_style.is_some())
}

/// The first words of a statement, for a refusal.
fn words(statement: &Statement) -> String {
    let text = statement.to_string();
    let words: Vec<&str> = text.split_whitespace().take_while(|w| w.chars().all(|c| c.is_ascii_uppercase())).take(3).collect();
    if words.is_empty() { "this statement".to_string() } else { words.join(" ") }
}

fn show_variable(variable: &[Ident]) -> Bound {
    let name = variable.iter().map(|i| i.value.to_lowercase()).collect::<Vec<_>>();
    let joined = name.join(" ");
    let name = match joined.as_str() {
        "transaction isolation level" => "transaction_isolation".to_string(),
        "time zone" => "timezone".to_string(),
        "session authorization" => "session_authorization".to_string(),
        _ => name.join("."),
    };
    Bound::ShowVariable { name }
}

fn variable_name(name: &ObjectName) -> String {
    name.0.iter().map(|p| p.as_ident().map_or_else(|| p.to_string(), |i| i.value.to_lowercase())).collect::<Vec<_>>().join(".")
}

fn bind_set(set: &Set) -> Result<Bound> {
    match set {
        Set::SingleAssignment { scope, variable, values, .. } => {
            let local = matches!(scope, Some(ast::ContextModifier::Local));
            let value = match values.as_slice() {
                [ast::Expr::Identifier(i)] if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default") => None,
                many => Some(many.iter().map(setting_text).collect::<Vec<_>>().join(", ")),
            };
            Ok(Bound::SetVariable { name: variable_name(variable), value, local })
        }
        Set::SetTimeZone { local, value } => {
            let text = setting_text(value);
            let value = if text.eq_ignore_ascii_case("default") || text.eq_ignore_ascii_case("local") { None } else { Some(text) };
            Ok(Bound::SetVariable { name: "timezone".into(), value, local: *local })
        }
        Set::SetNames { charset_name, .. } => {
            Ok(Bound::SetVariable { name: "client_encoding".into(), value: Some(charset_name.value.clone()), local: false })
        }
        // All isolation levels give the same here: a read sees whole epochs.
        Set::SetTransaction { .. } => Ok(Bound::Nothing { tag: "SET" }),
        Set::SetSessionAuthorization(_) | Set::SetRole { .. } => {
            Err(Error::unsupported("SET ROLE and SET SESSION AUTHORIZATION are not supported"))
        }
        other => Err(Error::unsupported(format!("{other} is not supported"))),
    }
}

fn setting_text(expr: &ast::Expr) -> String {
    match expr {
        ast::Expr::Value(v) => match &v.value {
            ast::Value::SingleQuotedString(s) | ast::Value::DoubleQuotedString(s) => s.clone(),
            other => other.to_string(),
        },
        ast::Expr::Identifier(i) => i.value.clone(),
        other => other.to_string(),
    }
}

fn bind_create_schema(binder: &Binder<'_>, name: &ast::SchemaName, if_not_exists: bool) -> Result<Bound> {
    let name = match name {
        ast::SchemaName::Simple(name) => binder.qualified(name)?.name,
        other => return Err(Error::unsupported(format!("CREATE SCHEMA {other} is not supported")).with_hint("Use CREATE SCHEMA name.")),
    };
    if name.starts_with("pg_") || super::names::SYSTEM_SCHEMAS.contains(&name.as_str()) {
        return Err(Error::user(SqlState("42939"), format!("unacceptable schema name \"{name}\""))
            .with_detail("The prefix \"pg_\" is reserved for system schemas."));
    }
    if binder.schema_exists(&name) && !if_not_exists {
        return Err(Error::user(SqlState::DUPLICATE_SCHEMA, format!("schema \"{name}\" already exists")));
    }
    Ok(Bound::CreateSchema { name, if_not_exists })
}

/// The value of an expression without columns.
pub(crate) fn constant(binder: &Binder<'_>, expr: &ast::Expr) -> Result<ScalarValue> {
    let schema = DFSchema::empty();
    let planner = SqlToRel::new_with_options(binder, ParserOptions::from(&super::names::options().sql_parser));
    let expr = planner.sql_to_expr(expr.clone(), &schema, &mut PlannerContext::new()).map_err(|e| binder.failure(e))?;
    let context = SimplifyContext::builder().with_schema(Arc::new(schema)).build();
    let simplifier = ExprSimplifier::new(context);
    let coerced = simplifier.coerce(expr, &DFSchema::empty()).map_err(|e| binder.failure(e))?;
    match simplifier.simplify(coerced).map_err(|e| binder.failure(e))? {
        Expr::Literal(value, _) => Ok(value),
        other => Err(Error::unsupported(format!("\"{other}\" is not a constant"))),
    }
}
