//! Pools of which only a part was written.

use super::*;

/// The last part of the name of each written slice.
fn names(writes: &[Sent]) -> Vec<&str> {
    fn last(write: &Sent) -> &str {
        let (Sent::Create(slice) | Sent::Replace(slice)) = write else { panic!("{write:?}") };
        slice.metadata.name.as_deref().unwrap().rsplit('-').next().unwrap()
    }
    writes.iter().map(last).collect()
}

#[test]
fn a_pool_that_was_begun_is_completed_wherever_it_was_cut_off() {
    let (counters, devices) = (counters(9), consuming(130));
    for most in 0..5 {
        let mut cluster = Cluster::default();
        assert_eq!(cluster.publish_some(&counters, &devices, most), 5);
        assert_eq!(cluster.publish_with(&counters, &devices), 5 - most);
        assert_eq!(cluster.generations(), [(1, 5); 5], "{most} written at first");
        assert_eq!(cluster.publish_with(&counters, &devices), 0);
    }
}

#[test]
fn an_unfinished_larger_generation_is_completed() {
    let (few, many) = (devices(129), devices(500));
    for most in 0..4 {
        let mut cluster = Cluster::default();
        cluster.publish(&few);
        assert_eq!(cluster.publish_some(&[], &many, most), 4);
        assert_eq!(cluster.publish(&many), 4 - most);
        assert_eq!(cluster.generations(), [(2, 4); 4], "{most} written at first");
    }
}

#[test]
fn an_unfinished_smaller_generation_is_completed() {
    let (many, few) = (devices(500), devices(129));
    for most in 0..4 {
        let mut cluster = Cluster::default();
        cluster.publish(&many);
        assert_eq!(cluster.publish_some(&[], &few, most), 4, "two written, two deleted");
        assert_eq!(cluster.publish(&few), 4 - most);
        assert_eq!(cluster.generations(), [(2, 2); 2], "{most} written at first");
    }
}

#[test]
fn an_unfinished_pool_with_other_content_gets_a_new_generation() {
    let mut cluster = Cluster::default();
    let mut wanted = devices(300);
    cluster.publish_some(&[], &wanted, 2);
    // The part that is not yet written may change.
    wanted[299] = device("gpu-299", "40Gi");
    assert_eq!(cluster.publish_some(&[], &wanted, 0), 1);
    wanted[0] = device("gpu-0", "40Gi");
    assert_eq!(cluster.publish(&wanted), 3);
    assert_eq!(cluster.generations(), [(2, 3); 3]);
    // So does a pool of another size.
    cluster.publish_some(&[], &devices(129), 1);
    assert_eq!(cluster.publish(&devices(300)), 3);
    assert_eq!(cluster.generations(), [(4, 3); 3]);
}

#[test]
fn a_deleted_slice_returns_in_the_same_generation() {
    let mut cluster = Cluster::default();
    cluster.publish(&devices(300));
    cluster.found.remove(&name("gpu.nvidia.com", "node", "001")).unwrap();
    let writes = cluster.plan(&devices(300), &owner("n-1"));
    assert_eq!(names(&writes), ["001"]);
    cluster.publish(&devices(300));
    assert_eq!(cluster.generations(), [(1, 3); 3]);
}

/// The server's treatment of devices is known when they are written, and the pool must not be
/// complete before.
#[test]
fn devices_never_come_after_the_counters_that_they_draw_from() {
    let (counters, devices) = (counters(1), consuming(65));
    let mut cluster = Cluster::default();
    cluster.publish_with(&counters, &devices);
    cluster.found.remove(&name("gpu.nvidia.com", "node", "001")).unwrap();
    let writes = cluster.plan_with(&counters, &devices, &owner("n-1"));
    assert_eq!(names(&writes), ["001", "002", "000"]);
    cluster.publish_with(&counters, &devices);
    assert_eq!(cluster.generations(), [(2, 3); 3]);
    // Only the counters are missing.
    cluster.found.remove(&name("gpu.nvidia.com", "node", "000")).unwrap();
    let writes = cluster.plan_with(&counters, &devices, &owner("n-1"));
    assert_eq!(names(&writes), ["000"]);
}

#[test]
fn an_unfinished_pool_of_a_deleted_node_gets_a_new_generation() {
    let mut cluster = Cluster::default();
    cluster.publish_some(&[], &devices(300), 2);
    let writes = cluster.plan(&devices(300), &owner("n-2"));
    assert_eq!(names(&writes), ["000", "001", "002"]);
}

#[test]
fn a_name_that_a_slice_of_others_has_is_left_to_it() {
    let wanted_owner = owner("n-1");
    let devices: Vec<Device> = ["gpu-0", "gpu-1"]
        .map(|name| Device { name: name.to_owned(), ..Device::default() })
        .to_vec();
    let (driver, node) = ("gpu.nvidia.com", "node");
    let wanted =
        Wanted { driver, node, pool: node, counters: &[], devices: &devices, owner: &wanted_owner };
    let taken = [name(driver, node, "000")].into();
    let seen = Observed {
        found: &BTreeMap::new(),
        taken: &taken,
        server_mutations: &ServerMutations::default(),
    };
    let plan = plan(&wanted, &seen);
    let [Write::Put(put)] = plan.writes.as_slice() else { panic!("{:?}", plan.writes) };
    assert_eq!(put.name, name(driver, node, "1000"));
}
