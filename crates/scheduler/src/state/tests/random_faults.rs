//! Random results of operations, lagging watches and leadership changes: no device is ever
//! allocated twice.

use std::collections::{BTreeMap, VecDeque};

use octavo_kube_io::objects::ObjectName;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::claims::{claim, claiming, testbed};
use super::fixtures::{Testbed, allocation_json, version, with};
use crate::bind::{Bind, ClaimVersions, Failure, FailureKind, OpKind, OpResult, WriteOp};

const PODS: [&str; 6] = ["p0", "p1", "p2", "p3", "p4", "p5"];
const NODES: [&str; 2] = ["a", "b"];
const GPUS: u32 = 2;

/// How an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpEnding {
    Done,
    /// Rejected at its binding, and rolled back.
    Refused,
    /// Its claim stays allocated, which the result reports.
    Left,
    /// Its claim was rolled back, which the result does not tell.
    RolledBack,
    /// Bound, which the result does not tell.
    Bound,
    /// Nothing was written, which the result does not tell.
    NotSent,
}

/// An event of the test.
#[derive(Clone, Copy, Debug)]
enum Event {
    DeliverPod,
    DeliverClaim,
    DeliverAll,
    Advance(u16),
    EndOp(u8, OpEnding),
    /// Another scheduler leads, and makes this many binds.
    LoseLease(u8),
    AcquireLease,
    Relist,
}

/// The API server's objects, and the events that were not delivered yet.
struct FakeCluster {
    testbed: Testbed,
    pods: BTreeMap<String, Value>,
    claims: BTreeMap<String, Value>,
    pod_events: VecDeque<Value>,
    claim_events: VecDeque<Value>,
    version: u64,
    in_flight: Vec<WriteOp>,
    is_leading: bool,
}

impl FakeCluster {
    fn new() -> Self {
        let mut cluster = Self {
            testbed: testbed(&NODES, GPUS),
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            pod_events: VecDeque::new(),
            claim_events: VecDeque::new(),
            version: 10,
            in_flight: Vec::new(),
            is_leading: true,
        };
        for name in PODS {
            cluster.set_claim(claim(&format!("{name}-gpu"), name));
            cluster.set_pod(claiming(name));
        }
        cluster.deliver_all();
        cluster
    }

    fn set_pod(&mut self, pod: Value) {
        self.pods.insert(pod["metadata"]["name"].as_str().expect("a name").to_owned(), pod.clone());
        self.pod_events.push_back(pod);
    }

    fn set_claim(&mut self, claim: Value) {
        self.version += 1;
        let claim = with(claim, "/metadata/resourceVersion", json!(self.version.to_string()));
        let name = claim["metadata"]["name"].as_str().expect("a name").to_owned();
        self.claims.insert(name, claim.clone());
        self.claim_events.push_back(claim);
    }

    fn deliver_pod(&mut self) {
        if let Some(pod) = self.pod_events.pop_front() {
            self.testbed.pod(&pod);
        }
    }

    fn deliver_claim(&mut self) {
        if let Some(claim) = self.claim_events.pop_front() {
            self.testbed.claim(&claim);
        }
    }

    fn deliver_all(&mut self) {
        while !self.pod_events.is_empty() || !self.claim_events.is_empty() {
            self.deliver_claim();
            self.deliver_pod();
        }
    }

    fn node_of(&self, pod: &str) -> Option<String> {
        self.pods[pod]["spec"]["nodeName"].as_str().map(str::to_owned)
    }

    /// Node and name of each allocated device, by claim.
    fn allocated_devices(&self) -> BTreeMap<String, (String, String)> {
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let allocated_devices = self.claims.iter().filter_map(|(name, claim)| {
            let result = claim.pointer("/status/allocation/devices/results/0")?;
            Some((name.clone(), (text(&result["pool"]), text(&result["device"]))))
        });
        allocated_devices.collect()
    }

    fn allocate(&mut self, pod: &str, mut allocation: Value) {
        allocation["nodeSelector"] = json!({"nodeSelectorTerms": [{"matchFields": [{
            "key": "metadata.name", "operator": "In",
            "values": [allocation["devices"]["results"][0]["pool"]],
        }]}]});
        let mut claim = self.claims[&format!("{pod}-gpu")].clone();
        claim["status"] = json!({
            "allocation": allocation,
            "reservedFor": [{"resource": "pods", "name": pod, "uid": format!("uid-{pod}")}],
        });
        self.set_claim(claim);
        let allocated_devices = self.allocated_devices();
        let mut devices: Vec<_> = allocated_devices.values().collect();
        devices.sort();
        devices.dedup();
        assert_eq!(
            devices.len(),
            allocated_devices.len(),
            "allocated twice: {allocated_devices:?}"
        );
    }

