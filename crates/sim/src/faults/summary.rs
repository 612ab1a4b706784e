//! A policy over its seeds.

use serde::Serialize;

use super::number::float;
use super::outcome::Outcome;
use super::policy::Policy;
use super::study::Study;
use crate::metrics::summary::Spread;

/// Figures of a policy over its seeds. Runs that did not end count in `unfinished` alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The policy.
    pub policy: Policy,
    /// The effective training time ratio: computing time that was not lost, of all time.
    pub ettr: Spread,
    /// GPU-hours of the job in which it made no progress.
    pub lost_gpu_hours: Spread,
    /// Hours from start to end.
    pub hours: Spread,
    /// Failures of servers.
    pub failures: Spread,
    /// Interruptions after which lost servers were replaced.
    pub swaps: Spread,
    /// Interruptions after which all servers were chosen again.
    pub requeues: Spread,
    /// How often the job waited for a repair.
    pub waits: Spread,
    /// Spares that were fetched.
    pub fetched: Spread,
    /// Servers that left for good.
    pub retired: Spread,
    /// Runs that did not end: too few servers were left, or failures came faster than checkpoints.
    pub unfinished: usize,
}

impl Summary {
    /// Of the outcomes of a study under one policy.
    pub fn of(policy: Policy, study: &Study, outcomes: &[Outcome]) -> Self {
        let finished = || outcomes.iter().filter(|outcome| outcome.is_finished);
        let spread = |figure: &dyn Fn(&Outcome) -> f64| {
            Spread::of(finished().map(|outcome| Some(figure(outcome)))).unwrap_or_default()
        };
        Self {
            policy,
            ettr: spread(&Outcome::ettr),
            lost_gpu_hours: spread(&|outcome| outcome.lost_gpu_hours(study)),
            hours: spread(&Outcome::hours),
            failures: spread(&|outcome| float(outcome.failures)),
            swaps: spread(&|outcome| float(outcome.swaps)),
            requeues: spread(&|outcome| float(outcome.requeues)),
            waits: spread(&|outcome| float(outcome.waits)),
            fetched: spread(&|outcome| float(outcome.fetched)),
            retired: spread(&|outcome| float(outcome.retired)),
            unfinished: outcomes.len() - finished().count(),
        }
    }

    /// Whether the job loses less than under another policy. An unfinished run loses most.
    pub fn is_better_than(&self, other: &Self) -> bool {
        (self.unfinished, self.lost_gpu_hours.mean) < (other.unfinished, other.lost_gpu_hours.mean)
    }
}

/// The best policy, apart from the oracle, which knows too much.
pub fn best(summaries: &[Summary]) -> Option<&Summary> {
    summaries
        .iter()
        .filter(|summary| summary.policy != Policy::Oracle)
        .reduce(|best, other| if other.is_better_than(best) { other } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(computed: u64, is_finished: bool) -> Outcome {
        let (elapsed_ms, computed_ms) = (3_600_000, computed);
        Outcome { is_finished, elapsed_ms, computed_ms, failures: 2, ..Outcome::default() }
    }

    #[test]
    fn figures_are_means_of_finished_runs() {
        let mut study = Study::default();
        study.job.servers = 10;
        let outcomes = [outcome(1_800_000, true), outcome(3_600_000, true), outcome(0, false)];
        let summary = Summary::of(Policy::Octavo, &study, &outcomes);
        assert!((summary.ettr.mean - 0.75).abs() < 1e-9);
        assert!((summary.lost_gpu_hours.mean - 20.0).abs() < 1e-9, "{summary:?}");
        assert!((summary.failures.mean - 2.0).abs() < 1e-9);
        assert_eq!(summary.unfinished, 1);
    }

    #[test]
    fn the_best_loses_least_and_always_ends() {
        let of = |policy, computed, ends| {
            Summary::of(policy, &Study::default(), &[outcome(computed, ends)])
        };
        let all = [
            of(Policy::SwapAll, 3_000_000, true),
            of(Policy::Octavo, 3_100_000, true),
            of(Policy::ListLifetime, 0, false),
            of(Policy::Oracle, 3_500_000, true),
        ];
        assert_eq!(best(&all).map(|best| best.policy), Some(Policy::Octavo));
        assert!(best(&[]).is_none());
    }
}
