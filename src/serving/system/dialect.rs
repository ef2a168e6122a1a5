//! Rewrites of the text of clients' queries that must come before the parser: constructs that neither DataFusion nor datafusion-pg-catalog takes.
//!
//! Each is a shape that psql or a driver sends over tables that are empty here, or for which there is a function of ours.

use regex::Regex;
use std::sync::LazyLock;

/// The text, with what is not understood replaced.
pub(super) fn rewrite(text: &str) -> String {
    // psql's \d: the default of a column, as a subquery that would be decorrelated into a join.
    static DEFAULTS: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?is)\(SELECT (?:pg_catalog\.)?pg_get_expr\(d\.adbin, d\.adrelid(?:, true)?\)\s*FROM pg_catalog\.pg_attrdef d\s*WHERE d\.adrelid = a\.attrelid AND d\.adnum = a\.attnum AND a\.atthasdef\)",
        )
    });
    // psql's \d of a foreign table: pg_foreign_table has the options as text here, and columns have none.
    static OPTIONS: LazyLock<Regex> = LazyLock::new(|| {
        pattern(r"(?is)pg_catalog\.array_to_string\(ARRAY\(\s*SELECT.{0,200}?pg_options_to_table\(ftoptions\)\),\s*', '\)")
    });
    static COLUMN_OPTIONS: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?is)CASE WHEN attfdwoptions IS NULL THEN '' ELSE.{0,300}?END AS attfdwoptions"));
    // psql's \d of a view: storage options.
    static STORAGE: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?is)pg_catalog\.array_to_string\(c\.reloptions \|\| array\(select .{0,200}?\bx\), ', '\)"));
    // Lists of types leave out the row types of relations: there are none.
    static ROW_TYPES: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?is)\(\s*SELECT c\.relkind = 'c'\s+FROM pg_catalog\.pg_class c\s+WHERE c\.oid = t\.typrelid\s*\)"));

    let text = DEFAULTS.replace_all(text, "eddy_column_default(a.attrelid, a.attnum)");
    let text = OPTIONS.replace_all(&text, "f.ftoptions");
    let text = COLUMN_OPTIONS.replace_all(&text, "'' AS attfdwoptions");
    let text = STORAGE.replace_all(&text, "''");
    let text = ROW_TYPES.replace_all(&text, "false");
    array_subqueries(&text)
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a valid pattern")
}

/// `ARRAY(SELECT ...)` is an empty array: what clients collect that way (memberships, policies, options) does not exist here.
fn array_subqueries(text: &str) -> String {
    static START: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\barray\(\s*select\b"));
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(found) = START.find(rest) {
        let Some(end) = closing(&rest[found.start()..]) else { break };
        out.push_str(&rest[..found.start()]);
        out.push_str("array_remove(make_array(''), '')");
        rest = &rest[found.start() + end..];
    }
    out.push_str(rest);
    out
}

/// Bytes up to and including the parenthesis that closes the first one.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quoted) = (0, false);
    for (i, c) in text.char_indices() {
        match c {
            '\'' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => {
                depth -= 1;
                if depth == 0 {
                    return Some(i + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_constructors_over_queries_become_empty_arrays() {
        let text = "SELECT a, ARRAY(SELECT ')' FROM (VALUES (1)) v) as m, array(select 1), array_length(x) FROM t";
        assert_eq!(
            rewrite(text),
            "SELECT a, array_remove(make_array(''), '') as m, array_remove(make_array(''), ''), array_length(x) FROM t"
        );
        assert_eq!(rewrite("SELECT ARRAY(SELECT 1"), "SELECT ARRAY(SELECT 1", "what does not end is left to the parser");
    }

    #[test]
    fn other_text_is_left_alone() {
        let text = "SELECT ARRAY[1, 2], c.oid FROM pg_catalog.pg_class c WHERE c.relname = 'x'";
        assert_eq!(rewrite(text), text);
    }
}