    fn release(&mut self, pod: &str) {
        assert_eq!(self.node_of(pod), None, "{pod} runs with it");
        let mut claim = self.claims[&format!("{pod}-gpu")].clone();
        if claim["status"]["allocation"].is_object() {
            claim["status"] = json!({});
            self.set_claim(claim);
        }
    }

    fn bind(&mut self, pod: &str, node: &str) {
        let allocated_devices = self.allocated_devices();
        let (pool, _) = &allocated_devices[&format!("{pod}-gpu")];
        assert_eq!(pool, node, "{pod} is bound to the node of its device");
        if let Some(bound) = self.node_of(pod) {
            assert_eq!(bound, node, "{pod} is bound once");
            return;
        }
        let pod = with(self.pods[pod].clone(), "/spec/nodeName", json!(node));
        self.set_pod(with(pod, "/status/phase", json!("Running")));
    }

    /// The writes of a bind before its binding; `false`: it is rejected.
    fn write_claims(&mut self, bind: &Bind) -> bool {
        let pod = bind.pod.name.name.to_string();
        let [write] = &bind.claims[..] else { panic!("one claim: {bind:?}") };
        let current = self.allocated_devices().remove(&format!("{pod}-gpu"));
        let wanted = write.allocation.as_ref().map(|written| &written.allocation);
        let wanted = wanted.or(write.claim.claim.allocation.as_ref()).expect("an allocation");
        let result = &wanted.results[0];
        match current {
            Some(current) => current == (result.pool.clone(), result.device.clone()),
            None if write.allocation.is_some() => {
                self.allocate(&pod, allocation_json(wanted));
                true
            }
            None => false,
        }
    }

    fn end(&mut self, op: &WriteOp, ending: OpEnding, is_leading: bool) {
        let result = match &op.kind {
            OpKind::Bind(bind) => self.end_bind(bind, ending, is_leading),
            OpKind::Rollback { pod, .. } if is_leading => {
                let name = pod.name.name.to_string();
                let is_bound = self.node_of(&name).is_some();
                if !is_bound {
                    self.release(&name);
                }
                if is_bound {
                    Err(failure(FailureKind::AlreadyBound, None))
                } else {
                    Ok(ClaimVersions::new())
                }
            }
            OpKind::Rollback { .. } => Err(failure(FailureKind::NotLeader, None)),
            other => panic!("no eviction is expected: {other:?}"),
        };
        self.testbed.scheduler.complete_op(&OpResult { id: op.id, result });
    }

    fn end_bind(
        &mut self,
        bind: &Bind,
        ending: OpEnding,
        is_leading: bool,
    ) -> Result<ClaimVersions, Failure> {
        let pod = bind.pod.name.name.to_string();
        let name = format!("{pod}-gpu");
        // An operation that ends while another scheduler leads was carried out before the lease
        // ended.
        let unknown = if is_leading { FailureKind::Unreachable } else { FailureKind::NotLeader };
        if let (true, Some(node)) = (bind.is_retry, self.node_of(&pod)) {
            return match ending {
                OpEnding::Done | OpEnding::Refused if node == *bind.node => {
                    Ok(ClaimVersions::new())
                }
                OpEnding::Done | OpEnding::Refused => Err(failure(FailureKind::AlreadyBound, None)),
                _ => Err(failure(FailureKind::Indeterminate, Some(&name))),
            };
        }
        if ending == OpEnding::NotSent {
            return Err(failure(FailureKind::Indeterminate, Some(&name)));
        }
        let is_refused = !self.write_claims(bind) || ending == OpEnding::Refused;
        if is_refused {
            self.release(&pod);
            return Err(failure(FailureKind::Rejected, None));
        }
        match ending {
            OpEnding::Done | OpEnding::Bound => self.bind(&pod, &bind.node),
            OpEnding::RolledBack => self.release(&pod),
            OpEnding::Left | OpEnding::Refused | OpEnding::NotSent => {}
        }
        match ending {
            OpEnding::Done if is_leading => {
                Ok([(bind.claims[0].claim.uid(), version(&self.claims[&name]))].into())
            }
            OpEnding::Done | OpEnding::Bound => {
                Err(failure(FailureKind::Indeterminate, Some(&name)))
            }
            _ => Err(failure(unknown, Some(&name))),
        }
    }

    fn lose_lease(&mut self, binds: u8) {
        if !self.is_leading {
            return;
        }
        self.is_leading = false;
        self.testbed.scheduler.on_leadership_lost();
        // Operations in flight end by then, with different results.
        let endings = [OpEnding::Left, OpEnding::Bound, OpEnding::NotSent, OpEnding::RolledBack];
        for op in std::mem::take(&mut self.in_flight) {
            let ending = endings[usize::try_from(op.id.0).expect("few") % endings.len()];
            self.end(&op, ending, false);
        }
        for _ in 0..binds {
            self.other_leader_binds();
        }
    }

