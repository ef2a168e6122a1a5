//! Logging: one line per event on standard error, filtered by the `log` setting.

use crate::config::ConfigError;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Installs the logger for the process; a filter that cannot be read is an error. Later calls keep the first logger.
pub fn install(filter: &str) -> Result<(), ConfigError> {
    let filter = EnvFilter::try_new(filter).map_err(|e| ConfigError(format!("log must be a level or a filter: {e}")))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    let _ = builder.try_init();
    Ok(())
}
