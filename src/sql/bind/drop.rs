//! DROP of relations and schemas, with what depends on them.

use super::Binder;
use crate::statement::{Bound, DropRelations};
use eddyline_protocol::catalog::DEFAULT_SCHEMA;
use eddyline_protocol::{Relation, RelationKind};
use eddyline_types::{Error, ObjectId, Result, SqlState};
use sqlparser::ast::{ObjectName, Spanned};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many dependents an error lists.
const LISTED: usize = 20;

pub(super) fn bind_drop(binder: &Binder<'_>, kind: RelationKind, if_exists: bool, names: &[ObjectName], cascade: bool) -> Result<Bound> {
    let mut named: Vec<Arc<Relation>> = Vec::new();
    let mut notices = Vec::new();
    for name in names {
        let qualified = binder.qualified(name)?;
        let at = |e: Error| e.with_position(binder.parsed.positions.of_location(name.span().start));
        match binder.find(&qualified) {
            Some(relation) if relation.kind == kind => named.push(relation.clone()),
            Some(relation) => {
                return Err(at(Error::user(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is not a {}", relation.name, kind.name()))
                    .with_hint(format!("Use DROP {} to remove a {}.", relation.kind.name().to_uppercase(), relation.kind.name()))));
            }
            None if if_exists => notices.push(format!("{} \"{}\" does not exist, skipping", kind.name(), qualified.name)),
            None => {
                let known = binder.unknown_relation(&qualified);
                let error = Error::user(SqlState::UNDEFINED_TABLE, format!("{} \"{}\" does not exist", kind.name(), qualified.name));
                return Err(at(match known.hint() {
                    Some(hint) => error.with_hint(hint),
                    None => error,
                }));
            }
        }
    }
    let roots: BTreeSet<ObjectId> = named.iter().map(|r| r.id).collect();
    let order = dependents_first(binder, &named);
    let extra: Vec<&Arc<Relation>> = order.iter().filter(|r| !roots.contains(&r.id)).collect();
    if !extra.is_empty() && !cascade {
        let first = &named[0];
        let what = if named.len() == 1 { format!("{} {}", first.kind.name(), first.name) } else { "desired object(s)".to_string() };
        return Err(Error::user(SqlState::DEPENDENT_OBJECTS, format!("cannot drop {what} because other objects depend on it"))
            .with_detail(listing(&order, &roots))
            .with_hint("Use DROP ... CASCADE to drop the dependent objects too."));
    }
    match extra.as_slice() {
        [] => {}
        [one] => notices.push(format!("drop cascades to {} {}", one.kind.name(), one.name)),
        many => notices.push(format!("drop cascades to {} other objects", many.len())),
    }
    Ok(Bound::Drop(DropRelations { kind, relations: order.iter().map(|r| r.id).collect(), cascade, notices }))
}

/// The relations and all that depends on them, dependents before what they depend on.
fn dependents_first(binder: &Binder<'_>, roots: &[Arc<Relation>]) -> Vec<Arc<Relation>> {
    fn visit(binder: &Binder<'_>, relation: &Arc<Relation>, seen: &mut BTreeSet<ObjectId>, order: &mut Vec<Arc<Relation>>) {
        if !seen.insert(relation.id) {
            return;
        }
        let dependents: Vec<_> = binder.context.catalog.dependents(relation.id).cloned().collect();
        for dependent in &dependents {
            visit(binder, dependent, seen, order);
        }
        order.push(relation.clone());
    }
    let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
    for root in roots {
        visit(binder, root, &mut seen, &mut order);
    }
    order
}

/// `materialized view v depends on table t`, one line each.
fn listing(order: &[Arc<Relation>], roots: &BTreeSet<ObjectId>) -> String {
    let mut lines = Vec::new();
    for relation in order.iter().rev().filter(|r| !roots.contains(&r.id)) {
        for on in &relation.depends_on {
            if let Some(on) = order.iter().find(|r| r.id == *on) {
                lines.push(format!("{} {} depends on {} {}", relation.kind.name(), relation.name, on.kind.name(), on.name));
            }
        }
    }
    let more = lines.len().saturating_sub(LISTED);
    lines.truncate(LISTED);
    if more > 0 {
        lines.push(format!("and {more} other dependencies"));
    }
    lines.join("\n")
}

/// DROP SCHEMA.
pub(super) fn bind_drop_schema(binder: &Binder<'_>, names: &[ObjectName], if_exists: bool, cascade: bool) -> Result<Bound> {
    let [name] = names else {
        return Err(Error::unsupported("DROP SCHEMA with several names is not supported").with_hint("Drop them one by one."));
    };
    let name = binder.qualified(name)?.name;
    if name == DEFAULT_SCHEMA || super::names::SYSTEM_SCHEMAS.contains(&name.as_str()) {
        return Err(Error::user(
            SqlState::DEPENDENT_OBJECTS,
            format!("cannot drop schema {name} because it is required by the database system"),
        ));
    }
    if !binder.schema_exists(&name) {
        if if_exists {
            return Ok(Bound::Nothing { tag: "DROP SCHEMA" });
        }
        return Err(Error::user(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist")));
    }
    let inside: Vec<Arc<Relation>> = binder.context.catalog.relations.values().filter(|r| r.schema_name == name).cloned().collect();
    if let Some(first) = inside.first()
        && !cascade
    {
        return Err(Error::user(SqlState::DEPENDENT_OBJECTS, format!("cannot drop schema {name} because other objects depend on it"))
            .with_detail(format!("{} {name}.{} depends on schema {name}", first.kind.name(), first.name))
            .with_hint("Use DROP ... CASCADE to drop the dependent objects too."));
    }
    let relations = dependents_first(binder, &inside).iter().map(|r| r.id).collect();
    Ok(Bound::DropSchema { name, relations })
}
