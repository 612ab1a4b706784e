use octavo_api::node_health::{
    DeviceOrders, NodeHealthSpec, Order, OrderWord, Permit as ApiPermit,
};
use octavo_health::policy::Mode;

use serde_json::json;

use super::*;

fn labels(pool: &str) -> BTreeMap<String, String> {
    [("pool".to_owned(), pool.to_owned())].into()
}

/// Policies by name, each with what its spec has.
fn policies<const N: usize>(policies: [(&str, serde_json::Value); N]) -> Policies {
    let mut found = Policies::default();
    for (name, spec) in policies {
        let object = serde_json::json!({
            "apiVersion": "octavo.dev/v1alpha1", "kind": "HealthPolicy",
            "metadata": {"name": name, "generation": 3}, "spec": spec,
        });
        found.insert(&serde_json::from_value(object).unwrap());
    }
    found
}

#[test]
fn the_first_policy_by_name_that_selects_the_node_is_in_force() {
    let spec = |pool: &str, mode: &str| json!({"nodeSelector": {"pool": pool}, "mode": mode});
    let policies = policies([
        ("b", spec("gpu", "Act")),
        ("c", spec("gpu", "Observe")),
        ("a", spec("other", "Observe")),
    ]);
    let chosen = policies.choose(&labels("gpu"));
    assert_eq!(chosen.policy.mode, Mode::Act);
    let in_force = PolicyInForce { name: "b".to_owned(), generation: 3, mode: Mode::Act };
    assert_eq!((chosen.in_force, chosen.refused), (Some(in_force), None));
    let none = policies.choose(&BTreeMap::new());
    assert_eq!((none.policy.mode, none.in_force), (Mode::Fence, None));
}

#[test]
fn a_policy_that_is_not_valid_gives_way_to_no_other() {
    let selector = json!({"pool": "gpu"});
    let good = || ("b", json!({"nodeSelector": selector, "mode": "Act"}));
    for (wrong, reason) in [
        (json!({"nodeSelector": selector, "budget": {"remediesPercent": -1}}), "remediesPercent"),
        (json!({"nodeSelector": selector, "ofLaterVersion": 1}), "ofLaterVersion"),
    ] {
        let chosen = policies([("a", wrong), good()]).choose(&labels("gpu"));
        assert_eq!((chosen.policy.mode, chosen.in_force), (Mode::Fence, None));
        let refused = chosen.refused.unwrap();
        assert!(refused.contains("HealthPolicy a") && refused.contains(reason), "{refused}");
    }
}

#[test]
fn orders_and_permits_come_from_the_spec() {
    let order = Order { word: OrderWord::Fence, number: 4, reason: None };
    let permit = ApiPermit {
        after_attempt: 2,
        remedy: Remedy::ResetFunction,
        since: "1970-01-01T00:01:00Z".to_owned(),
    };
    let devices = vec![
        DeviceOrders { uuid: "a".to_owned(), order: Some(order), ..DeviceOrders::default() },
        DeviceOrders { uuid: "b".to_owned(), permit: Some(permit), ..DeviceOrders::default() },
    ];
    let object = NodeHealth::new("node", NodeHealthSpec { devices, ..NodeHealthSpec::default() });
    let policy = Policy { mode: Mode::Act, evict: true, ..Policy::default() };
    let orders = Orders::of(policy, Some(&object), BTreeSet::new());
    assert_eq!((orders.policy.mode, orders.policy.evict), (Mode::Act, false), "the controller's");
    assert_eq!(orders.words, [("a".to_owned(), (4, Word::Fence))].into());
    let permit = Permit { after: Attempt(2), remedy: Remedy::ResetFunction, since: 60 };
    assert_eq!(orders.permits, [("b".to_owned(), permit)].into());
}
