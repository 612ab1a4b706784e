//! What the pod of a node's daemon lacks.

use octavo_api::names::{CLASS_DAEMON, LABEL_CLIQUE};

use super::facts::{DomainFacts, DomainPod, warning_text};
use super::members::Member;
use super::read::daemon_set_name;
use super::{Missing, Step};

/// The command that shows a daemon's log.
pub(super) fn log(pod: &DomainPod) -> String {
    format!("read the daemon's log: kubectl logs -n {} {}", pod.namespace, pod.name)
}

fn describe(pod: &DomainPod) -> String {
    format!("kubectl describe pod -n {} {}", pod.namespace, pod.name)
}

/// The first thing that the pod lacks until it runs; `None` if pods of daemons could not be read.
pub(super) fn missing(member: &Member<'_>, facts: &DomainFacts) -> Option<Missing> {
    facts.daemons.as_ref()?;
    let Some(pod) = member.daemon else { return Some(absent(member, facts)) };
    let name = pod.full_name();
    if pod.is_deleting {
        let problem = format!("the daemon's pod {name} is being deleted; another one follows");
        return Some(member.missing(Step::Daemon, problem, member.node_trouble(), describe(pod)));
    }
    if !pod.is_bound {
        return Some(unscheduled(member, pod));
    }
    if pod.is_ready {
        return None;
    }
    if pod.phase != "Running" || pod.trouble.is_some() {
        return Some(not_running(member, pod));
    }
    // With a clique, its entry says more.
    if member.clique().is_some() {
        return None;
    }
    Some(member.missing(
        Step::Ready,
        format!("the daemon's pod {name} runs and is not ready"),
        member.node_trouble().or_else(|| {
            Some(format!(
                "the node has no label {LABEL_CLIQUE}; a daemon whose GPUs have a fabric waits for its clique"
            ))
        }),
        format!("{}; the node's agent writes the label when the fabric is up", log(pod)),
    ))
}

fn absent(member: &Member<'_>, facts: &DomainFacts) -> Missing {
    let namespace = facts.controller.lease.namespace();
    let set = daemon_set_name(facts.daemons_uid());
    let describe = format!("kubectl describe daemonset -n {namespace} {set}");
    let found = facts.daemon_set.as_ref();
    if found.is_some_and(|found| !found.exists) {
        return member.missing(
            Step::Daemon,
            format!("the domain has no DaemonSet {namespace}/{set}, so no daemon comes"),
            facts.controller.problem(),
            facts.controller.remedy(),
        );
    }
    let warning = found.and_then(|found| found.warning.as_ref()).map(warning_text);
    let wants_none = found.is_some_and(|found| found.desired == 0);
    let wants_none = wants_none.then(|| {
        "the DaemonSet wants no pods: kube-controller-manager has not seen the node's label"
            .to_owned()
    });
    let cause = member.node_trouble().or(warning).or(wants_none);
    member.missing(Step::Daemon, "no pod of the domain's daemon is on the node", cause, describe)
}

fn unscheduled(member: &Member<'_>, pod: &DomainPod) -> Missing {
    let words = pod.scheduled.as_ref().map(|found| found.message.as_str()).unwrap_or_default();
    let cause = match (words, pod.warning_text()) {
        ("", warning) => warning,
        (words, _) => Some(format!("the scheduler says: {words}")),
    };
    member.missing(
        Step::Daemon,
        format!("the daemon's pod {} is not scheduled", pod.full_name()),
        member.node_trouble().or(cause),
        format!(
            "check that DeviceClass {CLASS_DAEMON} exists and that the node's agent publishes daemon-0: `octavo doctor`"
        ),
    )
}

fn not_running(member: &Member<'_>, pod: &DomainPod) -> Missing {
    let restarts = match pod.restarts {
        0 => String::new(),
        1 => ", restarted once".to_owned(),
        times => format!(", restarted {times} times"),
    };
    let cause =
        member.node_trouble().or_else(|| pod.trouble.clone()).or_else(|| pod.warning_text());
    let has_run = pod.restarts > 0 || pod.phase == "Failed";
    member.missing(
        Step::Daemon,
        format!("the daemon's pod {} does not run{restarts}", pod.full_name()),
        cause,
        if has_run { log(pod) + " --previous" } else { describe(pod) },
    )
}
