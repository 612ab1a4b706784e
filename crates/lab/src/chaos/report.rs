//! What a run showed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use octavo_term::TextTable;
use serde::Serialize;

use super::Options;
use super::judge::Judge;
use super::violation::Violation;

/// What a run showed.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    seed: u64,
    seconds: u64,
    /// Faults by kind.
    faults: BTreeMap<&'static str, u64>,
    /// Pods that had to leave a GPU.
    evictions: u64,
    /// Times in milliseconds.
    latencies: BTreeMap<&'static str, Quantiles>,
    pub(crate) violations: Vec<Violation>,
}

/// Of a number of times: the median, the 99th percentile and the longest, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Quantiles {
    count: usize,
    p50: u64,
    p99: u64,
    max: u64,
}

impl Report {
    /// The report of a run that took some time.
    pub(super) fn new(options: &Options, judge: Judge, took: Duration) -> Self {
        let latencies = [
            ("fault to taint", &judge.latencies.taint),
            ("fault to taint, a program killed", &judge.latencies.taint_disturbed),
            ("fault to eviction", &judge.latencies.eviction),
            ("out of service", &judge.latencies.out_of_service),
        ];
        let latencies =
            latencies.into_iter().filter_map(|(name, times)| Some((name, Quantiles::of(times)?)));
        Self {
            seed: options.seed,
            seconds: took.as_secs(),
            latencies: latencies.collect(),
            violations: judge.violations().to_vec(),
            evictions: judge.evictions,
            faults: judge.counts,
        }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut faults = TextTable::new(&["FAULT", "COUNT"]);
        for (name, count) in &self.faults {
            faults.plain([(*name).to_owned(), count.to_string()]);
        }
        let mut times = TextTable::new(&["TIME IN MS", "COUNT", "P50", "P99", "MAX"]);
        for (name, of) in &self.latencies {
            let numbers =
                [of.count as u64, of.p50, of.p99, of.max].map(|number| number.to_string());
            times.plain(std::iter::once((*name).to_owned()).chain(numbers));
        }
        let sum: u64 = self.faults.values().sum();
        let mut text = format!("{}\n{}\n", faults.plain_text(), times.plain_text());
        let (seed, seconds, evictions) = (self.seed, self.seconds, self.evictions);
        let _ = writeln!(
            text,
            "Seed {seed}: {sum} faults in {seconds} s, {evictions} pods had to leave a GPU, {} violations",
            self.violations.len()
        );
        for Violation { at_seconds, kind, message } in &self.violations {
            let _ = writeln!(text, "  {at_seconds} s  {kind}: {message}");
        }
        text
    }
}

impl Quantiles {
    fn of(times: &[Duration]) -> Option<Self> {
        let mut times: Vec<u64> =
            times.iter().map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).collect();
        times.sort_unstable();
        let at =
            |percent: usize| times.get((times.len() * percent).div_ceil(100).saturating_sub(1));
        let (p50, p99, max) = (*at(50)?, *at(99)?, *times.last()?);
        Some(Self { count: times.len(), p50, p99, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_times_that_were_seen() {
        let times: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        let wanted = Quantiles { count: 200, p50: 100, p99: 198, max: 200 };
        assert_eq!(Quantiles::of(&times), Some(wanted));
        let one = Quantiles { count: 1, p50: 7, p99: 7, max: 7 };
        assert_eq!(Quantiles::of(&[Duration::from_millis(7)]), Some(one));
        assert_eq!(Quantiles::of(&[]), None);
    }
}
