use octavo_api::node_health::{
    DeviceOrders, NodeHealthSpec, Order, OrderWord, Permit as ApiPermit,
};
use octavo_health::policy::Mode;

use super::*;

fn policy(name: &str, pool: &str, mode: Mode) -> HealthPolicy {
    let mut policy =
        HealthPolicy::new(name, octavo_api::health_policy::HealthPolicySpec::default());
    policy.metadata.generation = Some(3);
    policy.spec.node_selector = [("pool".to_owned(), pool.to_owned())].into();
    policy.spec.mode = mode;
    policy
}

fn labels(pool: &str) -> BTreeMap<String, String> {
    [("pool".to_owned(), pool.to_owned())].into()
}

#[test]
fn the_first_policy_by_name_that_selects_the_node_is_in_force() {
    let policies = [
        policy("b", "gpu", Mode::Act),
        policy("c", "gpu", Mode::Observe),
        policy("a", "other", Mode::Observe),
    ];
    let chosen = Chosen::of(&policies, &labels("gpu"));
    assert_eq!(chosen.policy.mode, Mode::Act);
    let in_force = PolicyInForce { name: "b".to_owned(), generation: 3, mode: Mode::Act };
    assert_eq!((chosen.in_force, chosen.refused), (Some(in_force), None));
    let none = Chosen::of(&policies, &BTreeMap::new());
    assert_eq!((none.policy.mode, none.in_force), (Mode::Fence, None));
}

#[test]
fn a_policy_that_is_not_valid_gives_way_to_no_other() {
    let mut wrong = policy("a", "gpu", Mode::Act);
    wrong.spec.budget.remedies_percent = -1;
    let chosen = Chosen::of(&[wrong, policy("b", "gpu", Mode::Act)], &labels("gpu"));
    assert_eq!((chosen.policy.mode, chosen.in_force), (Mode::Fence, None));
    let refused = chosen.refused.unwrap();
    assert!(refused.contains("HealthPolicy a") && refused.contains("remediesPercent"), "{refused}");
}

#[test]
fn orders_and_permits_come_from_the_spec() {
    let order = Order { word: OrderWord::Fence, number: 4, reason: None };
    let permit =
        ApiPermit { after_attempt: 2, remedy: Remedy::ResetFunction, since: String::new() };
    let devices = vec![
        DeviceOrders { uuid: "a".to_owned(), order: Some(order), ..DeviceOrders::default() },
        DeviceOrders { uuid: "b".to_owned(), permit: Some(permit), ..DeviceOrders::default() },
    ];
    let object = NodeHealth::new("node", NodeHealthSpec { devices });
    let policy = Policy { mode: Mode::Act, evict: true, ..Policy::default() };
    let orders = Orders::of(policy, Some(&object), BTreeSet::new());
    assert_eq!((orders.policy.mode, orders.policy.evict), (Mode::Act, false), "the controller's");
    assert_eq!(orders.words, [("a".to_owned(), (4, Word::Fence))].into());
    let permit = Permit { after: Attempt(2), remedy: Remedy::ResetFunction };
    assert_eq!(orders.permits, [("b".to_owned(), permit)].into());
}
