//! Asks the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_engine::cluster::states::NodeState;
use octavo_engine::decision::{Reason, Refusal, Remedy};
use octavo_engine::disturb::{self, Allowance};
use octavo_engine::explain::{self, Explanation, RemedySaid};
use octavo_engine::fragmentation::{Left, Typical};
use octavo_engine::objective::cost::{Measured, Meter, PolicyJudge};
use octavo_engine::objective::fairness::FairShares;
use octavo_engine::repair::{self, Means};
use octavo_engine::snapshot::Snapshot;
use octavo_engine::solve::{NodeSet, Pinned, Request, Solver};
use octavo_engine::{Cluster, Gang, Shape, World};

use super::failed::{self, Loss};
use super::{API_VERSION, Answer, Answers, Question, WhatifError, asked, hash};

/// Answers a question. The same document and question give the same bytes.
pub fn answer(cluster: &Snapshot, question: &Question) -> Result<Answers, WhatifError> {
    let mut world = cluster.world()?;
    let gangs =
        Snapshot { waiting: question.gangs.clone(), ..Snapshot::default() }.gangs(&world)?;
    if let Some(taken) =
        gangs.iter().find(|gang| world.workloads.named(&gang.profile.name).is_some())
    {
        return Err(WhatifError::NameTaken(taken.profile.name.to_string()));
    }
    let waiting = cluster.gangs(&world)?;
    question.policy.check(&world)?;
    if gangs.is_empty() && question.fail.is_empty() {
        return Err(WhatifError::Nothing);
    }
    let lost = failed::fail(&mut world, &question.fail)?;
    let wanted =
        if gangs.is_empty() { lost } else { gangs.into_iter().map(Loss::new_gang).collect() };
    if wanted.is_empty() {
        return Err(WhatifError::NothingLost(question.fail.join(", ")));
    }
    let weights = cluster.tenants.iter().map(|(name, weight)| (name.as_str().into(), *weight));
    let typical = typical(&world, wanted.iter().map(|loss| &loss.gang).chain(&waiting));
    let mut asker = Asker {
        question,
        weights: weights.collect(),
        waiting,
        typical,
        solver: Solver::default(),
        meter: Meter::default(),
    };
    let mut answers = Vec::new();
    for loss in &wanted {
        answers.push(asker.one(&mut world, loss)?);
    }
    Ok(Answers {
        api_version: API_VERSION.to_owned(),
        kind: "WhatIf".to_owned(),
        synthetic: cluster.synthetic,
        asked: asked(cluster, question)?,
        hash: hash(&answers)?,
        answers,
    })
}

/// What is kept from one gang to the next.
struct Asker<'a> {
    question: &'a Question,
    weights: BTreeMap<Arc<str>, u32>,
    waiting: Vec<Gang>,
    typical: Typical,
    solver: Solver,
    meter: Meter,
}

