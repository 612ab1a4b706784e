use insta::assert_snapshot;
use octavo_api::Maintenance;

use super::{facts, object, options};
use crate::fixtures::now;
use crate::health::facts::{HealthFacts, Unreadable};
use crate::health::{HealthError, Selection, render, report};
use crate::output;
use crate::snapshot::{Gap, GapKind};

fn table(selection: &Selection, wide: bool) -> String {
    render(&report(&facts(), selection, now()).unwrap(), options(wide))
}

#[test]
fn gpus_that_are_not_healthy_are_listed_with_their_needs() {
    assert_snapshot!(table(&Selection::default(), false), @r"
    NODE  GPU     STATE      SINCE  NEEDS          WAITS FOR  POLICY  MODE  REASON                   MESSAGE
    n-1   gpu-1   Fenced     2h     resetFunction  Clients    h100    Act   Xid                      the driver reported XID 48
    n-1   gpu-2   Watch      6h                               h100    Act   HighRisk
    n-1   gpu-10  Resetting  30s    resetBus runs             h100    Act   UncorrectedMemoryErrors  memory errors were not corrected
    n-2   gpu-0   Retired    2d12h                            none          Operator                 an operator decided so

    2 nodes, 5 GPUs, 2 in service: 1 Healthy, 1 Watch, 1 Fenced, 1 Resetting, 1 Retired.
    Remedies of the HealthPolicy h100 are stopped until 2026-01-05T12:20:00Z: no remedy begins until 12:20.
    The HealthPolicy a100 is not in use: budget.remediesPercent: it is 500, and must be from 0 to 100.
    The agent of node n-2 does not use the HealthPolicy of its node: the HealthPolicy a100 is not valid.
    Node n-10 has an agent and no NodeHealth: the agent is older than NodeHealth, or cannot write it. See its log.
    ");
}

#[test]
fn all_gpus_have_more_columns_in_the_wide_form() {
    let selection =
        Selection { nodes: ["n-1".to_owned()].into(), all: true, ..Selection::default() };
    assert_snapshot!(table(&selection, true), @r"
    NODE  GPU     STATE      SINCE  NEEDS          WAITS FOR  POLICY  MODE  REASON                   IN USE  RISK    ATTEMPT  ORDER  UUID      MESSAGE
    n-1   gpu-0   Healthy    4d12h                            h100    Act                            no      usual   0        0      GPU-1-0
    n-1   gpu-1   Fenced     2h     resetFunction  Clients    h100    Act   Xid                      yes     raised  3        0      GPU-1-1   the driver reported XID 48
    n-1   gpu-2   Watch      6h                               h100    Act   HighRisk                 no              0        0      GPU-1-2
    n-1   gpu-10  Resetting  30s    resetBus runs             h100    Act   UncorrectedMemoryErrors  no              9        0      GPU-1-10  memory errors were not corrected

    1 node, 4 GPUs, 2 in service: 1 Healthy, 1 Watch, 1 Fenced, 1 Resetting.
    Remedies of the HealthPolicy h100 are stopped until 2026-01-05T12:20:00Z: no remedy begins until 12:20.
    The HealthPolicy a100 is not in use: budget.remediesPercent: it is 500, and must be from 0 to 100.
    ");
}

#[test]
fn states_are_selected_and_sums_stay_whole() {
    let selection = Selection { states: ["Healthy".to_owned()].into(), ..Selection::default() };
    let report = report(&facts(), &selection, now()).unwrap();
    let gpus: Vec<_> = report.gpus.iter().map(|gpu| (&*gpu.node, &*gpu.gpu)).collect();
    assert_eq!(gpus, [("n-1", "gpu-0")]);
    assert_eq!((report.totals.gpus, report.totals.in_service), (5, 2));
}

#[test]
fn a_node_of_which_nothing_is_known_is_an_error_with_those_that_are_known() {
    let selection =
        |node: &str| Selection { nodes: [node.to_owned()].into(), ..Selection::default() };
    let error = report(&facts(), &selection("n-3"), now()).unwrap_err();
    assert_eq!(error.to_string(), "node \"n-3\" has no NodeHealth");
    assert_eq!(error.hint().unwrap(), "nodes that have one: n-1, n-2");
    let old = report(&facts(), &selection("n-10"), now()).unwrap();
    assert_eq!(old.nodes_without_health, ["n-10"], "an agent that writes none is no error");
    let unread = Unreadable {
        kind: "NodeHealth".to_owned(),
        name: "n-3".to_owned(),
        message: "unknown variant".to_owned(),
    };
    let facts = HealthFacts { unreadable: vec![unread], ..facts() };
    let error = report(&facts, &selection("n-3"), now()).unwrap_err();
    assert!(matches!(error, HealthError::Unreadable { .. }), "{error}");
}

#[test]
fn a_cluster_without_definition_or_objects_says_what_to_do() {
    let text = |facts: &HealthFacts| {
        render(&report(facts, &Selection::default(), now()).unwrap(), options(false))
    };
    let undefined = text(&HealthFacts::default());
    assert!(undefined.contains("no definition of NodeHealth"), "{undefined}");
    assert!(undefined.contains("`octavo upgrade`"), "{undefined}");
    let empty = text(&HealthFacts { is_defined: true, ..HealthFacts::default() });
    assert!(empty.starts_with("There is no NodeHealth."), "{empty}");
    assert!(empty.contains("`octavo doctor`"), "{empty}");
    let gap = Gap { kind: GapKind::HealthPolicies, message: "no right".to_owned() };
    let blind = text(&HealthFacts { gaps: vec![gap], ..facts() });
    assert!(blind.contains("denied: healthpolicies (no right)"), "{blind}");
}

#[test]
fn a_breaker_that_closed_is_no_remark() {
    let later = "2026-01-05T12:30:00Z".parse().unwrap();
    let report = report(&facts(), &Selection::default(), later).unwrap();
    assert_eq!(report.stopped_policies, []);
    assert_eq!(report.refused_policies[0].policy, "a100");
}

#[test]
fn programs_get_states_and_sums() {
    let report = report(&facts(), &Selection::default(), now()).unwrap();
    let text = output::json("Health", &report).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["kind"], "Health");
    assert_eq!(value["totals"]["states"]["fenced"], 1);
    let fenced = &value["gpus"][0];
    assert_eq!((&fenced["gpu"], &fenced["needs"]), (&"gpu-1".into(), &"resetFunction".into()));
    assert_eq!((&fenced["mode"], &fenced["waits"]), (&"Act".into(), &"Clients".into()));
    assert!(fenced.get("record").is_none());
    assert_eq!(value["stoppedPolicies"][0]["until"], "2026-01-05T12:20:00Z");
}

#[test]
fn work_on_nodes_is_a_remark_until_it_is_over() {
    let work = |name: &str, accepted: &str, reason: &str, left: i64| {
        let text = format!(
            "
metadata: {{name: {name}}}
spec: {{nodeNames: [n-1], startTime: '2026-01-05T11:00:00Z', endTime: '2026-01-05T13:00:00Z'}}
status:
  nodes: 2
  podsLeft: {left}
  conditions:
    - {{type: Accepted, status: '{accepted}', reason: Any, message: no good, lastTransitionTime: 2026-01-05T00:00:00Z}}
    - {{type: InProgress, status: 'True', reason: {reason}, message: it is from noon to one, lastTransitionTime: 2026-01-05T00:00:00Z}}
"
        );
        (name.to_owned(), object::<Maintenance>(&text))
    };
    let maintenances = [
        work("now", "True", "InProgress", 3),
        work("old", "True", "Ended", 0),
        work("soon", "True", "Planned", 0),
        work("wrong", "False", "Planned", 0),
    ];
    let facts = HealthFacts { maintenances: maintenances.into(), ..facts() };
    let text = render(&report(&facts, &Selection::default(), now()).unwrap(), options(false));
    let now = "Maintenance now is from noon to one, of 2 nodes. 3 pods with GPUs are to leave.\n";
    assert!(text.contains(now), "{text}");
    assert!(text.contains("Maintenance soon is from noon to one, of 2 nodes.\n"), "{text}");
    assert!(text.contains("The Maintenance wrong is not carried out: no good.\n"), "{text}");
    assert!(!text.contains("Maintenance old"), "{text}");
}
