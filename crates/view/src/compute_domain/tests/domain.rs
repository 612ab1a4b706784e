//! What a domain may lack as a whole.

use super::*;
use crate::compute_domain::facts::TemplateState;
use crate::scheduler::LeaseProblem;
use crate::snapshot::GapKind;

fn notes(change: impl FnOnce(&mut DomainFacts)) -> Vec<String> {
    let mut facts = well();
    change(&mut facts);
    let explanation = explain(&facts);
    assert!(!explanation.waits, "{:#?}", explanation.missing);
    explanation.notes.into_iter().map(|note| note.text).collect()
}

fn expired() -> LeaseProblem {
    let since = Some("5m".to_owned());
    LeaseProblem::Expired { holder: "octavo-controller-x".to_owned(), address: None, since }
}

#[test]
fn a_template_that_is_missing_or_foreign() {
    let missing = |facts: &mut DomainFacts| facts.template_state = Some(TemplateState::Missing);
    check(missing, Step::Domain, "no ResourceClaimTemplate train-channel", "");
    for (owner, words) in [(None, "not of a ComputeDomain"), (Some("u-2"), "with UID u-2")] {
        let foreign = |facts: &mut DomainFacts| {
            facts.template_state = Some(TemplateState::Foreign(owner.map(str::to_owned)));
        };
        check(foreign, Step::Domain, words, "");
    }
}

#[test]
fn an_invalid_annotation_keeps_pods_from_starting() {
    let change = |facts: &mut DomainFacts| facts.ready_when = Some("All".to_owned());
    check(change, Step::Domain, "no pod starts", "\"All\" is not Node, Members or a number");
    let mut facts = well();
    for (value, words) in [
        (None, "at most 38 s"),
        (Some("Node"), "the daemon of their own node"),
        (Some("Members"), "all nodes with an allocated channel"),
        (Some("4"), "4 ready daemons"),
        (Some("All"), "a valid annotation octavo.dev/ready-when"),
    ] {
        facts.ready_when = value.map(str::to_owned);
        assert!(explain(&facts).pods_wait_for.contains(words), "{value:?}");
    }
}

#[test]
fn pods_without_a_node_are_grouped_by_the_schedulers_words() {
    let change = |facts: &mut DomainFacts| {
        for number in 0..7 {
            let mut pod = super::super::fixtures::pod("x");
            (pod.name, pod.phase) = (format!("late-{number}"), "Pending".to_owned());
            (pod.node, pod.is_bound) = (None, false);
            pod.claims.clear();
            pod.scheduled = Some(unschedulable("0/3 nodes are available"));
            facts.pods.as_mut().unwrap().push(pod);
        }
    };
    check(change, Step::Claim, "not allocated", "the scheduler says: 0/3 nodes are available");
    let missing = one_missing(change);
    assert_eq!(missing.subject, "pods late-0, late-1, late-2, late-3, late-4 and 2 more");
    assert_eq!(missing.remedy, "octavo explain pod late-0 -n team");
    let gated = |facts: &mut DomainFacts| {
        let pod = facts.pod();
        (pod.is_bound, pod.phase) = (false, "Pending".to_owned());
        pod.gates = vec!["kueue.x-k8s.io/admission".to_owned()];
    };
    check(gated, Step::Claim, "not allocated", "scheduling gates hold it back: kueue");
}

#[test]
fn a_domain_without_members() {
    let change = |facts: &mut DomainFacts| {
        facts.claims.clear();
        facts.pods = Some(Vec::new());
        facts.nodes = Some(std::collections::BTreeMap::new());
        facts.status.status = Readiness::NotReady;
    };
    check(change, Step::Domain, "no pod of the domain has an allocated claim", "");
    let fewer = |facts: &mut DomainFacts| {
        facts.num_nodes = 4;
        facts.status.status = Readiness::NotReady;
    };
    check(fewer, Step::Domain, "3 of 4 nodes (spec.numNodes)", "");
}

