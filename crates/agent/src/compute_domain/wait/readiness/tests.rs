use octavo_api::Condition;
use octavo_api::compute_domain::{
    ComputeDomainChannel, ComputeDomainChannelNumber, ComputeDomainNode, ComputeDomainSpec,
    ComputeDomainStatus, ComputeDomainTemplate,
};

use super::*;

fn domain(
    nodes: &[(&str, bool)],
    complete: Option<bool>,
    ready_when: Option<&str>,
) -> ComputeDomain {
    let channel = ComputeDomainChannel {
        resource_claim_template: ComputeDomainTemplate { name: "t".to_owned() },
        allocation_mode: octavo_api::compute_domain::ComputeDomainAllocationMode::Single,
    };
    let mut domain = ComputeDomain::new("d", ComputeDomainSpec { num_nodes: 0, channel });
    let nodes = nodes.iter().map(|(name, is_ready)| ComputeDomainNode {
        name: (*name).to_owned(),
        clique_id: "c".to_owned(),
        status: if *is_ready { Readiness::Ready } else { Readiness::NotReady },
        ..ComputeDomainNode::default()
    });
    let condition = complete.map(|is_complete| Condition {
        type_: CONDITION_MEMBERS_READY.to_owned(),
        status: if is_complete { "True" } else { "False" }.to_owned(),
        message: "two more pods of gang g have no node".to_owned(),
        ..Condition::default()
    });
    domain.status = Some(ComputeDomainStatus {
        nodes: nodes.collect(),
        conditions: condition.into_iter().collect(),
        ..ComputeDomainStatus::default()
    });
    domain.metadata.annotations =
        ready_when.map(|text| [(ANNOTATION_READY_WHEN.to_owned(), text.to_owned())].into());
    domain
}

/// The state for a node whose services are those of its domain.
fn state(domain: &ComputeDomain, node: &str) -> DomainState {
    state_with(domain, node, ImexServices::PerDomain)
}

fn state_with(domain: &ComputeDomain, node: &str, services: ImexServices) -> DomainState {
    super::state(domain, &Place { node, clique: "c", services })
}

#[test]
fn a_pod_gets_the_channel_of_its_clique() {
    let mut shared = domain(&[("a", true)], Some(true), None);
    let DomainState::Refused(problem) = state_with(&shared, "a", ImexServices::PerClique) else {
        panic!()
    };
    assert!(problem.contains("clique c") && problem.contains("isolation: channel"), "{problem}");
    let number = |clique: &str, channel| ComputeDomainChannelNumber {
        clique_id: clique.to_owned(),
        channel,
    };
    shared.status.as_mut().unwrap().channels = vec![number("b", 1), number("c", 7)];
    assert_eq!(state_with(&shared, "a", ImexServices::PerClique), DomainState::Ready(7));
    // Channel 0 would be that of another domain.
    let DomainState::Refused(problem) = state(&shared, "a") else { panic!() };
    assert!(problem.contains("the same settings"), "{problem}");
}

#[test]
fn an_agent_with_other_settings_than_the_controller_prepares_nothing() {
    let mut of_host = domain(&[("a", true)], Some(true), None);
    let condition = &mut of_host.status.as_mut().unwrap().conditions[0];
    condition.reason = octavo_api::names::REASON_HOST_MANAGED.to_owned();
    let DomainState::Refused(problem) = state(&of_host, "a") else { panic!() };
    assert!(problem.contains("hostManaged") && problem.contains("driverManaged"), "{problem}");
    assert_eq!(state_with(&of_host, "a", ImexServices::OfHost), DomainState::Ready(0));
}

#[test]
fn a_pod_needs_its_own_daemon_at_least() {
    let absent = domain(&[("b", true)], Some(true), None);
    let DomainState::Refused(problem) = state(&absent, "a") else { panic!() };
    assert!(problem.contains("node a"), "{problem}");
    let waiting = domain(&[("a", false), ("b", true)], None, Some("Node"));
    let DomainState::Refused(problem) = state(&waiting, "a") else { panic!() };
    assert!(problem.contains("node a"), "{problem}");
    assert_eq!(state(&waiting, "b"), DomainState::Ready(0));
}

#[test]
fn without_an_annotation_the_others_are_waited_for_but_not_needed() {
    let nodes = [("a", true), ("b", false), ("c", false)];
    let DomainState::Enough(0, missing) = state(&domain(&nodes, Some(false), None), "a") else {
        panic!()
    };
    assert!(missing.contains("b, c are not ready"), "{missing}");
    assert_eq!(state(&domain(&[("a", true)], Some(true), None), "a"), DomainState::Ready(0));
    // NVIDIA's controller has no condition.
    assert_eq!(state(&domain(&[("a", true)], None, None), "a"), DomainState::Ready(0));
    let DomainState::Enough(0, _) = state(&domain(&nodes, None, None), "a") else { panic!() };
}

#[test]
fn the_condition_may_know_of_pods_without_a_node() {
    let gang = domain(&[("a", true)], Some(false), None);
    let DomainState::Enough(0, missing) = state(&gang, "a") else { panic!() };
    assert!(missing.contains("gang g"), "{missing}");
}

#[test]
fn an_annotation_makes_the_wait_strict() {
    let nodes = [("a", true), ("b", true), ("c", false)];
    let strict = |text| state(&domain(&nodes, Some(false), Some(text)), "a");
    assert!(matches!(strict("Members"), DomainState::Refused(_)));
    assert_eq!(strict("2"), DomainState::Ready(0));
    let DomainState::Refused(problem) = strict("3") else { panic!() };
    assert_eq!(problem, "2 of 3 nodes are ready");
    let DomainState::Refused(problem) = strict("all") else { panic!() };
    assert!(problem.contains(ANNOTATION_READY_WHEN) && problem.contains("all"), "{problem}");
}

#[test]
fn a_long_list_of_names_is_cut() {
    let names: Vec<String> = (0..8).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let text = missing(&names);
    assert!(text.contains("n4 and 3 more nodes") && !text.contains("n5"), "{text}");
}

#[test]
fn a_daemon_in_the_clique_of_before_is_no_daemon() {
    let ready = domain(&[("a", true)], Some(true), None);
    let services = ImexServices::PerDomain;
    let another = Place { node: "a", clique: "another", services };
    let DomainState::Refused(problem) = super::state(&ready, &another) else { panic!() };
    assert!(problem.contains("another") && problem.contains("delete"), "{problem}");
}
