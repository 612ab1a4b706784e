//! The published figures, each with the study that should give it.

use super::fleets;
use crate::faults::outcome::Outcome;
use crate::faults::policy::Policy;
use crate::faults::span::Span;
use crate::faults::study::Study;

/// A published figure and how to get it.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is compared.
    pub name: &'static str,
    /// The fleet and the job.
    pub study: Study,
    /// The policy.
    pub policy: Policy,
    /// What is compared.
    pub figure: Figure,
    /// The published figure.
    pub published: f64,
    /// How far the simulator may be from it.
    pub allowed: f64,
    /// Seeds that make the mean steady.
    pub seeds: u32,
}

/// A figure of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Hours until the job has ended.
    Hours,
    /// The effective training time ratio.
    Ettr,
    /// Failures.
    Failures,
    /// Hours of computing between two failures.
    HoursBetween,
    /// 1 if the job has failed.
    HasFailed,
    /// 1 if the job never waited for a server.
    NeverWaits,
}

impl Figure {
    /// The figure of a run, if the run has one.
    pub fn of(self, outcome: &Outcome) -> Option<f64> {
        let flag = |is_true: bool| Some(f64::from(u8::from(is_true)));
        match self {
            Self::Hours => outcome.is_finished.then(|| outcome.hours()),
            Self::Ettr => Some(outcome.ettr()),
            Self::Failures => Some(outcome.failures()),
            Self::HoursBetween => outcome.hours_between_failures(),
            Self::HasFailed => flag(outcome.failures > 0),
            Self::NeverWaits => flag(outcome.waits == 0),
        }
    }
}

/// All of them.
pub fn all() -> Vec<Case> {
    let mut cases = airesim();
    cases.extend(rsc());
    cases.extend(others());
    cases
}

fn airesim() -> Vec<Case> {
    let hours = |name, study, policy, published: f64, percent: f64, seeds| {
        let allowed = published * percent / 100.0;
        Case { name, study, policy, figure: Figure::Hours, published, allowed, seeds }
    };
    let hard =
        |name, policy, published| hours(name, fleets::hard_repairs(), policy, published, 1.0, 120);
    vec![
        hours("AIReSim Table I, hours", fleets::table_1(), Policy::List, 9866.0, 0.5, 10),
        hard("AIReSim list order, hours", Policy::List, 2208.7),
        hard("AIReSim list order, 2 in 7 days, hours", Policy::ListWindow, 2146.5),
        hard("AIReSim list order, 2 in all, hours", Policy::ListLifetime, 2050.4),
        hard("AIReSim fewest failures, hours", Policy::Fewest, 2122.5),
        hard("AIReSim fewest failures, 2 in 7 days, hours", Policy::FewestWindow, 2090.4),
        hard("AIReSim fewest failures, 2 in all, hours", Policy::FewestLifetime, 2065.9),
    ]
}

fn rsc() -> Vec<Case> {
    let requeue = |name, study, figure, published, allowed, seeds| {
        let policy = Policy::RequeueAll;
        Case { name, study, policy, figure, published, allowed, seeds }
    };
    let ettr = |name, study, published| requeue(name, study, Figure::Ettr, published, 0.02, 10);
    let between = |name, study, published| {
        requeue(name, study, Figure::HoursBetween, published, published * 0.03, 10)
    };
    let lemons = |name, has_lemons, published, allowed| Case {
        name,
        study: fleets::rsc_lemons(has_lemons),
        policy: Policy::Uniform,
        figure: Figure::HasFailed,
        published,
        allowed,
        seeds: 10_000,
    };
    vec![
        between("RSC 16,384 GPUs, hours between failures", fleets::rsc(2048, 90, 60, 5), 1.8),
        between("RSC 131,072 GPUs, hours between failures", fleets::rsc(16_384, 2, 5, 5), 0.23),
        ettr("RSC 16,384 GPUs, checkpoints each 60 min, ETTR", fleets::rsc(2048, 90, 60, 5), 0.70),
        ettr("RSC 16,384 GPUs, checkpoints each 5 min, ETTR", fleets::rsc(2048, 90, 5, 5), 0.93),
        ettr("RSC 8,192 GPUs, checkpoints each 30 min, ETTR", fleets::rsc(1024, 90, 30, 6), 0.90),
        lemons("RSC jobs of 512 GPUs that fail, with lemons", true, 0.14, 0.02),
        lemons("RSC jobs of 512 GPUs that fail, without", false, 0.04, 0.01),
    ]
}

fn others() -> Vec<Case> {
    let llama = |name, figure, published, allowed| Case {
        name,
        study: fleets::llama(),
        policy: Policy::RequeueAll,
        figure,
        published,
        allowed,
        seeds: 30,
    };
    let delta = |name, more, repair| Case {
        name,
        study: fleets::delta(more, repair),
        policy: Policy::SwapAll,
        figure: Figure::NeverWaits,
        published: 0.999,
        // One server more or less is 0.7 % of the fleet, which is finer than the published shares.
        allowed: 0.01,
        seeds: 4000,
    };
    vec![
        // Two standard deviations of a Poisson count.
        llama("Llama 3, failures in 54 days", Figure::Failures, 419.0, 2.0 * 20.47),
        // Published is "above 0.9".
        llama("Llama 3, ETTR between 0.9 and 1", Figure::Ettr, 0.95, 0.05),
        delta("Delta, 5 % spares and 2.2 h: months without a wait", 8, Span::minutes(132)),
        delta("Delta, 2 % spares and 5 min: months without a wait", 3, Span::minutes(5)),
    ]
}
