//! Devices: whole, shared and partitioned, with the attributes that selectors and constraints use.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use octavo_testkit::Rng;

use super::Plan;

/// Generates a device, which may consume counters of the pool's sets.
pub(super) fn device(
    rng: &mut Rng,
    plan: &Plan,
    driver: &str,
    name: &str,
    sets: &[api::CounterSet],
) -> api::Device {
    let shared = plan.shared && rng.chance(60);
    let mut device = api::Device {
        name: name.to_owned(),
        attributes: Some(attributes(rng, plan, driver)),
        capacity: Some(capacities(rng, plan, shared)),
        allow_multiple_allocations: shared.then_some(true),
        ..api::Device::default()
    };
    if plan.taints && rng.chance(28) {
        device.taints = Some((0..rng.between(1, 2)).map(|_| taint(rng)).collect());
    }
    if !sets.is_empty() && rng.chance(85) {
        device.consumes_counters = Some(draws(rng, sets));
    }
    if plan.binding && rng.chance(40) {
        device.binding_conditions = Some(vec!["example.com/attached".to_owned()]);
        device.binding_failure_conditions = Some(vec!["example.com/failed".to_owned()]);
        device.binds_to_node = rng.chance(50).then_some(true);
    }
    device
}

fn attributes(rng: &mut Rng, plan: &Plan, driver: &str) -> BTreeMap<String, api::DeviceAttribute> {
    let text = |value: &str| api::DeviceAttribute {
        string: Some(value.to_owned()),
        ..api::DeviceAttribute::default()
    };
    let int = |value: usize| api::DeviceAttribute { int: Some(value as i64), ..Default::default() };
    let mut all = vec![
        ("model", text(rng.word(&["a", "b"]))),
        ("numa", int(rng.below(2))),
        ("index", int(rng.below(4))),
        ("healthy", api::DeviceAttribute { bool: Some(rng.chance(80)), ..Default::default() }),
        (
            "firmware",
            api::DeviceAttribute {
                version: Some(rng.word(&["1.0.0", "1.2.0", "2.0.0-rc.1"]).to_owned()),
                ..Default::default()
            },
        ),
        ("topology.example.com/rack", text(rng.word(&["r1", "r2"]))),
    ];
    if plan.missing_attributes {
        all.retain(|_| rng.chance(80));
    }
    let qualified = rng.chance(15);
    let named = all.into_iter().map(|(name, value)| match name {
        // The driver's own domain is optional in attribute names.
        "numa" if qualified => (format!("{driver}/numa"), value),
        _ => (name.to_owned(), value),
    });
    named.collect()
}

fn capacities(rng: &mut Rng, plan: &Plan, shared: bool) -> BTreeMap<String, api::DeviceCapacity> {
    let mut all = BTreeMap::new();
    let policies = plan.policies && shared;
    let memory = rng.word(&["8Gi", "16Gi", "20Gi"]);
    let policy = (policies && rng.chance(80)).then(|| memory_policy(rng, memory));
    all.insert("memory".to_owned(), capacity(memory, policy));
    if rng.chance(60) {
        let policy = (policies && rng.chance(80)).then(|| compute_policy(rng));
        all.insert("compute".to_owned(), capacity("100", policy));
    }
    all
}

fn memory_policy(rng: &mut Rng, all: &str) -> api::CapacityRequestPolicy {
    match rng.below(4) {
        0 => policy(Some(rng.word(&["2Gi", "4Gi", "8Gi"])), None, None),
        1 => policy(Some("4Gi"), Some(&["1Gi", "4Gi", "8Gi"]), None),
        2 => policy(Some(all), None, Some(("1Mi", Some(all), Some("1Mi")))),
        _ => policy(Some("3Gi"), None, Some(("1Gi", rng.chance(50).then_some("7Gi"), Some("2Gi")))),
    }
}

fn compute_policy(rng: &mut Rng) -> api::CapacityRequestPolicy {
    match rng.below(5) {
        0 => policy(Some("0"), None, Some(("0", Some("100"), None))),
        1 => policy(Some("25"), Some(&["10", "25", "50", "100"]), None),
        2 => policy(Some("12500m"), Some(&["12500m", "25", "62500m"]), None),
        3 => policy(Some("20"), None, Some(("5", Some("80"), Some("15")))),
        _ => policy(Some("500m"), None, Some(("500m", None, None))),
    }
}

