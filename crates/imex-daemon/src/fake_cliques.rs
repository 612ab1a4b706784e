//! For tests: an API server with a clique. It applies entries by their node, as Kubernetes does, and gives indices.

use std::sync::{Arc, Mutex};

use kube::Api;
use octavo_api::compute_domain::ComputeDomainClique;
use octavo_testkit::{FakeApi, Rules};
use serde_json::{Value, json};

pub(crate) const COLLECTION: &str = "/apis/resource.nvidia.com/v1beta1/computedomaincliques";
pub(crate) const NAMESPACE: &str = "octavo-system";
pub(crate) const DOMAIN: &str = "uid-1";
pub(crate) const CLIQUE: &str = "cluster.7";

/// The server.
#[derive(Clone)]
pub(crate) struct FakeCliques {
    pub(crate) server: FakeApi,
    merge: Arc<Mutex<Merge>>,
}

/// Merges entries.
struct Merge {
    gives_indices: bool,
    /// Node and readiness, at each change.
    history: Vec<(String, String)>,
}

/// The rules of the collection.
struct Shared(Arc<Mutex<Merge>>);

impl Rules for Shared {
    fn refuse(&self, _: &Value, _: bool) -> Option<u16> {
        None
    }

    fn change(&self, object: &mut Value, old: Option<&Value>) {
        self.0.lock().unwrap().merge(object, old);
    }
}

impl Merge {
    fn merge(&mut self, object: &mut Value, old: Option<&Value>) {
        let list = |object: &Value| object["daemons"].as_array().cloned().unwrap_or_default();
        let mut entries = old.map(list).unwrap_or_default();
        for new in list(object) {
            let node = new["nodeName"].as_str().unwrap().to_owned();
            let status = new["status"].as_str().unwrap_or("NotReady").to_owned();
            let known = entries.iter_mut().find(|entry| entry["nodeName"] == node.as_str());
            if known.as_ref().is_none_or(|known| known["status"] != status.as_str()) {
                self.history.push((node, status));
            }
            match known {
                Some(known) => {
                    for (key, value) in new.as_object().unwrap() {
                        known[key] = value.clone();
                    }
                }
                None => entries.push(new),
            }
        }
        for position in 0..entries.len() {
            if self.gives_indices && entries[position]["index"].is_null() {
                let is_free = |index: &u64| entries.iter().all(|entry| entry["index"] != *index);
                entries[position]["index"] = (0..1024).find(is_free).unwrap().into();
            }
        }
        object["daemons"] = entries.into();
    }
}

impl FakeCliques {
    /// A server without a clique.
    pub(crate) fn new() -> Self {
        let server = FakeApi::default();
        let merge = Arc::new(Mutex::new(Merge { gives_indices: true, history: Vec::new() }));
        server.rule(COLLECTION, Shared(Arc::clone(&merge)));
        Self { server, merge }
    }

    pub(crate) fn api(&self) -> Api<ComputeDomainClique> {
        Api::namespaced(self.server.client(), NAMESPACE)
    }

    /// The name of the clique.
    pub(crate) fn name() -> String {
        format!("{DOMAIN}.{CLIQUE}")
    }

    /// Whether the controller gives indices.
    pub(crate) fn give_indices(&self, gives_indices: bool) {
        self.merge.lock().unwrap().gives_indices = gives_indices;
    }

    /// Stores the clique with these entries beside those that it has.
    pub(crate) fn put(&self, uid: &str, entries: &Value) {
        let clique = json!({
            "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomainClique",
            "metadata": {"name": Self::name(), "namespace": NAMESPACE, "uid": uid},
            "daemons": entries,
        });
        self.server.put(COLLECTION, clique);
    }

    pub(crate) fn delete(&self) {
        self.server.delete(COLLECTION, NAMESPACE, &Self::name());
    }

    /// The entry of a node; null if there is none.
    pub(crate) fn entry(&self, node: &str) -> Value {
        let clique = self.server.object(COLLECTION, NAMESPACE, &Self::name());
        let entries =
            clique.map(|clique| clique["daemons"].as_array().cloned().unwrap_or_default());
        let mut entries = entries.unwrap_or_default().into_iter();
        entries.find(|entry| entry["nodeName"] == node).unwrap_or_default()
    }

    /// The states of a node so far.
    pub(crate) fn history(&self, node: &str) -> Vec<String> {
        let merge = self.merge.lock().unwrap();
        let states = merge.history.iter().filter(|(of, _)| of == node);
        states.map(|(_, status)| status.clone()).collect()
    }

    /// Queries of all writes so far.
    pub(crate) fn writes(&self) -> Vec<String> {
        let requests = self.server.requests().into_iter();
        requests.filter(|(method, _, _)| method == "PATCH").map(|(_, _, query)| query).collect()
    }
}
