//! Constructors for clusters and claims, and results as text.

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::*;

pub(super) const DRIVER: &str = "gpu.example";

/// A cluster: by default two nodes without slices, and the class `gpu` for all devices of the
/// driver.
pub(super) struct World {
    pub(super) classes: Classes,
    pub(super) slices: Vec<Slice>,
    /// Allocated claims.
    pub(super) claims: Vec<Claim>,
    pub(super) features: Features,
    shares: Cell<usize>,
}

impl World {
    pub(super) fn new(slices: Vec<Slice>) -> Self {
        let selectors = vec![format!("device.driver == {DRIVER:?}")];
        let gpu = Class { name: "gpu".to_owned(), selectors, extended_resource: None };
        Self {
            classes: [gpu].into_iter().collect(),
            slices,
            claims: Vec::new(),
            features: Features::default(),
            shares: Cell::new(0),
        }
    }

    pub(super) fn allocator(&self) -> Allocator<'_> {
        Allocator::new(&self.classes, &self.slices, &self.claims, self.features)
    }

    pub(super) fn allocate_on(
        &self,
        node: &Node,
        claims: &[&Claim],
    ) -> Result<Vec<Allocation>, AllocateError> {
        let mut share = || {
            self.shares.set(self.shares.get() + 1);
            format!("share-{}", self.shares.get())
        };
        self.allocator().allocate(node, claims, &mut share)
    }

    /// Allocates one claim on `n1`; returns `request=device`, or the error as text.
    pub(super) fn try_claim(&self, claim: &Claim) -> String {
        self.try_claims(&[claim])
    }

    /// As [`World::try_claim`] for the claims of one pod.
    pub(super) fn try_claims(&self, claims: &[&Claim]) -> String {
        match self.allocate_on(&node("n1"), claims) {
            Err(error) => error.to_string(),
            Ok(allocations) => {
                let results = allocations.iter().flat_map(|allocation| &allocation.results);
                let words = |one: &AllocationResult| format!("{}={}", one.request, one.device);
                results.map(words).collect::<Vec<_>>().join(" ")
            }
        }
    }

    /// Allocates a claim on `n1` and keeps the allocation.
    pub(super) fn give(&mut self, mut claim: Claim) -> Allocation {
        let allocation = self.allocate_on(&node("n1"), &[&claim]).unwrap().remove(0);
        claim.allocation = Some(allocation.clone());
        self.claims.push(claim);
        allocation
    }
}

pub(super) fn node(name: &str) -> Node {
    Node { name: name.to_owned(), labels: BTreeMap::new() }
}

/// The only slice of a pool on a node.
pub(super) fn slice(node: &str, devices: Vec<Device>) -> Slice {
    Slice {
        name: format!("{node}-1"),
        driver: DRIVER.to_owned(),
        pool: node.to_owned(),
        generation: 1,
        slice_count: 1,
        nodes: NodeScope::Node(node.to_owned()),
        counters: Vec::new(),
        devices,
    }
}

pub(super) fn device(name: &str) -> Device {
    Device { name: name.to_owned(), ..Device::default() }
}

pub(super) fn devices(names: &[&str]) -> Vec<Device> {
    names.iter().map(|name| device(name)).collect()
}

/// A device with text attributes.
pub(super) fn device_with(name: &str, attributes: &[(&str, &str)]) -> Device {
    let value = |text: &str| AttributeValue::String(text.to_owned());
    let attributes =
        attributes.iter().map(|(name, text)| ((*name).to_owned(), value(text))).collect();
    Device { attributes, ..device(name) }
}

/// A GPU with shares: memory with a policy, and all of it by default.
pub(super) fn shared_gpu(name: &str, gibibytes: i64) -> Device {
    let all = q(&format!("{gibibytes}Gi"));
    let allowed = AllowedAmounts::Range { min: q("1Mi"), max: Some(all), step: Some(q("1Mi")) };
    let policy = Some(RequestPolicy { default: Some(all), allowed });
    let memory = Capacity { value: all, policy };
    let capacity = [("memory".to_owned(), memory)].into();
    Device { allow_multiple: true, capacity, ..device(name) }
}

