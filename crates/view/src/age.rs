//! Ages as kubectl writes them.

use jiff::Timestamp;

/// How long ago something was, in the largest two units, as kubectl writes it: `3m12s`, `2d4h`.
pub(crate) fn age(at: Timestamp, now: Timestamp) -> String {
    span(now.as_second().saturating_sub(at.as_second()))
}

/// A length of time in its largest two units; one below zero counts as none.
pub(crate) fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, 10..) => format!("{minutes}m"),
        (0, 0, _) => two(minutes, "m", seconds % 60, "s"),
        (0, ..) => two(hours, "h", minutes % 60, "m"),
        (1..10, ..) => two(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

/// Two units; the smaller one only if it is not zero.
fn two(large: i64, unit: &str, small: i64, part: &str) -> String {
    if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{part}") }
}

#[cfg(test)]
mod tests;
