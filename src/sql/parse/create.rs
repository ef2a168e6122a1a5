//! CREATE SOURCE, TABLE, SINK, VIEW and MATERIALIZED VIEW; DROP of relations; COPY.

use super::{Cursor, Tree, check_depth};
use crate::statement::CopyOptions;
use eddyline_protocol::RelationKind;
use eddyline_types::{Error, Result, SqlState};
use sqlparser::ast::{self, ObjectName};
use sqlparser::tokenizer::Token;
use std::collections::BTreeMap;

/// CREATE SOURCE, TABLE or SINK.
#[derive(Clone, Debug)]
pub(crate) struct CreateTree {
    pub kind: RelationKind,
    pub if_not_exists: bool,
    pub name: ObjectName,
    pub columns: Vec<ColumnTree>,
    /// Column names of PRIMARY KEY, wherever it stood.
    pub primary_key: Vec<Named>,
    pub append_only: bool,
    pub options: BTreeMap<String, String>,
    pub format: String,
    pub encode: String,
    pub encode_options: BTreeMap<String, String>,
    /// `CREATE SINK .. FROM relation`.
    pub from: Option<ObjectName>,
    /// `CREATE SINK .. AS query`.
    pub query: Option<(Box<ast::Query>, String)>,
}

/// A name with its position in the text.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub name: String,
    pub position: u32,
}

/// A column definition.
#[derive(Clone, Debug)]
pub(crate) struct ColumnTree {
    pub name: Named,
    pub data_type: ast::DataType,
    pub not_null: bool,
    pub default: Option<ast::Expr>,
    pub generated: Option<ast::Expr>,
}

/// CREATE \[MATERIALIZED\] VIEW.
#[derive(Clone, Debug)]
pub(crate) struct CreateViewTree {
    pub materialized: bool,
    pub if_not_exists: bool,
    pub name: ObjectName,
    pub columns: Vec<Named>,
    pub query: Box<ast::Query>,
    pub query_text: String,
}

/// COPY.
#[derive(Clone, Debug)]
pub(crate) struct CopyTree {
    pub source: CopySource,
    pub to: bool,
    pub options: CopyOptions,
}

#[derive(Clone, Debug)]
pub(crate) enum CopySource {
    Table { name: ObjectName, columns: Vec<Named> },
    Query(Box<ast::Query>),
}

/// `None`: not one of ours.
pub(crate) fn parse_create(c: &mut Cursor<'_>) -> Result<Option<Tree>> {
    let or_replace = c.at_words(&["create", "or", "replace"]);
    let after: &[&str] = if or_replace { &["create", "or", "replace"] } else { &["create"] };
    let at = |c: &Cursor<'_>, words: &[&str]| c.at_words(&[after, words].concat());
    for (words, name) in [
        (&["index"][..], "CREATE INDEX"),
        (&["unique", "index"][..], "CREATE INDEX"),
        (&["secret"][..], "CREATE SECRET"),
        (&["connection"][..], "CREATE CONNECTION"),
        (&["subscription"][..], "CREATE SUBSCRIPTION"),
        (&["function"][..], "CREATE FUNCTION"),
        (&["aggregate"][..], "CREATE AGGREGATE"),
        (&["temp"][..], "CREATE TEMPORARY TABLE"),
        (&["temporary"][..], "CREATE TEMPORARY TABLE"),
        (&["sequence"][..], "CREATE SEQUENCE"),
        (&["type"][..], "CREATE TYPE"),
    ] {
        if at(c, words) {
            return Err(c.refuse(name));
        }
    }
    let kind = [("source", RelationKind::Source), ("table", RelationKind::Table), ("sink", RelationKind::Sink)];
    if let Some((word, kind)) = kind.into_iter().find(|(word, _)| at(c, &[word])) {
        c.eat_words(&[after, &[word]].concat());
        if or_replace {
            return Err(c.refuse(&format!("CREATE OR REPLACE {}", word.to_uppercase())));
        }
        return Ok(Some(Tree::Create(Box::new(parse_relation(c, kind)?))));
    }
    let materialized = at(c, &["materialized", "view"]);
    if !materialized && !at(c, &["view"]) {
        return Ok(None);
    }
    c.eat_words(&[after, if materialized { &["materialized", "view"] } else { &["view"] }].concat());
    if or_replace {
        let what = if materialized { "CREATE OR REPLACE MATERIALIZED VIEW" } else { "CREATE OR REPLACE VIEW" };
        return Err(c.refuse(what).with_hint("Drop it first, then create it."));
    }
    Ok(Some(Tree::CreateView(Box::new(parse_view(c, materialized)?))))
}

