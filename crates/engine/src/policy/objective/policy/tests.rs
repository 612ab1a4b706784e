use std::cmp::Ordering;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::World;
use crate::cluster::Cluster;
use crate::gpu::GpuModel;
use crate::node::{NodeClass, NodeSpec};
use crate::resources::Resources;
use crate::topology::{Level, Topology};
use crate::workload::Workloads;

fn policy(value: serde_json::Value) -> PlacementPolicy {
    serde_json::from_value(value).unwrap()
}

fn error(value: serde_json::Value) -> String {
    serde_json::from_value::<PlacementPolicy>(value).unwrap_err().to_string()
}

fn with_order(order: &serde_json::Value) -> serde_json::Value {
    json!({ "name": "test", "order": order })
}

fn with_constraints(constraints: &serde_json::Value) -> serde_json::Value {
    json!({ "name": "test", "order": [{ "unit": "hops" }], "constraints": constraints })
}

fn cost(costs: &[(CostTerm, i64)]) -> CostVector {
    let mut vector = CostVector::default();
    for (unit, value) in costs {
        vector.set(*unit, *value);
    }
    vector
}

#[test]
fn default_policy_orders_disruption_hops_packing() {
    let policy = PlacementPolicy::default();
    let vector = |pods, hops, price| {
        cost(&[
            (CostTerm::PodsDisturbed, pods),
            (CostTerm::Hops, hops),
            (CostTerm::PackingPrice, price),
        ])
    };
    let best_first = [vector(0, 4, 90), vector(0, 6, -5), vector(0, 6, 10), vector(1, 0, 0)];
    assert!(best_first.is_sorted_by(|one, next| policy.compare(one, next) == Ordering::Less));
    let [first, second, third, last] = best_first;
    assert_eq!(policy.worse_in(&first, &second), Some(CostTerm::Hops));
    assert_eq!(policy.worse_in(&second, &third), Some(CostTerm::PackingPrice));
    assert_eq!(policy.worse_in(&third, &last), Some(CostTerm::PodsDisturbed));
    assert_eq!(policy.worse_in(&last, &third), None);
    assert_eq!(policy.worse_in(&last, &last), None);
    // A term outside the order has no influence.
    assert_eq!(
        policy.compare(&first, &first.plus(&cost(&[(CostTerm::Watts, 9)]))),
        Ordering::Equal
    );
    assert!(policy.is_packing_alone() && policy.is_preempting());
}

#[test]
fn a_sum_weighs_units_exactly() {
    let policy = policy(with_order(&json!([
        { "sum": [{ "unit": "watts", "weight": "1.5" }, { "unit": "centsPerHour", "weight": 2 }] },
        { "unit": "hops" },
    ])));
    let vector = |watts, cents, hops| {
        cost(&[(CostTerm::Watts, watts), (CostTerm::CentsPerHour, cents), (CostTerm::Hops, hops)])
    };
    // 1.5 * 4 + 2 * 3 = 1.5 * 8 + 2 * 0 = 12: the same, so hops decide.
    assert_eq!(policy.compare(&vector(4, 3, 2), &vector(8, 0, 1)), Ordering::Greater);
    assert_eq!(policy.worse_in(&vector(8, 0, 1), &vector(4, 3, 2)), Some(CostTerm::Hops));
    // 1.5 * 5 + 2 * 3 = 13.5 is more than 12: it loses by 4.5 in watts and gains in hops.
    assert_eq!(policy.worse_in(&vector(2, 4, 9), &vector(5, 3, 0)), Some(CostTerm::Watts));
    assert!(!policy.is_packing_alone());
    let huge = vector(i64::MAX, i64::MAX, 0);
    assert_eq!(policy.compare(&huge, &vector(i64::MAX, i64::MAX - 1, 0)), Ordering::Greater);
}

#[test]
fn costs_within_the_tolerance_leave_the_choice_to_the_next_unit() {
    let near = policy(with_order(&json!([
        { "unit": "hops", "tolerance": { "percent": 10 } }, { "unit": "watts" },
    ])));
    let vector = |hops, watts| cost(&[(CostTerm::Hops, hops), (CostTerm::Watts, watts)]);
    // Classes at 10 %: 1, 2, ... 10-11, 12-13, ...
    assert_eq!(near.compare(&vector(11, 50), &vector(10, 60)), Ordering::Less);
    assert_eq!(near.worse_in(&vector(11, 50), &vector(10, 60)), Some(CostTerm::Watts));
    assert_eq!(near.compare(&vector(12, 50), &vector(10, 60)), Ordering::Greater);
    // With all else equal, fewer are better.
    assert_eq!(near.compare(&vector(10, 50), &vector(11, 50)), Ordering::Less);
    assert_eq!(near.worse_in(&vector(10, 50), &vector(11, 50)), Some(CostTerm::Hops));
    let slack = policy(with_order(&json!([
        { "unit": "hops", "tolerance": { "absolute": 3 } }, { "unit": "watts" },
    ])));
    assert_eq!(slack.compare(&vector(3, 50), &vector(0, 60)), Ordering::Less);
    assert_eq!(slack.compare(&vector(4, 50), &vector(3, 60)), Ordering::Greater);
}

