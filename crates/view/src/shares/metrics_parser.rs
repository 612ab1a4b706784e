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
        match name {
            "memory_limit_bytes" => figures.limit_bytes = value,
            "memory_used_bytes" => figures.used_bytes = value,
            "memory_driver_bytes" => figures.driver_bytes = value,
            "memory_untracked_bytes" => figures.untracked_bytes = value,
            "memory_peak_bytes" => figures.peak_bytes = value,
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

/// One line: name without the prefix, labels of the share, value.
fn sample(line: &str) -> Option<(&str, ShareKey, u64)> {
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
    // Some exporters write whole numbers with a decimal point.
    let whole = value.strip_suffix(".0").unwrap_or(value);
    Some((name, key, whole.parse().ok()?))
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
