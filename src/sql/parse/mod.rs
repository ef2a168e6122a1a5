//! Text to trees: one token stream per statement; our own statements by hand, the rest by sqlparser with the Postgres dialect.
//!
//! The text is tokenised once and split at semicolons. Nesting is limited before anything recursive runs, so that no text, however
//! deep, overflows a stack: it gets SQLSTATE 54001. Syntax errors have Postgres' wording and a position in the whole text.

mod balance;
mod create;
mod cursor;
mod show;
mod text;

pub(crate) use create::{CopySource, CopyTree, CreateTree, CreateViewTree};
pub(crate) use cursor::{Cursor, fold};
pub(crate) use show::ShowTree;
pub(crate) use text::Positions;

use crate::statement::Parsed;
use eddyline_protocol::RelationKind;
use eddyline_types::{Error, Result, SqlState};
use sqlparser::ast::{self, ObjectName, Statement};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Nested parentheses, CASEs and subqueries that a statement may have.
pub const MAX_NESTING: usize = 200;

/// Depth that an expression may have when chains of operators are counted (`a + b + c` has depth 2).
pub const MAX_DEPTH: usize = 1500;

/// Set operations that a statement may have.
pub const MAX_SET_OPERATIONS: usize = 500;

/// Bytes of text that a statement may have.
pub const MAX_TEXT: usize = 16 << 20;

/// Stack that parsing and planning run on. Pages that are not touched cost nothing.
const STACK_BYTES: usize = 256 << 20;

/// A statement's tree.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    /// As sqlparser has it.
    Sql(Box<Statement>),
    /// CREATE SOURCE, TABLE, SINK.
    Create(Box<CreateTree>),
    /// CREATE VIEW, CREATE MATERIALIZED VIEW.
    CreateView(Box<CreateViewTree>),
    /// DROP of relations.
    Drop {
        kind: RelationKind,
        if_exists: bool,
        names: Vec<ObjectName>,
        cascade: bool,
    },
    /// SHOW of our own things, DESCRIBE.
    Show(ShowTree),
    /// FLUSH.
    Flush,
    /// BEGIN, START TRANSACTION.
    Begin {
        read_only: bool,
    },
    /// EXPLAIN of a statement of ours.
    Explain {
        inner: Box<Parsed>,
    },
    /// PREPARE: the statement has its own tree.
    Prepare {
        name: String,
        types: Vec<ast::DataType>,
        statement: Box<Parsed>,
    },
    /// DECLARE .. CURSOR FOR query.
    Declare {
        name: String,
        query: Box<ast::Query>,
        hold: bool,
    },
    /// FETCH and CLOSE.
    Fetch {
        name: String,
        count: Option<u64>,
    },
    Close {
        name: Option<String>,
    },
    /// RESET; DISCARD.
    Reset {
        name: Option<String>,
    },
    Discard,
    /// COPY, options resolved.
    Copy(Box<create::CopyTree>),
}

/// Runs `f` on a stack that is large enough for [`MAX_DEPTH`].
pub(crate) fn on_big_stack<T>(f: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(128 << 20, STACK_BYTES, f)
}

/// Splits a text into statements and parses each. Stops at the first syntax error, as Postgres does: then nothing of the text is carried out.
pub fn parse(text: &str) -> Result<Vec<Parsed>> {
    if text.len() > MAX_TEXT {
        return Err(Error::user(SqlState::LIMIT_EXCEEDED, format!("a statement may have at most {MAX_TEXT} bytes")));
    }
    let positions = Arc::new(Positions::new(text));
    let tokens =
        Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location().map_err(|e| text::tokenizer_error(e, &positions, text))?;
    let tokens: Vec<TokenWithSpan> = tokens.into_iter().filter(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF)).collect();
    let mut statements = Vec::new();
    let mut rest = tokens.as_slice();
    while !rest.is_empty() {
        let end = rest.iter().position(|t| t.token == Token::SemiColon).unwrap_or(rest.len());
        let one = &rest[..end];
        if !one.is_empty() {
            limit_nesting(one, &positions)?;
            statements.push(on_big_stack(|| parse_one(text, &positions, one))?);
        }
        rest = rest.get(end + 1..).unwrap_or(&[]);
    }
    Ok(statements)
}

/// Parses the tokens of one statement.
pub(crate) fn parse_one(text: &str, positions: &Arc<Positions>, tokens: &[TokenWithSpan]) -> Result<Parsed> {
    let mut cursor = Cursor::new(text, positions, tokens);
    let tree = parse_tree(&mut cursor)?;
    cursor.expect_end()?;
    let (start, end) = cursor.byte_range();
    Ok(Parsed { text: text[start..end].to_string(), offset: positions.chars_before(start), tree, positions: positions.clone() })
}

