//! Where files are: a path or URL with wildcards, split into a store and a pattern of names in it.

use eddyline_types::{Error, Result, SqlState};

/// A store and the names wanted in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// URL of the store, opened for reading.
    pub(crate) store_url: String,
    /// What stands before an object's name when it is shown, and in split names.
    pub(crate) shown_prefix: String,
    /// Pattern of object names.
    pub(crate) pattern: Pattern,
}

/// A shell pattern: `*` and `?` stay inside a folder, `**` crosses folders, `[a-z]`, `[!a-z]`, `{a,b}`, `\` escapes.
/// Names that start with a dot are matched only by patterns that say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// Without braces: one per combination.
    alternatives: Vec<Vec<char>>,
    /// The folder that all matches are in, with a trailing slash, or empty.
    pub(crate) folder: String,
    /// Matches may be in folders below.
    pub(crate) recursive: bool,
    /// The one name that matches, if there are no wildcards.
    pub(crate) exact: Option<String>,
}

/// Combinations of braces beyond which a pattern is refused.
const MAX_ALTERNATIVES: usize = 1000;

impl Place {
    /// Parses a plain path (made absolute), `fs:///dir/*.csv` or `s3://bucket/prefix/*.csv?region=..`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| crate::options::invalid("path", text, why);
        let (store_url, shown_prefix, names) = match text.split_once("://") {
            None | Some(("fs" | "file", _)) => {
                let path = text.split_once("://").map_or(text, |(_, path)| path);
                if path.is_empty() {
                    return Err(wrong("a path such as '/dir/flights-*.csv'"));
                }
                let folder = path.ends_with('/');
                let absolute = std::path::absolute(path).map_err(|e| wrong(&format!("an absolute path ({e})")))?;
                let absolute = absolute.to_str().ok_or_else(|| wrong("a path in UTF-8"))?.trim_end_matches('/');
                ("fs:///".to_owned(), "/".to_owned(), format!("{}{}", absolute.trim_start_matches('/'), if folder { "/" } else { "" }))
            }
            Some((scheme, _)) if !matches!(scheme, "s3" | "memory") => return Err(wrong("a path, fs:///dir/.. or s3://bucket/..")),
            Some((scheme, rest)) => {
                let (place, query) = rest.split_at(query_start(rest));
                let (bucket, names) = place.split_once('/').ok_or_else(|| wrong("a URL with names behind the bucket"))?;
                (format!("{scheme}://{bucket}{query}"), format!("{scheme}://{bucket}/"), names.to_owned())
            }
        };
        let names = if names.is_empty() || names.ends_with('/') { format!("{names}*") } else { names };
        Ok(Place { store_url, shown_prefix, pattern: Pattern::parse(&names)? })
    }

    /// An object's name as users see it.
    pub(crate) fn shown(&self, name: &str) -> String {
        format!("{}{name}", self.shown_prefix)
    }
}

/// Where `?name=value` begins in a URL; a question mark before anything else is a wildcard.
fn query_start(url: &str) -> usize {
    let is_query = |at: &usize| {
        let rest = &url[at + 1..];
        let name = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        name > 0 && rest[name..].starts_with('=')
    };
    url.match_indices('?').map(|(at, _)| at).find(is_query).unwrap_or(url.len())
}

impl Pattern {
    fn parse(text: &str) -> Result<Self> {
        let first = text.find(['*', '?', '[', '{', '\\']);
        let folder = match first {
            None => text.rfind('/').map_or("", |at| &text[..=at]),
            Some(wild) => text[..wild].rfind('/').map_or("", |at| &text[..=at]),
        };
        let mut alternatives = vec![];
        expand(&text.chars().collect::<Vec<_>>(), &mut alternatives)?;
        let recursive = first.is_some_and(|wild| text[wild..].contains('/') || text.contains("**"));
        let exact = first.is_none().then(|| text.to_owned());
        Ok(Pattern { alternatives, folder: folder.to_owned(), recursive, exact })
    }

    /// Whether the pattern takes a name.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        self.alternatives.iter().any(|p| matches(p, &name, true))
    }
}

