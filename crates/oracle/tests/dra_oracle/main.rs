//! Compares Octavo's allocator with Kubernetes' own on random clusters. The verdict must be the
//! same for every node, and Octavo's allocations must satisfy Kubernetes' own rules.
//!
//! A seed identifies a case: `OCTAVO_DRA_SEEDS=77..78 cargo test -p octavo-oracle --test dra_oracle`
//! runs the case of seed 77 alone. Differing cases are shrunk and printed as JSON.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::default_trait_access,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::struct_excessive_bools,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed; its numbers are small and its objects many"
)]

mod case;
mod compare;
mod divergences;
mod generator;
mod mutations;
mod oracle;
mod ours;
mod run;
mod selectors;
mod shrink;
mod traits;

use std::ops::Range;

use octavo_dra::Features;
use octavo_oracle::{program, seeds};

use crate::case::{AllocationsByNode, Verdict};
use crate::compare::compare;
use crate::divergences::DIVERGENCES;
use crate::generator::{INVALID_SELECTOR, generate};
use crate::mutations::{INPUT_FAULTS, OUTPUT_FAULTS, corrupt};
use crate::oracle::Allocator;
use crate::run::{Report, run};
use crate::traits::Trait;

/// Seeds of the comparison.
const SEEDS: Range<u64> = 0..10_000;

/// Seeds in which every planted fault must show.
const SEEDS_OF_FAULTS: Range<u64> = 0..1_500;

/// Seeds whose objects pass through the API server's validation, which compiles every selector.
const SEEDS_OF_ADMISSION: Range<u64> = 0..400;

#[test]
fn kubernetes_decides_ten_thousand_cases_as_we_do() {
    let chosen = seeds::chosen("OCTAVO_DRA_SEEDS").unwrap();
    let report = run(chosen.clone().unwrap_or(SEEDS));
    println!("{report}");
    assert!(report.failures.is_empty(), "{} cases differ: see above", report.failures.len());
    if chosen.is_none() {
        assert_cases_are_diverse(&report);
    }
}

/// A generator of easy cases would prove nothing.
fn assert_cases_are_diverse(report: &Report) {
    for first in Trait::ALL {
        let percent = report.coverage.percent(first);
        assert!(percent >= 10.0, "only {percent:.1}% of the cases have {first:?}");
        for second in Trait::ALL {
            let both = report.coverage.both(first, second);
            assert!(both > 0, "no case has both {first:?} and {second:?}");
        }
    }
    let feasible = report.percent(Verdict::Feasible);
    assert!((30.0..=70.0).contains(&feasible), "{feasible:.1}% of the verdicts are feasible");
    assert_eq!(report.count(Verdict::Timeout), 0, "a search that is given up decides nothing");
    // Known divergences are rare; more of them could hide other differences.
    assert!(report.divergences.len() * 50 < report.cases, "too many cases are excused");
    let servable = report.servable_percent();
    assert!((30.0..=70.0).contains(&servable), "{servable:.1}% of the cases can be served");
}

#[test]
fn an_api_server_would_accept_the_cases() {
    let program = program().unwrap();
    let refusals = seeds::in_parallel(SEEDS_OF_ADMISSION, |seeds| {
        let mut oracle = Allocator::start(&program);
        let refusals = seeds.map(|seed| (seed, oracle.refusals(seed, &generate(seed))));
        refusals.filter(|(_, refusals)| !refusals.is_empty()).collect::<Vec<_>>()
    });
    let refusals: Vec<_> = refusals.into_iter().flatten().collect();
    // An expression that is wrong on purpose.
    let planted = format!("Invalid value: {INVALID_SELECTOR:?}");
    let unplanned: Vec<_> = refusals
        .iter()
        .flat_map(|(seed, refusals)| refusals.iter().map(move |refusal| (seed, refusal)))
        .filter(|(_, refusal)| !refusal.contains(&planted))
        .collect();
    assert!(unplanned.is_empty(), "{unplanned:#?}");
}

#[test]
fn every_planted_fault_shows() {
    let program = program().unwrap();
    let mut oracle = Allocator::start(&program);
    for (name, blind) in INPUT_FAULTS {
        let mut shows = |seed: u64| {
            let case = generate(seed);
            let mut seen = case.clone();
            blind(&mut seen);
            let decided = ours::decide(&seen, Features::default());
            let comparison = compare(&mut oracle, seed, &case, &decided);
            !comparison.is_clean() && !divergences::is_known_divergence(&mut oracle, seed, &case)
        };
        let seed = SEEDS_OF_FAULTS.into_iter().find(|seed| shows(*seed));
        let seed = seed.unwrap_or_else(|| panic!("an allocator that {name} would pass"));
        println!("an allocator that {name} fails at seed {seed}");
    }
}

#[test]
fn every_wrong_answer_shows() {
    let program = program().unwrap();
    let mut oracle = Allocator::start(&program);
    for (name, fault) in OUTPUT_FAULTS {
        let mut shows = |seed: u64| {
            let case = generate(seed);
            let mut decided = ours::decide(&case, Features::default());
            corrupt(&mut decided, fault);
            !compare(&mut oracle, seed, &case, &decided).is_clean()
        };
        let seed = SEEDS_OF_FAULTS.into_iter().find(|seed| shows(*seed));
        let seed = seed.unwrap_or_else(|| panic!("an allocator that {name} would pass"));
        println!("an allocator that {name} fails at seed {seed}");
    }
}

#[test]
fn known_faults_of_kubernetes_are_still_there() {
    let mut oracle = Allocator::start(&program().unwrap());
    for divergence in DIVERGENCES {
        let case = (divergence.case)();
        assert_eq!(oracle.refusals(0, &case), [""; 0]);
        let theirs = oracle.decide(0, &case, &AllocationsByNode::new()).nodes[0].verdict;
        let (issue, about) = (divergence.issue, divergence.about);
        assert_eq!(theirs, divergence.theirs, "{issue}: {about}: corrected? Then the entry goes.");
        let ours = ours::decide(&case, Features::default())[0].verdict;
        assert_eq!(ours, divergence.ours, "{issue}: {about}");
    }
}
