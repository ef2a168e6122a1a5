//! What the operating system says of this process: CPU time of all threads, and peak memory.

/// Clock ticks per second of `/proc/self/stat`; fixed at 100 on Linux for user space.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU seconds, user and system, of all threads since the start.
pub fn cpu_seconds() -> f64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/stat") else { return f64::NAN };
    // The second field is the program's name in parentheses and may hold spaces: count from behind it.
    let Some((_, rest)) = text.rsplit_once(')') else { return f64::NAN };
    let ticks = |index: usize| rest.split_whitespace().nth(index).and_then(|f| f.parse::<f64>().ok()).unwrap_or(f64::NAN);
    (ticks(11) + ticks(12)) / TICKS_PER_SECOND
}

/// Largest resident set since the start, in bytes.
pub fn peak_rss_bytes() -> u64 {
    status_kib("VmHWM:") * 1024
}

/// Resident set now, in bytes.
pub fn rss_bytes() -> u64 {
    status_kib("VmRSS:") * 1024
}

fn status_kib(key: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with(key));
    line.and_then(|l| l.split_whitespace().nth(1)).and_then(|n| n.parse().ok()).unwrap_or(0)
}
