//! What was seen of the cluster, and whether the invariants hold. Without I/O and without a clock.

mod device;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::plan::GpuFault;
use super::violation::{Broken, Violation};
pub(super) use device::{Device, Reported};

/// Time in which a scheduler may not have seen a taint yet.
const TAINT_SPREADS: Duration = Duration::from_secs(10);
/// Time before and after a kill in which latencies are of a disturbed cluster.
const DISTURBED: Duration = Duration::from_secs(15);

/// A GPU by its node and its name in the node's slices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeviceName {
    pub(super) node: String,
    pub(super) device: String,
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.device)
    }
}

/// Something that the API server showed. `None` stands for an object that is gone.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    Device(DeviceName, Reported),
    Taint(DeviceName, bool),
    /// The watch of slices is interrupted: what is known of taints is old.
    TaintsUnknown,
    /// The watch of reports is interrupted: attempts may be missed.
    ReportsUnknown,
    Claim(String, Option<Claim>),
    Pod(String, Option<Pod>),
}

/// A claim and the devices that are allocated to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Claim {
    pub(super) name: String,
    pub(super) devices: BTreeSet<DeviceName>,
}

/// A pod of the run.
#[derive(Clone, Debug, Default)]
pub(super) struct Pod {
    pub(super) name: String,
    /// Names of its claims.
    pub(super) claims: BTreeSet<String>,
    pub(super) is_running: bool,
    /// Whether it is deleted, or failed.
    pub(super) is_leaving: bool,
    /// What its claims had when they were last seen. The judge finds it.
    pub(super) devices: BTreeSet<DeviceName>,
}

/// Times from one thing to another, in the order in which they were seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Latencies {
    /// From a fault to its taint in a slice, while all programs ran.
    pub(super) taint: Vec<Duration>,
    /// The same soon before or after a program was killed.
    pub(super) taint_disturbed: Vec<Duration>,
    /// From a fault to the deletion of the GPU's pod.
    pub(super) eviction: Vec<Duration>,
    /// How long GPUs were out of service.
    pub(super) out_of_service: Vec<Duration>,
}

/// A fault whose taint is awaited.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    since: Duration,
    /// Whether a program was killed soon before, or meanwhile.
    is_disturbed: bool,
    /// Whether the GPU was reported out of service meanwhile.
    is_out: bool,
}

/// What was seen, and what of it must not happen.
#[derive(Debug)]
pub(super) struct Judge {
    wanted_pods: usize,
    gpus: usize,
    devices: BTreeMap<DeviceName, Device>,
    claims: BTreeMap<String, Claim>,
    pods: BTreeMap<String, Pod>,
    /// UIDs of pods that this program deleted.
    ended: BTreeSet<String>,
    /// Faults whose taint is awaited.
    awaited: BTreeMap<DeviceName, Awaited>,
    /// GPUs that have returned since the last look at them.
    returned: BTreeSet<DeviceName>,
    killed_at: Option<Duration>,
    pub(super) latencies: Latencies,
    pub(super) counts: BTreeMap<&'static str, u64>,
    pub(super) evictions: u64,
    violations: Vec<Violation>,
}

impl Judge {
    /// Nothing was seen yet of a number of pods and GPUs.
    pub(super) fn new(wanted_pods: usize, gpus: usize) -> Self {
        Self {
            wanted_pods,
            gpus,
            devices: BTreeMap::new(),
            claims: BTreeMap::new(),
            pods: BTreeMap::new(),
            ended: BTreeSet::new(),
            awaited: BTreeMap::new(),
            returned: BTreeSet::new(),
            killed_at: None,
            latencies: Latencies::default(),
            counts: BTreeMap::new(),
            evictions: 0,
            violations: Vec::new(),
        }
    }

    /// Takes what the API server showed, at a time since the begin.
    pub(super) fn take(&mut self, at: Duration, seen: Seen) {
        match seen {
            Seen::Device(name, reported) => self.device(at, &name, reported),
            Seen::Taint(name, is_tainted) => self.taint(at, &name, is_tainted),
            Seen::TaintsUnknown => {
                self.devices.values_mut().for_each(|device| device.tainted_since = None);
            }
            Seen::ReportsUnknown => self.devices.values_mut().for_each(Device::reports_missed),
            Seen::Claim(uid, claim) => self.claim(at, uid, claim),
            Seen::Pod(uid, pod) => self.pod(at, uid, pod.as_ref()),
        }
    }

