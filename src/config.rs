//! Settings: as typed (flag, `EDDYLINE_*` variable, file, default, in this order), then resolved.
//!
//! An unknown key, a value of the wrong form or an unreadable file is an error of one line. Nothing below this module sees an `Option`
//! or a text where a number is meant.

use clap::Args;
use figment::providers::{Env, Format, Serialized, Toml};
use figment::{Figment, Profile};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Variables with our prefix that are not settings.
const NOT_SETTINGS: &[&str] = &["failpoints", "config", "url"];

/// Flags of every subcommand that starts a server.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub struct Flags {
    /// Directory for the meta log and, unless --store-url says otherwise, the store [default: ./eddyline-data]
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    data_dir: Option<String>,
    /// Where state is kept: fs:///dir, memory:// or s3://bucket/prefix?... [default: the data directory]
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    store_url: Option<String>,
    /// Address of the Postgres wire [default: 127.0.0.1:4566]
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pg_listen: Option<String>,
    /// Address of HTTP: REST, console, metrics, health [default: 127.0.0.1:4567]
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    http_listen: Option<String>,
    /// Shards of a parallel fragment [default: the number of cores]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    parallelism: Option<String>,
    /// Memory for state, buffers and caches, e.g. 8GiB [default: half of the machine's]
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_limit: Option<String>,
    /// How often results become visible while rows flow [default: 100ms]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    barrier_interval: Option<String>,
    /// How often state becomes durable while rows flow [default: 1s]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_interval: Option<String>,
    /// Start with all domains paused
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    paused: bool,
    /// What to log: error, warn, info, debug, trace, or a filter such as eddyline_store=debug [default: info]
    #[arg(long, value_name = "FILTER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
    /// Settings file (TOML) with the same names, in snake case
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,
}

/// Settings as typed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Typed {
    data_dir: String,
    store_url: String,
    pg_listen: String,
    http_listen: String,
    parallelism: Number,
    memory_limit: Number,
    barrier_interval: String,
    checkpoint_interval: String,
    paused: bool,
    log: String,
}

/// A number, or a text that holds one: files may write either.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Number {
    Plain(u64),
    Text(String),
}

impl Number {
    fn text(&self) -> String {
        match self {
            Number::Plain(n) => n.to_string(),
            Number::Text(text) => text.clone(),
        }
    }
}

/// Settings, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Meta log, lock, and the store unless `store_url` is elsewhere.
    pub data_dir: PathBuf,
    /// Object store of the state.
    pub store_url: String,
    /// Address of the Postgres wire.
    pub pg_listen: SocketAddr,
    /// Address of HTTP.
    pub http_listen: SocketAddr,
    /// Shards of a parallel fragment.
    pub parallelism: u32,
    /// Bytes for state, buffers and caches.
    pub memory_limit_bytes: u64,
    /// Between plain barriers while rows flow.
    pub barrier_interval: Duration,
    /// Between checkpoints while rows flow.
    pub checkpoint_interval: Duration,
    /// Sources stand still until resumed.
    pub paused: bool,
    /// Log filter.
    pub log: String,
}