    /// The other leader binds a pod, with complete knowledge.
    fn other_leader_binds(&mut self) {
        let waits = |name: &&&str| self.pods[**name]["spec"]["nodeName"].is_null();
        let Some(pod) = PODS.iter().rev().find(waits) else { return };
        let allocated_devices = self.allocated_devices();
        if let Some((node, _)) = allocated_devices.get(&format!("{pod}-gpu")) {
            self.bind(pod, &node.clone());
            return;
        }
        let mut all = NODES
            .iter()
            .flat_map(|node| (0..GPUS).map(|gpu| ((*node).to_owned(), format!("gpu-{gpu}"))));
        let free = all.rfind(|device| allocated_devices.values().all(|other| other != device));
        let Some((node, device)) = free else {
            // No device is free: release one of an unbound pod.
            let unbound = PODS.iter().find(|name| {
                allocated_devices.contains_key(&format!("{name}-gpu"))
                    && self.node_of(name).is_none()
            });
            if let Some(name) = unbound {
                self.release(name);
            }
            return;
        };
        let result = json!({
            "request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": device,
        });
        let allocation = json!({"devices": {"results": [result]}});
        self.allocate(pod, allocation);
        self.bind(pod, &node);
    }

    /// Advances the clock, and takes write operations.
    fn advance(&mut self, milliseconds: u16) {
        if self.is_leading {
            let ops = self.testbed.after(u64::from(milliseconds));
            self.in_flight.extend(ops);
            return;
        }
        self.testbed.time(u64::from(milliseconds));
        for op in self.testbed.scheduler.take_ops() {
            self.end(&op, OpEnding::NotSent, false);
        }
    }

    fn relist(&mut self) {
        if let Some(at) = self.testbed.scheduler.relist_needed_since() {
            self.deliver_all();
            self.testbed.scheduler.on_relist(at);
        }
    }

    fn acquire_lease(&mut self) {
        if !self.is_leading {
            // A leader decides on nothing older than its lease.
            self.deliver_all();
            self.is_leading = true;
            self.testbed.scheduler.on_leadership_acquired();
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::DeliverPod => self.deliver_pod(),
            Event::DeliverClaim => self.deliver_claim(),
            Event::DeliverAll => self.deliver_all(),
            Event::Advance(milliseconds) => self.advance(milliseconds),
            Event::EndOp(which, ending) => {
                if !self.in_flight.is_empty() {
                    let op = self.in_flight.remove(usize::from(which) % self.in_flight.len());
                    self.end(&op, ending, true);
                }
            }
            Event::LoseLease(binds) => self.lose_lease(binds),
            Event::AcquireLease => self.acquire_lease(),
            Event::Relist => self.relist(),
        }
    }
}

fn failure(kind: FailureKind, left: Option<&String>) -> Failure {
    let left = left.map(|name| ObjectName::new("team", name.as_str())).into_iter().collect();
    Failure { step: "bind", message: "no".to_owned(), kind, unreleased: left }
}

fn any_event() -> impl Strategy<Value = Event> {
    let ending = prop_oneof![
        Just(OpEnding::Done),
        Just(OpEnding::Refused),
        Just(OpEnding::Left),
        Just(OpEnding::RolledBack),
        Just(OpEnding::Bound),
        Just(OpEnding::NotSent),
    ];
    prop_oneof![
        3 => Just(Event::DeliverPod),
        4 => Just(Event::DeliverClaim),
        1 => Just(Event::DeliverAll),
        4 => (0..3000_u16).prop_map(Event::Advance),
        6 => (any::<u8>(), ending).prop_map(|(which, ending)| Event::EndOp(which, ending)),
        1 => (0..4_u8).prop_map(Event::LoseLease),
        1 => Just(Event::AcquireLease),
        1 => Just(Event::Relist),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_faults_never_allocate_a_device_twice(
        events in proptest::collection::vec(any_event(), 0..120),
    ) {
        let mut cluster = FakeCluster::new();
        for event in events {
            cluster.apply(event);
        }
        cluster.acquire_lease();
        for _ in 0..200 {
            cluster.advance(1000);
            cluster.relist();
            while !cluster.in_flight.is_empty() {
                cluster.apply(Event::EndOp(0, OpEnding::Done));
            }
            cluster.deliver_all();
        }
        let bound = PODS.iter().filter(|pod| cluster.node_of(pod).is_some()).count();
        prop_assert_eq!(bound, NODES.len() * usize::try_from(GPUS).unwrap());
        prop_assert_eq!(cluster.allocated_devices().len(), bound, "no device is allocated to a pending pod");
        prop_assert_eq!(cluster.testbed.scheduler.relist_needed_since(), None);
        prop_assert_eq!(cluster.testbed.scheduler.counts().in_flight, 0);
    }
}
