mod domain;
mod modes;
mod nodes;
mod reading;

use octavo_api::compute_domain::Readiness;

use super::fixtures::{unschedulable, warning, well};
use super::*;
use crate::fixtures::now;

fn text(facts: &DomainFacts) -> String {
    let options = DomainTextOptions { wide: false, headers: true, colour: false, now: now() };
    render(&explain(facts), options)
}

/// The only thing that is missing after a change of a domain without a fault.
fn one_missing(change: impl FnOnce(&mut DomainFacts)) -> Missing {
    let mut facts = well();
    change(&mut facts);
    let explanation = explain(&facts);
    assert!(explanation.waits);
    let [missing] = explanation.missing.as_slice() else {
        panic!("one thing is missing: {:#?}", explanation.missing)
    };
    assert!(!missing.remedy.is_empty(), "{missing:?}");
    let text = text(&facts);
    for part in [Some(&missing.problem), missing.cause.as_ref(), Some(&missing.remedy)] {
        assert!(part.is_none_or(|part| text.contains(part)), "{part:?} in {text}");
    }
    missing.clone()
}

/// Checks step, words of the problem, and words of the cause.
fn check(change: impl FnOnce(&mut DomainFacts), step: Step, problem: &str, cause: &str) {
    let missing = one_missing(change);
    assert_eq!(missing.step, step, "{missing:?}");
    assert!(missing.problem.contains(problem), "wanted {problem:?}: {missing:?}");
    assert!(missing.cause.unwrap_or_default().contains(cause), "wanted {cause:?}");
}

#[test]
fn a_ready_domain_lacks_nothing() {
    let explanation = explain(&well());
    assert!(!explanation.waits);
    insta::assert_snapshot!(text(&well()), @r"
    ComputeDomain team/train is ready: 3 of 3 nodes are ready

    Its pods wait for the daemon of their own node, and at most 38 s for those of other nodes.

    Conditions
      Ready           True    AllNodesReady    Nodes that are ready: 3.
      MembersReady    True    AllNodesReady    Nodes that are ready: 3.

    Nodes
      NODE  CLIQUE  INDEX  STATE  MISSING  DAEMON                                    PODS
      n-0   c1.0    0      Ready  -        octavo-system/computedomain-daemon-u-1-0  train-n-0
      n-1   c1.0    1      Ready  -        octavo-system/computedomain-daemon-u-1-1  train-n-1
      n-2   c1.0    2      Ready  -        octavo-system/computedomain-daemon-u-1-2  train-n-2
    ");
}

#[test]
fn a_missing_daemon_is_explained() {
    let mut facts = well();
    facts.last_not_ready();
    facts.daemons.as_mut().unwrap().pop();
    facts.entries().pop();
    let message = "pods is forbidden: exceeded quota";
    facts.daemon_set.as_mut().unwrap().warning = Some(warning("FailedCreate", message));
    let pod = facts.pod();
    "Pending".clone_into(&mut pod.phase);
    let status = facts.status.nodes.last_mut().unwrap();
    status.index = None;
    insta::assert_snapshot!(text(&facts), @r"
    ComputeDomain team/train is not ready: 2 of 3 nodes are ready, created 10m ago

    Its pods wait for the daemon of their own node, and at most 38 s for those of other nodes.

    Conditions
      Ready           False    NodesNotReady    1 of 3 nodes are not ready: n-2. See the pods of their daemons.
      MembersReady    False    NodesNotReady    1 of 3 nodes are not ready: n-2. See the pods of their daemons.

    Nodes
      NODE  CLIQUE  INDEX  STATE     MISSING     DAEMON                                    PODS
      n-0   c1.0    0      Ready     -           octavo-system/computedomain-daemon-u-1-0  train-n-0
      n-1   c1.0    1      Ready     -           octavo-system/computedomain-daemon-u-1-1  train-n-1
      n-2   c1.0    -      NotReady  daemon pod  -                                         train-n-2 (Pending)

    What is missing
      node n-2: no pod of the domain's daemon is on the node
        why: FailedCreate: pods is forbidden: exceeded quota
        do: kubectl describe daemonset -n octavo-system computedomain-daemon-u-1
    ");
}

#[test]
fn many_nodes_are_cut_short_with_those_first_that_lack_something() {
    let mut facts = well();
    for number in 3..60 {
        let node = format!("n-{number}");
        let mut claim = facts.claims[0].clone();
        claim.node = Some(node.clone());
        facts.claims.push(claim);
        let found = facts.node("n-0").clone();
        facts.nodes.as_mut().unwrap().insert(node.clone(), found);
        let mut daemon = facts.daemons.as_ref().unwrap()[0].clone();
        daemon.node = Some(node.clone());
        facts.daemons.as_mut().unwrap().push(daemon);
        let mut entry = facts.entries()[0].clone();
        entry.node_name.clone_from(&node);
        facts.entries().push(entry);
        let mut status = facts.status.nodes[0].clone();
        status.name = node;
        facts.status.nodes.push(status);
    }
    facts.node("n-50").domain = None;
    let text = text(&facts);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("  n-")).collect();
    assert_eq!(lines.len(), 20, "{text}");
    assert!(lines[0].starts_with("  n-50"), "{text}");
    assert!(text.contains("and 40 more (-o wide, -o json)"), "{text}");
}
