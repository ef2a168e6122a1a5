//! CREATE and DROP. They take effect at once, inside a transaction block too.

use crate::outcome::{Notice, Outcome, Tag};
use crate::session::Session;
use eddyline_protocol::RelationKind;
use eddyline_serving::Cancel;
use eddyline_sql::statement::{CreateRelation, DropRelations};
use eddyline_types::{Error, ObjectId, Result, SqlState};

fn noun(kind: RelationKind) -> &'static str {
    match kind {
        RelationKind::Source => "SOURCE",
        RelationKind::Table => "TABLE",
        RelationKind::View => "VIEW",
        RelationKind::MaterializedView => "MATERIALIZED VIEW",
        RelationKind::Sink => "SINK",
    }
}

/// CREATE SOURCE, TABLE, VIEW, MATERIALIZED VIEW, SINK. Returns when the relation can be read: a view has taken in what was there.
pub(crate) async fn create(session: &mut Session, create: &CreateRelation, cancel: &Cancel) -> Result<Outcome> {
    let relation = &create.relation;
    let tag = format!("CREATE {}", noun(relation.kind));
    session.transaction.check_writable(&tag)?;
    let mut notices: Vec<Notice> = create.notices.iter().map(Notice::notice).collect();
    let skipped = || Notice { sqlstate: "42P07", ..Notice::notice(format!("relation \"{}\" already exists, skipping", relation.name)) };
    if create.exists {
        notices.push(skipped());
        return Ok(Outcome::done(Tag::Plain(tag)).with_notices(notices));
    }
    // A sink's connector was checked by the binder; it reads nothing.
    if let Some(spec) = relation.spec.as_ref().filter(|_| relation.kind != RelationKind::Sink) {
        eddyline_connect::validate(spec)?;
    }
    let coordinator = session.frontend.coordinator().clone();
    match cancel.race(coordinator.create(relation.clone(), create.graph.clone())).await {
        Ok(_) => {}
        Err(e) if create.if_not_exists && e.sqlstate() == SqlState::DUPLICATE_TABLE => notices.push(skipped()),
        Err(e) => return Err(e),
    }
    Ok(Outcome::done(Tag::Plain(tag)).with_notices(notices))
}

/// DROP of relations.
pub(crate) async fn drop_relations(session: &mut Session, drop: &DropRelations, cancel: &Cancel) -> Result<Outcome> {
    let tag = format!("DROP {}", noun(drop.kind));
    session.transaction.check_writable(&tag)?;
    if !drop.relations.is_empty() {
        let coordinator = session.frontend.coordinator().clone();
        cancel.race(coordinator.drop_relations(drop.relations.clone(), drop.cascade)).await?;
    }
    Ok(Outcome::done(Tag::Plain(tag)).with_notices(drop.notices.iter().map(Notice::notice)))
}

/// CREATE SCHEMA.
pub(crate) async fn create_schema(session: &mut Session, name: &str, if_not_exists: bool) -> Result<Outcome> {
    session.transaction.check_writable("CREATE SCHEMA")?;
    let exists = session.frontend.catalog().schemas.iter().any(|s| s == name) || name == eddyline_protocol::catalog::DEFAULT_SCHEMA;
    match (exists, if_not_exists) {
        (true, true) => {
            let notice = Notice { sqlstate: "42P06", ..Notice::notice(format!("schema \"{name}\" already exists, skipping")) };
            Ok(Outcome::done(Tag::Plain("CREATE SCHEMA".into())).with_notices([notice]))
        }
        (true, false) => Err(Error::user(SqlState::DUPLICATE_SCHEMA, format!("schema \"{name}\" already exists"))),
        (false, _) => {
            session.frontend.coordinator().create_schema(name).await?;
            Ok(Outcome::done(Tag::Plain("CREATE SCHEMA".into())))
        }
    }
}

/// DROP SCHEMA, with what is in it.
pub(crate) async fn drop_schema(session: &mut Session, name: &str, relations: &[ObjectId], cancel: &Cancel) -> Result<Outcome> {
    session.transaction.check_writable("DROP SCHEMA")?;
    let coordinator = session.frontend.coordinator().clone();
    if !relations.is_empty() {
        cancel.race(coordinator.drop_relations(relations.to_vec(), true)).await?;
    }
    coordinator.drop_schema(name).await?;
    Ok(Outcome::done(Tag::Plain("DROP SCHEMA".into())))
}