impl Config {
    /// Name and value of every setting, as `eddy_catalog.settings` shows them.
    pub fn rows(&self) -> Vec<(String, String)> {
        let millis = |d: Duration| format!("{}ms", d.as_millis());
        [
            ("data_dir", self.data_dir.display().to_string()),
            ("store_url", without_secrets(&self.store_url)),
            ("pg_listen", self.pg_listen.to_string()),
            ("http_listen", self.http_listen.to_string()),
            ("parallelism", self.parallelism.to_string()),
            ("memory_limit", self.memory_limit_bytes.to_string()),
            ("barrier_interval", millis(self.barrier_interval)),
            ("checkpoint_interval", millis(self.checkpoint_interval)),
            ("paused", self.paused.to_string()),
            ("log", self.log.clone()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }
}

/// Options of a URL may be credentials: only their names are shown.
fn without_secrets(url: &str) -> String {
    match url.split_once('?') {
        Some((base, options)) => {
            let names: Vec<String> = options.split('&').filter_map(|o| o.split('=').next()).map(|n| format!("{n}=...")).collect();
            format!("{base}?{}", names.join("&"))
        }
        None => url.to_owned(),
    }
}

/// One line for the user about a wrong setting.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError(pub String);

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ConfigError {}

impl Flags {
    /// Flags that only name a data directory: for `demo` and the benchmarks.
    pub fn with_data_dir(mut self, dir: &std::path::Path) -> Self {
        self.data_dir = Some(dir.display().to_string());
        self
    }

    /// Ports chosen by the operating system where the user named none.
    pub fn with_free_ports(mut self) -> Self {
        self.pg_listen.get_or_insert("127.0.0.1:0".into());
        self.http_listen.get_or_insert("127.0.0.1:0".into());
        self
    }

    /// Replaces the log filter where the user named none.
    pub fn with_log(mut self, filter: &str) -> Self {
        self.log.get_or_insert(filter.into());
        self
    }

    fn figment(&self) -> Result<Figment, ConfigError> {
        let mut figment = Figment::from(Serialized::defaults(defaults()));
        if let Some(file) = self.config.clone().or_else(|| std::env::var_os("EDDYLINE_CONFIG").map(PathBuf::from)) {
            if !file.is_file() {
                return Err(ConfigError(format!("cannot read the settings file {}", file.display())));
            }
            figment = figment.merge(Toml::file_exact(file));
        }
        let variables = Env::prefixed("EDDYLINE_").ignore(NOT_SETTINGS);
        Ok(figment.merge(variables).merge(Serialized::from(self, Profile::Default)))
    }

    /// The settings that hold.
    pub fn resolve(&self) -> Result<Config, ConfigError> {
        let typed: Typed = self.figment()?.extract().map_err(|e| ConfigError(one_line(&e)))?;
        typed.resolve()
    }

    /// Lines `key = value  # source` of the settings that hold.
    pub fn explain(&self) -> Result<Vec<String>, ConfigError> {
        let figment = self.figment()?;
        let typed: Typed = figment.extract().map_err(|e| ConfigError(one_line(&e)))?;
        let values = toml::Table::try_from(&typed).map_err(|e| ConfigError(e.to_string()))?;
        typed.resolve()?;
        let source = |key: &str| {
            let Some(metadata) = figment.find_metadata(key) else { return "default".to_owned() };
            match metadata.name.as_ref() {
                name if name.contains("Typed") => "default".to_owned(),
                name if name.contains("Flags") => "flag".to_owned(),
                name if name.contains("environment") => format!("variable EDDYLINE_{}", key.to_uppercase()),
                name => metadata.source.as_ref().map_or(name.to_owned(), |s| format!("file {s}")),
            }
        };
        Ok(values.iter().map(|(key, value)| format!("{key} = {value}  # {}", source(key))).collect())
    }
}

fn one_line(error: &figment::Error) -> String {
    let first = error.clone().into_iter().next();
    let text = first.as_ref().map_or_else(|| error.to_string(), ToString::to_string);
    let text = text.replace('\n', " ");
    // A misspelt variable or key: say which, not which struct.
    text.replace(", expected one of", "; the settings are").replace("unknown field: found", "unknown setting")
}

fn defaults() -> Typed {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    Typed {
        data_dir: "./eddyline-data".into(),
        store_url: String::new(),
        pg_listen: "127.0.0.1:4566".into(),
        http_listen: "127.0.0.1:4567".into(),
        parallelism: Number::Plain(cores),
        memory_limit: Number::Plain(machine_memory_bytes() / 2),
        barrier_interval: "100ms".into(),
        checkpoint_interval: "1s".into(),
        paused: false,
        log: "info".into(),
    }
}

fn machine_memory_bytes() -> u64 {
    let kib = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    kib.map_or(4 << 30, |kib| kib * 1024)
}

impl Typed {
    fn resolve(&self) -> Result<Config, ConfigError> {
        let parallelism = number("parallelism", &self.parallelism.text())?;
        if !(1..=256).contains(&parallelism) {
            return Err(ConfigError(format!("parallelism must be between 1 and 256, not {parallelism}")));
        }
        let memory_limit_bytes = size("memory_limit", &self.memory_limit.text())?;
        if memory_limit_bytes < 64 << 20 {
            return Err(ConfigError("memory_limit must be at least 64MiB".into()));
        }
        let data_dir = PathBuf::from(&self.data_dir);
        let store_url = match self.store_url.as_str() {
            "" => data_dir.join("store").display().to_string(),
            url => url.to_owned(),
        };
        Ok(Config {
            store_url,
            data_dir,
            pg_listen: address("pg_listen", &self.pg_listen)?,
            http_listen: address("http_listen", &self.http_listen)?,
            parallelism: parallelism as u32,
            memory_limit_bytes,
            barrier_interval: time("barrier_interval", &self.barrier_interval)?,
            checkpoint_interval: time("checkpoint_interval", &self.checkpoint_interval)?,
            paused: self.paused,
            log: self.log.clone(),
        })
    }
}

fn address(key: &str, text: &str) -> Result<SocketAddr, ConfigError> {
    use std::net::ToSocketAddrs;
    let found = text.to_socket_addrs().ok().and_then(|mut a| a.next());
    found.ok_or_else(|| ConfigError(format!("{key} must be host:port, not \"{text}\"")))
}

fn number(key: &str, text: &str) -> Result<u64, ConfigError> {
    text.trim().parse().map_err(|_| ConfigError(format!("{key} must be a whole number, not \"{text}\"")))
}

fn split_unit(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim()))
}