    /// A fault is made now.
    pub(super) fn injected(&mut self, at: Duration, name: DeviceName, fault: GpuFault) {
        if !fault.is_of_device() {
            return;
        }
        if fault.is_of_island() {
            let of_node = self.devices.iter_mut().filter(|(other, _)| other.node == name.node);
            of_node.for_each(|(_, device)| device.island_injected(at));
        }
        if matches!(fault, GpuFault::SwitchFails(_)) {
            return;
        }
        let device = self.devices.entry(name.clone()).or_default();
        device.injected(at, fault);
        if fault.fences_at_once() && device.is_in_service() && device.tainted_since.is_none() {
            let is_disturbed = self.killed_at.is_some_and(|killed| at < killed + DISTURBED);
            let awaited = Awaited { since: at, is_disturbed, is_out: false };
            self.awaited.entry(name).or_insert(awaited);
        }
    }

    /// What a look at the hardware showed of a GPU: how many resets `nvidia-smi` has begun, and whether the driver calls it well.
    pub(super) fn looked(&mut self, at: Duration, name: &DeviceName, begun: u64, is_well: bool) {
        let has_returned = self.returned.remove(name);
        let Some(device) = self.devices.get_mut(name) else { return };
        let mut broken: Vec<Broken> = device.resets(name, at, begun).into_iter().collect();
        if has_returned && !is_well && device.is_in_service() {
            if device.has_new_fault(at) {
                // The test was before the fault, which is to be fenced yet.
                let awaited = Awaited { since: at, is_disturbed: true, is_out: false };
                self.awaited.entry(name.clone()).or_insert(awaited);
            } else {
                broken.push(Broken::ReturnedSick { device: name.clone() });
            }
        }
        self.broken(at, &broken);
    }

    /// A program is killed now.
    pub(super) fn program_killed(&mut self, at: Duration) {
        self.killed_at = Some(at);
        self.awaited.values_mut().for_each(|awaited| awaited.is_disturbed = true);
    }

    /// A node starts again: its faults are over before they may have been seen.
    pub(super) fn rebooted(&mut self, node: &str) {
        self.awaited.retain(|name, _| name.node != node);
    }

    /// This program deletes a pod now.
    pub(super) fn ended(&mut self, uid: &str) {
        self.ended.insert(uid.to_owned());
    }

    /// Counts a fault by its name.
    pub(super) fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    /// The devices.
    pub(super) fn devices(&self) -> impl Iterator<Item = (&DeviceName, &Device)> {
        self.devices.iter()
    }

    /// UIDs and names of the pods that run, with their devices.
    pub(super) fn running(&self) -> impl Iterator<Item = (&str, &str, &BTreeSet<DeviceName>)> {
        let running = self.pods.iter().filter(|(_, pod)| pod.is_running && !pod.is_leaving);
        running.map(|(uid, pod)| (uid.as_str(), pod.name.as_str(), &pod.devices))
    }

    /// What did not hold.
    pub(super) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Whether all GPUs are in service and all pods run.
    pub(super) fn is_settled(&self) -> bool {
        self.devices.len() == self.gpus
            && self.devices.values().all(Device::is_in_service)
            && self.running().count() == self.wanted_pods
    }

    /// Why the cluster is not settled.
    pub(super) fn unsettled(&self) -> String {
        let out = self.devices.values().filter(|device| !device.is_in_service()).count();
        format!(
            "{} of {} pods run; {} of {} GPUs are reported, {out} of them out of service",
            self.running().count(),
            self.wanted_pods,
            self.devices.len(),
            self.gpus
        )
    }

    /// The run is over: what is not as it should be does not hold.
    pub(super) fn end(&mut self, at: Duration) {
        let out: Vec<Broken> = self
            .devices
            .iter()
            .filter(|(_, device)| !device.is_in_service() && !device.is_retired())
            .map(|(name, device)| device.not_returned(name))
            .collect();
        self.broken(at, &out);
        let lost = self.awaited.iter().filter(|(_, awaited)| !awaited.is_out);
        let lost: Vec<Broken> =
            lost.map(|(device, _)| Broken::NotFenced { device: device.clone() }).collect();
        self.broken(at, &lost);
        let running = self.running().count();
        let in_service = self.devices.values().filter(|device| device.is_in_service()).count();
        if running < self.wanted_pods && in_service >= self.wanted_pods {
            let others = self.pods.values().filter(|pod| !pod.is_running || pod.is_leaving);
            let others = others.map(|pod| pod.name.clone()).collect();
            let wanted = self.wanted_pods;
            self.broken(at, &[Broken::PodsMissing { wanted, running, others }]);
        }
    }

