//! Orders that end in every way, watches that lag, leaders that change: a device is never given twice.

use std::collections::{BTreeMap, VecDeque};

use octavo_kube_io::objects::ObjectName;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::claims::{bed, claim, claiming};
use super::kit::{Bed, allocation_json, with};
use crate::bind::{Bind, Failure, FailureKind, OpKind, OpResult, WriteOp};

const PODS: [&str; 6] = ["p0", "p1", "p2", "p3", "p4", "p5"];
const NODES: [&str; 2] = ["a", "b"];
const GPUS: u32 = 2;

/// How an order ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Done,
    /// Refused at its binding, and undone.
    Refused,
    /// Its claim stays allocated, and that is said.
    Left,
    /// Its claim was given back, and that is not known.
    GivenBack,
    /// Bound, and that is not known.
    Bound,
    /// Nothing was done, and that is not known.
    Nothing,
}

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Step {
    TellPod,
    TellClaim,
    TellAll,
    Wait(u16),
    End(u8, Fate),
    /// Another leads, and does this much.
    LoseLead(u8),
    Lead,
    Read,
}

/// The API server's truth, and what the core was told of it.
struct World {
    bed: Bed,
    pods: BTreeMap<String, Value>,
    claims: BTreeMap<String, Value>,
    news_of_pods: VecDeque<Value>,
    news_of_claims: VecDeque<Value>,
    version: u64,
    flying: Vec<WriteOp>,
    is_leading: bool,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            bed: bed(&NODES, GPUS),
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            news_of_pods: VecDeque::new(),
            news_of_claims: VecDeque::new(),
            version: 10,
            flying: Vec::new(),
            is_leading: true,
        };
        for name in PODS {
            world.set_claim(claim(&format!("{name}-gpu"), name));
            world.set_pod(claiming(name));
        }
        world.tell_all();
        world
    }

    fn set_pod(&mut self, pod: Value) {
        self.pods.insert(pod["metadata"]["name"].as_str().expect("a name").to_owned(), pod.clone());
        self.news_of_pods.push_back(pod);
    }

    fn set_claim(&mut self, claim: Value) {
        self.version += 1;
        let claim = with(claim, "/metadata/resourceVersion", json!(self.version.to_string()));
        let name = claim["metadata"]["name"].as_str().expect("a name").to_owned();
        self.claims.insert(name, claim.clone());
        self.news_of_claims.push_back(claim);
    }

    fn tell_pod(&mut self) {
        if let Some(pod) = self.news_of_pods.pop_front() {
            self.bed.pod(&pod);
        }
    }

    fn tell_claim(&mut self) {
        if let Some(claim) = self.news_of_claims.pop_front() {
            self.bed.claim(&claim);
        }
    }

    fn tell_all(&mut self) {
        while !self.news_of_pods.is_empty() || !self.news_of_claims.is_empty() {
            self.tell_claim();
            self.tell_pod();
        }
    }

    fn node_of(&self, pod: &str) -> Option<String> {
        self.pods[pod]["spec"]["nodeName"].as_str().map(str::to_owned)
    }

    /// Node and name of each device that is given, by claim.
    fn given(&self) -> BTreeMap<String, (String, String)> {
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let given = self.claims.iter().filter_map(|(name, claim)| {
            let result = claim.pointer("/status/allocation/devices/results/0")?;
            Some((name.clone(), (text(&result["pool"]), text(&result["device"]))))
        });
        given.collect()
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
        let given = self.given();
        let mut devices: Vec<_> = given.values().collect();
        devices.sort();
        devices.dedup();
        assert_eq!(devices.len(), given.len(), "given twice: {given:?}");
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
        let given = self.given();
        let (pool, _) = &given[&format!("{pod}-gpu")];
        assert_eq!(pool, node, "{pod} is where its device is");
        if let Some(bound) = self.node_of(pod) {
            assert_eq!(bound, node, "{pod} is bound once");
            return;
        }
        let pod = with(self.pods[pod].clone(), "/spec/nodeName", json!(node));
        self.set_pod(with(pod, "/status/phase", json!("Running")));
    }

    /// The steps of an order before its binding; `false`: it is refused.
    fn take(&mut self, bind: &Bind) -> bool {
        let pod = bind.pod.name.name.to_string();
        let [write] = &bind.claims[..] else { panic!("one claim: {bind:?}") };
        let is_listed = write.claim.reserved_for.iter().any(|one| one.uid == bind.pod.uid);
        if write.allocation.is_none() && is_listed && !bind.is_retry {
            // What was seen is trusted, so it must be so.
            return true;
        }
        let there = self.given().remove(&format!("{pod}-gpu"));
        let wanted = write.allocation.as_ref().map(|written| &written.allocation);
        let wanted = wanted.or(write.claim.claim.allocation.as_ref()).expect("an allocation");
        let result = &wanted.results[0];
        match there {
            Some(there) => there == (result.pool.clone(), result.device.clone()),
            None if write.allocation.is_some() => {
                self.allocate(&pod, allocation_json(wanted));
                true
            }
            None => false,
        }
    }

    fn end(&mut self, order: &WriteOp, fate: Fate, is_leading: bool) {
        let result = match &order.kind {
            OpKind::Bind(bind) => self.end_bind(bind, fate, is_leading),
            OpKind::Rollback { pod, .. } if is_leading => {
                let name = pod.name.name.to_string();
                let is_bound = self.node_of(&name).is_some();
                if !is_bound {
                    self.release(&name);
                }
                if is_bound { Err(failure(FailureKind::AlreadyBound, None)) } else { Ok(()) }
            }
            OpKind::Rollback { .. } => Err(failure(FailureKind::NotLeader, None)),
            other => panic!("nobody is to leave: {other:?}"),
        };
        self.bed.core.outcome(&OpResult { id: order.id, result });
    }

    fn end_bind(&mut self, bind: &Bind, fate: Fate, is_leading: bool) -> Result<(), Failure> {
        let pod = bind.pod.name.name.to_string();
        let name = format!("{pod}-gpu");
        // What ends while another leads was done before the lease's end.
        let unknown = if is_leading { FailureKind::Unreachable } else { FailureKind::NotLeader };
        if let (true, Some(node)) = (bind.is_retry, self.node_of(&pod)) {
            return match fate {
                Fate::Done | Fate::Refused if node == *bind.node => Ok(()),
                Fate::Done | Fate::Refused => Err(failure(FailureKind::AlreadyBound, None)),
                _ => Err(failure(FailureKind::Indeterminate, Some(&name))),
            };
        }
        if fate == Fate::Nothing {
            return Err(failure(FailureKind::Indeterminate, Some(&name)));
        }
        let is_refused = !self.take(bind) || fate == Fate::Refused;
        if is_refused {
            self.release(&pod);
            return Err(failure(FailureKind::Rejected, None));
        }
        match fate {
            Fate::Done | Fate::Bound => self.bind(&pod, &bind.node),
            Fate::GivenBack => self.release(&pod),
            Fate::Left | Fate::Refused | Fate::Nothing => {}
        }
        match fate {
            Fate::Done if is_leading => Ok(()),
            Fate::Done | Fate::Bound => Err(failure(FailureKind::Indeterminate, Some(&name))),
            _ => Err(failure(unknown, Some(&name))),
        }
    }

    fn lose_lead(&mut self, deeds: u8) {
        if !self.is_leading {
            return;
        }
        self.is_leading = false;
        self.bed.core.stand_down();
        // What is on its way ends by then, as nobody knows.
        let fates = [Fate::Left, Fate::Bound, Fate::Nothing, Fate::GivenBack];
        for order in std::mem::take(&mut self.flying) {
            let fate = fates[usize::try_from(order.id.0).expect("few") % fates.len()];
            self.end(&order, fate, false);
        }
        for _ in 0..deeds {
            self.other_leads();
        }
    }

    /// Another leader binds a pod, by the truth.
    fn other_leads(&mut self) {
        let waits = |name: &&&str| self.pods[**name]["spec"]["nodeName"].is_null();
        let Some(pod) = PODS.iter().rev().find(waits) else { return };
        let given = self.given();
        if let Some((node, _)) = given.get(&format!("{pod}-gpu")) {
            self.bind(pod, &node.clone());
            return;
        }
        let mut all = NODES
            .iter()
            .flat_map(|node| (0..GPUS).map(|gpu| ((*node).to_owned(), format!("gpu-{gpu}"))));
        let free = all.rfind(|device| given.values().all(|other| other != device));
        let Some((node, device)) = free else {
            // There is none: what a pod has that is not bound is taken from it.
            let unbound = PODS.iter().find(|name| {
                given.contains_key(&format!("{name}-gpu")) && self.node_of(name).is_none()
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

    /// Lets time go by, and takes orders.
    fn wait(&mut self, milliseconds: u16) {
        if self.is_leading {
            let orders = self.bed.after(u64::from(milliseconds));
            self.flying.extend(orders);
            return;
        }
        self.bed.time(u64::from(milliseconds));
        for order in self.bed.core.take_orders() {
            self.end(&order, Fate::Nothing, false);
        }
    }

    fn read(&mut self) {
        if let Some(at) = self.bed.core.wants_reading() {
            self.tell_all();
            self.bed.core.on_relist(at);
        }
    }

    fn lead(&mut self) {
        if !self.is_leading {
            // A leader decides on nothing older than its lease.
            self.tell_all();
            self.is_leading = true;
            self.bed.core.stand_up();
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::TellPod => self.tell_pod(),
            Step::TellClaim => self.tell_claim(),
            Step::TellAll => self.tell_all(),
            Step::Wait(milliseconds) => self.wait(milliseconds),
            Step::End(which, fate) => {
                if !self.flying.is_empty() {
                    let order = self.flying.remove(usize::from(which) % self.flying.len());
                    self.end(&order, fate, true);
                }
            }
            Step::LoseLead(deeds) => self.lose_lead(deeds),
            Step::Lead => self.lead(),
            Step::Read => self.read(),
        }
    }
}

fn failure(kind: FailureKind, left: Option<&String>) -> Failure {
    let left = left.map(|name| ObjectName::new("team", name.as_str())).into_iter().collect();
    Failure { step: "bind", message: "no".to_owned(), kind, unreleased: left }
}

fn any_step() -> impl Strategy<Value = Step> {
    let fate = prop_oneof![
        Just(Fate::Done),
        Just(Fate::Refused),
        Just(Fate::Left),
        Just(Fate::GivenBack),
        Just(Fate::Bound),
        Just(Fate::Nothing),
    ];
    prop_oneof![
        3 => Just(Step::TellPod),
        4 => Just(Step::TellClaim),
        1 => Just(Step::TellAll),
        4 => (0..3000_u16).prop_map(Step::Wait),
        6 => (any::<u8>(), fate).prop_map(|(which, fate)| Step::End(which, fate)),
        1 => (0..4_u8).prop_map(Step::LoseLead),
        1 => Just(Step::Lead),
        1 => Just(Step::Read),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_becomes_of_orders_devices_are_given_once_and_all_of_them_in_the_end(
        steps in proptest::collection::vec(any_step(), 0..120),
    ) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.lead();
        for _ in 0..200 {
            world.wait(1000);
            world.read();
            while !world.flying.is_empty() {
                world.step(Step::End(0, Fate::Done));
            }
            world.tell_all();
        }
        let bound = PODS.iter().filter(|pod| world.node_of(pod).is_some()).count();
        prop_assert_eq!(bound, NODES.len() * usize::try_from(GPUS).unwrap());
        prop_assert_eq!(world.given().len(), bound, "no device is with a pod that waits");
        prop_assert_eq!(world.bed.core.wants_reading(), None);
        prop_assert_eq!(world.bed.core.counts().in_flight, 0);
    }
}