fn parse_tree(c: &mut Cursor<'_>) -> Result<Tree> {
    if c.at_words(&["create"]) {
        if let Some(tree) = create::parse_create(c)? {
            return Ok(tree);
        }
    } else if c.at_words(&["drop"]) {
        if let Some(tree) = create::parse_drop(c)? {
            return Ok(tree);
        }
    } else if c.at_words(&["show"]) || c.at_words(&["describe"]) || c.at_words(&["desc"]) {
        if let Some(tree) = show::parse_show(c)? {
            return Ok(tree);
        }
    } else if c.at_words(&["explain"]) {
        return parse_explain(c);
    } else if c.eat_words(&["flush"]) {
        return Ok(Tree::Flush);
    } else if c.at_words(&["begin"]) || c.at_words(&["start", "transaction"]) {
        return parse_begin(c);
    } else if c.at_words(&["prepare"]) {
        return parse_prepare(c);
    } else if c.at_words(&["declare"]) {
        return parse_declare(c);
    } else if c.eat_words(&["fetch"]) || c.eat_words(&["move"]) {
        return parse_fetch(c);
    } else if c.eat_words(&["close"]) {
        let name = if c.eat_words(&["all"]) { None } else { Some(c.identifier()?) };
        return Ok(Tree::Close { name });
    } else if c.eat_words(&["reset"]) {
        return parse_reset(c);
    } else if c.eat_words(&["discard"]) {
        c.identifier()?;
        return Ok(Tree::Discard);
    } else if c.at_words(&["copy"]) {
        return create::parse_copy(c);
    } else if let Some(construct) = refused_statement(c) {
        return Err(c.refuse(construct));
    }
    let mut statement = c.sqlparser(|p| p.parse_statement())?;
    check_depth(&mut statement)?;
    Ok(Tree::Sql(Box::new(statement)))
}

