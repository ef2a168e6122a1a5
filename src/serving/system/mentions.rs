//! Which statements are about the system's schemas: looks at the words of a text, outside of its string constants and comments.

/// What a statement's text is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mentions {
    /// User relations only, or not a query.
    Nothing,
    /// `information_schema` or `eddy_catalog`: ordinary SQL over other tables.
    OwnTables,
    /// `pg_catalog`, or functions that only Postgres has: what clients send.
    Postgres,
}

/// Functions of Postgres that say something about server or session, when called.
const FUNCTIONS: &[&str] = &[
    "version",
    "current_database",
    "current_catalog",
    "current_schema",
    "current_schemas",
    "current_setting",
    "set_config",
    "obj_description",
    "col_description",
    "shobj_description",
    "format_type",
    "has_table_privilege",
    "has_schema_privilege",
    "has_database_privilege",
    "has_any_column_privilege",
    "has_column_privilege",
    "has_function_privilege",
    "to_regclass",
    "to_regtype",
    "quote_ident",
    "txid_current",
    "inet_server_addr",
    "inet_server_port",
    "inet_client_addr",
    "inet_client_port",
];

/// Names that stand for themselves, without parentheses.
const WORDS: &[&str] = &[
    "current_user",
    "session_user",
    "current_role",
    "current_catalog",
    "current_schema",
    "regclass",
    "regtype",
    "regproc",
    "regnamespace",
];

/// What a text is about.
pub fn of(text: &str) -> Mentions {
    let mut found = Mentions::Nothing;
    let mut words = Words { text, at: 0 };
    let Some((first, _)) = words.next() else { return found };
    if !matches!(first.as_str(), "select" | "with" | "values" | "table") {
        return found;
    }
    for (word, called) in words {
        if word == "pg_catalog"
            || word.starts_with("pg_")
            || WORDS.contains(&word.as_str())
            || (called && FUNCTIONS.contains(&word.as_str()))
        {
            return Mentions::Postgres;
        }
        if word == "information_schema" || word == "eddy_catalog" {
            found = Mentions::OwnTables;
        }
    }
    found
}

/// The words of a text in lower case, each with whether a parenthesis follows.
struct Words<'a> {
    text: &'a str,
    at: usize,
}

impl Iterator for Words<'_> {
    type Item = (String, bool);

    fn next(&mut self) -> Option<(String, bool)> {
        let bytes = self.text.as_bytes();
        while self.at < bytes.len() {
            let rest = &self.text[self.at..];
            match bytes[self.at] {
                b'\'' => self.at += quoted(rest, '\''),
                b'-' if rest.starts_with("--") => self.at += rest.find('\n').unwrap_or(rest.len()),
                b'/' if rest.starts_with("/*") => self.at += rest.find("*/").map_or(rest.len(), |i| i + 2),
                b'"' => {
                    let length = quoted(rest, '"');
                    self.at += length;
                    return Some((rest[1..length.saturating_sub(1).max(1)].to_lowercase(), false));
                }
                c if c.is_ascii_alphabetic() || c == b'_' => {
                    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(rest.len());
                    self.at += end;
                    return Some((rest[..end].to_lowercase(), self.text[self.at..].trim_start().starts_with('(')));
                }
                _ => self.at += rest.chars().next().map_or(1, char::len_utf8),
            }
        }
        None
    }
}

/// Bytes of a quoted piece, both quotes included.
fn quoted(rest: &str, quote: char) -> usize {
    rest[1..].find(quote).map_or(rest.len(), |i| i + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_decide_and_constants_do_not() {
        assert_eq!(of("SELECT * FROM t WHERE s = 'pg_catalog.x' -- pg_class"), Mentions::Nothing);
        assert_eq!(of("select version()"), Mentions::Postgres);
        assert_eq!(of("select version from releases"), Mentions::Nothing);
        assert_eq!(of("select current_user"), Mentions::Postgres);
        assert_eq!(of("SELECT 1 FROM \"pg_catalog\".pg_class"), Mentions::Postgres);
        assert_eq!(of("SELECT * FROM information_schema.tables"), Mentions::OwnTables);
        assert_eq!(of("SELECT * FROM eddy_catalog.jobs j, pg_class c"), Mentions::Postgres);
        assert_eq!(of("INSERT INTO pg_things VALUES (1)"), Mentions::Nothing);
        assert_eq!(of("/* pg_ */ select 'it''s pg_class', \"x\"\"y\" from t"), Mentions::Nothing);
        assert_eq!(of("select 'ünterminated"), Mentions::Nothing);
        assert_eq!(of(""), Mentions::Nothing);
    }
}