    fn device(&mut self, at: Duration, name: &DeviceName, reported: Reported) {
        let node_has_fault = self
            .devices
            .iter()
            .any(|(other, device)| other.node == name.node && device.cause(at).is_some());
        let device = self.devices.entry(name.clone()).or_default();
        let (broken, out) = device.report(name, at, reported, node_has_fault);
        if out.is_some() {
            self.returned.insert(name.clone());
            // The next fault is to be fenced by itself.
            self.awaited.retain(|other, awaited| other != name || !awaited.is_out);
        }
        self.latencies.out_of_service.extend(out);
        // A watch of slices that is interrupted may miss the taint of a short fence.
        if self.devices.get(name).is_some_and(|device| !device.is_in_service())
            && let Some(awaited) = self.awaited.get_mut(name)
        {
            awaited.is_out = true;
        }
        self.broken(at, &broken);
    }

    fn taint(&mut self, at: Duration, name: &DeviceName, is_tainted: bool) {
        // Slices have other devices, too.
        let Some(device) = self.devices.get_mut(name) else { return };
        if !is_tainted {
            device.tainted_since = None;
            return;
        }
        device.tainted_since.get_or_insert(at);
        if let Some(Awaited { since, is_disturbed, .. }) = self.awaited.remove(name) {
            let Latencies { taint, taint_disturbed, .. } = &mut self.latencies;
            let latencies = if is_disturbed { taint_disturbed } else { taint };
            latencies.push(at.saturating_sub(since));
        }
    }

    fn claim(&mut self, at: Duration, uid: String, claim: Option<Claim>) {
        let Some(claim) = claim else {
            self.claims.remove(&uid);
            return;
        };
        let known = self.claims.get(&uid).map(|known| known.devices.clone()).unwrap_or_default();
        let mut broken = Vec::new();
        for device in claim.devices.difference(&known) {
            let others = self.claims.iter().filter(|(other, _)| **other != uid);
            let has_it = |(_, other): &(&String, &Claim)| other.devices.contains(device);
            broken.extend(others.filter(has_it).map(|(_, other)| Broken::GivenTwice {
                device: device.clone(),
                claims: [other.name.clone(), claim.name.clone()],
            }));
            let tainted = self.devices.get(device).and_then(|device| device.tainted_since);
            let since = at.saturating_sub(tainted.unwrap_or(at));
            if since > TAINT_SPREADS {
                let (device, claim) = (device.clone(), claim.name.clone());
                broken.push(Broken::GivenWhileTainted { device, claim, since });
            }
        }
        self.broken(at, &broken);
        for pod in self.pods.values_mut().filter(|pod| pod.claims.contains(&claim.name)) {
            pod.devices.extend(claim.devices.iter().cloned());
        }
        self.claims.insert(uid, claim);
    }

    fn pod(&mut self, at: Duration, uid: String, pod: Option<&Pod>) {
        let mut known = self.pods.remove(&uid).unwrap_or_default();
        let was_leaving = known.is_leaving;
        if let Some(pod) = pod {
            let of_it = self.claims.values().filter(|claim| pod.claims.contains(&claim.name));
            let devices = of_it.flat_map(|claim| claim.devices.iter().cloned());
            let devices = known.devices.into_iter().chain(devices).collect();
            known = Pod { devices, ..pod.clone() };
        }
        let leaves = !was_leaving && (pod.is_none() || known.is_leaving);
        if leaves && !self.ended.contains(&uid) {
            self.left(at, &known);
        }
        if pod.is_some() {
            self.pods.insert(uid, known);
        }
    }

    /// A pod that this program did not delete leaves.
    fn left(&mut self, at: Duration, pod: &Pod) {
        let devices = pod.devices.iter().filter_map(|name| self.devices.get(name));
        if let Some(fault) = devices.filter_map(|device| device.cause(at)).min() {
            self.evictions += 1;
            self.latencies.eviction.push(at.saturating_sub(fault));
        } else {
            let devices = pod.devices.iter().cloned().collect();
            self.broken(at, &[Broken::PodKilled { pod: pod.name.clone(), devices }]);
        }
    }

    fn broken(&mut self, at: Duration, broken: &[Broken]) {
        for violation in broken.iter().map(|broken| broken.at(at)) {
            tracing::error!(kind = violation.kind, "{}", violation.message);
            self.violations.push(violation);
        }
    }
}
