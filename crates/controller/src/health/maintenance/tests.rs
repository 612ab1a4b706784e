use std::collections::BTreeMap;

use octavo_api::Condition;
use octavo_api::names::{CONDITION_ACCEPTED, CONDITION_DRAINED, CONDITION_IN_PROGRESS};
use proptest::collection::vec;
use proptest::prelude::{any, prop_assert, proptest};
use serde_json::{Value, json};

use super::*;
use crate::health::facts::{Change, labels, maintenance};

/// The start of all work here.
const START: u64 = 1_000_000;
const HOUR: u64 = 3_600;

struct Bench {
    facts: Facts,
    findings: Findings,
    budgets: BTreeMap<&'static str, EvictionBudget>,
    now: u64,
}

fn name(number: usize) -> String {
    format!("n{number}")
}

impl Bench {
    /// Nodes of one pool, before all work.
    fn new(nodes: usize) -> Self {
        let mut facts = Facts::default();
        for number in 0..nodes {
            let labels = labels(&[("pool".to_owned(), "a".to_owned())]);
            facts.nodes.insert(
                name(number),
                NodeFacts { labels, is_labelled_with_gpus: true, ..NodeFacts::default() },
            );
        }
        let findings = Findings::default();
        Self { facts, findings, budgets: BTreeMap::new(), now: START - 2 * HOUR }
    }

    fn add(&mut self, name: &str, spec: &Value) {
        let mut all = json!({
            "startTime": date(START), "endTime": date(START + HOUR), "noticeSeconds": 0,
        });
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let object = json!({
            "apiVersion": "octavo.dev/v1alpha1", "kind": "Maintenance",
            "metadata": {"name": name, "uid": name, "generation": 1, "creationTimestamp": date(self.now)},
            "spec": all,
        });
        let object = serde_json::from_value(object).unwrap();
        self.facts.apply(Change::Put(name.to_owned(), maintenance(&object)));
    }

    /// Plans, and carries the plan out but for evictions.
    fn round(&mut self) -> MaintenancePlan {
        let plan = plan(&self.facts, &mut self.budgets.clone(), &mut self.findings, self.now);
        for (name, is_wanted) in &plan.taints {
            self.facts.nodes.get_mut(name).unwrap().is_in_maintenance = *is_wanted;
        }
        for WorkStatus { name, status, .. } in &plan.statuses {
            self.facts.maintenances.get_mut(name).unwrap().status = status.clone();
        }
        plan
    }

    fn tainted(&self) -> usize {
        self.facts.nodes.values().filter(|node| node.is_in_maintenance).count()
    }

    fn status(&self, name: &str) -> &MaintenanceStatus {
        &self.facts.maintenances[name].status
    }

    fn draining(&self, name: &str) -> Vec<&str> {
        self.status(name).draining.iter().map(|node| node.name.as_str()).collect()
    }

    fn condition(&self, name: &str, type_: &str) -> Option<(&str, &str)> {
        let is_it = |it: &&Condition| it.type_ == type_;
        let found = self.status(name).conditions.iter().find(is_it)?;
        Some((found.status.as_str(), found.reason.as_str()))
    }
}

#[test]
fn nodes_have_the_taint_exactly_while_work_is_in_progress() {
    let mut bench = Bench::new(3);
    bench.add("m", &json!({"nodeNames": ["n0", "n1"], "drain": "None"}));
    bench.round();
    assert_eq!(bench.tainted(), 0);
    assert_eq!(bench.condition("m", CONDITION_IN_PROGRESS), Some(("False", "Planned")));
    bench.now = START;
    assert_eq!(bench.round().visits, [], "pods may run on");
    assert_eq!(bench.tainted(), 2);
    assert_eq!(bench.condition("m", CONDITION_IN_PROGRESS), Some(("True", "InProgress")));
    assert_eq!(bench.round(), MaintenancePlan::default(), "nothing is written without a change");
    bench.now = START + HOUR;
    bench.round();
    assert_eq!((bench.tainted(), bench.status("m").nodes), (0, 2));
    assert_eq!(bench.condition("m", CONDITION_IN_PROGRESS), Some(("False", "Ended")));
    assert_eq!(bench.round(), MaintenancePlan::default());
}

#[test]
fn work_that_is_called_off_or_overlaps_leaves_no_taint_behind_and_ends_none() {
    let mut bench = Bench::new(2);
    bench.add("a", &json!({"nodeSelector": {"pool": "a"}}));
    bench.add("b", &json!({"nodeNames": ["n0"], "endTime": date(START + 2 * HOUR)}));
    bench.now = START;
    bench.round();
    assert_eq!(bench.tainted(), 2);
    bench.facts.maintenances.remove("a");
    bench.round();
    assert!(bench.facts.nodes["n0"].is_in_maintenance && bench.tainted() == 1);
}