impl Asker<'_> {
    /// Answers for one gang and puts it where the answer says.
    fn one(&mut self, world: &mut World, loss: &Loss) -> Result<Answer, WhatifError> {
        let Loss { gang, pinned, .. } = loss;
        let policy = &self.question.policy;
        let shares = self.shares(world, gang, pinned);
        self.meter.read(world);
        let (typical, meter) = (&self.typical, &self.meter);
        let price = |cluster: &Cluster, before: &NodeState, after: &NodeState| {
            // What is stranded, in millionths: nobody asks here for a packing policy's own price.
            stranded(typical, cluster, before, after).saturating_mul(1000)
        };
        let figures = Measured { typical, price };
        let judge = PolicyJudge::new(world, policy, &figures, &shares, meter)?;
        let allowance = self.question.allowance(gang);
        let solver = &mut self.solver;
        let all = NodeSet::new();
        let request = Request { gang, pinned, forbidden: &all, within: None };
        let mut means = Means { solver: &mut *solver, judge: &judge };
        let found = repair::admit(world, &mut means, &request, &allowance).map_err(|refusal| {
            let remedy = raised(&refusal.reason).or(refusal.remedy);
            Refusal { remedy, ..refusal }
        });
        let mut disturbance = None;
        if let (Err(refusal), true) = (&found, policy.is_preempting())
            && !matches!(refusal.reason, Reason::Spares { .. } | Reason::Constraint { .. })
        {
            let request = Request { gang, pinned, forbidden: &all, within: None };
            let remedy = disturb::cheapest_remedy(world, &request, Allowance::STEPS, &judge);
            disturbance = remedy.and_then(|remedy| {
                let with = Refusal { remedy: Some(remedy), ..refusal.clone() };
                remedy_of(explain::answer(world, policy, gang, &Err(with)))
            });
        }
        let found = found.map(|plan| loss.with_own_ranks(plan));
        let explanation = explain::answer(world, policy, gang, &found);
        if let Ok(plan) = &found {
            repair::apply(world, gang, plan)?;
        }
        Ok(Answer { explanation, disturbance })
    }

    /// Who has, wants and deserves what.
    fn shares(&self, world: &World, gang: &Gang, pinned: &[Pinned]) -> FairShares {
        let mut waiting: BTreeMap<Arc<str>, i64> = BTreeMap::new();
        let waits = self.waiting.iter().filter(|other| {
            other.profile.name != gang.profile.name
                && world.workloads.named(&other.profile.name).is_none()
        });
        let held: i64 = pinned
            .iter()
            .flat_map(|pin| &pin.placement.gpus)
            .map(|part| i64::from(part.milli))
            .sum();
        for (one, held) in waits.map(|other| (other, 0)).chain([(gang, held)]) {
            let milli = milli(world, one).saturating_sub(held);
            let of_tenant = waiting.entry(Arc::clone(&one.profile.tenant)).or_default();
            *of_tenant = of_tenant.saturating_add(milli.max(0));
        }
        let capacity = world.cluster.totals().gpu_milli;
        FairShares::of(capacity, &world.workloads, &self.weights, &waiting)
    }
}

impl Question {
    /// Whom an answer may disturb.
    fn allowance(&self, gang: &Gang) -> Allowance {
        let evictions = if self.evictions {
            Allowance::evictions_below(gang.profile.priority)
        } else {
            Allowance::nothing()
        };
        Allowance { moves: self.moves, ..evictions }
    }
}

/// What a limit of the policy would have to be.
fn raised(reason: &Reason) -> Option<Remedy> {
    match reason {
        Reason::Constraint { unit, found, .. } => Some(Remedy::Constraint { unit, to: *found }),
        Reason::Spares { found, .. } => {
            Some(Remedy::Constraint { unit: "spare nodes", to: *found })
        }
        _ => None,
    }
}

fn remedy_of(explanation: Explanation) -> Option<RemedySaid> {
    match explanation {
        Explanation::Refused(refusal) => refusal.remedy,
        Explanation::Placed(_) => None,
    }
}

/// Typical pods: those that run and those that want to.
fn typical<'a>(world: &World, gangs: impl Iterator<Item = &'a Gang>) -> Typical {
    let members = world.workloads.iter().flat_map(|(_, workload)| &workload.members);
    let running = members.flatten().map(|member| (&*member.shape, 1));
    let groups = gangs.flat_map(|gang| &gang.groups);
    let wanted = groups.map(|group| (&*group.shape, u64::from(group.count)));
    Typical::new(world.cluster.models(), running.chain(wanted))
}

fn stranded(typical: &Typical, cluster: &Cluster, before: &NodeState, after: &NodeState) -> i64 {
    let amounts = |state| typical.amounts(&Left::of_state(cluster, state));
    amounts(after).minus(&amounts(before)).rounded_fragment()
}

/// Compute that a gang asks for; of a MIG profile what it is on the first model that has it.
fn milli(world: &World, gang: &Gang) -> i64 {
    let of_shape = |shape: &Shape| match &shape.gpus {
        octavo_engine::GpuDemand::Mig { count, profile } => {
            let profiles = world.cluster.models().iter().find_map(|model| model.profile(profile));
            profiles.map_or(0, |profile| i64::from(profile.milli)) * i64::from(*count)
        }
        gpus => gpus.total_milli(),
    };
    let of_group = |group: &octavo_engine::Group| {
        of_shape(&group.shape).saturating_mul(i64::from(group.count))
    };
    gang.groups.iter().map(of_group).fold(0, i64::saturating_add)
}
