use super::*;
use crate::features::{Feature, Features};
use crate::node::Node;
use crate::slice::{CounterConsumption, CounterSet, Device, NodeScope, Slice};

fn node(name: &str) -> Node {
    Node { name: name.to_owned(), ..Node::default() }
}

/// A slice of pool `p` with devices, for a node.
fn slice(name: &str, node: &str, generation: i64, count: i64, devices: &[&str]) -> Slice {
    let device = |name: &&str| Device { name: (*name).to_owned(), ..Device::default() };
    Slice {
        name: name.to_owned(),
        driver: "d".to_owned(),
        pool: "p".to_owned(),
        generation,
        slice_count: count,
        nodes: NodeScope::Node(node.to_owned()),
        counters: Vec::new(),
        devices: devices.iter().map(device).collect(),
    }
}

fn counting(name: &str, sets: &[&str], count: i64) -> Slice {
    let set = |name: &&str| CounterSet {
        name: (*name).to_owned(),
        counters: [("c".to_owned(), crate::Quantity::decimal(1))].into(),
    };
    let counters = sets.iter().map(set).collect();
    Slice { counters, ..slice(name, "n1", 1, count, &[]) }
}

fn drawing(mut slice: Slice, set: &str, counter: &str) -> Slice {
    for device in &mut slice.devices {
        device.consumes.push(CounterConsumption {
            counter_set: set.to_owned(),
            counters: [(counter.to_owned(), crate::Quantity::decimal(1))].into(),
        });
    }
    slice
}

/// The pools of `n1`, each with its state and devices.
fn seen_with(slices: &[Slice], features: Features) -> Vec<String> {
    let inventory = Inventory::new(slices, features);
    let pools = inventory.node_pools(&node("n1")).unwrap();
    let words = |pool: &NodePool| {
        let devices = pool.slices.iter().flat_map(|&slice| &inventory.slices[slice].devices);
        let names: Vec<&str> = devices.map(|device| device.name.as_str()).collect();
        let state = match &pool.state {
            PoolState::Ready => names.join(" "),
            PoolState::Incomplete => "incomplete".to_owned(),
            PoolState::Invalid(defect) => defect.to_string(),
        };
        format!("{}: {state}", inventory.pool_ref_of(pool.generation))
    };
    pools.iter().map(words).collect()
}

fn seen(slices: &[Slice]) -> Vec<String> {
    seen_with(slices, Features::default())
}

#[test]
fn slices_of_a_pool_are_taken_by_name() {
    let slices = [slice("s2", "n1", 1, 2, &["a"]), slice("s1", "n1", 1, 2, &["b", "c"])];
    assert_eq!(seen(&slices), ["d/p: b c a"]);
}

#[test]
fn the_newest_generation_counts() {
    let slices = [slice("s1", "n1", 1, 1, &["old"]), slice("s2", "n1", 2, 1, &["new"])];
    assert_eq!(seen(&slices), ["d/p: new"]);
}

#[test]
fn a_pool_without_all_its_slices_is_incomplete() {
    assert_eq!(seen(&[slice("s1", "n1", 1, 2, &["a"])]), ["d/p: incomplete"]);
    let too_many = [slice("s1", "n1", 1, 1, &["a"]), slice("s2", "n1", 1, 1, &["b"])];
    assert_eq!(seen(&too_many), ["d/p: incomplete"]);
}

#[test]
fn slices_for_other_nodes_complete_a_pool_but_do_not_show_in_it() {
    let slices = [slice("s1", "n1", 1, 2, &["a"]), slice("s2", "n2", 1, 2, &["b"])];
    assert_eq!(seen(&slices), ["d/p: a"]);
}

#[test]
fn a_pool_that_is_renewed_on_another_node_is_left_out() {
    let slices = [slice("s1", "n1", 1, 2, &["a"]), slice("s2", "n2", 2, 2, &["b"])];
    assert!(seen(&slices).is_empty());
    // Unless the slices that the node sees are a pool by themselves.
    let slices = [slice("s1", "n1", 1, 1, &["a"]), slice("s2", "n2", 2, 1, &["b"])];
    assert_eq!(seen(&slices), ["d/p: a"]);
}

#[test]
fn pools_are_taken_by_driver_and_name() {
    let pool = |name: &str, driver: &str, pool: &str| Slice {
        driver: driver.to_owned(),
        pool: pool.to_owned(),
        ..slice(name, "n1", 1, 1, &["x"])
    };
    let slices = [pool("1", "e", "a"), pool("2", "d", "z"), pool("3", "d", "b")];
    assert_eq!(seen(&slices), ["d/b: x", "d/z: x", "e/a: x"]);
}

