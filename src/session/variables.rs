//! Session variables: the names that Postgres and RisingWave clients set, with their defaults and what values they take.
//!
//! A variable that is listed here without being read anywhere is accepted so that drivers and scripts work; what has an effect is documented in docs/sql.md.

use eddyline_types::{Error, Result, SqlState};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What values a variable takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Bool,
    Integer,
    /// A duration: milliseconds, or a number with ms, s, min, h.
    Millis,
    Choice(&'static [&'static str]),
    ReadOnly,
}

struct Spec {
    name: &'static str,
    default: &'static str,
    kind: Kind,
    /// Sent to Postgres clients when it changes.
    reported: bool,
    description: &'static str,
}

const fn spec(name: &'static str, default: &'static str, kind: Kind, description: &'static str) -> Spec {
    Spec { name, default, kind, reported: false, description }
}

const fn reported(name: &'static str, default: &'static str, kind: Kind, description: &'static str) -> Spec {
    Spec { name, default, kind, reported: true, description }
}

/// The version of Postgres whose catalog and behaviour clients may expect.
pub const SERVER_VERSION: &str = "15.0";

const ISOLATION: Kind = Kind::Choice(&["read committed", "read uncommitted", "repeatable read", "serializable"]);

/// By lower-case name, in SHOW ALL's order.
const SPECS: &[Spec] = &[
    reported("application_name", "", Kind::Text, "Name of the application, for people."),
    spec("background_ddl", "off", Kind::Bool, "Accepted; statements that create views wait for them."),
    spec("batch_parallelism", "default", Kind::Text, "Accepted; queries use --query-threads."),
    spec("bytea_output", "hex", Kind::Choice(&["hex", "escape"]), "Text form of bytea."),
    spec("check_function_bodies", "on", Kind::Bool, "Accepted without effect."),
    reported(
        "client_encoding",
        "UTF8",
        Kind::Choice(&["UTF8", "UTF-8", "utf8", "utf-8", "UNICODE", "unicode", "SQL_ASCII"]),
        "Encoding of the client.",
    ),
    spec("client_min_messages", "notice", Kind::Text, "Accepted; all notices are sent."),
    reported("datestyle", "ISO, MDY", Kind::Text, "Text form of dates; only ISO is given."),
    spec("default_transaction_isolation", "read committed", ISOLATION, "Accepted; every statement reads whole epochs."),
    reported("default_transaction_read_only", "off", Kind::Bool, "Transactions start read only."),
    spec("enable_share_plan", "on", Kind::Bool, "Accepted without effect."),
    spec("escape_string_warning", "on", Kind::Bool, "Accepted without effect."),
    spec("extra_float_digits", "1", Kind::Integer, "Text form of floats: the shortest that reads back the same."),
    spec("idle_in_transaction_session_timeout", "0", Kind::Millis, "Accepted without effect."),
    spec(
        "implicit_flush",
        "off",
        Kind::Bool,
        "INSERT, UPDATE and DELETE return after their change is visible even if synchronous_commit is off.",
    ),
    reported("in_hot_standby", "off", Kind::ReadOnly, "Whether the server only reads."),
    reported("integer_datetimes", "on", Kind::ReadOnly, "Timestamps are integers on the wire."),
    reported(
        "intervalstyle",
        "postgres",
        Kind::Choice(&["postgres", "iso_8601", "postgres_verbose", "sql_standard"]),
        "Text form of intervals.",
    ),
    spec("jit", "off", Kind::Bool, "Accepted without effect."),
    spec("lc_collate", "C", Kind::ReadOnly, "Order of text: by code point."),
    spec("lc_ctype", "C.UTF-8", Kind::ReadOnly, "Classes of characters."),
    spec("lc_messages", "C", Kind::Text, "Language of messages."),
    spec("lc_monetary", "C", Kind::Text, "Accepted without effect."),
    spec("lc_numeric", "C", Kind::Text, "Accepted without effect."),
    spec("lc_time", "C", Kind::Text, "Accepted without effect."),
    spec("lock_timeout", "0", Kind::Millis, "Accepted without effect."),
    spec("max_identifier_length", "63", Kind::ReadOnly, "Longest name in bytes."),
    spec("max_index_keys", "32", Kind::ReadOnly, "Most columns of a key that drivers may expect."),
    spec("query_mode", "auto", Kind::Choice(&["auto", "local", "distributed"]), "Accepted without effect."),
    spec(
        "read_freshness",
        "latest",
        Kind::Choice(&["latest", "committed"]),
        "Which epoch SELECT reads: the newest, or the newest that survives a crash.",
    ),
    spec("row_security", "on", Kind::Bool, "Accepted without effect."),
    spec("rw_implicit_flush", "off", Kind::Bool, "The same as implicit_flush."),
    spec("search_path", "\"$user\", public", Kind::Text, "Schemas in which names are looked up."),
    reported("server_encoding", "UTF8", Kind::ReadOnly, "Encoding of stored text."),
    reported("server_version", SERVER_VERSION, Kind::ReadOnly, "The version of Postgres that clients may expect."),
    spec("server_version_num", "150000", Kind::ReadOnly, "The same as a number."),
    reported("session_authorization", "", Kind::ReadOnly, "The user."),
    reported("is_superuser", "on", Kind::ReadOnly, "Whether the user may do everything."),
    spec("sink_decouple", "default", Kind::Text, "Accepted without effect."),
    reported("standard_conforming_strings", "on", Kind::Choice(&["on"]), "Backslashes in '...' are characters."),
    spec("statement_timeout", "0", Kind::Millis, "A statement that runs longer is cancelled; 0: never."),
    spec("streaming_parallelism", "default", Kind::Text, "Shards of the parallel fragments of what is created; default: --parallelism."),
    spec("streaming_rate_limit", "default", Kind::Text, "Accepted without effect."),
    spec("streaming_use_arrangement_backfill", "on", Kind::Bool, "Accepted without effect."),
    spec("streaming_use_snapshot_backfill", "on", Kind::Bool, "Accepted without effect."),
    spec(
        "synchronous_commit",
        "on",
        Kind::Choice(&["on", "off", "local", "remote_write", "remote_apply"]),
        "INSERT, UPDATE and DELETE return after their change is durable.",
    ),
    spec("tcp_keepalives_idle", "0", Kind::Integer, "Accepted without effect."),
    reported("timezone", "UTC", Kind::Text, "Time zone of timestamps with time zone."),
    spec("transaction_isolation", "read committed", ISOLATION, "Isolation of the transaction."),
    spec("transaction_read_only", "off", Kind::Bool, "The transaction only reads."),
    spec(
        "visibility_mode",
        "default",
        Kind::Choice(&["default", "all", "checkpoint"]),
        "checkpoint: the same as read_freshness = committed.",
    ),
    spec("xmloption", "content", Kind::Text, "Accepted without effect."),
];

