//! Our predicates against kube-scheduler's own filters and scores, on random clusters. For each node
//! the same filters must refuse, with the same text, and feasible nodes must score equally.
//!
//! A case is named by its seed: `OCTAVO_FILTER_SEEDS=77..78 cargo test -p octavo-oracle --test
//! filter_oracle` runs the case of seed 77 alone and prints it.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed; its numbers are small"
)]

mod case;
mod generator;
mod mutations;
mod oracle;
mod ours;
mod whole;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use octavo_oracle::{program, seeds};

use crate::case::Case;
use crate::generator::generate;
use crate::mutations::MUTATIONS;
use crate::oracle::{Answer, Filters};
use crate::ours::{Ours, decide, differences};
use crate::whole::{feasible_nodes, their_feasible_nodes};

/// Seeds of the comparison.
const SEEDS: Range<u64> = 0..8_000;

/// Filters of kube-scheduler. Each must be the only one to refuse on at least [`MIN_DECIDED_ALONE`]
/// nodes.
const FILTERS: [&str; 12] = [
    "InterPodAffinity",
    "NodeAffinity",
    "NodeName",
    "NodePorts",
    "NodeResourcesFit",
    "NodeUnschedulable",
    "NodeVolumeLimits",
    "PodTopologySpread",
    "TaintToleration",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
];
const MIN_DECIDED_ALONE: usize = 100;

/// Plugins whose scores are compared. Each must score nodes differently in as many cases.
const SCORES: [&str; 4] =
    ["InterPodAffinity", "NodeAffinity", "PodTopologySpread", "TaintToleration"];

#[test]
fn filters_agree_with_kube_scheduler() {
    let chosen = seeds::chosen("OCTAVO_FILTER_SEEDS").unwrap();
    let seeds = chosen.clone().unwrap_or(SEEDS);
    let answers = ask(&program().unwrap(), seeds.clone());
    let mut coverage = FilterCoverage::default();
    let mut failures = Vec::new();
    for (seed, theirs) in seeds.zip(&answers) {
        let case = generate(seed);
        let question = case.question();
        if chosen.is_some() {
            println!("{}", serde_json::to_string_pretty(&question).unwrap());
        }
        let ours = decide(&case);
        coverage.count(&ours);
        // A pod with a node waits for nothing.
        if case.pod.node.is_none() {
            let (whole, expected) = (feasible_nodes(&case), their_feasible_nodes(theirs));
            if whole != expected {
                let difference = format!("the scheduler takes {whole:?}, not {expected:?}");
                failures.push(format!("seed {seed}: {difference}"));
            }
        }
        // Decided both on the values themselves and on those read back from the API's JSON.
        let read = decide(&Case::read(question));
        for (what, ours) in [("read", &read), ("made", &ours)] {
            let differences = differences(ours, theirs);
            if !differences.is_empty() {
                failures.push(format!("seed {seed}, {what}: {}", differences.join("; ")));
            }
        }
    }
    println!("{coverage:?}");
    let shown = failures.iter().take(10).cloned().collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} cases differ, these among them:\n{shown}", failures.len());
    if chosen.is_none() {
        coverage.assert_covers_every_filter();
        assert_every_mutation_is_caught(&answers);
    }
}

/// kube-scheduler's results, by seed.
fn ask(program: &Path, seeds: Range<u64>) -> Vec<Answer> {
    let parts = seeds::in_parallel(seeds, |seeds| {
        let mut filters = Filters::start(program);
        seeds.map(|seed| (seed, filters.decide(seed, &generate(seed)))).collect::<Vec<_>>()
    });
    let answers: BTreeMap<_, _> = parts.into_iter().flatten().collect();
    answers.into_values().collect()
}

/// Checks that a single fault in the predicates would be caught.
fn assert_every_mutation_is_caught(answers: &[Answer]) {
    let first = |(_, mutate): &mutations::Mutation| {
        SEEDS.zip(answers).position(|(seed, theirs)| {
            let mut case = generate(seed);
            mutate(&mut case);
            !differences(&decide(&case), theirs).is_empty()
        })
    };
    let parts = seeds::in_parallel(0..MUTATIONS.len() as u64, |numbers| {
        let shown = numbers.map(|number| (number, first(&MUTATIONS[number as usize])));
        shown.collect::<Vec<_>>()
    });
    let shown: BTreeMap<_, _> = parts.into_iter().flatten().collect();
    for ((name, _), seed) in MUTATIONS.iter().zip(shown.into_values()) {
        let seed = seed.unwrap_or_else(|| panic!("predicates that {name} would pass"));
        println!("predicates that {name} fail at seed {seed}");
    }
}

/// How often each filter decided.
#[derive(Debug, Default)]
struct FilterCoverage {
    nodes: usize,
    feasible: usize,
    /// Nodes that only one filter refuses, by filter.
    alone: BTreeMap<&'static str, usize>,
    /// Cases in which a plugin scores nodes differently, by plugin.
    scored: BTreeMap<String, usize>,
}

impl FilterCoverage {
    fn count(&mut self, ours: &Ours) {
        for scores in ours.scores.iter().filter(|(_, nodes)| nodes.len() > 1) {
            let (plugin, nodes) = scores;
            let differ = nodes.values().min() != nodes.values().max();
            *self.scored.entry(plugin.clone()).or_default() += usize::from(differ);
        }
        for reasons in ours.reasons.values() {
            self.nodes += 1;
            let mut filters: Vec<_> = reasons.iter().map(ours::filter_of).collect();
            filters.dedup();
            match filters[..] {
                [] => self.feasible += 1,
                [filter] => *self.alone.entry(filter).or_default() += 1,
                _ => {}
            }
        }
    }

    fn assert_covers_every_filter(&self) {
        let percent = self.feasible * 100 / self.nodes;
        assert!((30..=70).contains(&percent), "{percent}% of the nodes are feasible");
        for filter in FILTERS {
            let alone = self.alone.get(filter).copied().unwrap_or_default();
            assert!(alone >= MIN_DECIDED_ALONE, "{filter} decides alone on {alone} nodes only");
        }
        for plugin in SCORES {
            let cases = self.scored.get(plugin).copied().unwrap_or_default();
            assert!(cases >= MIN_DECIDED_ALONE, "{plugin} matters in {cases} cases only");
        }
    }
}
