//! A place in a statement's tokens, with what hand-written parsing needs.

use super::text::{self, Positions};
use eddyline_types::{Error, Result};
use sqlparser::ast::ObjectName;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};
use std::sync::Arc;

/// Recursion that sqlparser may use; parentheses are limited before (`MAX_NESTING`), prefix operators only here.
const RECURSION_LIMIT: usize = 600;

static DIALECT: PostgreSqlDialect = PostgreSqlDialect {};

pub(crate) struct Cursor<'a> {
    text: &'a str,
    positions: &'a Arc<Positions>,
    tokens: &'a [TokenWithSpan],
    next: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str, positions: &'a Arc<Positions>, tokens: &'a [TokenWithSpan]) -> Self {
        Cursor { text, positions, tokens, next: 0 }
    }

    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    pub(crate) fn positions(&self) -> &'a Arc<Positions> {
        self.positions
    }

    /// The tokens that are left.
    pub(crate) fn rest(&self) -> &'a [TokenWithSpan] {
        &self.tokens[self.next..]
    }

    pub(crate) fn skip_all(&mut self) {
        self.next = self.tokens.len();
    }

    /// Bytes of the whole text that the statement takes.
    pub(crate) fn byte_range(&self) -> (usize, usize) {
        let start = self.tokens.first().map_or(0, |t| self.positions.byte_of(t.span.start));
        let end = self.tokens.last().map_or(start, |t| self.positions.byte_of(t.span.end));
        (start, end)
    }

    /// Byte offset where the next token starts, or where the statement ends.
    pub(crate) fn byte(&self) -> usize {
        self.peek().map_or(self.byte_range().1, |t| self.positions.byte_of(t.span.start))
    }

    pub(crate) fn peek(&self) -> Option<&'a TokenWithSpan> {
        self.tokens.get(self.next)
    }

    pub(crate) fn next(&mut self) -> Option<&'a TokenWithSpan> {
        let token = self.tokens.get(self.next);
        self.next += usize::from(token.is_some());
        token
    }

    /// The next token as an unquoted word, in lower case.
    pub(crate) fn peek_word(&self) -> Option<String> {
        word(self.peek()?)
    }

    pub(crate) fn at_words(&self, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(i, w)| self.tokens.get(self.next + i).and_then(word).is_some_and(|t| t == *w))
    }

    pub(crate) fn eat_words(&mut self, words: &[&str]) -> bool {
        let there = self.at_words(words);
        if there {
            self.next += words.len();
        }
        there
    }

    pub(crate) fn expect_words(&mut self, words: &[&str]) -> Result<()> {
        for w in words {
            if !self.eat_words(&[w]) {
                return Err(self.syntax_error());
            }
        }
        Ok(())
    }

    pub(crate) fn at(&self, token: &Token) -> bool {
        self.peek().is_some_and(|t| t.token == *token)
    }

    pub(crate) fn eat(&mut self, token: &Token) -> bool {
        let there = self.at(token);
        self.next += usize::from(there);
        there
    }

    pub(crate) fn expect(&mut self, token: &Token) -> Result<()> {
        if self.eat(token) { Ok(()) } else { Err(self.syntax_error()) }
    }

    pub(crate) fn expect_end(&self) -> Result<()> {
        if self.peek().is_none() { Ok(()) } else { Err(self.syntax_error()) }
    }

    /// An identifier, folded to lower case unless quoted.
    pub(crate) fn identifier(&mut self) -> Result<String> {
        match self.peek().map(|t| &t.token) {
            Some(Token::Word(w)) => {
                self.next += 1;
                Ok(fold(&w.value, w.quote_style.is_some()))
            }
            _ => Err(self.syntax_error()),
        }
    }

    /// A possibly qualified name.
    pub(crate) fn object_name(&mut self) -> Result<ObjectName> {
        self.sqlparser(|p| p.parse_object_name(false))
    }

    /// A string constant.
    pub(crate) fn string(&mut self) -> Result<String> {
        let value = match self.peek().map(|t| &t.token) {
            Some(Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s)) => s.clone(),
            Some(Token::DollarQuotedString(s)) => s.value.clone(),
            _ => return Err(self.syntax_error()),
        };
        self.next += 1;
        Ok(value)
    }

    pub(crate) fn eat_number(&mut self) -> Option<u64> {
        match self.peek().map(|t| &t.token) {
            Some(Token::Number(n, _)) => {
                let n = n.parse().ok()?;
                self.next += 1;
                Some(n)
            }
            _ => None,
        }
    }

    /// `IF NOT EXISTS`.
    pub(crate) fn if_not_exists(&mut self) -> bool {
        self.eat_words(&["if", "not", "exists"])
    }

    /// `syntax error at or near` the next token.
    pub(crate) fn syntax_error(&self) -> Error {
        text::near(self.peek(), self.positions, self.text)
    }

    /// A known construct that is not supported, at the next token.
    pub(crate) fn refuse(&self, construct: &str) -> Error {
        let error = Error::unsupported(format!("{construct} is not supported"));
        match self.peek() {
            Some(token) => error.with_position(self.positions.of_location(token.span.start)),
            None => error,
        }
    }

    /// Lets sqlparser parse from the next token on and goes on behind what it took.
    pub(crate) fn sqlparser<T>(&mut self, parse: impl FnOnce(&mut Parser<'_>) -> Result<T, ParserError>) -> Result<T> {
        let rest = self.rest();
        let mut parser = Parser::new(&DIALECT).with_recursion_limit(RECURSION_LIMIT).with_tokens_with_locations(rest.to_vec());
        match parse(&mut parser) {
            Ok(tree) => {
                // The parser names the token before its place; a count of what is left says the same without a special case at the start.
                let mut left = 0;
                while parser.next_token().token != Token::EOF {
                    left += 1;
                }
                self.next = self.tokens.len() - left;
                Ok(tree)
            }
            Err(e) => Err(text::parser_error(e, rest, parser.get_current_index(), self.positions, self.text)),
        }
    }
}

fn word(token: &TokenWithSpan) -> Option<String> {
    match &token.token {
        Token::Word(w) if w.quote_style.is_none() => Some(w.value.to_ascii_lowercase()),
        _ => None,
    }
}

/// Postgres' folding: unquoted names are lower case.
pub(crate) fn fold(name: &str, quoted: bool) -> String {
    if quoted { name.to_string() } else { name.to_lowercase() }
}