#[test]
fn what_is_wrong_or_in_the_past_is_not_carried_out_and_says_why() {
    let mut bench = Bench::new(1);
    bench.now = START + 2 * HOUR;
    bench.add("past", &json!({"nodeNames": ["n0"]}));
    bench.add("wrong", &json!({"nodeNames": ["n0"], "noticeSeconds": -1}));
    bench.add("empty", &json!({"nodeSelector": {}}));
    bench.round();
    assert_eq!(bench.condition("past", CONDITION_ACCEPTED), Some(("False", "WindowInPast")));
    assert_eq!(bench.condition("wrong", CONDITION_ACCEPTED), Some(("False", "InvalidMaintenance")));
    let message = &bench.status("wrong").conditions[0].message;
    assert_eq!(message, "noticeSeconds: it is -1, and must be from 0 to 31536000");
    assert!(bench.status("empty").conditions[0].message.contains("are both empty"));
    bench.now = START;
    bench.add("none", &json!({"nodeSelector": {"pool": "z"}}));
    bench.round();
    assert_eq!(bench.condition("none", CONDITION_ACCEPTED), Some(("True", "NoNodes")));
}

#[test]
fn nodes_are_drained_within_the_budget_and_the_others_follow() {
    let mut bench = Bench::new(40);
    bench.add("m", &json!({"nodeSelector": {"pool": "a"}}));
    bench.now = START;
    let plan = bench.round();
    assert_eq!((plan.visits.len(), bench.draining("m").len()), (40, 0), "pods are counted first");
    for number in 0..40 {
        bench.findings.pods.insert(name(number), usize::from(number < 5) * 2);
    }
    let plan = bench.round();
    assert_eq!(bench.draining("m"), ["n0", "n1"], "5% of 40 nodes");
    assert_eq!(plan.visits.iter().filter(|visit| visit.is_drained).count(), 2);
    assert_eq!(bench.status("m").pods_left, 10);
    assert_eq!(bench.condition("m", CONDITION_DRAINED), Some(("False", "PodsLeft")));
    bench.findings.pods.insert(name(0), 0);
    bench.round();
    assert_eq!(bench.draining("m"), ["n1", "n2"]);
    // Pods that do not leave hold up no other node, also for another controller.
    bench.findings = Findings { pods: bench.findings.pods.clone(), ..Findings::default() };
    bench.now += 600;
    bench.round();
    assert_eq!(bench.draining("m"), ["n1", "n2", "n3", "n4"]);
    for number in 1..5 {
        bench.findings.pods.insert(name(number), 0);
    }
    bench.round();
    assert_eq!(bench.condition("m", CONDITION_DRAINED), Some(("True", "NoPodsLeft")));
    bench.now = START + HOUR;
    bench.round();
    assert_eq!(bench.condition("m", CONDITION_DRAINED), Some(("True", "NoPodsLeft")));
    assert!(bench.findings.pods.is_empty(), "the next work counts again");
}

#[test]
fn a_node_without_its_taint_yet_loses_no_pod() {
    let mut bench = Bench::new(1);
    bench.add("m", &json!({"nodeNames": ["n0"]}));
    bench.now = START;
    bench.findings.pods.insert(name(0), 1);
    let plan = plan(&bench.facts, &mut BTreeMap::new(), &mut bench.findings, bench.now);
    assert_eq!(plan.taints, [(name(0), true)]);
    assert_eq!(plan.statuses[0].status.draining, []);
}

#[test]
fn evictions_for_health_and_an_open_breaker_count() {
    let mut bench = Bench::new(4);
    let spec = json!({"nodeSelector": {"pool": "a"}});
    let policy = json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "HealthPolicy",
        "metadata": {"name": "p"}, "spec": spec,
    });
    let policy = crate::health::facts::policy(&serde_json::from_value(policy).unwrap());
    bench.facts.apply(Change::Put("p".to_owned(), policy));
    bench.add("m", &spec);
    bench.now = START;
    bench.round();
    for number in 0..4 {
        bench.findings.pods.insert(name(number), 1);
    }
    let budget = EvictionBudget { most: 2, stuck: 600, ..EvictionBudget::default() };
    let busy = ["n3".to_owned()].into();
    bench.budgets.insert("p", EvictionBudget { busy, is_stopped: true, ..budget.clone() });
    bench.round();
    assert_eq!(bench.draining("m"), [""; 0], "many nodes failed at once");
    bench.budgets.insert("p", EvictionBudget { busy: ["n3".to_owned()].into(), ..budget });
    bench.round();
    assert_eq!(bench.draining("m"), ["n0", "n3"], "the other of two loses pods already");
    assert_eq!(draining(&bench.facts, bench.now).len(), 2);
}

#[test]
fn nodes_without_gpus_make_the_budget_no_larger() {
    let mut bench = Bench::new(60);
    for number in 20..60 {
        bench.facts.nodes.get_mut(&name(number)).unwrap().is_labelled_with_gpus = false;
    }
    bench.facts.healths.insert(name(20), crate::health::facts::HealthFacts::default());
    bench.add("m", &json!({"nodeNames": ["n0", "n1", "n2"]}));
    bench.now = START;
    bench.round();
    for number in 0..3 {
        bench.findings.pods.insert(name(number), 1);
    }
    bench.round();
    assert_eq!(bench.draining("m"), ["n0"], "5% of 21 nodes");
}

