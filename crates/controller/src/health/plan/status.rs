//! What a policy does at the moment.

use octavo_api::health_policy::{DeviceCounts, HealthPolicyStatus, TemplateSpec};
use octavo_api::names::{
    CONDITION_ACCEPTED, CONDITION_BREAKER_OPEN, CONDITION_RECORDS_READABLE,
    CONDITION_TEMPLATE_USABLE,
};

use super::TemplateProblem;
use super::domain::Decided;
use crate::health::condition::{Untimed, with_time};
use crate::health::facts::{PolicyFacts, date, seconds};

/// Records that a message names.
const NAMED_RECORDS: usize = 3;
/// Times in a status are whole minutes, so that a breaker that stays open costs no write each second.
const MINUTE: u64 = 60;

/// What is known of the objects of a policy's template.
pub(super) struct OfTemplate<'a> {
    /// The template of which objects may exist.
    pub(super) noted: Option<TemplateSpec>,
    /// What became of these objects, if that is known.
    pub(super) found: Option<&'a Option<TemplateProblem>>,
}

/// The template of which objects may exist: the former one until none is left. `cleared` is one of which none is.
pub(super) fn template(
    policy: &PolicyFacts,
    cleared: Option<&TemplateSpec>,
) -> Option<TemplateSpec> {
    let usable = policy.usable_template();
    let noted = policy.status.template.as_ref().filter(|noted| cleared != Some(*noted));
    let former = noted.filter(|noted| !usable.is_some_and(|it| it.makes_objects_of(noted)));
    former.or(usable).cloned()
}

/// The status of a policy. `overlap` is the policy that goes before it, and on how many nodes.
pub(super) fn of(
    policy: &PolicyFacts,
    decided: Option<&Decided<'_>>,
    overlap: Option<(&str, usize)>,
    template: OfTemplate<'_>,
    now: u64,
) -> HealthPolicyStatus {
    let until = if let Some(decided) = decided {
        decided.stopped_until
    } else {
        // A policy that is corrected goes on with its breaker.
        let until = policy.status.breaker_open_until.as_deref().and_then(seconds);
        until.filter(|until| *until > now)
    };
    let until = until.map(|until| date(until.div_ceil(MINUTE) * MINUTE));
    let accepted = match (&policy.policy, overlap) {
        (Err(error), _) => (CONDITION_ACCEPTED, false, "InvalidPolicy", error.clone()),
        (Ok(_), Some((other, nodes))) => {
            let message = format!("the policy {other} goes before it on {nodes} of its nodes");
            (CONDITION_ACCEPTED, true, "OtherPolicyFirst", message)
        }
        (Ok(_), None) => (CONDITION_ACCEPTED, true, "Accepted", "the policy is in use".to_owned()),
    };
    let mut conditions = vec![accepted];
    if let Some(decided) = decided {
        conditions.push(breaker(decided, until.as_deref()));
        conditions.push(records(decided));
    }
    match template.found.filter(|_| template.noted.is_some()) {
        Some(Some((reason, message))) => {
            conditions.push((CONDITION_TEMPLATE_USABLE, false, reason, message.clone()));
        }
        Some(None) => {
            let message = "the template can be read".to_owned();
            conditions.push((CONDITION_TEMPLATE_USABLE, true, "TemplateRead", message));
        }
        None => {}
    }
    let old = &policy.status.conditions;
    let conditions = conditions
        .into_iter()
        .map(|condition| with_time(old, policy.generation, condition, now))
        .collect();
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    HealthPolicyStatus {
        observed_generation: policy.generation,
        conditions,
        nodes: decided.map_or(0, |decided| count(decided.members.nodes().count())),
        devices: decided.map(counts).unwrap_or_default(),
        remedies: decided.map_or(0, |decided| count(decided.decisions.remedies.len())),
        evictions: decided
            .map_or(0, |decided| count(decided.decisions.evictions.len() + decided.drains.len())),
        breaker_open_until: until,
        template: template.noted,
    }
}

fn breaker(decided: &Decided<'_>, until: Option<&str>) -> Untimed<'static> {
    let percent = decided.policy.breaker.percent;
    let Some(until) = until else {
        let message = "few GPUs left service at about the same time".to_owned();
        return (CONDITION_BREAKER_OPEN, false, "FewFailures", message);
    };
    let message = format!(
        "GPUs of more than {percent}% of the nodes left service at about the same time, so no remedy begins until {until}"
    );
    (CONDITION_BREAKER_OPEN, true, "ManyFailures", message)
}

fn records(decided: &Decided<'_>) -> Untimed<'static> {
    let unread = decided.members.all().filter_map(|(_, member)| {
        let problem = member.device.record.as_ref().err()?;
        Some(format!("{} of node {}: {problem}", member.device.name, member.node))
    });
    let unread: Vec<_> = unread.collect();
    if unread.is_empty() {
        let message = "the records of all GPUs can be read".to_owned();
        return (CONDITION_RECORDS_READABLE, true, "RecordsRead", message);
    }
    let named = unread.iter().take(NAMED_RECORDS).map(String::as_str).collect::<Vec<_>>();
    let message = format!(
        "{} records cannot be read, so no remedy begins on their nodes: {}",
        unread.len(),
        named.join("; ")
    );
    (CONDITION_RECORDS_READABLE, false, "MalformedRecord", message)
}

/// Devices by state, as their agents say.
fn counts(decided: &Decided<'_>) -> DeviceCounts {
    let mut counts = DeviceCounts::default();
    for (_, member) in decided.members.all() {
        let count = match member.device.record.as_ref().map(|record| record.track.state.name()) {
            Ok("Healthy") => &mut counts.healthy,
            Ok("Watch") => &mut counts.watch,
            Ok("Suspect") => &mut counts.suspect,
            Ok("Resetting") => &mut counts.resetting,
            Ok("Verifying") => &mut counts.verifying,
            Ok("Probation") => &mut counts.probation,
            Ok("Retired") => &mut counts.retired,
            Ok(_) | Err(_) => &mut counts.fenced,
        };
        *count += 1;
    }
    counts
}
