//! Comparing many cases, on all cores.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use octavo_dra::Features;
use octavo_oracle::program;
use octavo_oracle::seeds::in_parallel;

use crate::case::{Case, Verdict};
use crate::compare::{Comparison, compare};
use crate::divergences;
use crate::generator::generate;
use crate::oracle::Allocator;
use crate::ours;
use crate::shrink::shrink;
use crate::traits::{Coverage, traits};

/// Largest number of failures that are shrunk and printed.
const MAX_SHOWN_FAILURES: usize = 2;

/// Result of many cases.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) cases: usize,
    servable: usize,
    verdicts: BTreeMap<Verdict, usize>,
    identical: usize,
    different_devices: usize,
    pub(crate) divergences: Vec<u64>,
    pub(crate) coverage: Coverage,
    /// Seeds of differing cases, with the differences.
    pub(crate) failures: Vec<(u64, Vec<String>)>,
    /// The first of them, shrunk.
    shown: Vec<String>,
}

/// Compares the cases of these seeds.
pub(crate) fn run(seeds: Range<u64>) -> Report {
    let program = program().unwrap();
    let parts = in_parallel(seeds, |seeds| {
        let mut oracle = Allocator::start(&program);
        let mut report = Report::default();
        for seed in seeds {
            report.compare(&mut oracle, seed);
        }
        report
    });
    let mut report = Report::default();
    for part in parts {
        report.add(part);
    }
    report.failures.sort();
    report.divergences.sort_unstable();
    report
}

impl Report {
    /// Number of occurrences of a verdict.
    pub(crate) fn count(&self, verdict: Verdict) -> usize {
        self.verdicts.get(&verdict).copied().unwrap_or_default()
    }

    /// Share of a verdict among all verdicts, in percent.
    pub(crate) fn percent(&self, verdict: Verdict) -> f64 {
        let all: usize = self.verdicts.values().sum();
        self.count(verdict) as f64 * 100.0 / all.max(1) as f64
    }

    /// Share of the cases that some node can serve, in percent.
    pub(crate) fn servable_percent(&self) -> f64 {
        self.servable as f64 * 100.0 / self.cases.max(1) as f64
    }

    fn compare(&mut self, oracle: &mut Allocator, seed: u64) {
        let case = generate(seed);
        let comparison = decide_and_compare(oracle, seed, &case);
        self.cases += 1;
        self.coverage.count(&traits(&case));
        self.servable += usize::from(comparison.verdicts.contains(&Verdict::Feasible));
        for verdict in &comparison.verdicts {
            *self.verdicts.entry(*verdict).or_default() += 1;
        }
        self.identical += comparison.identical;
        self.different_devices += comparison.different_devices.len();
        if !comparison.is_clean() {
            if divergences::is_known_divergence(oracle, seed, &case) {
                self.divergences.push(seed);
                return;
            }
            if self.shown.len() < MAX_SHOWN_FAILURES {
                self.shown.push(small(oracle, seed, &case));
            }
            self.failures.push((seed, comparison.all()));
        }
    }

    fn add(&mut self, part: Self) {
        self.cases += part.cases;
        self.servable += part.servable;
        for (verdict, count) in part.verdicts {
            *self.verdicts.entry(verdict).or_default() += count;
        }
        self.identical += part.identical;
        self.different_devices += part.different_devices;
        self.divergences.extend(part.divergences);
        self.coverage.add(&part.coverage);
        self.failures.extend(part.failures);
        self.shown.extend(part.shown);
    }
}

fn decide_and_compare(oracle: &mut Allocator, seed: u64, case: &Case) -> Comparison {
    compare(oracle, seed, case, &ours::decide(case, Features::default()))
}

/// The shrunk case with its differences, for people.
fn small(oracle: &mut Allocator, seed: u64, case: &Case) -> String {
    let admitted = oracle.refusals(seed, case).is_empty();
    let smallest = shrink(case, |case| {
        (!admitted || oracle.refusals(seed, case).is_empty())
            && !decide_and_compare(oracle, seed, case).is_clean()
            && !divergences::is_known_divergence(oracle, seed, case)
    });
    let comparison = decide_and_compare(oracle, seed, &smallest);
    format!(
        "seed {seed}, made small: {}\n{}",
        comparison.all().join("\n"),
        serde_json::to_string_pretty(&smallest).unwrap()
    )
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.coverage.table())?;
        let verdicts: usize = self.verdicts.values().sum();
        writeln!(f, "{} cases, {verdicts} verdicts:", self.cases)?;
        for verdict in self.verdicts.keys() {
            writeln!(f, "  {verdict:?} {:.1}%", self.percent(*verdict))?;
        }
        writeln!(f, "  {:.1}% of the cases can be served", self.servable_percent())?;
        let both = self.identical + self.different_devices;
        let identical = self.identical as f64 * 100.0 / both.max(1) as f64;
        writeln!(f, "where both can serve: {identical:.2}% of {both} the very same allocation")?;
        let known = &self.divergences;
        writeln!(f, "known divergences: {} cases, seeds {known:?}", known.len())?;
        for shown in &self.shown {
            writeln!(f, "\n{shown}")?;
        }
        for (seed, differences) in self.failures.iter().take(40) {
            writeln!(f, "seed {seed}: {}", differences.join("; "))?;
        }
        Ok(())
    }
}
