//! Each step that a node may lack.

use super::*;
use crate::compute_domain::facts::NodeFacts;

fn of_node(change: impl FnOnce(&mut DomainFacts), step: Step, problem: &str, cause: &str) {
    let change = |facts: &mut DomainFacts| {
        facts.last_not_ready();
        change(facts);
    };
    let missing = one_missing(change);
    assert_eq!((missing.step, missing.subject.as_str()), (step, "node n-2"), "{missing:?}");
    assert!(missing.problem.contains(problem), "wanted {problem:?}: {missing:?}");
    let found = missing.cause.clone().unwrap_or_default();
    assert!(found.contains(cause), "wanted {cause:?}: {missing:?}");
}

#[test]
fn a_node_without_its_label_or_with_that_of_another_domain() {
    let none = |facts: &mut DomainFacts| facts.node("n-2").domain = None;
    of_node(none, Step::Label, "no label resource.nvidia.com/computeDomain", "");
    let other = |facts: &mut DomainFacts| facts.node("n-2").domain = Some("u-2".to_owned());
    of_node(other, Step::Label, "another ComputeDomain, with UID u-2", "one domain at a time");
    let gone = |facts: &mut DomainFacts| _ = facts.nodes.as_mut().unwrap().remove("n-2");
    of_node(gone, Step::Label, "does not exist, and claims have its channel: claim-n-2", "");
}

#[test]
fn a_daemon_that_is_absent_or_not_scheduled() {
    let absent = |facts: &mut DomainFacts| _ = facts.daemons.as_mut().unwrap().pop();
    of_node(absent, Step::Daemon, "no pod of the domain's daemon", "");
    let without_set = |facts: &mut DomainFacts| {
        absent(facts);
        facts.daemon_set.as_mut().unwrap().exists = false;
    };
    of_node(without_set, Step::Daemon, "no DaemonSet octavo-system/computedomain-daemon-u-1", "");
    let unseen = |facts: &mut DomainFacts| {
        absent(facts);
        facts.daemon_set.as_mut().unwrap().desired = 0;
    };
    of_node(unseen, Step::Daemon, "no pod of the domain's daemon", "kube-controller-manager");
    let down = |facts: &mut DomainFacts| {
        absent(facts);
        facts.node("n-2").is_ready = false;
    };
    of_node(down, Step::Daemon, "no pod of the domain's daemon", "the node itself is not Ready");
    let unscheduled = |facts: &mut DomainFacts| {
        let daemon = facts.daemon();
        (daemon.is_bound, daemon.is_ready, daemon.phase) = (false, false, "Pending".to_owned());
        daemon.scheduled = Some(unschedulable("cannot allocate all claims"));
    };
    of_node(unscheduled, Step::Daemon, "is not scheduled", "the scheduler says: cannot allocate");
    let deleting = |facts: &mut DomainFacts| facts.daemon().is_deleting = true;
    of_node(deleting, Step::Daemon, "is being deleted", "");
}

#[test]
fn a_daemon_whose_container_does_not_run() {
    let pulling = |facts: &mut DomainFacts| {
        let daemon = facts.daemon();
        (daemon.is_ready, daemon.phase) = (false, "Pending".to_owned());
        daemon.trouble = Some("ImagePullBackOff: no such image".to_owned());
    };
    of_node(pulling, Step::Daemon, "does not run", "ImagePullBackOff: no such image");
    let creating = |facts: &mut DomainFacts| {
        pulling(facts);
        let daemon = facts.daemon();
        daemon.trouble = None;
        daemon.warning = Some(warning("FailedPrepareDynamicResources", "no /dev/nvidia-caps"));
    };
    let cause = "FailedPrepareDynamicResources: no /dev/nvidia-caps";
    of_node(creating, Step::Daemon, "does not run", cause);
    let crashing = |facts: &mut DomainFacts| {
        let daemon = facts.daemon();
        (daemon.is_ready, daemon.restarts) = (false, 4);
        daemon.trouble = Some("CrashLoopBackOff; ended with Error, exit code 1".to_owned());
    };
    of_node(crashing, Step::Daemon, "restarted 4 times", "exit code 1");
    let change = |facts: &mut DomainFacts| (facts.last_not_ready(), crashing(facts)).1;
    assert!(one_missing(change).remedy.ends_with("--previous"));
}

#[test]
fn a_daemon_with_a_fabric_and_a_node_without_the_label() {
    let change = |facts: &mut DomainFacts| {
        facts.node("n-2").clique = None;
        facts.entries().pop();
        facts.status.nodes[2].clique_id.clear();
        facts.daemon().is_ready = false;
    };
    of_node(change, Step::Ready, "runs and is not ready", "no label nvidia.com/gpu.clique");
}