#[test]
fn nodes_are_drained_only_once_all_have_the_taint() {
    let mut bench = Bench::new(2);
    bench.add("m", &json!({"nodeSelector": {"pool": "a"}}));
    bench.now = START;
    bench.round();
    bench.findings.pods = BTreeMap::from([(name(0), 0), (name(1), 0)]);
    bench.facts.nodes.get_mut("n1").unwrap().is_in_maintenance = false;
    let plan = plan(&bench.facts, &mut bench.budgets.clone(), &mut bench.findings, bench.now);
    let drained =
        plan.statuses[0].status.conditions.iter().find(|it| it.type_ == CONDITION_DRAINED);
    let drained = drained.unwrap();
    assert_eq!((&*drained.status, &*drained.reason), ("False", "PodsLeft"));
    assert_eq!(drained.message, "1 nodes do not have the taint yet, so that pods may come");
    bench.round();
    bench.round();
    assert_eq!(bench.condition("m", CONDITION_DRAINED), Some(("True", "NoPodsLeft")));
}

#[test]
fn a_drain_that_is_called_off_stops_before_the_next_status() {
    let draining = vec![DrainingNode { name: name(0), since: date(START) }];
    let drains = |spec: &Value| {
        let mut bench = Bench::new(1);
        bench.add("m", spec);
        let work = bench.facts.maintenances.get_mut("m").unwrap();
        work.status.draining.clone_from(&draining);
        work.drains("n0", &bench.facts.nodes["n0"], START)
    };
    assert!(drains(&json!({"nodeNames": ["n0"]})));
    assert!(drains(&json!({"nodeSelector": {"pool": "a"}})));
    for spec in [
        json!({"nodeNames": ["n0"], "drain": "None"}),
        json!({"nodeNames": ["n1"]}),
        json!({"nodeSelector": {"pool": "b"}}),
    ] {
        assert!(!drains(&spec), "{spec}");
    }
}

#[test]
fn work_that_is_made_again_under_its_name_informs_owners_again() {
    let mut bench = Bench::new(1);
    let spec = json!({"nodeNames": ["n0"], "noticeSeconds": 3 * HOUR});
    bench.add("m", &spec);
    bench.findings.informed.insert(("m".to_owned(), Some(1)));
    assert_eq!(bench.round().notices, []);
    let again = bench.facts.maintenances.get_mut("m").unwrap();
    "other".clone_into(&mut again.version.uid);
    again.status = MaintenanceStatus::default();
    assert_eq!(bench.round().notices[0].uid, "other");
}

#[test]
fn owners_are_informed_once_for_each_version() {
    let mut bench = Bench::new(2);
    bench.add("m", &json!({"nodeNames": ["n1"], "noticeSeconds": HOUR, "reason": "firmware"}));
    assert_eq!(bench.round().notices, []);
    bench.now = START - HOUR;
    let plan = bench.round();
    let notice = &plan.notices[0];
    assert_eq!((notice.nodes.len(), notice.generation), (1, Some(1)));
    assert!(notice.note.ends_with(": firmware"), "{}", notice.note);
    assert_eq!(bench.round().notices.len(), 1, "it is wanted until it is done");
    bench.findings.informed.insert(("m".to_owned(), Some(1)));
    assert_eq!(bench.round().notices, []);
    bench.findings = Findings::default();
    assert_eq!(bench.round().notices, [], "the status says so to another controller");
    bench.facts.maintenances.get_mut("m").unwrap().generation = Some(2);
    assert_eq!(bench.round().notices.len(), 1);
}

proptest! {
    /// Whatever pods do and controllers come: what loses pods is within the budget, and is in work in progress with its taint.
    #[test]
    fn nodes_that_lose_pods_are_few_and_meant(
        steps in vec((any::<bool>(), 0_usize..20, 0_usize..3, 0_u64..900), 1..60),
    ) {
        let mut bench = Bench::new(20);
        bench.add("a", &json!({"nodeSelector": {"pool": "a"}}));
        bench.add("b", &json!({"nodeNames": ["n3", "n4"], "endTime": date(START + 3 * HOUR)}));
        bench.now = START - HOUR;
        for (restarts, node, pods, passed) in steps {
            bench.now += passed;
            if restarts {
                bench.findings = Findings::default();
            }
            bench.findings.pods.insert(name(node), pods);
            bench.round();
            let mut fresh = 0;
            for (work, facts) in &bench.facts.maintenances {
                for node in &facts.status.draining {
                    let plan = facts.open(bench.now).expect(work);
                    let known = &bench.facts.nodes[&node.name];
                    prop_assert!(is_meant(plan, &node.name, known) && known.is_in_maintenance);
                    fresh += usize::from(bench.now - since(node, bench.now) < 600);
                }
            }
            prop_assert!(fresh <= 1, "5% of 20 nodes: {fresh}");
        }
    }
}
