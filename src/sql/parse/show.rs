//! SHOW of relations, jobs and definitions; DESCRIBE. SHOW of variables is sqlparser's.

use super::{Cursor, Tree};
use eddyline_protocol::RelationKind;
use eddyline_types::Result;
use sqlparser::ast::ObjectName;

/// What is to be shown.
#[derive(Clone, Debug)]
pub(crate) enum ShowTree {
    /// SHOW TABLES, SOURCES, VIEWS, MATERIALIZED VIEWS, SINKS [FROM schema].
    Relations {
        kind: RelationKind,
        schema: Option<String>,
        like: Option<String>,
    },
    /// SHOW JOBS: what is being created.
    Jobs,
    /// SHOW SCHEMAS, DATABASES.
    Schemas,
    Databases,
    /// SHOW INDEXES and others that exist nowhere yet: no rows.
    Nothing,
    /// SHOW CREATE kind name.
    Create {
        kind: RelationKind,
        name: ObjectName,
    },
    /// DESCRIBE name, SHOW COLUMNS FROM name.
    Columns {
        name: ObjectName,
    },
}

/// `None`: SHOW of a variable.
pub(crate) fn parse_show(c: &mut Cursor<'_>) -> Result<Option<Tree>> {
    if c.eat_words(&["describe"]) || c.eat_words(&["desc"]) {
        c.eat_words(&["table"]);
        return Ok(Some(Tree::Show(ShowTree::Columns { name: c.object_name()? })));
    }
    let kinds = [
        (&["tables"][..], RelationKind::Table),
        (&["sources"][..], RelationKind::Source),
        (&["views"][..], RelationKind::View),
        (&["materialized", "views"][..], RelationKind::MaterializedView),
        (&["sinks"][..], RelationKind::Sink),
    ];
    for (words, kind) in kinds {
        if c.eat_words(&[&["show"], words].concat()) {
            let schema = if c.eat_words(&["from"]) || c.eat_words(&["in"]) { Some(c.identifier()?) } else { None };
            let like = if c.eat_words(&["like"]) { Some(c.string()?) } else { None };
            return Ok(Some(Tree::Show(ShowTree::Relations { kind, schema, like })));
        }
    }
    if c.eat_words(&["show", "create"]) {
        let kinds = [
            (&["table"][..], RelationKind::Table),
            (&["source"][..], RelationKind::Source),
            (&["view"][..], RelationKind::View),
            (&["materialized", "view"][..], RelationKind::MaterializedView),
            (&["sink"][..], RelationKind::Sink),
        ];
        for (words, kind) in kinds {
            if c.eat_words(words) {
                return Ok(Some(Tree::Show(ShowTree::Create { kind, name: c.object_name()? })));
            }
        }
        return Err(c.syntax_error());
    }
    if c.eat_words(&["show", "columns", "from"]) {
        return Ok(Some(Tree::Show(ShowTree::Columns { name: c.object_name()? })));
    }
    let simple = [
        (&["show", "jobs"][..], ShowTree::Jobs),
        (&["show", "schemas"][..], ShowTree::Schemas),
        (&["show", "databases"][..], ShowTree::Databases),
        (&["show", "indexes"][..], ShowTree::Nothing),
        (&["show", "subscriptions"][..], ShowTree::Nothing),
        (&["show", "connections"][..], ShowTree::Nothing),
        (&["show", "secrets"][..], ShowTree::Nothing),
        (&["show", "functions"][..], ShowTree::Nothing),
    ];
    for (words, tree) in simple {
        if c.eat_words(words) {
            return Ok(Some(Tree::Show(tree)));
        }
    }
    Ok(None)
}
