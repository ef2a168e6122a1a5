//! The extended protocol: prepared statements and portals.
//!
//! A portal keeps the rows of its statement between Executes. Portals end with their transaction: outside a block at Sync. Both are bounded
//! per connection.

use crate::client::{Bound, Client};
use crate::connection::{Connection, End, Rows, same_columns};
use crate::encode::{Format, format_of};
use crate::message::{Bind, Target, violation};
use crate::parameters;
use arrow::array::ArrayRef;
use eddyline_session::{Outcome, Tag, TransactionStatus};
use eddyline_types::{Error, Result, SqlState, sql_types};
use std::collections::HashMap;
use std::sync::Arc;

/// Prepared statements, and portals, that one connection may keep.
const MAX_NAMES: usize = 10_000;

/// A prepared statement.
struct Statement<C: Client> {
    /// `None`: the text was empty.
    prepared: Option<Arc<C::Prepared>>,
    /// Types of the parameters on the wire.
    oids: Vec<u32>,
}

/// A bound statement, before, while or after it runs.
struct Portal<C: Client> {
    statement: Arc<Statement<C>>,
    formats: Vec<i16>,
    state: State,
}

enum State {
    Bound(Vec<ArrayRef>),
    Running(Tag, Rows),
    /// A COPY, which is over and answered.
    Copied,
    Done(Tag),
}

/// What the extended protocol remembers.
pub(crate) struct Extended<C: Client> {
    statements: HashMap<String, Arc<Statement<C>>>,
    portals: HashMap<String, Portal<C>>,
}

impl<C: Client> Default for Extended<C> {
    fn default() -> Self {
        Extended { statements: HashMap::new(), portals: HashMap::new() }
    }
}

impl<C: Client> Extended<C> {
    /// At Sync: outside a transaction block the portals are over.
    pub fn end_of_pipeline(&mut self, status: TransactionStatus) {
        if status == TransactionStatus::Idle {
            self.portals.clear();
        }
    }

    pub fn drop_unnamed(&mut self) {
        self.statements.remove("");
        self.portals.remove("");
    }

    /// Forgets a statement; one that is not there is no error.
    pub fn close_statement(&mut self, name: &str) {
        self.statements.remove(name);
    }

    fn statement(&self, name: &str) -> Result<&Arc<Statement<C>>> {
        self.statements.get(name).ok_or_else(|| {
            let message = match name {
                "" => "unnamed prepared statement does not exist".to_owned(),
                name => format!("prepared statement \"{name}\" does not exist"),
            };
            Error::user(SqlState::INVALID_STATEMENT_NAME, message)
        })
    }
}

