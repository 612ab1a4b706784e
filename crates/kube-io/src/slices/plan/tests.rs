use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::slices::from_api;

mod unfinished;

fn device(name: &str, memory: &str) -> api::Device {
    let value = ApiQuantity(memory.to_owned());
    let capacity = api::DeviceCapacity { request_policy: None, value };
    api::Device {
        name: name.to_owned(),
        capacity: Some([("memory".to_owned(), capacity)].into()),
        ..api::Device::default()
    }
}

fn tainted(name: &str, value: &str) -> api::Device {
    let taint = api::DeviceTaint {
        key: "gpu.nvidia.com/xid".to_owned(),
        value: Some(value.to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    };
    api::Device { taints: Some(vec![taint]), ..device(name, "1Gi") }
}

fn devices(count: usize) -> Vec<api::Device> {
    (0..count).map(|index| device(&format!("gpu-{index}"), "80Gi")).collect()
}

fn owner(uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: "node".to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}

/// The part of the API that planning needs: objects by name.
#[derive(Default)]
struct Cluster {
    found: BTreeMap<String, api::ResourceSlice>,
    server_mutations: ServerMutations,
    version: u64,
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
enum Sent {
    Create(Box<api::ResourceSlice>),
    Replace(Box<api::ResourceSlice>),
    Delete(String),
}

impl Cluster {
    fn plan(&self, devices: &[api::Device], owner: &OwnerReference) -> Vec<Sent> {
        self.plan_with(&[], devices, owner)
    }

    fn plan_with(
        &self,
        counters: &[api::CounterSet],
        devices: &[api::Device],
        owner: &OwnerReference,
    ) -> Vec<Sent> {
        let (driver, node) = ("gpu.nvidia.com", "node");
        let mut slice = api::ResourceSlice::default();
        slice.spec.shared_counters = Some(counters.to_vec());
        slice.spec.devices = Some(devices.to_vec());
        let octavo_dra::Slice { counters, devices, .. } = from_api(&slice).unwrap();
        let (counters, devices) = (&counters, &devices);
        let wanted = Wanted { driver, node, pool: node, counters, devices, owner };
        let known = self.found.iter().map(|(name, slice)| (name.clone(), ObservedSlice::of(slice)));
        let (found, taken) = (known.collect(), BTreeSet::new());
        let seen =
            Observed { found: &found, taken: &taken, server_mutations: &self.server_mutations };
        let plan = plan(&wanted, &seen);
        let sent = |write: &Write<'_>| match write {
            Write::Put(put) if put.is_new => Sent::Create(Box::new(plan.slice(put))),
            Write::Put(put) => Sent::Replace(Box::new(plan.slice(put))),
            Write::Delete(name) => Sent::Delete(name.clone()),
        };
        plan.writes.iter().map(sent).collect()
    }

    /// Plans and writes; returns the number of writes.
    fn publish(&mut self, devices: &[api::Device]) -> usize {
        self.publish_with(&[], devices)
    }

    fn publish_with(&mut self, counters: &[api::CounterSet], devices: &[api::Device]) -> usize {
        self.publish_some(counters, devices, usize::MAX)
    }

    /// Executes a number of writes of a plan.
    fn publish_some(
        &mut self,
        counters: &[api::CounterSet],
        devices: &[api::Device],
        most: usize,
    ) -> usize {
        let writes = self.plan_with(counters, devices, &owner("n-1"));
        let count = writes.len();
        for write in writes.into_iter().take(most) {
            self.version += 1;
            match write {
                Sent::Create(slice) => {
                    assert!(!self.found.contains_key(slice.metadata.name.as_ref().unwrap()));
                    self.store(*slice);
                }
                Sent::Replace(slice) => {
                    let old = &self.found[slice.metadata.name.as_ref().unwrap()];
                    assert_eq!(old.metadata.resource_version, slice.metadata.resource_version);
                    if old.spec.pool.generation == slice.spec.pool.generation {
                        assert_eq!(old.spec, slice.spec, "another content in one generation");
                    }
                    self.store(*slice);
                }
                Sent::Delete(name) => {
                    self.found.remove(&name).unwrap();
                }
            }
        }
        count
    }

    /// Stores an object as a server does, with its own times of taints.
    fn store(&mut self, mut slice: api::ResourceSlice) {
        slice.metadata.resource_version = Some(self.version.to_string());
        let time = Time(format!("2026-01-01T00:00:{:02}Z", self.version).parse().unwrap());
        for device in slice.spec.devices.iter_mut().flatten() {
            for taint in device.taints.iter_mut().flatten() {
                taint.time_added.get_or_insert_with(|| time.clone());
            }
        }
        self.found.insert(slice.metadata.name.clone().unwrap(), slice);
    }

    fn generations(&self) -> Vec<(i64, i64)> {
        let pool = |slice: &api::ResourceSlice| slice.spec.pool.clone();
        self.found.values().map(pool).map(|p| (p.generation, p.resource_slice_count)).collect()
    }
}

#[test]
fn equal_content_writes_nothing_whatever_its_notation() {
    let mut cluster = Cluster::default();
    assert_eq!(cluster.publish(&devices(8)), 1);
    assert_eq!(cluster.publish(&devices(8)), 0);
    let same: Vec<_> = (0..8).map(|i| device(&format!("gpu-{i}"), "81920Mi")).collect();
    assert_eq!(cluster.publish(&same), 0);
    cluster.found.values_mut().next().unwrap().spec.devices = Some(same);
    assert_eq!(cluster.publish(&devices(8)), 0);
}

#[test]
fn a_change_is_a_new_generation_of_the_whole_pool() {
    let mut cluster = Cluster::default();
    cluster.publish(&devices(300));
    assert_eq!(cluster.generations(), [(1, 3); 3]);
    let mut changed = devices(300);
    changed[299] = device("gpu-299", "40Gi");
    assert_eq!(cluster.publish(&changed), 3);
    assert_eq!(cluster.generations(), [(2, 3); 3]);
    assert_eq!(cluster.publish(&changed), 0);
}

#[test]
fn slices_are_added_and_deleted_with_the_size_of_the_pool() {
    let mut cluster = Cluster::default();
    cluster.publish(&devices(300));
    assert_eq!(cluster.publish(&devices(8)), 3);
    assert_eq!(cluster.generations(), [(2, 1)]);
    cluster.publish(&devices(129));
    assert_eq!(cluster.generations(), [(3, 2); 2]);
    let counts = cluster.found.values().map(|slice| slice.spec.devices.as_ref().unwrap().len());
    assert_eq!(counts.collect::<Vec<_>>(), [128, 1]);
}

#[test]
fn no_devices_are_a_complete_pool_without_devices() {
    let mut cluster = Cluster::default();
    assert_eq!(cluster.publish(&[]), 1);
    assert_eq!(cluster.generations(), [(1, 1)]);
    assert_eq!(cluster.publish(&[]), 0);
}

#[test]
fn taints_keep_the_time_at_which_they_were_set() {
    let mut cluster = Cluster::default();
    cluster.publish(&[tainted("gpu-0", "48"), device("gpu-1", "1Gi")]);
    assert_eq!(cluster.publish(&[tainted("gpu-0", "48"), device("gpu-1", "1Gi")]), 0);
    let time = |cluster: &Cluster, index: usize| {
        let slice = cluster.found.values().next().unwrap();
        let device = &slice.spec.devices.as_ref().unwrap()[index];
        device.taints.as_ref().unwrap()[0].time_added.clone().unwrap()
    };
    let first = time(&cluster, 0);
    cluster.publish(&[tainted("gpu-0", "48"), tainted("gpu-1", "79")]);
    assert_eq!(time(&cluster, 0), first);
    assert_ne!(time(&cluster, 1), first);
    cluster.publish(&[tainted("gpu-0", "95"), tainted("gpu-1", "79")]);
    assert_ne!(time(&cluster, 0), first);
}

#[test]
fn slices_with_taints_hold_fewer_devices() {
    let mut cluster = Cluster::default();
    let mut many = devices(100);
    assert_eq!(cluster.publish(&many), 1);
    many[0] = tainted("gpu-0", "79");
    cluster.publish(&many);
    let counts = cluster.found.values().map(|slice| slice.spec.devices.as_ref().unwrap().len());
    assert_eq!(counts.collect::<Vec<_>>(), [64, 36]);
}

#[test]
fn a_foreign_edit_is_reverted() {
    let mut cluster = Cluster::default();
    cluster.publish(&devices(2));
    let slice = cluster.found.values_mut().next().unwrap();
    slice.spec.devices.as_mut().unwrap()[0].allow_multiple_allocations = Some(true);
    assert_eq!(cluster.publish(&devices(2)), 1);
    assert_eq!(cluster.generations(), [(2, 1)]);
}

#[test]
fn a_node_that_was_made_again_owns_its_slices() {
    let mut cluster = Cluster::default();
    cluster.publish(&devices(2));
    assert!(cluster.plan(&devices(2), &owner("n-1")).is_empty());
    let writes = cluster.plan(&devices(2), &owner("n-2"));
    let [Sent::Replace(slice)] = writes.as_slice() else { panic!("{writes:?}") };
    assert_eq!(slice.metadata.owner_references.as_ref().unwrap()[0].uid, "n-2");
}

#[test]
fn slices_of_another_pool_of_ours_go() {
    let mut cluster = Cluster::default();
    cluster.publish(&devices(2));
    let mut old = cluster.found.values().next().unwrap().clone();
    old.metadata.name = Some("old".to_owned());
    old.spec.pool.name = "old-pool".to_owned();
    cluster.found.insert("old".to_owned(), old);
    let writes = cluster.plan(&devices(2), &owner("n-1"));
    assert_eq!(writes, [Sent::Delete("old".to_owned())]);
}

#[test]
fn fields_that_the_server_drops_are_not_written_again_and_again() {
    let mut cluster = Cluster::default();
    let wanted = [tainted("gpu-0", "79")];
    let writes = cluster.plan(&wanted, &owner("n-1"));
    let [Sent::Create(sent)] = writes.as_slice() else { panic!("{writes:?}") };
    let mut kept = (**sent).clone();
    kept.spec.devices.as_mut().unwrap()[0].taints = None;
    assert!(cluster.server_mutations.remember(sent, &kept));
    cluster.store(kept);
    assert_eq!(cluster.publish(&wanted), 0);
    // Other content is wanted and written.
    assert_eq!(cluster.publish(&devices(1)), 1);
}

#[test]
fn names_are_valid_however_long_the_node_s_is() {
    let long = format!("{}.{}", "a".repeat(200), "b".repeat(52));
    let name = name("gpu.nvidia.com", &long, "000");
    assert!(name.len() <= 253, "{}", name.len());
    assert!(name.ends_with("-gpu.nvidia.com-000"), "{name}");
    assert!(!name.contains(".-"), "{name}");
}

#[test]
fn names_follow_the_order_of_the_list_even_where_one_is_taken() {
    let mut cluster = Cluster::default();
    cluster.publish(&devices(129));
    let mut stranger = cluster.found.values().next().unwrap().clone();
    let taken = "node-gpu.nvidia.com-002".to_owned();
    stranger.metadata.name = Some(taken.clone());
    stranger.spec.pool.name = "other".to_owned();
    cluster.found.insert(taken.clone(), stranger.clone());
    cluster.publish(&devices(300));
    let firsts: Vec<_> = cluster
        .found
        .iter()
        .map(|(name, slice)| (name.as_str(), slice.spec.devices.as_ref().unwrap()[0].name.as_str()))
        .collect();
    let expected = [("000", "gpu-0"), ("001", "gpu-128"), ("1002", "gpu-256")];
    let expected = expected.map(|(last, device)| (name("gpu.nvidia.com", "node", last), device));
    let expected: Vec<_> = expected.iter().map(|(name, device)| (name.as_str(), *device)).collect();
    assert_eq!(firsts, expected);
    // The next slice sorts before that one by name, so the content moves.
    cluster.publish(&devices(400));
    let firsts: Vec<_> = cluster
        .found
        .values()
        .map(|slice| slice.spec.devices.as_ref().unwrap()[0].name.clone())
        .collect();
    assert_eq!(firsts, ["gpu-0", "gpu-128", "gpu-256", "gpu-384"]);
}

fn counters(count: usize) -> Vec<api::CounterSet> {
    let set = |index| api::CounterSet {
        name: format!("gpu-{index}-counter-set"),
        counters: [("memory-slice-0".to_owned(), counter("1"))].into(),
    };
    (0..count).map(set).collect()
}

fn counter(value: &str) -> api::Counter {
    api::Counter { value: ApiQuantity(value.to_owned()) }
}

fn consuming(count: usize) -> Vec<api::Device> {
    let mut devices = devices(count);
    for (index, device) in devices.iter_mut().enumerate() {
        device.consumes_counters = Some(vec![api::DeviceCounterConsumption {
            counter_set: format!("gpu-{}-counter-set", index % 16),
            counters: [("memory-slice-0".to_owned(), counter("1"))].into(),
        }]);
    }
    devices
}

#[test]
fn counter_slices_sort_first_and_are_written_last() {
    let mut cluster = Cluster::default();
    let (counters, devices) = (counters(9), consuming(65));
    let writes = cluster.plan_with(&counters, &devices, &owner("n-1"));
    let written: Vec<_> = writes
        .iter()
        .map(|write| match write {
            Sent::Create(slice) => slice.metadata.name.clone().unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = ["002", "003", "000", "001"].map(|last| name("gpu.nvidia.com", "node", last));
    assert_eq!(written, expected);
    assert_eq!(cluster.publish_with(&counters, &devices), 4);
    assert_eq!(cluster.generations(), [(1, 4); 4]);
    let sizes: Vec<_> = cluster
        .found
        .values()
        .map(|slice| {
            let length = |list: Option<usize>| list.unwrap_or_default();
            let spec = &slice.spec;
            (
                length(spec.shared_counters.as_ref().map(Vec::len)),
                length(spec.devices.as_ref().map(Vec::len)),
            )
        })
        .collect();
    assert_eq!(sizes, [(8, 0), (1, 0), (0, 64), (0, 1)]);
    assert_eq!(cluster.publish_with(&counters, &devices), 0);
}

#[test]
fn only_changed_amounts_are_written_not_changed_notations() {
    let mut cluster = Cluster::default();
    let (mut sets, mut devices) = (counters(1), consuming(1));
    cluster.publish_with(&sets, &devices);
    let same = |cluster: &mut Cluster, value: &str| {
        for slice in cluster.found.values_mut() {
            for set in slice.spec.shared_counters.iter_mut().flatten() {
                set.counters.insert("memory-slice-0".to_owned(), counter(value));
            }
        }
    };
    same(&mut cluster, "1000m");
    assert_eq!(cluster.publish_with(&sets, &devices), 0);
    same(&mut cluster, "2");
    assert_eq!(cluster.publish_with(&sets, &devices), 2);
    sets[0].counters.insert("memory-slice-0".to_owned(), counter("3"));
    assert_eq!(cluster.publish_with(&sets, &devices), 2);
    devices[0].consumes_counters = None;
    assert_eq!(cluster.publish_with(&sets, &devices), 2);
    // Without counters their slice holds devices.
    assert_eq!(cluster.publish(&devices), 2);
    assert_eq!(cluster.generations(), [(5, 1)]);
}

#[test]
fn a_policy_of_another_notation_is_the_same() {
    let mut cluster = Cluster::default();
    let with = |step: &str| {
        let mut device = device("gpu-0", "80Gi");
        let amount = |text: &str| Some(ApiQuantity(text.to_owned()));
        let range = api::CapacityRequestPolicyRange {
            min: ApiQuantity("1Mi".to_owned()),
            max: amount("80Gi"),
            step: amount(step),
        };
        let policy = api::CapacityRequestPolicy {
            default: amount("80Gi"),
            valid_range: Some(range),
            valid_values: None,
        };
        let capacity = device.capacity.as_mut().unwrap().get_mut("memory").unwrap();
        capacity.request_policy = Some(policy);
        [device]
    };
    assert_eq!(cluster.publish(&with("1Mi")), 1);
    assert_eq!(cluster.publish(&with("1024Ki")), 0);
    cluster.found.values_mut().next().unwrap().spec.devices = Some(with("1024Ki").to_vec());
    assert_eq!(cluster.publish(&with("1Mi")), 0);
    assert_eq!(cluster.publish(&with("2Mi")), 1);
}