/// Replaces the first pair of braces by each of its parts, and so on.
fn expand(pattern: &[char], out: &mut Vec<Vec<char>>) -> Result<()> {
    let refuse = |why: &str| {
        let text: String = pattern.iter().collect();
        Err(Error::user(SqlState::INVALID_PARAMETER_VALUE, format!("invalid file pattern \"{text}\": {why}")))
    };
    let Some(open) = (0..pattern.len()).find(|&i| pattern[i] == '{' && (i == 0 || pattern[i - 1] != '\\')) else {
        if out.len() == MAX_ALTERNATIVES {
            return refuse("too many alternatives in braces");
        }
        out.push(pattern.to_vec());
        return Ok(());
    };
    let (mut depth, mut starts, mut close) = (0, vec![open + 1], None);
    for i in open..pattern.len() {
        match pattern[i] {
            '{' => depth += 1,
            '}' if depth == 1 => {
                close = Some(i);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 1 => starts.push(i + 1),
            _ => {}
        }
    }
    let Some(close) = close else { return refuse("a brace is not closed") };
    starts.push(close + 1);
    for part in starts.windows(2) {
        let mut one = pattern[..open].to_vec();
        one.extend_from_slice(&pattern[part[0]..part[1] - 1]);
        one.extend_from_slice(&pattern[close + 1..]);
        expand(&one, out)?;
    }
    Ok(())
}

/// `at_start`: the name's next character begins a path segment.
fn matches(pattern: &[char], name: &[char], at_start: bool) -> bool {
    let Some((&first, rest)) = pattern.split_first() else { return name.is_empty() };
    let hidden = at_start && name.first() == Some(&'.');
    match first {
        '*' if rest.first() == Some(&'*') => {
            let rest = &rest[1..];
            // `**/` also stands for no folder at all.
            if let Some(below) = rest.strip_prefix(&['/']) {
                if matches(below, name, at_start) {
                    return true;
                }
            } else if matches(rest, name, at_start) {
                return true;
            }
            !hidden && !name.is_empty() && matches(pattern, &name[1..], name[0] == '/')
        }
        '*' => {
            if matches(rest, name, at_start && !hidden) && !(hidden && !name.is_empty()) {
                return true;
            }
            !hidden && name.first().is_some_and(|c| *c != '/') && matches(pattern, &name[1..], false)
        }
        '?' => !hidden && name.first().is_some_and(|c| *c != '/') && matches(rest, &name[1..], false),
        '[' => match class(rest) {
            Some((set, negated, after)) => {
                !hidden
                    && name.first().is_some_and(|c| *c != '/' && set.iter().any(|(from, to)| from <= c && c <= to) != negated)
                    && matches(after, &name[1..], false)
            }
            None => name.first() == Some(&'[') && matches(rest, &name[1..], false),
        },
        '\\' if !rest.is_empty() => name.first() == Some(&rest[0]) && matches(&rest[1..], &name[1..], rest[0] == '/'),
        c => name.first() == Some(&c) && matches(rest, &name[1..], c == '/'),
    }
}

type Class<'a> = (Vec<(char, char)>, bool, &'a [char]);

/// The set after `[`: its ranges, whether it is negated, and the pattern behind it.
fn class(pattern: &[char]) -> Option<Class<'_>> {
    let negated = matches!(pattern.first(), Some('!' | '^'));
    let mut i = usize::from(negated);
    let start = i;
    let mut set = vec![];
    while let Some(&c) = pattern.get(i) {
        if c == ']' && i > start {
            return Some((set, negated, &pattern[i + 1..]));
        }
        if pattern.get(i + 1) == Some(&'-') && pattern.get(i + 2).is_some_and(|e| *e != ']') {
            set.push((c, pattern[i + 2]));
            i += 3;
        } else {
            set.push((c, c));
            i += 1;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_split_into_store_and_pattern() {
        let p = Place::parse("/data/in/flights-*.csv").unwrap();
        assert_eq!((p.store_url.as_str(), p.pattern.folder.as_str(), p.pattern.recursive), ("fs:///", "data/in/", false));
        assert_eq!(p.shown("data/in/flights-1.csv"), "/data/in/flights-1.csv");
        let p = Place::parse("s3://bucket/a/**/x-?.parquet?region=eu&endpoint=http://h").unwrap();
        assert_eq!(p.store_url, "s3://bucket?region=eu&endpoint=http://h");
        assert_eq!((p.pattern.folder.as_str(), p.pattern.recursive), ("a/", true));
        assert!(p.pattern.exact.is_none());
        let p = Place::parse("file:///data/x.csv").unwrap();
        assert_eq!(p.pattern.exact.as_deref(), Some("data/x.csv"));
        assert!(Place::parse("/data/").unwrap().pattern.matches("data/x.csv"));
        assert_eq!(Place::parse("").unwrap_err().sqlstate(), SqlState::INVALID_PARAMETER_VALUE);
        assert!(Place::parse("/data/{a,b").is_err());
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        let cases = [
            ("a/*.csv", "a/x.csv", true),
            ("a/*.csv", "a/b/x.csv", false),
            ("a/*.csv", "a/.x.csv", false),
            ("a/.*.csv", "a/.x.csv", true),
            ("a/**/*.csv", "a/x.csv", true),
            ("a/**/*.csv", "a/b/c/x.csv", true),
            ("a/**", "a/b/c/x.csv", true),
            ("a/**", "a/.git/x", false),
            ("*", "", true),
            ("a/x?.csv", "a/xé.csv", true),
            ("a/x[0-9].csv", "a/x5.csv", true),
            ("a/x[!0-9].csv", "a/x5.csv", false),
            ("a/[x.csv", "a/[x.csv", true),
            ("a/{x,y{1,2}}.csv", "a/y2.csv", true),
            ("a/{x,y{1,2}}.csv", "a/y.csv", false),
            ("a/\\*.csv", "a/*.csv", true),
            ("a/\\*.csv", "a/b.csv", false),
            ("a/x.csv", "a/x.csv.gz", false),
        ];
        for (pattern, name, wanted) in cases {
            assert_eq!(Pattern::parse(pattern).unwrap().matches(name), wanted, "{pattern} {name}");
        }
    }
}