#[test]
fn a_node_without_a_fabric_needs_no_entry() {
    let mut facts = well();
    facts.node("n-2").clique = None;
    facts.entries().pop();
    facts.status.nodes[2].clique_id.clear();
    let explanation = explain(&facts);
    assert!(!explanation.waits, "{:#?}", explanation.missing);
    assert!(explanation.notes[0].text.contains("n-2. Their pods get no channel"));
}

#[test]
fn an_entry_that_is_absent_or_of_an_earlier_daemon() {
    let absent = |facts: &mut DomainFacts| _ = facts.entries().pop();
    of_node(absent, Step::Entry, "has not written its entry into clique c1.0", "");
    let without_clique = |facts: &mut DomainFacts| {
        facts.cliques = Some(Vec::new());
        facts.claims.retain(|claim| claim.name == "claim-n-2");
    };
    of_node(without_clique, Step::Entry, "there is no ComputeDomainClique u-1.c1.0", "");
    let earlier = |facts: &mut DomainFacts| "10.9.9.9".clone_into(&mut facts.daemon().ip);
    of_node(earlier, Step::Entry, "of an earlier daemon, with address 10.0.0.2", "");
}

#[test]
fn an_index_that_is_not_given_or_not_free() {
    let absent = |facts: &mut DomainFacts| facts.entries()[2].index = None;
    of_node(absent, Step::Index, "has no index", "");
    let full = |facts: &mut DomainFacts| {
        absent(facts);
        facts.daemons.as_mut().unwrap().iter_mut().for_each(|daemon| daemon.slots = Some(2));
    };
    of_node(full, Step::Index, "no index is free in clique c1.0: 2 of 2", "more nodes");
}

#[test]
fn a_service_that_is_not_ready() {
    let change = |facts: &mut DomainFacts| facts.entries()[2].status = Readiness::NotReady;
    of_node(change, Step::Ready, "IMEX service is not ready", "nvidia-imex on 10.0.0.2");
    let missing = one_missing(|facts| (facts.last_not_ready(), change(facts)).1);
    assert!(missing.remedy.contains("ports 50000 and 50005"), "{missing:?}");
    let restarted = |facts: &mut DomainFacts| {
        change(facts);
        facts.daemon().restarts = 2;
    };
    of_node(restarted, Step::Ready, "IMEX service is not ready", "restarted 2 times");
}

#[test]
fn a_status_that_lags() {
    of_node(|_| {}, Step::Status, "the domain's status does not say so yet", "");
    let absent = |facts: &mut DomainFacts| _ = facts.status.nodes.pop();
    of_node(absent, Step::Status, "not in the domain's status", "");
}

#[test]
fn a_pod_that_does_not_run_although_its_daemon_is_ready() {
    let pending = |facts: &mut DomainFacts| "Pending".clone_into(&mut facts.pod().phase);
    check(pending, Step::Pod, "pods do not run yet: train-n-2", "");
    let prepare = |facts: &mut DomainFacts| {
        pending(facts);
        facts.pod().warning = Some(warning("FailedPrepareDynamicResources", "no channels"));
    };
    check(prepare, Step::Pod, "train-n-2", "FailedPrepareDynamicResources: no channels");
    let mut facts = well();
    facts.last_not_ready();
    facts.entries()[2].status = Readiness::NotReady;
    let first = &mut facts.pods.as_mut().unwrap()[0];
    "Pending".clone_into(&mut first.phase);
    for (ready_when, words) in [
        (None, "it waits up to 38 s for nodes that are not ready: n-2"),
        (Some("Members"), "octavo.dev/ready-when is Members, and nodes are not ready: n-2"),
        (Some("3"), "octavo.dev/ready-when is 3, and 2 nodes are ready"),
    ] {
        facts.ready_when = ready_when.map(str::to_owned);
        let missing = explain(&facts).missing;
        assert_eq!(missing[0].step, Step::Pod, "{missing:?}");
        assert_eq!(missing[0].cause.as_deref(), Some(words));
    }
}

#[test]
fn a_label_without_a_claim_is_a_note() {
    let mut facts = well();
    let stale = NodeFacts { domain: Some("u-1".to_owned()), ..NodeFacts::default() };
    facts.nodes.as_mut().unwrap().insert("n-9".to_owned(), stale);
    let explanation = explain(&facts);
    assert!(!explanation.waits);
    assert!(explanation.notes[0].text.ends_with("no claim of it: n-9"));
}