/// As Postgres spells a reported name.
fn spelling(name: &'static str) -> &'static str {
    match name {
        "datestyle" => "DateStyle",
        "intervalstyle" => "IntervalStyle",
        "timezone" => "TimeZone",
        other => other,
    }
}

/// The variables of one session.
#[derive(Clone, Debug)]
pub struct Variables {
    /// Effective values by lower-case name; shared with statements that were bound with them.
    values: Arc<BTreeMap<String, String>>,
    /// What RESET goes back to.
    initial: Arc<BTreeMap<String, String>>,
    /// Values before SET LOCAL in the running transaction.
    local: BTreeMap<String, Option<String>>,
    /// Values at the start of the transaction, for ROLLBACK.
    saved: Option<Arc<BTreeMap<String, String>>>,
    /// What the client was told.
    told: BTreeMap<&'static str, String>,
}

impl Variables {
    /// Defaults, then what the client said when it connected. Errors: 42704 for an unknown name, 22023 for a bad value.
    pub fn new(user: &str, given: &[(String, String)]) -> Result<Self> {
        let mut values: BTreeMap<String, String> = SPECS.iter().map(|s| (s.name.to_owned(), s.default.to_owned())).collect();
        values.insert("session_authorization".into(), user.to_owned());
        let mut variables =
            Variables { values: Arc::new(values), initial: Arc::default(), local: BTreeMap::new(), saved: None, told: BTreeMap::new() };
        for (name, value) in given {
            variables.set(name, value)?;
        }
        variables.initial = variables.values.clone();
        Ok(variables)
    }

    /// All effective values.
    pub fn all(&self) -> &Arc<BTreeMap<String, String>> {
        &self.values
    }

    /// A value; `None`: there is no such variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(canonical(name).as_str()).map(String::as_str)
    }

    /// Whether a boolean variable is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name) == Some("on")
    }

    /// A duration variable in milliseconds; 0: none.
    pub fn millis(&self, name: &str) -> u64 {
        self.get(name).and_then(parse_millis).unwrap_or(0)
    }

    /// Schemas in which names are looked up; `$user` counts only if there is such a schema.
    pub fn search_path(&self, user: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
        let path = self.get("search_path").unwrap_or_default();
        let parts = path.split(',').map(|part| part.trim().trim_matches('"')).filter(|p| !p.is_empty());
        parts.map(|part| if part == "$user" { user.to_owned() } else { part.to_owned() }).filter(|part| exists(part)).collect()
    }

    /// Sets a variable until the session ends.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let name = canonical(name);
        let value = checked(&name, value)?;
        self.local.remove(&name);
        Arc::make_mut(&mut self.values).insert(name, value);
        Ok(())
    }

    /// Sets a variable until the transaction ends.
    pub fn set_local(&mut self, name: &str, value: &str) -> Result<()> {
        let name = canonical(name);
        let value = checked(&name, value)?;
        let before = self.values.get(&name).cloned();
        self.local.entry(name.clone()).or_insert(before);
        Arc::make_mut(&mut self.values).insert(name, value);
        Ok(())
    }

    /// Sets a variable, or all, to what it was when the session started.
    pub fn reset(&mut self, name: Option<&str>) -> Result<()> {
        let Some(name) = name else {
            self.values = self.initial.clone();
            self.local.clear();
            return Ok(());
        };
        let name = canonical(name);
        match self.initial.get(&name).cloned() {
            Some(value) => {
                Arc::make_mut(&mut self.values).insert(name, value);
            }
            None if name.contains('.') => {
                Arc::make_mut(&mut self.values).remove(&name);
            }
            None => return Err(unknown(&name)),
        }
        Ok(())
    }

    /// A transaction starts.
    pub fn begin(&mut self) {
        self.saved = Some(self.values.clone());
        self.local.clear();
    }

    /// A transaction ends: SET LOCAL is undone, and after a rollback every SET of the transaction.
    pub fn end(&mut self, committed: bool) {
        let saved = self.saved.take();
        let local = std::mem::take(&mut self.local);
        if let (false, Some(saved)) = (committed, saved) {
            self.values = saved;
            return;
        }
        for (name, before) in local {
            let values = Arc::make_mut(&mut self.values);
            match before {
                Some(value) => values.insert(name, value),
                None => values.remove(&name),
            };
        }
    }

    /// Name, value and description of all listed variables.
    pub fn show_all(&self) -> Vec<(&'static str, String, &'static str)> {
        SPECS.iter().map(|s| (spelling(s.name), self.values.get(s.name).cloned().unwrap_or_default(), s.description)).collect()
    }

    /// Reported variables whose value the client has not been told.
    pub fn take_reported(&mut self) -> Vec<(&'static str, String)> {
        let mut changed = Vec::new();
        for spec in SPECS.iter().filter(|s| s.reported) {
            let value = self.values.get(spec.name).cloned().unwrap_or_default();
            if self.told.get(spec.name) != Some(&value) {
                self.told.insert(spec.name, value.clone());
                changed.push((spelling(spec.name), value));
            }
        }
        changed
    }
}