fn parse_view(c: &mut Cursor<'_>, materialized: bool) -> Result<CreateViewTree> {
    let if_not_exists = c.if_not_exists();
    let name = c.object_name()?;
    let columns = if c.at(&Token::LParen) { name_list(c)? } else { Vec::new() };
    if c.eat_words(&["with"]) {
        options(c)?;
    }
    c.expect_words(&["as"])?;
    let (query, query_text) = parse_query(c)?;
    Ok(CreateViewTree { materialized, if_not_exists, name, columns, query, query_text })
}

/// A query up to the end of the statement, and its text.
fn parse_query(c: &mut Cursor<'_>) -> Result<(Box<ast::Query>, String)> {
    let start = c.byte();
    let rest = c.rest();
    let emit = rest.windows(4).position(|w| {
        let words = ["emit", "on", "window", "close"];
        w.iter()
            .zip(words)
            .all(|(t, word)| matches!(&t.token, Token::Word(v) if v.quote_style.is_none() && v.value.eq_ignore_ascii_case(word)))
    });
    if let Some(at) = emit {
        let position = c.positions().of_location(rest[at].span.start);
        return Err(Error::unsupported("EMIT ON WINDOW CLOSE is not supported")
            .with_hint("Without it the view shows the rows of open windows too, as they change.")
            .with_position(position));
    }
    let mut query = c.sqlparser(|p| p.parse_query())?;
    check_depth(query.as_mut())?;
    // WITH after a sink's query belongs to the statement.
    Ok((query, c.text()[start..c.byte()].trim_end().to_string()))
}

fn parse_relation(c: &mut Cursor<'_>, kind: RelationKind) -> Result<CreateTree> {
    let if_not_exists = c.if_not_exists();
    let name = c.object_name()?;
    let mut tree = CreateTree {
        kind,
        if_not_exists,
        name,
        columns: Vec::new(),
        primary_key: Vec::new(),
        append_only: false,
        options: BTreeMap::new(),
        format: String::new(),
        encode: String::new(),
        encode_options: BTreeMap::new(),
        from: None,
        query: None,
    };
    if kind != RelationKind::Sink && c.at(&Token::LParen) {
        parse_columns(c, &mut tree)?;
    }
    loop {
        if c.eat_words(&["append", "only"]) && kind == RelationKind::Table {
            tree.append_only = true;
        } else if c.at_words(&["on", "conflict"]) {
            return Err(c.refuse("ON CONFLICT").with_hint("A new row replaces an older one with its primary key."));
        } else if c.at_words(&["include"]) {
            return Err(c.refuse("INCLUDE"));
        } else if c.eat_words(&["with"]) {
            tree.options = options(c)?;
        } else if c.eat_words(&["format"]) {
            tree.format = c.identifier()?.to_lowercase();
            if c.eat_words(&["encode"]) {
                tree.encode = c.identifier()?.to_lowercase();
                if c.at(&Token::LParen) {
                    tree.encode_options = options(c)?;
                }
            }
        } else if kind == RelationKind::Sink && c.eat_words(&["from"]) {
            tree.from = Some(c.object_name()?);
        } else if kind == RelationKind::Sink && c.at_words(&["into"]) {
            return Err(c.refuse("CREATE SINK INTO"));
        } else if kind == RelationKind::Sink && c.eat_words(&["as"]) {
            tree.query = Some(sink_query(c)?);
        } else if kind == RelationKind::Table && c.at_words(&["as"]) {
            return Err(c.refuse("CREATE TABLE AS").with_hint("Create the table with its columns, then use INSERT INTO ... SELECT."));
        } else {
            return Ok(tree);
        }
    }
}

/// The query of a sink ends where `WITH (name = ` begins: that is no query syntax.
fn sink_query(c: &mut Cursor<'_>) -> Result<(Box<ast::Query>, String)> {
    let rest = c.rest();
    let with = rest.windows(2).rposition(|w| {
        w[1].token == Token::LParen
            && matches!(&w[0].token, Token::Word(v) if v.quote_style.is_none() && v.value.eq_ignore_ascii_case("with"))
    });
    let start = c.byte();
    let tokens = &rest[..with.unwrap_or(rest.len())];
    let mut inner = Cursor::new(c.text(), c.positions(), tokens);
    let mut query = inner.sqlparser(|p| p.parse_query())?;
    inner.expect_end()?;
    check_depth(query.as_mut())?;
    for _ in tokens {
        c.next();
    }
    Ok((query, c.text()[start..c.byte()].trim_end().to_string()))
}

