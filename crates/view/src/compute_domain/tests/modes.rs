//! Domains whose services are the hosts', and domains that share a clique.

use octavo_api::compute_domain::ComputeDomainChannelNumber;
use octavo_api::imex::ImexServices;

use super::*;
use crate::compute_domain::fixtures::CLIQUE;

/// A domain on nodes with services of their own: it has no daemons, cliques and labels of nodes.
fn of_hosts() -> DomainFacts {
    let mut facts = well();
    facts.services = ImexServices::OfHost;
    facts.daemons = Some(Vec::new());
    facts.cliques = Some(Vec::new());
    facts.daemon_set = Some(facts::DaemonSetFacts::default());
    for node in facts.nodes.as_mut().unwrap().values_mut() {
        node.domain = None;
    }
    for node in &mut facts.status.nodes {
        (node.index, node.ip_address) = (None, String::new());
    }
    facts
}

/// A domain with channel 3 of a shared clique, whose nodes do not have its label.
fn of_clique() -> DomainFacts {
    let mut facts = well();
    facts.services = ImexServices::PerClique;
    let channel = ComputeDomainChannelNumber { clique_id: CLIQUE.to_owned(), channel: 3 };
    facts.status.channels = vec![channel];
    for node in facts.nodes.as_mut().unwrap().values_mut() {
        node.domain = None;
    }
    facts
}

fn only_missing(facts: &DomainFacts) -> Missing {
    let missing = explain(facts).missing;
    assert_eq!(missing.len(), 1, "{missing:#?}");
    missing.into_iter().next().unwrap()
}

#[test]
fn services_of_hosts_need_no_daemons() {
    insta::assert_snapshot!(text(&of_hosts()), @r"
    ComputeDomain team/train is ready: 3 of 3 nodes are ready

    Its pods wait for the IMEX service that their own node runs.
    IMEX services: imex.mode: hostManaged.

    Conditions
      Ready           True    AllNodesReady    Nodes that are ready: 3.
      MembersReady    True    AllNodesReady    Nodes that are ready: 3.

    Nodes
      NODE  CLIQUE  INDEX  STATE  MISSING  DAEMON  PODS
      n-0   c1.0    -      Ready  -        -       train-n-0
      n-1   c1.0    -      Ready  -        -       train-n-1
      n-2   c1.0    -      Ready  -        -       train-n-2
    ");
    let mut facts = of_hosts();
    let pod = facts.pod();
    "Pending".clone_into(&mut pod.phase);
    pod.warning = Some(warning("FailedPrepareDynamicResources", "the service is not ready"));
    let missing = only_missing(&facts);
    assert_eq!(missing.step, Step::Pod);
    assert!(missing.problem.contains("the node's own IMEX service is asked"), "{missing:?}");
    assert!(missing.cause.unwrap().contains("the service is not ready"));
}

#[test]
fn domains_that_share_a_clique_have_channels() {
    insta::assert_snapshot!(text(&of_clique()), @r"
    ComputeDomain team/train is ready: 3 of 3 nodes are ready

    Its pods wait for the daemon of their own node, and at most 38 s for those of other nodes.
    IMEX services: imex.mode: driverManaged, imex.isolation: channel.

    Conditions
      Ready           True    AllNodesReady    Nodes that are ready: 3.
      MembersReady    True    AllNodesReady    Nodes that are ready: 3.

    Nodes
      NODE  CLIQUE  INDEX  CHANNEL  STATE  MISSING  DAEMON                                    PODS
      n-0   c1.0    0      3        Ready  -        octavo-system/computedomain-daemon-u-1-0  train-n-0
      n-1   c1.0    1      3        Ready  -        octavo-system/computedomain-daemon-u-1-1  train-n-1
      n-2   c1.0    2      3        Ready  -        octavo-system/computedomain-daemon-u-1-2  train-n-2
    ");
    let mut facts = of_clique();
    facts.status.channels.clear();
    facts.status.status = Readiness::NotReady;
    for node in &mut facts.status.nodes {
        node.status = Readiness::NotReady;
    }
    let ready = &mut facts.status.conditions[0];
    "False".clone_into(&mut ready.status);
    "ChannelsUsedUp".clone_into(&mut ready.reason);
    let missing = explain(&facts).missing;
    let steps: Vec<Step> = missing.iter().map(|missing| missing.step).collect();
    assert_eq!(steps, [Step::Channel; 3], "{missing:#?}");
    assert!(missing[0].problem.contains("no channel in clique c1.0"), "{missing:?}");
    assert!(missing[0].cause.as_ref().unwrap().contains("ChannelsUsedUp"), "{missing:?}");
}

#[test]
fn a_shared_daemon_that_is_absent_is_named() {
    let mut facts = of_clique();
    facts.last_not_ready();
    facts.daemons.as_mut().unwrap().pop();
    facts.daemon_set.as_mut().unwrap().exists = false;
    let missing = only_missing(&facts);
    let name = octavo_api::names::SHARED_IMEX_DOMAIN;
    assert!(missing.problem.contains(&format!("computedomain-daemon-{name}")), "{missing:?}");
    // A node without a fabric needs no daemon.
    facts.node("n-2").clique = None;
    facts.entries().pop();
    let status = facts.status.nodes.last_mut().unwrap();
    (status.clique_id, status.status) = (String::new(), Readiness::Ready);
    facts.status.status = Readiness::Ready;
    assert_eq!(explain(&facts).missing, []);
}

#[test]
fn a_gang_that_is_not_complete_holds_pods_back() {
    let mut facts = well();
    facts.ready_when = Some("Members".to_owned());
    let members = &mut facts.status.conditions[1];
    "False".clone_into(&mut members.status);
    "GangIncomplete".clone_into(&mut members.reason);
    "3 of 4 pods of PodGroup g have a channel.".clone_into(&mut members.message);
    "Pending".clone_into(&mut facts.pod().phase);
    let cause = only_missing(&facts).cause.unwrap();
    assert!(cause.contains("GangIncomplete: 3 of 4 pods of PodGroup g"), "{cause}");
}