#[test]
fn decimals_are_read_exactly() {
    for (text, expected) in [
        ("1.5", 1_500_000),
        ("2.50", 2_500_000),
        ("0.000001", 1),
        ("1000000000", 1_000_000_000_000_000),
    ] {
        assert_eq!(decimal::micro(text), Ok(expected));
    }
    assert_eq!(decimal::micro("0.0000001"), Err(DecimalError::TooFine));
    assert_eq!(decimal::micro("1000000000.1"), Err(DecimalError::TooLarge));
    assert_eq!(decimal::micro("99999999999999999999"), Err(DecimalError::TooLarge));
    for text in ["", ".", "1.", ".5", "1e3", "+1", "--1", "NaN", "1,5", " 1"] {
        assert_eq!(decimal::micro(text), Err(DecimalError::Form), "{text:?}");
    }
}

#[test]
fn a_policy_is_written_as_it_was_read() {
    let value = json!({
        "name": "train",
        "order": [
            { "unit": "podsDisturbed" },
            { "unit": "hops", "tolerance": { "percent": 10 } },
            { "sum": [{ "unit": "gpuMilliStranded", "weight": "1.5" }] },
        ],
        "constraints": {
            "maxWatts": 500_000, "maxCentsPerHour": 9000, "maxPodsDisturbed": 16,
            "spares": [{ "level": "rack", "nodes": 1 }, { "nodes": 4 }],
        },
        "preemption": true,
    });
    let policy = policy(value.clone());
    assert_eq!(serde_json::to_value(&policy).unwrap(), value);
    let default = serde_json::to_value(PlacementPolicy::default()).unwrap();
    assert_eq!(super::tests::policy(default), PlacementPolicy::default());
}

#[test]
fn invalid_order_is_refused_by_field() {
    let units = "Units are: podsDisturbed, hops, preferencesMissed, gpuRisk, gpuMilliStranded, packingPrice, watts, \
                 centsPerHour, fairnessDeficit, expectedLostGpuSeconds";
    assert_eq!(
        error(json!({ "name": " ", "order": [{ "unit": "hops" }] })),
        "name: it is empty; decisions are explained by the name of their policy"
    );
    assert_eq!(
        error(with_order(&json!([]))),
        format!("order: it is empty; name at least one unit to compare by. {units}")
    );
    assert_eq!(
        error(with_order(&json!([{ "unit": "hops" }, { "unit": "watt" }]))),
        format!("order[1].unit: there is no unit \"watt\"; did you mean \"watts\"? {units}")
    );
    assert_eq!(
        error(with_order(&json!([{ "sum": [{ "unit": "CentsPerHr", "weight": 1 }] }]))),
        format!(
            "order[0].sum[0].unit: there is no unit \"CentsPerHr\"; did you mean \
             \"centsPerHour\"? {units}"
        )
    );
    assert_eq!(
        error(with_order(&json!([
            { "unit": "hops" },
            { "sum": [{ "unit": "watts", "weight": 1 }, { "unit": "hops", "weight": 2 }] },
        ]))),
        "order[1].sum[1].unit: the unit hops is in order[0].unit already; name each unit once"
    );
    assert_eq!(
        error(with_order(&json!([{}]))),
        "order[0]: a step has either a unit or a sum of units, and this one has neither"
    );
    let both = json!([{ "unit": "hops", "sum": [{ "unit": "watts", "weight": 1 }] }]);
    assert_eq!(
        error(with_order(&both)),
        "order[0]: a step has either a unit or a sum of units, and this one has both"
    );
    assert!(error(with_order(&json!([{ "unit": "hops", "wieght": 1 }]))).contains("wieght"));
}

#[test]
fn invalid_weight_is_refused_by_field() {
    let weighted = |weight: serde_json::Value| {
        error(with_order(&json!([{ "sum": [{ "unit": "watts", "weight": weight }] }])))
    };
    assert_eq!(
        weighted(json!("-2")),
        "order[0].sum[0].weight: \"-2\" is not a weight: it is negative, but less is better in every \
         unit"
    );
    assert_eq!(
        weighted(json!(2_000_000_000)),
        "order[0].sum[0].weight: \"2000000000\" is not a weight: it is above 1000000000; put the unit \
         into a step of its own instead"
    );
    assert_eq!(
        weighted(json!("0.0")),
        "order[0].sum[0].weight: with the weight 0 the unit watts has no influence; leave it out"
    );
    assert_eq!(
        weighted(json!("a lot")),
        "order[0].sum[0].weight: \"a lot\" is not a weight: it is not a decimal number such as 2 or \
         \"1.5\""
    );
    assert!(weighted(json!(1.5)).contains("decimal number in quotes such as \"1.5\""));
}