fn parse_columns(c: &mut Cursor<'_>, tree: &mut CreateTree) -> Result<()> {
    c.expect(&Token::LParen)?;
    if c.eat(&Token::RParen) {
        return Ok(());
    }
    loop {
        if c.at_words(&["watermark", "for"]) {
            return Err(c.refuse("WATERMARK"));
        } else if c.eat_words(&["primary", "key"]) {
            if !tree.primary_key.is_empty() {
                return Err(c.refuse("more than one PRIMARY KEY"));
            }
            tree.primary_key = name_list(c)?;
        } else if c.eat_words(&["constraint"]) {
            c.identifier()?;
            continue;
        } else {
            for (word, what) in
                [("unique", "UNIQUE"), ("check", "CHECK"), ("foreign", "FOREIGN KEY"), ("exclude", "EXCLUDE"), ("like", "LIKE")]
            {
                // These are column names when a type follows.
                let constraint = c.at_words(&[word]) && c.rest().get(1).is_some_and(|t| t.token == Token::LParen || word == "foreign");
                if constraint {
                    return Err(c.refuse(&format!("{what} in CREATE TABLE")));
                }
            }
            let column = parse_column(c, tree)?;
            tree.columns.push(column);
        }
        if c.eat(&Token::RParen) {
            return Ok(());
        }
        c.expect(&Token::Comma)?;
    }
}

fn parse_column(c: &mut Cursor<'_>, tree: &mut CreateTree) -> Result<ColumnTree> {
    let position = c.peek().map_or(0, |t| c.positions().of_location(t.span.start));
    let name = Named { name: c.identifier()?, position };
    let data_type = c.sqlparser(|p| p.parse_data_type())?;
    let mut column = ColumnTree { name, data_type, not_null: false, default: None, generated: None };
    loop {
        if c.eat_words(&["not", "null"]) {
            column.not_null = true;
        } else if c.eat_words(&["null"]) {
        } else if c.eat_words(&["primary", "key"]) {
            if !tree.primary_key.is_empty() {
                return Err(
                    Error::user(SqlState::INVALID_TABLE_DEFINITION, "multiple primary keys are not allowed").with_position(position)
                );
            }
            tree.primary_key = vec![column.name.clone()];
        } else if c.eat_words(&["default"]) {
            column.default = Some(expression(c)?);
        } else if c.eat_words(&["generated", "always", "as"]) {
            c.expect(&Token::LParen)?;
            column.generated = Some(expression(c)?);
            c.expect(&Token::RParen)?;
            c.eat_words(&["stored"]);
        } else if c.eat_words(&["as"]) {
            column.generated = Some(expression(c)?);
        } else if c.eat_words(&["constraint"]) {
            c.identifier()?;
        } else {
            for (word, what) in [("unique", "UNIQUE"), ("check", "CHECK"), ("references", "REFERENCES"), ("collate", "COLLATE")] {
                if c.at_words(&[word]) {
                    return Err(c.refuse(&format!("{what} in CREATE TABLE")));
                }
            }
            return Ok(column);
        }
    }
}

fn expression(c: &mut Cursor<'_>) -> Result<ast::Expr> {
    let mut expr = c.sqlparser(|p| p.parse_expr())?;
    check_depth(&mut expr)?;
    Ok(expr)
}

/// `(a, b, c)`.
fn name_list(c: &mut Cursor<'_>) -> Result<Vec<Named>> {
    c.expect(&Token::LParen)?;
    let mut names = Vec::new();
    loop {
        let position = c.peek().map_or(0, |t| c.positions().of_location(t.span.start));
        names.push(Named { name: c.identifier()?, position });
        if c.eat(&Token::RParen) {
            return Ok(names);
        }
        c.expect(&Token::Comma)?;
    }
}

/// `(a.b = 'x', c = 3, d = true)`: names in lower case; a name given twice is an error.
fn options(c: &mut Cursor<'_>) -> Result<BTreeMap<String, String>> {
    c.expect(&Token::LParen)?;
    let mut options = BTreeMap::new();
    if c.eat(&Token::RParen) {
        return Ok(options);
    }
    loop {
        let position = c.peek().map_or(0, |t| c.positions().of_location(t.span.start));
        let mut name = match c.peek().map(|t| &t.token) {
            Some(Token::SingleQuotedString(s)) => {
                c.next();
                s.to_lowercase()
            }
            _ => c.identifier()?.to_lowercase(),
        };
        while c.eat(&Token::Period) {
            name.push('.');
            name.push_str(&c.identifier()?.to_lowercase());
        }
        c.expect(&Token::Eq)?;
        let minus = c.eat(&Token::Minus);
        let value = match c.peek().map(|t| &t.token) {
            Some(Token::Number(n, _)) => {
                c.next();
                n.clone()
            }
            Some(Token::Word(w)) if w.quote_style.is_none() => {
                c.next();
                w.value.clone()
            }
            _ => c.string()?,
        };
        let value = if minus { format!("-{value}") } else { value };
        if options.insert(name.clone(), value).is_some() {
            return Err(Error::user(SqlState::SYNTAX_ERROR, format!("option \"{name}\" is given more than once")).with_position(position));
        }
        if c.eat(&Token::RParen) {
            return Ok(options);
        }
        c.expect(&Token::Comma)?;
    }
}