type Range<'a> = (&'a str, Option<&'a str>, Option<&'a str>);

fn policy(
    default: Option<&str>,
    values: Option<&[&str]>,
    range: Option<Range<'_>>,
) -> api::CapacityRequestPolicy {
    api::CapacityRequestPolicy {
        default: default.map(quantity),
        valid_values: values.map(|values| values.iter().map(|value| quantity(value)).collect()),
        valid_range: range.map(|(min, max, step)| api::CapacityRequestPolicyRange {
            min: quantity(min),
            max: max.map(quantity),
            step: step.map(quantity),
        }),
    }
}

fn capacity(value: &str, policy: Option<api::CapacityRequestPolicy>) -> api::DeviceCapacity {
    api::DeviceCapacity { value: quantity(value), request_policy: policy }
}

pub(super) fn quantity(value: &str) -> Quantity {
    Quantity(value.to_owned())
}

/// Requested capacities, including excessive amounts, fractions and unusual notations.
pub(super) fn amounts(rng: &mut Rng) -> BTreeMap<String, Quantity> {
    let mut amounts = BTreeMap::new();
    if rng.chance(75) {
        let memory = ["1Gi", "1536Mi", "2Gi", "3Gi", "4G", "6Gi", "8Gi", "1", "2.5Gi"];
        amounts.insert("memory".to_owned(), quantity(rng.word(&memory)));
    }
    if amounts.is_empty() || rng.chance(30) {
        let compute = ["10", "12500m", "0", "25", "33", "0.0004", "50", "1e1", "60"];
        amounts.insert("compute".to_owned(), quantity(rng.word(&compute)));
    }
    if rng.chance(2) {
        amounts.insert("nothing".to_owned(), quantity("1"));
    }
    amounts
}

fn taint(rng: &mut Rng) -> api::DeviceTaint {
    api::DeviceTaint {
        key: rng.word(&["example.com/broken", "example.com/reserved"]).to_owned(),
        value: rng.chance(60).then(|| rng.word(&["x", "y"]).to_owned()),
        effect: rng.word(&["NoSchedule", "NoSchedule", "NoExecute", "None"]).to_owned(),
        time_added: None,
    }
}

/// Counter sets of a pool: one per physical device, with capacity for some of its partitions.
pub(super) fn counter_sets(rng: &mut Rng) -> Vec<api::CounterSet> {
    let count = rng.between(1, 2);
    let set = |number: usize| {
        let counters = [("memory", rng.word(&["8Gi", "12Gi"])), ("slots", rng.word(&["3", "4"]))];
        let counters = counters.into_iter().map(|(name, value)| (name.to_owned(), counter(value)));
        api::CounterSet { name: format!("set-{number}"), counters: counters.collect() }
    };
    (0..count).map(set).collect()
}

fn draws(rng: &mut Rng, sets: &[api::CounterSet]) -> Vec<api::DeviceCounterConsumption> {
    let mut names: Vec<&str> = sets.iter().map(|set| set.name.as_str()).collect();
    rng.shuffle(&mut names);
    names.truncate(if rng.chance(30) { 2 } else { 1 });
    let mut draw = |set: &&str| {
        let memory = rng.word(&["2Gi", "4Gi", "8Gi"]);
        let slots = rng.word(&["1", "2", "1500m"]);
        let counters = [("memory", memory), ("slots", slots)];
        consumption(set, &counters[..rng.between(1, 2)])
    };
    names.iter().map(&mut draw).collect()
}

pub(super) fn consumption(set: &str, counters: &[(&str, &str)]) -> api::DeviceCounterConsumption {
    let counters = counters.iter().map(|(name, value)| ((*name).to_owned(), counter(value)));
    api::DeviceCounterConsumption { counter_set: set.to_owned(), counters: counters.collect() }
}

fn counter(value: &str) -> api::Counter {
    api::Counter { value: quantity(value) }
}