#[test]
fn invalid_tolerance_is_refused_by_field() {
    let tolerance = |tolerance: serde_json::Value| {
        error(with_order(&json!([{ "unit": "hops", "tolerance": tolerance }])))
    };
    assert_eq!(
        tolerance(json!({ "percent": 101 })),
        "order[0].tolerance.percent: it must be a whole number from 1 to 100"
    );
    assert_eq!(
        tolerance(json!({ "absolute": -1 })),
        "order[0].tolerance.absolute: it must be 1 or more"
    );
    assert_eq!(
        tolerance(json!({ "absolute": 1, "percent": 1 })),
        "order[0].tolerance: set either percent or absolute, not both"
    );
    assert_eq!(
        tolerance(json!({})),
        "order[0].tolerance: it is empty; set percent or absolute, or leave it out"
    );
    let of_sum = json!([
        { "sum": [{ "unit": "watts", "weight": 1 }], "tolerance": { "percent": 5 } },
    ]);
    assert_eq!(
        error(with_order(&of_sum)),
        "order[0].tolerance: a tolerance is in one unit, so a sum cannot have one; put the unit \
         that may differ into a step of its own"
    );
}

#[test]
fn constraints_that_contradict_one_another_are_refused_by_field() {
    assert_eq!(
        error(with_constraints(&json!({ "maxWatts": 0 }))),
        "constraints.maxWatts: it is 0, but 1 is the least that makes sense; leave it out for no \
         limit"
    );
    assert_eq!(
        error(with_constraints(&json!({ "maxPodsDisturbed": -1 }))),
        "constraints.maxPodsDisturbed: it is -1, but 0 is the least that makes sense; leave it out \
         for no limit"
    );
    assert_eq!(
        error(with_constraints(&json!({ "spares": [{ "nodes": 0 }] }))),
        "constraints.spares[0].nodes: it is 0, but 1 is the least that makes sense; leave the \
         entry out for no spare nodes"
    );
    assert_eq!(
        error(with_constraints(
            &json!({ "spares": [{ "nodes": 1 }, { "level": "cluster", "nodes": 2 }] })
        )),
        "constraints.spares[1]: spare nodes of the level \"cluster\" are in constraints.spares[0] \
         already"
    );
    let preempting = |preemption: bool, most: i64| {
        let mut value = with_constraints(&json!({ "maxPodsDisturbed": most }));
        value["preemption"] = json!(preemption);
        value
    };
    assert_eq!(
        error(preempting(true, 0)),
        "constraints.maxPodsDisturbed, preemption: with 0 pods disturbed nothing can be preempted; \
         raise the limit or turn preemption off"
    );
    assert_eq!(
        error(preempting(false, 3)),
        "constraints.maxPodsDisturbed, preemption: without preemption no pod is disturbed; leave \
         the limit out or turn preemption on"
    );
    assert!(!policy(preempting(false, 0)).is_preempting());
    assert!(!policy(with_constraints(&json!({ "maxPodsDisturbed": 0 }))).is_preempting());
}

/// Two racks of two nodes with one GPU each, and a node without GPUs.
fn world() -> World {
    let model = GpuModel {
        name: "T4".to_owned(),
        memory_mib: 0,
        idle_watts: 10,
        full_watts: 70,
        mig: Vec::new(),
    };
    let node = |number: u16| {
        let class = NodeClass {
            capacity: Resources { cpu_milli: 8000, memory_mib: 0, pods: 10 },
            gpus: u16::from(number < 4),
            idle_watts: 20,
            full_watts: 100,
            ..NodeClass::default()
        };
        let labels = [("rack".to_owned(), format!("r{}", number / 2))].into();
        NodeSpec { name: format!("n{number}").into(), class, labels }
    };
    let nodes: Vec<_> = (0..5).map(node).collect();
    let levels = [Level { name: "rack".into(), label: "rack".to_owned(), is_unique: false }];
    let topology = Topology::from_labels(&levels, nodes.iter().map(|node| &node.labels)).unwrap();
    let cluster = Cluster::new(vec![model], nodes).unwrap();
    World { cluster, topology, workloads: Workloads::default() }
}

