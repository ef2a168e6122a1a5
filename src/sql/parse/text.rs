//! Positions in a text, and syntax errors that give them.

use eddyline_types::{Error, SqlState};
use sqlparser::parser::ParserError;
use sqlparser::tokenizer::{Location, TokenWithSpan, TokenizerError};

/// Where lines start, to turn the parser's lines and columns into offsets.
#[derive(Debug)]
pub(crate) struct Positions {
    /// Per line: characters and bytes before it.
    lines: Vec<(u32, usize)>,
    text: String,
}

impl Positions {
    pub(crate) fn new(text: &str) -> Self {
        let mut lines = vec![(0, 0)];
        let mut chars = 0;
        for (byte, c) in text.char_indices() {
            chars += 1;
            if c == '\n' {
                lines.push((chars, byte + 1));
            }
        }
        Positions { lines, text: text.to_string() }
    }

    /// 1-based character position of a line and column.
    pub(crate) fn of_location(&self, location: Location) -> u32 {
        self.of_line_column(location.line, location.column)
    }

    /// 1-based character position of a 1-based line and column; past the end: one after the last character.
    pub(crate) fn of_line_column(&self, line: u64, column: u64) -> u32 {
        let end = self.text.chars().count() as u32 + 1;
        match line.checked_sub(1).and_then(|l| self.lines.get(l as usize)) {
            Some((chars, _)) if column > 0 => (chars + column as u32).min(end),
            _ => end,
        }
    }

    /// Byte offset of a line and column.
    pub(crate) fn byte_of(&self, location: Location) -> usize {
        let Some((_, start)) = location.line.checked_sub(1).and_then(|l| self.lines.get(l as usize)) else {
            return self.text.len();
        };
        let column = location.column.saturating_sub(1) as usize;
        self.text[*start..].char_indices().nth(column).map_or(self.text.len(), |(byte, _)| start + byte)
    }

    /// Characters before a byte offset.
    pub(crate) fn chars_before(&self, byte: usize) -> u32 {
        let line = self.lines.partition_point(|(_, start)| *start <= byte) - 1;
        let (chars, start) = self.lines[line];
        chars + self.text[start..byte].chars().count() as u32
    }
}

/// `syntax error at or near "x"`, or `at end of input` without a token.
pub(crate) fn near(token: Option<&TokenWithSpan>, positions: &Positions, text: &str) -> Error {
    match token {
        Some(token) => {
            let start = positions.byte_of(token.span.start);
            let end = positions.byte_of(token.span.end).max(start);
            let shown = match text.get(start..end) {
                Some(s) if !s.is_empty() => s.to_string(),
                _ => token.token.to_string(),
            };
            Error::user(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{shown}\""))
                .with_position(positions.of_location(token.span.start))
        }
        None => Error::user(SqlState::SYNTAX_ERROR, "syntax error at end of input").with_position(positions.of_line_column(0, 0)),
    }
}

/// A parser's error, by the place that it names at its end.
pub(crate) fn parser_error(error: ParserError, tokens: &[TokenWithSpan], current: usize, positions: &Positions, text: &str) -> Error {
    let message = match error {
        ParserError::RecursionLimitExceeded => return super::too_deep(),
        ParserError::ParserError(m) | ParserError::TokenizerError(m) => m,
    };
    if message.contains("found: EOF") {
        return near(None, positions, text);
    }
    let place = message.rsplit_once(" at Line: ").and_then(|(_, place)| {
        let (line, column) = place.split_once(", Column: ")?;
        Some((line.trim().parse::<u64>().ok()?, column.trim().parse::<u64>().ok()?))
    });
    let token = match place {
        Some((line, column)) => tokens.iter().find(|t| t.span.start.line == line && t.span.start.column == column),
        None => tokens.get(current),
    };
    near(token, positions, text)
}

/// An unterminated string or comment, a wrong character.
pub(crate) fn tokenizer_error(error: TokenizerError, positions: &Positions, text: &str) -> Error {
    let position = positions.of_location(error.location);
    let from: String = text.chars().skip(position as usize - 1).take(20).collect();
    let message = error.message.to_lowercase();
    let primary = if message.contains("unterminated string") {
        format!("unterminated quoted string at or near \"{from}\"")
    } else if message.contains("multi-line comment") {
        format!("unterminated /* comment at or near \"{from}\"")
    } else if message.contains("close delimiter") || message.contains("expected close") {
        format!("unterminated quoted identifier at or near \"{from}\"")
    } else if message.contains("dollar") {
        format!("unterminated dollar-quoted string at or near \"{from}\"")
    } else {
        format!("syntax error at or near \"{from}\"")
    };
    Error::user(SqlState::SYNTAX_ERROR, primary).with_position(position)
}