#[test]
fn a_controller_that_is_gone() {
    let gone = |facts: &mut DomainFacts| facts.controller.holder = Err(expired());
    let notes = notes(gone);
    assert!(notes[0].contains("its holder octavo-controller-x renewed it 5m ago"), "{notes:?}");
    let mut facts = well();
    gone(&mut facts);
    facts.last_not_ready();
    facts.node("n-2").domain = None;
    let missing = explain(&facts).missing;
    let words = "no controller is active: the Lease octavo-system/octavo-controller has expired";
    assert!(missing[0].problem.starts_with(words), "{missing:?}");
    assert!(missing[1].cause.as_ref().unwrap().starts_with(words), "{missing:?}");
    // A lease that may not be read proves nothing.
    let message = "leases is forbidden".to_owned();
    facts.controller.holder = Err(LeaseProblem::Forbidden { message });
    assert_eq!(explain(&facts).missing.len(), 1);
}

#[test]
fn a_domain_that_is_being_deleted() {
    let change = |facts: &mut DomainFacts| facts.is_deleting = true;
    let words = "still allocated: claim-n-0 on n-0 (pods: train-n-0), claim-n-1";
    check(change, Step::Domain, words, "");
    let empty = |facts: &mut DomainFacts| {
        change(facts);
        facts.claims.clear();
        facts.pods = Some(Vec::new());
        facts.nodes = Some(std::collections::BTreeMap::new());
    };
    let cause = "finalizers are: resource.nvidia.com/computeDomain";
    check(empty, Step::Domain, "waits for the controller only", cause);
}

#[test]
fn a_status_without_a_known_reason_quotes_the_controller() {
    let change = |facts: &mut DomainFacts| {
        facts.status.status = Readiness::NotReady;
        let ready = &mut facts.status.conditions[0];
        "CliqueFull".clone_into(&mut ready.reason);
        "No index is free.".clone_into(&mut ready.message);
    };
    let cause = "the controller says: CliqueFull: No index is free.";
    check(change, Step::Domain, "status is not Ready", cause);
}

#[test]
fn a_problem_of_the_certificate_is_noted() {
    let certificate = |facts: &mut DomainFacts| {
        let mut condition = facts.status.conditions[0].clone();
        "CertificateProblem".clone_into(&mut condition.type_);
        "CertificateLost".clone_into(&mut condition.reason);
        "The Secret is gone.".clone_into(&mut condition.message);
        facts.status.conditions.push(condition);
    };
    assert_eq!(notes(certificate), ["CertificateLost: The Secret is gone."]);
}

#[test]
fn cliques_are_noted_when_shared_several_or_full() {
    let shared = |facts: &mut DomainFacts| {
        let mut condition = facts.status.conditions[0].clone();
        "SharedClique".clone_into(&mut condition.type_);
        "Other ComputeDomains: team-b/x.".clone_into(&mut condition.message);
        facts.status.conditions.push(condition);
    };
    assert_eq!(notes(shared), ["SharedClique: Other ComputeDomains: team-b/x."]);
    let several = |facts: &mut DomainFacts| {
        facts.node("n-2").clique = Some("c2.0".to_owned());
        let mut moved = facts.cliques.as_ref().unwrap()[0].clone();
        moved.daemons.retain(|daemon| daemon.node_name == "n-2");
        "c2.0".clone_into(&mut moved.id);
        facts.cliques.as_mut().unwrap().push(moved);
    };
    let found = notes(several);
    assert!(found[0].contains("in 2 cliques: c1.0 (2 nodes), c2.0 (1 nodes)"), "{found:?}");
    let full = |facts: &mut DomainFacts| {
        facts.daemons.as_mut().unwrap().iter_mut().for_each(|daemon| daemon.slots = Some(2));
    };
    let found = notes(full);
    assert!(found[0].contains("3 nodes of clique c1.0 have pods"), "{found:?}");
}

#[test]
fn a_user_of_one_namespace_sees_what_the_status_says() {
    let mut facts = well();
    facts.last_not_ready();
    (facts.nodes, facts.daemons, facts.cliques, facts.daemon_set) = (None, None, None, None);
    let message = "pods is forbidden".to_owned();
    facts.gaps.push(Gap { kind: GapKind::DaemonPods, message });
    let missing = explain(&facts).missing;
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(missing[0].problem.contains("as the domain's status says"), "{missing:?}");
    assert!(text(&facts).contains("pods of the daemons: pods is forbidden"));
}
