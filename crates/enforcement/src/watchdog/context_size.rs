//! Size of a CUDA context on a GPU, learned from measurements. The guard charges a context before it is created; its
//! real size is the driver's choice.
//!
//! A measurement uses a process with one context, hardly any other memory, and a constant byte count. Containers could
//! forge it, and a forged size would cost their neighbours memory, since it also applies to their contexts. Each share
//! therefore contributes one measurement, the lower median counts, and none exceeds [`MAX_CONTEXT_BYTES`].

use std::collections::{BTreeMap, VecDeque};

use crate::share::CONTEXT_BYTES;

/// The most that a context is taken for.
pub(super) const MAX_CONTEXT_BYTES: u64 = 1 << 30;
/// Shares per GPU whose measurements are kept.
const MAX_READINGS: usize = 15;

/// Context sizes by GPU.
#[derive(Debug, Default)]
pub(super) struct ContextSizes {
    /// The latest measurements, with the names of their shares.
    by_gpu: BTreeMap<String, VecDeque<(String, u64)>>,
}

impl ContextSizes {
    /// Records a measurement of a share. The largest one counts, since a context may be measured while it is being
    /// created.
    pub(super) fn record(&mut self, gpu: &str, share: &str, bytes: u64) {
        let readings = self.by_gpu.entry(gpu.to_owned()).or_default();
        match readings.iter_mut().find(|(name, _)| name == share) {
            Some((_, known)) => *known = bytes.max(*known),
            None => readings.push_back((share.to_owned(), bytes)),
        }
        while readings.len() > MAX_READINGS {
            readings.pop_front();
        }
    }

    /// Bytes to charge for a context on a GPU; `None` before the first measurement.
    pub(super) fn bytes(&self, gpu: &str) -> Option<u64> {
        let mut readings: Vec<_> = self.by_gpu.get(gpu)?.iter().map(|(_, bytes)| *bytes).collect();
        readings.sort_unstable();
        let middle = readings.get(readings.len().saturating_sub(1) / 2)?;
        Some((*middle).clamp(CONTEXT_BYTES, MAX_CONTEXT_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn learned(readings: &[(&str, u64)]) -> Option<u64> {
        let mut contexts = ContextSizes::default();
        for (share, mebibytes) in readings {
            contexts.record("GPU-1", share, mebibytes * MIB);
        }
        contexts.bytes("GPU-1").map(|bytes| bytes / MIB)
    }

    #[test]
    fn a_context_is_what_was_seen_and_never_less_than_was_thought() {
        assert_eq!(learned(&[]), None);
        assert_eq!(learned(&[("a", 520)]), Some(520));
        assert_eq!(learned(&[("a", 14), ("a", 520), ("a", 200)]), Some(520), "half made before");
        assert_eq!(learned(&[("a", 100)]), Some(256));
        assert_eq!(ContextSizes::default().bytes("GPU-2"), None);
    }

    #[test]
    fn a_share_that_lies_costs_others_little_and_not_for_long() {
        assert_eq!(learned(&[("liar", 40_000)]), Some(1024));
        assert_eq!(learned(&[("liar", 40_000), ("a", 520)]), Some(520));
        assert_eq!(learned(&[("liar", 900), ("a", 520), ("b", 530)]), Some(530));
    }

    #[test]
    fn old_readings_make_way() {
        let names: Vec<_> = (0..40).map(|share| share.to_string()).collect();
        let mut readings: Vec<_> = names.iter().map(|name| (name.as_str(), 700)).collect();
        readings.extend(["x", "y"].map(|name| (name, 500)));
        assert_eq!(learned(&readings), Some(700));
        let later: Vec<_> = names.iter().map(|name| (name.as_str(), 500)).collect();
        assert_eq!(learned(&[readings, later].concat()), Some(500));
    }
}