/// Statements that sqlparser would refuse with a syntax error although they are known: say their name.
fn refused_statement(c: &Cursor<'_>) -> Option<&'static str> {
    [
        (&["subscribe"][..], "SUBSCRIBE"),
        (&["cancel", "jobs"][..], "CANCEL JOBS"),
        (&["recover"][..], "RECOVER"),
        (&["wait"][..], "WAIT"),
        (&["verify"][..], "VERIFY MATERIALIZED VIEW"),
        (&["alter", "materialized", "view"][..], "ALTER MATERIALIZED VIEW"),
        (&["alter", "source"][..], "ALTER SOURCE"),
        (&["alter", "sink"][..], "ALTER SINK"),
    ]
    .into_iter()
    .find(|(words, _)| c.at_words(words))
    .map(|(_, name)| name)
}

fn parse_begin(c: &mut Cursor<'_>) -> Result<Tree> {
    let mut read_only = false;
    c.next();
    while let Some(word) = c.peek_word() {
        if c.eat_words(&["read", "only"]) {
            read_only = true;
        } else if matches!(word.as_str(), "work" | "transaction" | "isolation" | "level" | "read" | "write" | "committed" | "uncommitted")
            || matches!(word.as_str(), "repeatable" | "serializable" | "not" | "deferrable")
        {
            c.next();
        } else {
            return Err(c.syntax_error());
        }
        c.eat(&Token::Comma);
    }
    Ok(Tree::Begin { read_only })
}

fn parse_explain(c: &mut Cursor<'_>) -> Result<Tree> {
    c.next();
    if c.at_words(&["analyze"]) {
        return Err(c.refuse("EXPLAIN ANALYZE"));
    }
    c.eat_words(&["verbose"]);
    if c.eat(&Token::LParen) {
        // Options of other systems choose among what is all shown here.
        while !c.eat(&Token::RParen) {
            if c.next().is_none() {
                return Err(c.syntax_error());
            }
        }
    }
    let inner = parse_inner(c)?;
    Ok(Tree::Explain { inner: Box::new(inner) })
}

/// The statement inside EXPLAIN or PREPARE, which is neither itself.
fn parse_inner(c: &mut Cursor<'_>) -> Result<Parsed> {
    if c.at_words(&["explain"]) || c.at_words(&["prepare"]) {
        return Err(c.syntax_error());
    }
    let inner = parse_one(c.text(), c.positions(), c.rest())?;
    c.skip_all();
    Ok(inner)
}

fn parse_prepare(c: &mut Cursor<'_>) -> Result<Tree> {
    c.next();
    let name = c.identifier()?;
    let mut types = Vec::new();
    if c.eat(&Token::LParen) {
        loop {
            types.push(c.sqlparser(|p| p.parse_data_type())?);
            if !c.eat(&Token::Comma) {
                break;
            }
        }
        c.expect(&Token::RParen)?;
    }
    c.expect_words(&["as"])?;
    let statement = parse_inner(c)?;
    Ok(Tree::Prepare { name, types, statement: Box::new(statement) })
}

fn parse_declare(c: &mut Cursor<'_>) -> Result<Tree> {
    c.next();
    let name = c.identifier()?;
    let mut hold = false;
    while !c.eat_words(&["cursor"]) {
        match c.peek_word().as_deref() {
            Some("binary" | "insensitive" | "asensitive" | "no" | "scroll") => {
                c.next();
            }
            _ => return Err(c.syntax_error()),
        }
    }
    if c.eat_words(&["with", "hold"]) {
        hold = true;
    } else {
        c.eat_words(&["without", "hold"]);
    }
    c.expect_words(&["for"])?;
    let mut query = c.sqlparser(|p| p.parse_query())?;
    check_depth(query.as_mut())?;
    Ok(Tree::Declare { name, query, hold })
}

fn parse_fetch(c: &mut Cursor<'_>) -> Result<Tree> {
    let mut count = Some(1);
    if c.eat_words(&["next"]) {
    } else if c.eat_words(&["all"]) || c.eat_words(&["forward", "all"]) {
        count = None;
    } else {
        c.eat_words(&["forward"]);
        if let Some(n) = c.eat_number() {
            count = Some(n);
        }
    }
    if !c.eat_words(&["from"]) {
        c.eat_words(&["in"]);
    }
    Ok(Tree::Fetch { name: c.identifier()?, count })
}

fn parse_reset(c: &mut Cursor<'_>) -> Result<Tree> {
    if c.eat_words(&["all"]) {
        return Ok(Tree::Reset { name: None });
    }
    let mut name = c.identifier()?;
    while c.eat(&Token::Period) {
        name.push('.');
        name.push_str(&c.identifier()?);
    }
    Ok(Tree::Reset { name: Some(name) })
}

/// Counts brackets, CASEs and set operations before anything recursive looks at the tokens.
fn limit_nesting(tokens: &[TokenWithSpan], positions: &Positions) -> Result<()> {
    let (mut depth, mut sets) = (0usize, 0usize);
    for token in tokens {
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen | Token::RBracket | Token::RBrace => depth = depth.saturating_sub(1),
            Token::Word(w) if w.quote_style.is_none() => match w.value.to_ascii_lowercase().as_str() {
                "case" => depth += 1,
                "end" => depth = depth.saturating_sub(1),
                "union" | "except" | "intersect" => sets += 1,
                _ => {}
            },
            _ => {}
        }
        if depth > MAX_NESTING || sets > MAX_SET_OPERATIONS {
            return Err(too_deep().with_position(positions.of_location(token.span.start)));
        }
    }
    Ok(())
}

/// The error of a text that is nested too deeply.
pub(crate) fn too_deep() -> Error {
    Error::user(SqlState::STATEMENT_TOO_COMPLEX, "statement is nested too deeply")
        .with_detail(format!("Parentheses may be nested {MAX_NESTING} deep, chains of operators {MAX_DEPTH} long."))
        .with_hint("Write long chains of OR as IN (...), or split the statement.")
}

/// Refuses trees whose later recursive treatment would need too much stack, after chains of AND and OR were balanced.
pub(crate) fn check_depth(node: &mut (impl ast::Visit + ast::VisitMut)) -> Result<()> {
    struct Balance;
    impl ast::VisitorMut for Balance {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
            balance::balance(expr);
            ControlFlow::Continue(())
        }
    }
    struct Depth(usize);
    impl ast::Visitor for Depth {
        type Break = ();
        fn pre_visit_expr(&mut self, _: &ast::Expr) -> ControlFlow<()> {
            self.0 += 1;
            if self.0 > MAX_DEPTH { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
        fn post_visit_expr(&mut self, _: &ast::Expr) -> ControlFlow<()> {
            self.0 -= 1;
            ControlFlow::Continue(())
        }
    }
    let _ = ast::VisitMut::visit(node, &mut Balance);
    match ast::Visit::visit(node, &mut Depth(0)) {
        ControlFlow::Break(()) => Err(too_deep()),
        ControlFlow::Continue(()) => Ok(()),
    }
}
