//! Many runs in parallel.

use std::num::NonZeroUsize;

use super::outcome::Outcome;
use super::policy::Policy;
use super::simulation::simulate;
use super::study::Study;
use crate::replay::jobs;

/// A study under a policy.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The study.
    pub study: &'a Study,
    /// The policy.
    pub policy: Policy,
}

/// For each plan the outcomes of all seeds, in order. They do not depend on the number of threads.
pub fn run(plans: &[Plan<'_>], seeds: &[i64], jobs: NonZeroUsize) -> Vec<Vec<Outcome>> {
    if seeds.is_empty() {
        return plans.iter().map(|_| Vec::new()).collect();
    }
    let one = |index: usize| {
        let plan = plans[index / seeds.len()];
        simulate(plan.study, plan.policy, seeds[index % seeds.len()].cast_unsigned())
    };
    let outcomes = jobs::in_order(plans.len() * seeds.len(), jobs, one);
    outcomes.chunks(seeds.len()).map(<[Outcome]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::span::Span;
    use crate::faults::study::Length;

    #[test]
    fn outcomes_depend_on_the_seed_only() {
        let mut study = Study::default();
        study.job.length = Length::Elapsed(Span::days(5));
        let plan = |policy| Plan { study: &study, policy };
        let plans = [plan(Policy::Octavo), plan(Policy::RequeueAll)];
        let alone = run(&plans, &[1, 2, 3], NonZeroUsize::MIN);
        assert_eq!(alone.len(), 2);
        for jobs in [2, 5] {
            assert_eq!(run(&plans, &[1, 2, 3], NonZeroUsize::new(jobs).unwrap()), alone);
        }
        assert_ne!(alone[0][0], alone[0][1]);
        assert_eq!(run(&plans[..1], &[3], NonZeroUsize::MIN), [vec![alone[0][2]]]);
        assert_eq!(run(&plans[..1], &[], NonZeroUsize::MIN), [Vec::new()]);
    }
}
