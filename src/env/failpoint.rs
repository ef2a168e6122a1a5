//! Fail points: named places where a test makes something fail, wait, or end the process.
//!
//! Set by `EDDYLINE_FAILPOINTS=name=error;other=exit(3);third=sleep(50)` or by [`set`]. Without any set, a check is one atomic load.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What happens at a fail point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The caller returns an error, the first `n` times (`u32::MAX`: always).
    Error(u32),
    /// The process ends at once, as with kill -9, at the `n`-th hit (1 = the first).
    Exit(u32),
    /// The thread sleeps so many milliseconds.
    Sleep(u64),
}

static ACTIVE: AtomicBool = AtomicBool::new(false);

fn points() -> &'static Mutex<BTreeMap<String, Action>> {
    static POINTS: OnceLock<Mutex<BTreeMap<String, Action>>> = OnceLock::new();
    POINTS.get_or_init(Mutex::default)
}

/// Sets or clears a fail point.
pub fn set(name: &str, action: Option<Action>) {
    let mut points = points().lock();
    match action {
        Some(action) => points.insert(name.to_owned(), action),
        None => points.remove(name),
    };
    ACTIVE.store(!points.is_empty(), Ordering::Release);
}

/// Reads `EDDYLINE_FAILPOINTS`; an entry that cannot be read is returned as an error text.
pub fn install_from_env() -> Result<(), String> {
    let Ok(list) = std::env::var("EDDYLINE_FAILPOINTS") else { return Ok(()) };
    for entry in list.split(';').filter(|e| !e.trim().is_empty()) {
        let (name, action) = entry.split_once('=').ok_or_else(|| format!("fail point without action: {entry}"))?;
        set(name.trim(), Some(parse(action.trim()).ok_or_else(|| format!("unknown fail point action: {entry}"))?));
    }
    Ok(())
}

fn parse(action: &str) -> Option<Action> {
    let (word, number) = match action.split_once('(') {
        Some((word, rest)) => (word, Some(rest.strip_suffix(')')?.parse::<u64>().ok()?)),
        None => (action, None),
    };
    match word {
        "error" => Some(Action::Error(number.map_or(u32::MAX, |n| n as u32))),
        "exit" => Some(Action::Exit(number.map_or(1, |n| n as u32))),
        "sleep" => Some(Action::Sleep(number?)),
        _ => None,
    }
}

/// Whether the caller must fail here. May sleep or end the process, as the action says.
pub fn hit(name: &str) -> bool {
    if !ACTIVE.load(Ordering::Acquire) {
        return false;
    }
    let action = {
        let mut points = points().lock();
        match points.get_mut(name) {
            None => return false,
            Some(Action::Error(0)) => return false,
            Some(Action::Error(n)) => {
                *n = if *n == u32::MAX { *n } else { *n - 1 };
                Action::Error(1)
            }
            Some(Action::Exit(n)) => {
                *n -= 1;
                if *n > 0 {
                    return false;
                }
                Action::Exit(0)
            }
            Some(other) => other.clone(),
        }
    };
    match action {
        Action::Error(_) => true,
        Action::Exit(_) => std::process::abort(),
        Action::Sleep(millis) => {
            std::thread::sleep(std::time::Duration::from_millis(millis));
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_parse_and_count_down() {
        assert_eq!(parse("error"), Some(Action::Error(u32::MAX)));
        assert_eq!(parse("exit(3)"), Some(Action::Exit(3)));
        assert_eq!(parse("sleep"), None);
        set("here", Some(Action::Error(2)));
        assert_eq!([hit("here"), hit("here"), hit("here")], [true, true, false]);
        set("here", None);
        assert!(!hit("here"));
    }
}