#[test]
fn pools_with_binding_conditions_come_last() {
    let mut bound = slice("1", "n1", 1, 1, &["bound"]);
    bound.devices[0].binding_conditions = vec!["Ready".to_owned()];
    let mut other = slice("2", "n1", 1, 1, &["plain"]);
    other.pool = "q".to_owned();
    assert_eq!(seen(&[bound, other]), ["d/q: plain", "d/p: bound"]);
}

#[test]
fn two_devices_of_one_name_make_a_pool_invalid() {
    let slices = [slice("s1", "n1", 1, 2, &["a"]), slice("s2", "n1", 1, 2, &["a"])];
    assert_eq!(seen(&slices), ["d/p: two devices are named a"]);
    let apart = [slice("s1", "n1", 1, 2, &["a"]), slice("s2", "n2", 1, 2, &["a"])];
    assert_eq!(seen(&apart), ["d/p: a"], "on different nodes they may share a name");
}

#[test]
fn counters_must_be_there_and_be_there_once() {
    let with = |draws: Slice| vec![counting("s0", &["set"], 2), draws];
    let one = || slice("s1", "n1", 1, 2, &["a"]);
    assert_eq!(seen(&with(drawing(one(), "set", "c"))), ["d/p: a"]);
    assert_eq!(
        seen(&with(drawing(one(), "other", "c"))),
        ["d/p: device a draws from counter set other, which the pool does not have"]
    );
    assert_eq!(
        seen(&with(drawing(one(), "set", "d"))),
        ["d/p: device a draws from counter d, which counter set set does not have"]
    );
    let twice = [counting("s0", &["set"], 2), counting("s1", &["set"], 2)];
    assert_eq!(seen(&twice), ["d/p: two counter sets are named set"]);
}

#[test]
fn what_devices_on_other_nodes_draw_is_looked_at_too() {
    let far = drawing(slice("s2", "n2", 1, 3, &["b"]), "other", "c");
    let slices = [counting("s0", &["set"], 3), slice("s1", "n1", 1, 3, &["a"]), far];
    assert_eq!(
        seen(&slices),
        ["d/p: device b draws from counter set other, which the pool does not have"]
    );
}

#[test]
fn counters_count_for_every_node() {
    let mut counters = counting("s0", &["set"], 2);
    counters.nodes = NodeScope::Node("n2".to_owned());
    let slices = [counters.clone(), drawing(slice("s1", "n1", 1, 2, &["a"]), "set", "c")];
    assert_eq!(seen(&slices), ["d/p: a"]);
    assert_eq!(seen(&[counters.clone()]), ["d/p: incomplete"]);
    counters.slice_count = 1;
    assert!(seen(&[counters]).is_empty(), "a whole pool of another node does not matter");
}

#[test]
fn without_the_feature_counters_are_not_seen() {
    let features = Features::default().without(Feature::PartitionableDevices);
    let slices =
        [counting("s0", &["set"], 1), drawing(slice("s1", "n1", 1, 1, &["a"]), "other", "c")];
    assert_eq!(seen_with(&slices, features), ["d/p: a"]);
    let mut per_device = slice("s1", "n1", 1, 1, &["a"]);
    per_device.nodes = NodeScope::PerDevice;
    per_device.devices[0].nodes = Some(NodeScope::All);
    assert_eq!(seen(std::slice::from_ref(&per_device)), ["d/p: a"]);
    assert!(seen_with(&[per_device], features).is_empty());
}

#[test]
fn devices_that_look_the_same_are_of_one_kind() {
    let mut other = slice("s2", "n1", 1, 2, &["c"]);
    other.devices[0].allow_multiple = true;
    let slices = [slice("s1", "n1", 1, 2, &["a", "b"]), other];
    let inventory = Inventory::new(&slices, Features::default());
    let representatives: Vec<usize> =
        (0..3).map(|device| inventory.representative(device)).collect();
    assert_eq!(representatives, [0, 0, 2]);
}

#[test]
fn a_device_is_known_by_its_names() {
    let slices = [slice("s1", "n1", 1, 1, &["a"]), slice("s2", "n1", 2, 1, &["a", "b"])];
    let inventory = Inventory::new(&slices, Features::default());
    let (a, b) = (inventory.id("d", "p", "a").unwrap(), inventory.id("d", "p", "b").unwrap());
    assert_ne!(a, b);
    let ids: Vec<DeviceId> = (0..3).map(|device| inventory.published(device).id).collect();
    assert_eq!(ids, [a, a, b]);
    assert_eq!(inventory.id("d", "q", "a"), None);
    assert_eq!(inventory.id("d", "p", "c"), None);
}