pub(super) fn q(text: &str) -> Quantity {
    text.parse().unwrap()
}

/// A claim with requests.
pub(super) fn claim(name: &str, requests: Vec<Request>) -> Claim {
    Claim {
        namespace: "team".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        requests,
        ..Claim::default()
    }
}

/// A claim with one request `r` for a number of GPUs.
pub(super) fn gpus(name: &str, count: u64) -> Claim {
    claim(name, vec![request("r", ask(count))])
}

/// A claim with one request `r`.
pub(super) fn one(name: &str, ask: DeviceRequest) -> Claim {
    claim(name, vec![request("r", ask)])
}

pub(super) fn request(name: &str, ask: DeviceRequest) -> Request {
    Request { name: name.to_owned(), ask: Ask::Exactly(ask) }
}

/// A request with alternatives.
pub(super) fn first_of(name: &str, alternatives: Vec<(&str, DeviceRequest)>) -> Request {
    let alternatives = alternatives.into_iter().map(|(name, ask)| (name.to_owned(), ask));
    Request { name: name.to_owned(), ask: Ask::FirstAvailable(alternatives.collect()) }
}

/// A number of devices of class `gpu`.
pub(super) fn ask(count: u64) -> DeviceRequest {
    let count = Count::Exactly(count);
    DeviceRequest { class: "gpu".to_owned(), count, ..DeviceRequest::default() }
}

/// All devices of class `gpu`.
pub(super) fn ask_all() -> DeviceRequest {
    DeviceRequest { count: Count::All, ..ask(1) }
}

/// Devices with a value of an attribute in the driver's domain.
pub(super) fn ask_where(count: u64, attribute: &str, value: &str) -> DeviceRequest {
    let selector = format!("device.attributes[{DRIVER:?}].{attribute} == {value:?}");
    DeviceRequest { selectors: vec![selector], ..ask(count) }
}

/// A share of a device.
pub(super) fn ask_part(memory: &str) -> DeviceRequest {
    DeviceRequest { capacity: [("memory".to_owned(), q(memory))].into(), ..ask(1) }
}

pub(super) fn admin(ask: DeviceRequest) -> DeviceRequest {
    DeviceRequest { admin_access: true, ..ask }
}

pub(super) fn matching(attribute: &str, requests: &[&str]) -> Constraint {
    constraint(Rule::Match(format!("{DRIVER}/{attribute}")), requests)
}

pub(super) fn distinct(attribute: &str, requests: &[&str]) -> Constraint {
    constraint(Rule::Distinct(format!("{DRIVER}/{attribute}")), requests)
}

fn constraint(rule: Rule, requests: &[&str]) -> Constraint {
    Constraint { requests: requests.iter().map(|&name| name.to_owned()).collect(), rule }
}

/// Counters of one set.
pub(super) fn counters(set: &str, totals: &[(&str, i64)]) -> CounterSet {
    let total = |(name, total): &(&str, i64)| ((*name).to_owned(), Quantity::decimal(*total));
    CounterSet { name: set.to_owned(), counters: totals.iter().map(total).collect() }
}

/// A device that draws from a counter set.
pub(super) fn drawing(device: Device, set: &str, amounts: &[(&str, i64)]) -> Device {
    let CounterSet { name: counter_set, counters } = counters(set, amounts);
    Device { consumes: vec![CounterConsumption { counter_set, counters }], ..device }
}

/// A pool of two slices on `n1`: counters, and devices that draw on them.
pub(super) fn partitionable(sets: Vec<CounterSet>, devices: Vec<Device>) -> Vec<Slice> {
    let pool = Slice { slice_count: 2, ..slice("n1", Vec::new()) };
    let counters = Slice { name: "n1-0".to_owned(), counters: sets, ..pool.clone() };
    vec![counters, Slice { devices, ..pool }]
}
