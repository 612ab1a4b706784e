//! Asks the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_engine::explain;
use octavo_engine::plan::{self, Reason};
use octavo_engine::planner::{DecisionInput, Planner};
use octavo_engine::preemption::PreemptionBudget;
use octavo_engine::snapshot::{Snapshot, nodes_named};
use octavo_engine::solve::NodeSet;
use octavo_engine::{Gang, World};

use super::node_failure::{self, GangRequest};
use super::{API_VERSION, Answer, Answers, Question, WhatifError, asked, hash};

/// Answers a question. The same document and question give the same bytes.
pub fn answer(cluster: &Snapshot, question: &Question) -> Result<Answers, WhatifError> {
    let mut world = cluster.world()?;
    let gangs =
        Snapshot { waiting: question.gangs.clone(), ..Snapshot::default() }.gangs(&world)?;
    let pinned: Vec<_> =
        question.pinned.iter().map(|form| form.pinned(&world)).collect::<Result<_, _>>()?;
    let is_running = |gang: &&Gang| world.workloads.named(&gang.profile.name).is_some();
    if !pinned.is_empty() && gangs.len() != 1 {
        return Err(WhatifError::PinnedOfMany(gangs.len()));
    }
    // A gang with pinned members runs already.
    if let Some(taken) = gangs.iter().find(is_running).filter(|_| pinned.is_empty()) {
        return Err(WhatifError::NameTaken(taken.profile.name.to_string()));
    }
    let forbidden = nodes_named(&question.forbidden, &world)?;
    let waiting = cluster.gangs(&world)?;
    question.policy.check(&world)?;
    if gangs.is_empty() && question.fail.is_empty() {
        return Err(WhatifError::Nothing);
    }
    let lost = node_failure::fail_nodes(&mut world, &question.fail)?;
    let wanted = if gangs.is_empty() {
        lost
    } else {
        gangs.into_iter().map(|gang| GangRequest::with_pinned(gang, pinned.clone())).collect()
    };
    if wanted.is_empty() {
        return Err(WhatifError::NothingLost(question.fail.join(", ")));
    }
    let weights = cluster.tenants.iter().map(|(name, weight)| (name.as_str().into(), *weight));
    let planner = match (&cluster.packing, question.packing) {
        (Some(learned), true) => Planner::restored(learned, &world.cluster)?,
        (None, true) => Planner::default(),
        (_, false) => Planner::without_packing(),
    };
    let mut session =
        QuestionSession { question, forbidden, weights: weights.collect(), waiting, planner };
    let mut answers = Vec::new();
    for request in &wanted {
        answers.push(session.answer_gang(&mut world, request)?);
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

/// State that is kept between the gangs of a question.
struct QuestionSession<'a> {
    question: &'a Question,
    forbidden: NodeSet,
    weights: BTreeMap<Arc<str>, u32>,
    waiting: Vec<Gang>,
    planner: Planner,
}

impl QuestionSession<'_> {
    /// Answers for one gang and applies the plan to the world.
    fn answer_gang(
        &mut self,
        world: &mut World,
        request: &GangRequest,
    ) -> Result<Answer, WhatifError> {
        let GangRequest { gang, pinned, .. } = request;
        let policy = &self.question.policy;
        let preemption_budget = self.question.preemption_budget(gang);
        let case = DecisionInput {
            gang,
            pinned,
            forbidden: &self.forbidden,
            preemption_budget: &preemption_budget,
            policy,
            waiting: &self.waiting,
            weights: &self.weights,
        };
        let found = self.planner.decide(world, &case)?;
        let mut disturbance = None;
        if let (Err(refusal), true) = (&found, policy.is_preempting())
            && !matches!(refusal.reason, Reason::Spares { .. } | Reason::Constraint { .. })
        {
            let priority = gang.profile.priority;
            let (plan, _) = Planner::cheapest_disruption(world, &case, priority)?;
            disturbance = plan.map(|plan| explain::disruption(world, policy, &plan));
        }
        let found = found.map(|plan| request.with_workload_ranks(plan));
        let explanation = explain::answer(world, policy, gang, &found);
        if let Ok(plan) = &found
            && self.question.pinned.is_empty()
        {
            // For the next gang. A question with pinned members has only one gang.
            plan::apply(world, gang, plan)?;
        }
        Ok(Answer { explanation, disturbance })
    }
}

impl Question {
    /// The disruption that an answer may cause.
    fn preemption_budget(&self, gang: &Gang) -> PreemptionBudget {
        let evictions = if self.evictions {
            PreemptionBudget::evictions_below(gang.profile.priority)
        } else {
            PreemptionBudget::none()
        };
        PreemptionBudget { moves: self.moves, ..evictions }
    }
}