fn size(key: &str, text: &str) -> Result<u64, ConfigError> {
    let wrong = || ConfigError(format!("{key} must be a size such as 512MiB or 8GiB, not \"{text}\""));
    let (count, unit) = split_unit(text).ok_or_else(wrong)?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "tib" | "t" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    count.checked_mul(factor).ok_or_else(wrong)
}

/// Reads `100ms`, `5s`, `2min`.
fn time(key: &str, text: &str) -> Result<Duration, ConfigError> {
    let wrong = || ConfigError(format!("{key} must be a time such as 100ms or 5s, not \"{text}\""));
    let (count, unit) = split_unit(text).ok_or_else(wrong)?;
    let millis = match unit {
        "ms" => Some(count),
        "s" => count.checked_mul(1000),
        "m" | "min" => count.checked_mul(60_000),
        _ => None,
    };
    match millis {
        Some(ms @ 1..=3_600_000) => Ok(Duration::from_millis(ms)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!(size("k", "8GiB"), Ok(8 << 30));
        assert_eq!(size("k", "1500"), Ok(1500));
        assert!(size("k", "8 apples").is_err());
        assert!(size("k", "99999999999999999999").is_err());
        assert_eq!(time("k", "100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(time("k", "2min"), Ok(Duration::from_secs(120)));
        assert!(time("k", "5").is_err());
        assert!(time("k", "0s").is_err());
    }

    #[test]
    fn flags_win_and_the_source_is_told() {
        let flags = Flags { pg_listen: Some("127.0.0.1:1".into()), parallelism: Some("3".into()), ..Flags::default() };
        let config = flags.resolve().expect("valid");
        assert_eq!(config.pg_listen.port(), 1);
        assert_eq!(config.parallelism, 3);
        assert_eq!(config.http_listen.port(), 4567);
        let lines = flags.explain().expect("valid");
        assert!(lines.iter().any(|l| l.starts_with("pg_listen") && l.ends_with("# flag")), "{lines:?}");
        assert!(lines.iter().any(|l| l.starts_with("http_listen") && l.ends_with("# default")), "{lines:?}");
    }

    #[test]
    fn wrong_values_are_one_line() {
        for flags in [
            Flags { pg_listen: Some("nowhere".into()), ..Flags::default() },
            Flags { parallelism: Some("many".into()), ..Flags::default() },
            Flags { parallelism: Some("0".into()), ..Flags::default() },
            Flags { config: Some("/does/not/exist.toml".into()), ..Flags::default() },
        ] {
            let error = flags.resolve().expect_err("must be refused");
            assert_eq!(error.0.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn an_unknown_key_of_a_file_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("e.toml");
        std::fs::write(&file, "barier_interval = \"1s\"\n").expect("written");
        let error = Flags { config: Some(file), ..Flags::default() }.resolve().expect_err("must be refused");
        assert!(error.0.contains("barier_interval"), "{error}");
    }
}
