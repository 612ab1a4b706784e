//! Parses figures of shares from an agent's metrics (`OpenMetrics`). Unknown lines are ignored: an
//! agent has other metrics, and a newer agent has more.

use std::collections::BTreeMap;

use super::{GateState, ShareFigures};

/// Which share a figure is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShareKey {
    /// Node.
    pub node: String,
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub claim: String,
    /// Id of the share.
    pub share: String,
}

/// Common prefix of all metrics of shares.
const PREFIX: &str = "octavo_agent_share_";

/// Reads the figures of an agent's metrics.
pub fn parse(text: &str) -> BTreeMap<ShareKey, ShareFigures> {
    let mut found: BTreeMap<ShareKey, ShareFigures> = BTreeMap::new();
    for line in text.lines() {
        let Some((name, key, value)) = sample(line) else { continue };
        let figures = found.entry(key).or_default();
        if let Some(name) = name.strip_prefix("time_") {
            let time = figures.time.get_or_insert_default();
            match name {
                "used_seconds_total" => time.used_ms = value.milli,
                "waited_seconds_total" => time.waited_ms = value.milli,
                "throttled_seconds_total" => time.throttled_ms = value.milli,
                "debt_seconds" => time.debt_ms = value.milli,
                _ => {}
            }
            continue;
        }
        let value = value.whole;
        match name {
            "memory_limit_bytes" => figures.limit_bytes = value,
            "memory_used_bytes" => figures.used_bytes = value,
            "memory_driver_bytes" => figures.driver_bytes = value,
            "memory_untracked_bytes" => figures.untracked_bytes = value,
            "memory_peak_bytes" => figures.peak_bytes = value,
            "memory_swapped_bytes" => figures.swapped_bytes = Some(value),
            "processes" => figures.processes = value,
            "refused_allocations_total" => figures.refused = value,
            "unknown_calls_total" => figures.unknown_calls = value,
            "overflows_total" => figures.overflows = figures.overflows.saturating_add(value),
            "gate" => {
                figures.gate = match value {
                    0 => GateState::Open,
                    1 => GateState::Held,
                    2 => GateState::Fenced,
                    _ => GateState::Unknown,
                }
            }
            _ => {}
        }
    }
    // A share that has counters and no limit is not known to its agent any more.
    found.retain(|_, figures| figures.limit_bytes > 0);
    found
}

/// The number of a sample.
#[derive(Clone, Copy)]
struct Number {
    /// Without its decimals.
    whole: u64,
    /// In thousandths.
    milli: u64,
}

/// One line: name without the prefix, labels of the share, value.
fn sample(line: &str) -> Option<(&str, ShareKey, Number)> {
    let (name, rest) = line.strip_prefix(PREFIX)?.split_once('{')?;
    let (mut key, mut rest) = (ShareKey::default(), rest);
    while !rest.starts_with('}') {
        let (label, behind) = rest.split_once("=\"")?;
        let (value, behind) = quoted(behind)?;
        match label {
            "node" => key.node = value,
            "namespace" => key.namespace = value,
            "claim" => key.claim = value,
            "share" => key.share = value,
            _ => {}
        }
        rest = behind.strip_prefix(',').unwrap_or(behind);
    }
    let value = rest.strip_prefix('}')?.split_whitespace().next()?;
    Some((name, key, number(value)?))
}

/// A decimal number that is not negative.
fn number(text: &str) -> Option<Number> {
    // Some exporters write whole numbers with a decimal point.
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let whole: u64 = whole.parse().ok()?;
    let is_plain = decimals.bytes().all(|digit| digit.is_ascii_digit());
    let thousandths: String = decimals.chars().chain("000".chars()).take(3).collect();
    let milli = whole.checked_mul(1_000)?.checked_add(thousandths.parse().ok()?)?;
    is_plain.then_some(Number { whole, milli })
}

/// A value up to its closing quotation mark, and the text after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    loop {
        match characters.next()? {
            (at, '"') => return Some((value, &text[at + 1..])),
            (_, '\\') => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            (_, other) => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests;