#[test]
fn limits_that_the_cluster_cannot_keep_are_refused_by_field() {
    let world = world();
    let check = |constraints| policy(with_constraints(&constraints)).check(&world);
    let error = |constraints| check(constraints).unwrap_err().to_string();
    assert_eq!(
        check(json!({ "maxWatts": 140, "spares": [{ "level": "rack", "nodes": 2 }] })),
        Ok(())
    );
    assert_eq!(
        error(json!({ "maxWatts": 139 })),
        "constraints.maxWatts: the limit is 139 W, but the cluster draws 140 W when nothing runs; \
         nothing could ever be placed"
    );
    assert_eq!(
        error(json!({ "spares": [{ "level": "row", "nodes": 1 }] })),
        "constraints.spares[0].level: the topology has no level \"row\"; its levels are: cluster, \
         rack"
    );
    assert_eq!(
        error(json!({ "spares": [{ "level": "rack", "nodes": 3 }] })),
        "constraints.spares[0].nodes: 3 nodes with GPUs are to be left free, but rack r0 has \
         only 2"
    );
    assert_eq!(
        error(json!({ "spares": [{ "nodes": 5 }] })),
        "constraints.spares[0].nodes: 5 nodes with GPUs are to be left free, but the cluster \
         has only 4"
    );
}

fn any_cost() -> impl Strategy<Value = CostVector> {
    let value = prop_oneof![-3_i64..30, -1000_i64..1000, any::<i64>()];
    prop::collection::vec(value, CostTerm::ALL.len()).prop_map(|values| {
        let mut vector = CostVector::default();
        for (unit, value) in CostTerm::ALL.into_iter().zip(values) {
            vector.set(unit, value);
        }
        vector
    })
}

fn any_policy() -> impl Strategy<Value = PlacementPolicy> {
    let units = Just(CostTerm::ALL.to_vec()).prop_shuffle();
    let forms = prop::collection::vec((0_u8..4, 1_u32..100), CostTerm::ALL.len());
    (units, forms, 1_usize..=CostTerm::ALL.len()).prop_map(|(units, forms, count)| {
        let mut order: Vec<StepSpec> = Vec::new();
        for (unit, (form, number)) in units.into_iter().zip(forms).take(count) {
            let term = || TermSpec {
                unit: unit.to_string(),
                weight: WrittenDecimal(format!("{}.{}", number / 10, number % 10 + 1)),
            };
            let tolerance = |percent, absolute| StepSpec {
                unit: Some(unit.to_string()),
                tolerance: Some(ToleranceSpec { percent, absolute }),
                ..StepSpec::default()
            };
            match (form, order.last_mut()) {
                (0, Some(step)) if !step.sum.is_empty() => step.sum.push(term()),
                (0, _) => order.push(StepSpec { sum: vec![term()], ..StepSpec::default() }),
                (1, _) => order.push(tolerance(Some(number.into()), None)),
                (2, _) => order.push(tolerance(None, Some(number.into()))),
                _ => {
                    let unit = Some(unit.to_string());
                    order.push(StepSpec { unit, ..StepSpec::default() });
                }
            }
        }
        let name = "any".to_owned();
        let constraints = Constraints::default();
        PolicySpec { name, order, constraints, preemption: None }.try_into().unwrap()
    })
}

proptest! {
    #[test]
    fn cost_order_is_total_and_names_the_deciding_term(
        policy in any_policy(),
        [one, two, three] in [any_cost(), any_cost(), any_cost()],
    ) {
        prop_assert_eq!(policy.compare(&one, &one), Ordering::Equal);
        prop_assert_eq!(policy.compare(&one, &two), policy.compare(&two, &one).reverse());
        let mut sorted = [one, two, three];
        sorted.sort_by(|left, right| policy.compare(left, right));
        prop_assert_ne!(policy.compare(&sorted[0], &sorted[2]), Ordering::Greater);
        if policy.compare(&one, &two).is_eq() {
            prop_assert_eq!(policy.compare(&one, &three), policy.compare(&two, &three));
        }
        let worse_in = policy.worse_in(&one, &two);
        prop_assert_eq!(worse_in.is_some(), policy.compare(&one, &two).is_lt());
        if let Some(unit) = worse_in {
            prop_assert!(policy.has(unit) && two.of(unit) > one.of(unit));
        }
    }

    #[test]
    fn what_counts_as_equal_is_within_the_tolerance(
        percent in 1_u8..=100,
        slack in 1_i64..1000,
        one in prop_oneof![-2000_i64..2000, any::<i64>()],
        more in 0_i64..2000,
    ) {
        let other = one.saturating_add(more);
        let wide = Classes::absolute(slack);
        prop_assert!(wide.class(one) <= wide.class(other));
        prop_assert!(wide.class(one) < wide.class(other) || other - one <= slack);
        let near = Classes::percent(percent);
        prop_assert!(near.class(one) <= near.class(other));
        let lower = i128::from(one.unsigned_abs().min(other.unsigned_abs()));
        let difference = i128::from(other) - i128::from(one);
        prop_assert!(
            near.class(one) < near.class(other) || difference * 100 <= lower * i128::from(percent)
        );
    }
}