/// Lower case, and RisingWave's and SQL's other names for the same thing.
fn canonical(name: &str) -> String {
    match name.to_lowercase().as_str() {
        "time zone" | "time_zone" => "timezone".into(),
        "names" => "client_encoding".into(),
        "transaction isolation level" => "transaction_isolation".into(),
        "rw_streaming_parallelism" => "streaming_parallelism".into(),
        other => other.to_owned(),
    }
}

fn unknown(name: &str) -> Error {
    Error::user(SqlState::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
        .with_hint("SHOW ALL lists the parameters. A parameter of your own needs a dot in its name.")
}

/// The value in its canonical form.
fn checked(name: &str, value: &str) -> Result<String> {
    let Some(spec) = SPECS.iter().find(|s| s.name == name) else {
        // As in Postgres, a name with a dot is the user's own.
        return if name.contains('.') { Ok(value.to_owned()) } else { Err(unknown(name)) };
    };
    let invalid = || Error::user(SqlState::INVALID_PARAMETER_VALUE, format!("invalid value for parameter \"{name}\": \"{value}\""));
    match spec.kind {
        Kind::Text => Ok(value.to_owned()),
        Kind::ReadOnly => Err(Error::user(SqlState::CANT_CHANGE_PARAM, format!("parameter \"{name}\" cannot be changed"))),
        Kind::Integer => value.trim().parse::<i64>().map(|v| v.to_string()).map_err(|_| invalid()),
        Kind::Bool => match value.to_lowercase().as_str() {
            "on" | "true" | "t" | "yes" | "y" | "1" => Ok("on".into()),
            "off" | "false" | "f" | "no" | "n" | "0" => Ok("off".into()),
            _ => Err(Error::user(SqlState::INVALID_PARAMETER_VALUE, format!("parameter \"{name}\" requires a Boolean value"))),
        },
        Kind::Millis => parse_millis(value).map(show_millis).ok_or_else(invalid),
        Kind::Choice(choices) => {
            let lower = value.to_lowercase();
            let lower = match lower.as_str() {
                "true" | "yes" | "1" if choices.contains(&"on") => "on",
                "false" | "no" | "0" if choices.contains(&"off") => "off",
                other => other,
            };
            // Names of encodings are compared by their letters and digits: drivers write 'utf-8', with the quotes.
            let encoding: String = lower.chars().filter(|c| c.is_alphanumeric() || *c == '_').collect();
            let lower = if name == "client_encoding" { encoding.as_str() } else { lower };
            let found = choices.iter().find(|c| c.to_lowercase() == lower);
            found
                .map(|c| if name == "client_encoding" && *c != "SQL_ASCII" { "UTF8".to_owned() } else { (*c).to_owned() })
                .ok_or_else(|| invalid().with_hint(format!("Available values: {}.", choices.join(", "))))
        }
    }
}

fn parse_millis(value: &str) -> Option<u64> {
    let value = value.trim().to_lowercase();
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number: u64 = value[..digits].parse().ok()?;
    let factor = match value[digits..].trim() {
        "" | "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(factor)
}

fn show_millis(millis: u64) -> String {
    match millis {
        0 => "0".into(),
        m if m % 60_000 == 0 => format!("{}min", m / 60_000),
        m if m % 1000 == 0 => format!("{}s", m / 1000),
        m => format!("{m}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables {
        Variables::new("root", &[]).expect("defaults are valid")
    }

    #[test]
    fn values_are_checked_and_shown_in_one_form() {
        let mut v = variables();
        v.set("Statement_Timeout", "90000").expect("a duration");
        assert_eq!((v.get("statement_timeout"), v.millis("statement_timeout")), (Some("90s"), 90_000));
        v.set("background_ddl", "TRUE").expect("a boolean");
        assert!(v.is_on("background_ddl"));
        v.set("synchronous_commit", "false").expect("a choice");
        assert_eq!(v.get("synchronous_commit"), Some("off"));
        assert_eq!(v.set("no_such", "1").expect_err("unknown").sqlstate(), SqlState::UNDEFINED_OBJECT);
        assert_eq!(v.set("server_version", "1").expect_err("fixed").sqlstate(), SqlState::CANT_CHANGE_PARAM);
        assert_eq!(v.set("read_freshness", "soon").expect_err("no choice").sqlstate(), SqlState::INVALID_PARAMETER_VALUE);
        v.set("my.own", "x").expect("a custom variable");
        assert_eq!(v.get("my.own"), Some("x"));
    }

    #[test]
    fn transactions_undo_what_is_theirs() {
        let mut v = variables();
        v.set("extra_float_digits", "2").expect("an integer");
        v.begin();
        v.set_local("extra_float_digits", "3").expect("an integer");
        v.set("timezone", "Europe/Berlin").expect("text");
        v.end(true);
        assert_eq!((v.get("extra_float_digits"), v.get("TimeZone")), (Some("2"), Some("Europe/Berlin")));
        v.begin();
        v.set("timezone", "UTC").expect("text");
        v.end(false);
        assert_eq!(v.get("timezone"), Some("Europe/Berlin"));
    }

    #[test]
    fn the_client_is_told_once() {
        let mut v = variables();
        assert!(v.take_reported().iter().any(|(name, value)| *name == "server_version" && value == SERVER_VERSION));
        assert!(v.take_reported().is_empty());
        v.set("time zone", "Asia/Tokyo").expect("text");
        assert_eq!(v.take_reported(), vec![("TimeZone", "Asia/Tokyo".to_owned())]);
    }

    #[test]
    fn the_search_path_leaves_out_what_does_not_exist() {
        let mut v = variables();
        assert_eq!(v.search_path("root", |s| s == "public"), ["public"]);
        v.set("search_path", "a, \"B c\"").expect("text");
        assert_eq!(v.search_path("root", |_| true), ["a", "B c"]);
    }
}
