//! What is reported of work on nodes.

use octavo_api::Condition;
use octavo_api::maintenance::{Drain, MaintenanceStatus, Plan};
use octavo_api::names::{
    CONDITION_ACCEPTED, CONDITION_ANNOUNCED, CONDITION_DRAINED, CONDITION_IN_PROGRESS,
};

use super::{Findings, Work};
use crate::health::condition::with_time;
use crate::health::facts::{MaintenanceFacts, date};

/// Status, reason and message of a condition.
type Untyped = (bool, &'static str, String);

/// The status of work on nodes.
pub(super) fn of(work: &Work<'_>, findings: &Findings, now: u64) -> MaintenanceStatus {
    let old = &work.facts.status;
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let mut conditions = Vec::new();
    let mut add = |type_: &str, condition: Option<Untyped>| {
        let generation = work.facts.generation;
        conditions.extend(condition.map(|(is_true, reason, message)| {
            with_time(&old.conditions, generation, (type_, is_true, reason, message), now)
        }));
    };
    add(CONDITION_ACCEPTED, Some(accepted(work, now)));
    let Some(plan) = work.facts.plan() else {
        return MaintenanceStatus {
            observed_generation: work.facts.generation,
            conditions,
            ..MaintenanceStatus::default()
        };
    };
    add(CONDITION_ANNOUNCED, plan.notice.map(|_| announced(work.facts, findings)));
    add(CONDITION_IN_PROGRESS, Some(in_progress(plan, now)));
    let pods = work.nodes.keys().map(|node| findings.pods.get(*node).copied());
    let pods: Vec<Option<usize>> = pods.collect();
    let is_open = plan.window.is_open(now) && plan.drain == Drain::AtStart;
    if is_open {
        add(CONDITION_DRAINED, Some(drained(work, &pods)));
    } else if plan.window.is_over(now) {
        // What was so at the end.
        conditions.extend(old.conditions.iter().find(|it| it.type_ == CONDITION_DRAINED).cloned());
    }
    let left = if is_open { pods.iter().flatten().sum() } else { 0 };
    MaintenanceStatus {
        observed_generation: work.facts.generation,
        conditions,
        nodes: if plan.window.is_over(now) { old.nodes } else { count(work.nodes.len()) },
        pods_left: count(left),
        draining: work.draining.clone(),
    }
}

/// Whether owners of pods had their event for this version of the object.
pub(super) fn is_informed(facts: &MaintenanceFacts, findings: &Findings) -> bool {
    let is_it = |it: &Condition| {
        it.type_ == CONDITION_ANNOUNCED
            && it.status == "True"
            && it.observed_generation == facts.generation
    };
    facts.status.conditions.iter().any(is_it)
        || findings.informed.contains(&(facts.version.uid.clone(), facts.generation))
}

/// When the work is, in words.
pub(super) fn times(what: &str, plan: &Plan) -> String {
    format!("{what} from {} to {}", date(plan.window.start), date(plan.window.end))
}

fn accepted(work: &Work<'_>, now: u64) -> Untyped {
    match (&work.facts.plan, work.facts.plan()) {
        (Err(error), _) => (false, "InvalidMaintenance", error.clone()),
        (Ok(plan), None) => {
            let end = date(plan.window.end);
            let message = format!("endTime: {end} was over when the object was made");
            (false, "WindowInPast", message)
        }
        (Ok(_), Some(plan)) if work.nodes.is_empty() && !plan.window.is_over(now) => {
            (true, "NoNodes", "no node has these labels or names".to_owned())
        }
        (Ok(_), Some(_)) => (true, "Accepted", "it is carried out".to_owned()),
    }
}

fn announced(facts: &MaintenanceFacts, findings: &Findings) -> Untyped {
    if is_informed(facts, findings) {
        let message = "owners of pods with GPUs had an event".to_owned();
        return (true, "OwnersInformed", message);
    }
    (false, "NotInformed", "owners of pods with GPUs had no event yet".to_owned())
}

fn in_progress(plan: &Plan, now: u64) -> Untyped {
    if plan.window.is_over(now) {
        (false, "Ended", times("it was", plan))
    } else if plan.window.is_open(now) {
        (true, "InProgress", times("it is in progress", plan))
    } else {
        (false, "Planned", times("it is planned", plan))
    }
}

fn drained(work: &Work<'_>, pods: &[Option<usize>]) -> Untyped {
    let open = work.nodes.values().filter(|node| !node.is_in_maintenance).count();
    if open > 0 {
        let message = format!("{open} nodes do not have the taint yet, so that pods may come");
        return (false, "PodsLeft", message);
    }
    let unknown = pods.iter().filter(|pods| pods.is_none()).count();
    let occupied = pods.iter().flatten().filter(|pods| **pods > 0).count();
    if unknown > 0 {
        let message = format!("pods of {unknown} nodes are not counted yet");
        return (false, "PodsLeft", message);
    }
    if occupied > 0 {
        let message = format!(
            "{occupied} nodes have pods with GPUs; those of {} leave now, within the budget of evictions",
            work.draining.len()
        );
        return (false, "PodsLeft", message);
    }
    (true, "NoPodsLeft", "no pod with a GPU is left".to_owned())
}