fn no_portal(name: &str) -> Error {
    Error::user(SqlState::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
}

impl<C: Client> Connection<'_, C> {
    pub async fn parse(&mut self, name: String, sql: &str, types: Vec<u32>) -> Result<Result<()>, End> {
        if !name.is_empty() && self.extended.statements.contains_key(&name) {
            return Ok(Err(Error::user(SqlState::DUPLICATE_PREPARED, format!("prepared statement \"{name}\" already exists"))));
        }
        if self.extended.statements.len() >= MAX_NAMES {
            return Ok(Err(Error::user(SqlState::LIMIT_EXCEEDED, "too many prepared statements on one connection")
                .with_hint("DEALLOCATE what is not needed.")));
        }
        let statement = match self.client.parse(sql).map(|mut all| (all.pop(), all.is_empty())) {
            Err(e) => return Ok(Err(e)),
            Ok((_, false)) => {
                return Ok(Err(Error::user(SqlState::SYNTAX_ERROR, "cannot insert multiple commands into a prepared statement")));
            }
            Ok((statement, true)) => statement,
        };
        let statement = match statement {
            None => Statement { prepared: None, oids: Vec::new() },
            Some(parsed) => {
                let hints: Vec<_> = types.iter().map(|oid| sql_types::from_oid(*oid)).collect();
                match self.wire.watch(self.client.prepare(&parsed, &hints)).await? {
                    Err(e) => return Ok(Err(e)),
                    Ok(prepared) => {
                        let oids = parameters::wire_oids(&types, prepared.parameters());
                        Statement { prepared: Some(prepared), oids }
                    }
                }
            }
        };
        if !name.is_empty() {
            self.client.note_wire_statement(&name, true);
        }
        self.extended.statements.insert(name, Arc::new(statement));
        self.wire.replies.bare(b'1');
        Ok(Ok(()))
    }

    pub fn bind(&mut self, bind: Bind) -> Result<()> {
        let statement = self.extended.statement(&bind.statement)?.clone();
        let wanted = statement.prepared.as_ref().map_or(&[][..], |p| p.parameters());
        let values = parameters::decode(&bind, &statement.oids, wanted)?;
        let columns = statement.prepared.as_ref().and_then(|p| p.result()).map_or(0, |s| s.fields().len());
        if bind.result_formats.len() > 1 && bind.result_formats.len() != columns {
            let message = format!("bind message has {} result formats but query has {columns} columns", bind.result_formats.len());
            return Err(violation(message));
        }
        if !bind.portal.is_empty() && self.extended.portals.contains_key(&bind.portal) {
            return Err(Error::user(SqlState("42P03"), format!("cursor \"{}\" already exists", bind.portal)));
        }
        if self.extended.portals.len() >= MAX_NAMES {
            return Err(Error::user(SqlState::LIMIT_EXCEEDED, "too many portals on one connection"));
        }
        let portal = Portal { statement, formats: bind.result_formats, state: State::Bound(values) };
        self.extended.portals.insert(bind.portal, portal);
        self.wire.replies.bare(b'2');
        Ok(())
    }

    pub fn describe(&mut self, target: &Target) -> Result<()> {
        let (statement, formats) = match target {
            Target::Portal(name) if !self.extended.portals.contains_key(name) => {
                // A cursor of DECLARE: its rows come by FETCH, its columns may be asked for.
                let schema = self.client.cursor_schema(name).ok_or_else(|| no_portal(name))?;
                self.wire.replies.row_description(&schema, |_| Format::Text);
                return Ok(());
            }
            Target::Statement(name) => {
                let statement = self.extended.statement(name)?;
                self.wire.replies.parameter_description(&statement.oids);
                (statement, &[][..])
            }
            Target::Portal(name) => {
                let portal = self.extended.portals.get(name).ok_or_else(|| no_portal(name))?;
                (&portal.statement, &portal.formats[..])
            }
        };
        match statement.prepared.as_ref().and_then(|p| p.result()) {
            Some(schema) => self.wire.replies.row_description(schema, |i| format_of(formats, i)),
            None => self.wire.replies.bare(b'n'),
        }
        Ok(())
    }

    /// Closing what is not there is no error.
    pub fn close(&mut self, target: &Target) {
        match target {
            Target::Statement(name) => {
                self.extended.close_statement(name);
                self.client.note_wire_statement(name, false);
            }
            Target::Portal(name) => drop(self.extended.portals.remove(name)),
        }
        self.wire.replies.bare(b'3');
    }

    pub async fn execute(&mut self, name: &str, max_rows: u32) -> Result<Result<()>, End> {
        // The portal is taken out while it runs: an error or a lost client drops it, and with it the query.
        let Some(mut portal) = self.extended.portals.remove(name) else { return Ok(Err(no_portal(name))) };
        let state = std::mem::replace(&mut portal.state, State::Done(Tag::Empty));
        portal.state = match state {
            State::Bound(values) => match self.begin(portal.statement.clone(), &values).await? {
                Ok(state) => state,
                Err(e) => return Ok(Err(e)),
            },
            other => other,
        };
        let limit = (max_rows > 0).then_some(u64::from(max_rows));
        portal.state = match portal.state {
            State::Running(tag, mut rows) => {
                let formats = std::mem::take(&mut portal.formats);
                let format = |i: usize| -> Format { format_of(&formats, i) };
                let ended = match self.wire.send_rows(&mut rows, limit, format).await? {
                    Ok(ended) => ended,
                    Err(e) => return Ok(Err(e)),
                };
                portal.formats = formats;
                if ended {
                    self.complete(&tag, rows.sent);
                    State::Done(tag)
                } else {
                    self.wire.replies.bare(b's');
                    State::Running(tag, rows)
                }
            }
            State::Copied => State::Done(Tag::Plain("COPY".into())),
            State::Done(Tag::Rows(command)) => {
                self.complete(&Tag::Rows(command), 0);
                State::Done(Tag::Rows(command))
            }
            State::Done(Tag::Empty) => {
                self.complete(&Tag::Empty, 0);
                State::Done(Tag::Empty)
            }
            State::Done(_) | State::Bound(_) => {
                let message = format!("portal \"{name}\" cannot be run");
                return Ok(Err(Error::user(SqlState::NOT_IN_PREREQUISITE_STATE, message)));
            }
        };
        self.extended.portals.insert(name.to_owned(), portal);
        Ok(Ok(()))
    }

    async fn begin(&mut self, statement: Arc<Statement<C>>, values: &[ArrayRef]) -> Result<Result<State>, End> {
        let Some(prepared) = statement.prepared.clone() else { return Ok(Ok(State::Done(Tag::Empty))) };
        let outcome = match self.wire.watch(self.client.execute(&prepared, values)).await? {
            Ok(outcome) => outcome,
            Err(e) => return Ok(Err(e)),
        };
        let Outcome { tag, schema, rows, .. } = match self.special(outcome).await? {
            Ok(Some(outcome)) => outcome,
            Ok(None) => return Ok(Ok(State::Copied)),
            Err(e) => return Ok(Err(e)),
        };
        if let (Some(told), Some(got)) = (prepared.result(), &schema)
            && !same_columns(told, got)
        {
            return Ok(Err(Error::unsupported("cached plan must not change result type")));
        }
        Ok(Ok(State::Running(tag, Rows::new(rows))))
    }
}
