//! An API server for publishers: with features on or off, overloaded, or with other clients.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use http::Method;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use kube::Client;
use octavo_testkit::{FakeApi, Rules};
use serde_json::{Value, json};

use super::Feature;

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// The server. Clones are cheap and share it.
#[derive(Clone)]
pub(super) struct SliceApi {
    server: FakeApi,
    version: Arc<Mutex<Version>>,
}

/// The rules of this version of an API server for slices.
#[derive(Default)]
struct Version {
    refused_device: Option<String>,
    off: BTreeSet<Feature>,
    refuses_dry_runs: bool,
    needs_counters_beside_devices: bool,
}

impl Default for SliceApi {
    fn default() -> Self {
        let (server, version) = (FakeApi::default(), Arc::<Mutex<Version>>::default());
        server.put(
            "/api/v1/nodes",
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {"name": "node", "uid": "node-uid"}}),
        );
        server.rule(SLICES, Arc::clone(&version));
        Self { server, version }
    }
}

impl SliceApi {
    pub(super) fn client(&self) -> Client {
        self.server.client()
    }

    /// Statuses with which the next creates fail.
    pub(super) fn fail_writes(&self, statuses: &[u16]) {
        self.server.fail(&Method::POST, statuses);
    }

    /// Which of the next writes are executed but fail for the client.
    pub(super) fn leave_unanswered(&self, writes: &[bool]) {
        self.server.leave_unanswered(writes);
    }

    /// Withholds events from all watches, or releases them.
    pub(super) fn mute(&self, is_muted: bool) {
        self.server.withhold(SLICES, is_muted);
    }

    /// Stores a slice as another client would.
    pub(super) fn put(&self, slice: &ResourceSlice) {
        self.server.put(SLICES, serde_json::to_value(slice).unwrap());
    }

    /// Rejects each slice with this device; `None` rejects none.
    pub(super) fn refuse_device(&self, name: Option<&str>) {
        self.version.lock().unwrap().refused_device = name.map(str::to_owned);
    }

    /// Behaves like a server with only these features off.
    pub(super) fn turn_off(&self, features: impl IntoIterator<Item = Feature>) {
        self.version.lock().unwrap().off = features.into_iter().collect();
    }

    /// Behaves as if a webhook rejected dry runs.
    pub(super) fn refuse_dry_runs(&self) {
        self.version.lock().unwrap().refuses_dry_runs = true;
    }

    /// Behaves like Kubernetes 1.34 with its form of counters, which only devices in the same slice
    /// can use.
    pub(super) fn need_counters_beside_devices(&self) {
        self.version.lock().unwrap().needs_counters_beside_devices = true;
    }

    /// Number of dry runs.
    pub(super) fn probes(&self) -> usize {
        let requests = self.server.requests();
        requests.iter().filter(|(_, _, query)| is_dry_run(query)).count()
    }

    /// Writes so far, each as method and name.
    pub(super) fn writes(&self) -> Vec<String> {
        let requests = self.server.requests().into_iter();
        requests
            .filter(|(method, _, query)| method != Method::GET && !is_dry_run(query))
            .map(|(method, path, _)| {
                let name = path.strip_prefix(SLICES).unwrap().trim_start_matches('/');
                format!("{method} {name}").trim_end().to_owned()
            })
            .collect()
    }

    /// Queries of lists and watches so far.
    pub(super) fn queries(&self) -> Vec<String> {
        let requests = self.server.requests().into_iter();
        let queries = requests.filter(|(method, path, _)| method == Method::GET && path == SLICES);
        queries.map(|(_, _, query)| query).collect()
    }

    pub(super) fn slices(&self) -> Vec<ResourceSlice> {
        self.server.objects(SLICES).into_iter().map(slice).collect()
    }

    /// Deletes a slice as another client would.
    pub(super) fn delete(&self, name: &str) {
        self.server.delete(SLICES, "", name);
    }

    /// Edits a slice as another client would.
    pub(super) fn edit(&self, name: &str, edit: impl Fn(&mut ResourceSlice)) {
        let mut slice = slice(self.server.object(SLICES, "", name).unwrap());
        edit(&mut slice);
        self.put(&slice);
    }

    /// Ends all watches, as servers regularly do.
    pub(super) fn end_watches(&self) {
        self.server.end_watches(SLICES);
    }
}

impl Rules for Version {
    fn refuse(&self, object: &Value, is_dry_run: bool) -> Option<u16> {
        let slice = slice(object.clone());
        let mut devices = slice.spec.devices.iter().flatten();
        if !is_dry_run {
            let refused = self.refused_device.as_ref()?;
            return devices.any(|device| device.name == *refused).then_some(422);
        }
        if self.refuses_dry_runs {
            return Some(400);
        }
        let is_refused = self.needs_counters_beside_devices
            && devices.any(|device| device.consumes_counters.is_some());
        is_refused.then_some(422)
    }

    fn change(&self, object: &mut Value, old: Option<&Value>) {
        let mut kept = slice(object.take());
        self.drop_fields(&mut kept, old.cloned().map(slice).as_ref());
        *object = serde_json::to_value(kept).unwrap();
    }
}

impl Version {
    /// Drops the fields of features that are off, unless the old slice had some of them.
    fn drop_fields(&self, slice: &mut ResourceSlice, old: Option<&ResourceSlice>) {
        for feature in &self.off {
            let has = |device: &Device| match feature {
                Feature::Counters => device.consumes_counters.is_some(),
                Feature::Shares => device.allow_multiple_allocations.is_some(),
                Feature::Taints | Feature::TaintsWithoutEffect => device.taints.is_some(),
            };
            let has_counters = |old: &ResourceSlice| {
                *feature == Feature::Counters && old.spec.shared_counters.is_some()
            };
            if old
                .is_some_and(|old| has_counters(old) || old.spec.devices.iter().flatten().any(has))
            {
                continue;
            }
            if *feature == Feature::Counters {
                slice.spec.shared_counters = None;
            }
            for device in slice.spec.devices.iter_mut().flatten() {
                match feature {
                    Feature::Counters => device.consumes_counters = None,
                    Feature::Taints => device.taints = None,
                    Feature::TaintsWithoutEffect => {
                        let taints = device.taints.take().into_iter().flatten();
                        let taints: Vec<_> = taints.filter(|it| it.effect != "None").collect();
                        device.taints = (!taints.is_empty()).then_some(taints);
                    }
                    Feature::Shares => {
                        device.allow_multiple_allocations = None;
                        for capacity in device.capacity.iter_mut().flat_map(BTreeMap::values_mut) {
                            capacity.request_policy = None;
                        }
                    }
                }
            }
        }
    }
}

fn slice(object: Value) -> ResourceSlice {
    serde_json::from_value(object).unwrap()
}

fn is_dry_run(query: &str) -> bool {
    query.contains("dryRun=All")
}