/// DROP SOURCE, TABLE, VIEW, MATERIALIZED VIEW, SINK; `None`: something else.
pub(crate) fn parse_drop(c: &mut Cursor<'_>) -> Result<Option<Tree>> {
    let kinds = [
        (&["drop", "source"][..], RelationKind::Source),
        (&["drop", "table"][..], RelationKind::Table),
        (&["drop", "view"][..], RelationKind::View),
        (&["drop", "materialized", "view"][..], RelationKind::MaterializedView),
        (&["drop", "sink"][..], RelationKind::Sink),
    ];
    let Some((words, kind)) = kinds.into_iter().find(|(words, _)| c.at_words(words)) else {
        return Ok(None);
    };
    c.eat_words(words);
    let if_exists = c.eat_words(&["if", "exists"]);
    let mut names = vec![c.object_name()?];
    while c.eat(&Token::Comma) {
        names.push(c.object_name()?);
    }
    let cascade = c.eat_words(&["cascade"]);
    if !cascade {
        c.eat_words(&["restrict"]);
    }
    Ok(Some(Tree::Drop { kind, if_exists, names, cascade }))
}

/// `COPY table (columns) FROM STDIN options`, `COPY table | (query) TO STDOUT options`.
pub(crate) fn parse_copy(c: &mut Cursor<'_>) -> Result<Tree> {
    c.next();
    let source = if c.eat(&Token::LParen) {
        let mut query = c.sqlparser(|p| p.parse_query())?;
        check_depth(query.as_mut())?;
        c.expect(&Token::RParen)?;
        CopySource::Query(query)
    } else {
        let name = c.object_name()?;
        let columns = if c.at(&Token::LParen) { name_list(c)? } else { Vec::new() };
        CopySource::Table { name, columns }
    };
    let to = c.eat_words(&["to"]);
    if !to {
        c.expect_words(&["from"])?;
    }
    if !c.eat_words(&[if to { "stdout" } else { "stdin" }]) {
        return Err(c.refuse("COPY with a file or program").with_hint("Use COPY ... FROM STDIN or TO STDOUT, or psql's \\copy."));
    }
    c.eat_words(&["with"]);
    let mut raw = BTreeMap::new();
    let parentheses = c.eat(&Token::LParen);
    while let Some(word) = c.peek_word() {
        c.next();
        if !parentheses && word == "csv" {
            raw.insert("format".to_string(), "csv".to_string());
            continue;
        }
        c.eat_words(&["as"]);
        let value = match c.peek().map(|t| &t.token) {
            Some(Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_)) => c.string()?,
            Some(Token::Word(_)) if word != "header" || c.at_words(&["true"]) || c.at_words(&["false"]) || c.at_words(&["match"]) => {
                c.identifier()?
            }
            Some(Token::Number(n, _)) => {
                c.next();
                n.clone()
            }
            _ => "true".to_string(),
        };
        raw.insert(word, value);
        c.eat(&Token::Comma);
    }
    if parentheses {
        c.expect(&Token::RParen)?;
    }
    Ok(Tree::Copy(Box::new(CopyTree { source, to, options: copy_options(raw)? })))
}

fn copy_options(raw: BTreeMap<String, String>) -> Result<CopyOptions> {
    let csv = match raw.get("format").map(|f| f.to_lowercase()).as_deref() {
        None | Some("text") => false,
        Some("csv") => true,
        Some(other) => return Err(Error::unsupported(format!("COPY format \"{other}\" is not supported")).with_hint("Use text or csv.")),
    };
    let one = |name: &str, default: char| match raw.get(name) {
        None => Ok(default),
        Some(s) => {
            let mut chars = s.chars();
            match (chars.next(), chars.next()) {
                (Some(ch), None) if ch.is_ascii() => Ok(ch),
                _ => Err(Error::user(SqlState::FEATURE_NOT_SUPPORTED, format!("COPY {name} must be a single one-byte character"))),
            }
        }
    };
    let quote = one("quote", '"')?;
    let known = ["format", "delimiter", "null", "quote", "escape", "header", "encoding"];
    if let Some(name) = raw.keys().find(|k| !known.contains(&k.as_str())) {
        return Err(Error::user(SqlState::SYNTAX_ERROR, format!("option \"{name}\" not recognized")));
    }
    Ok(CopyOptions {
        csv,
        header: raw.get("header").is_some_and(|h| !matches!(h.to_lowercase().as_str(), "false" | "off" | "0")),
        delimiter: one("delimiter", if csv { ',' } else { '\t' })?,
        null: raw.get("null").cloned().unwrap_or_else(|| if csv { String::new() } else { "\\N".to_string() }),
        quote,
        escape: one("escape", quote)?,
    })
}
