//! The store of the server, and its responses.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// Rules for the objects of a collection, beyond names and versions.
pub trait Rules: Send {
    /// The status with which a write of an object is rejected.
    fn refuse(&self, object: &Value, is_dry_run: bool) -> Option<u16>;

    /// Changes an object before it replaces an old one.
    fn change(&self, object: &mut Value, old: Option<&Value>);
}

impl<R: Rules> Rules for Arc<Mutex<R>> {
    fn refuse(&self, object: &Value, is_dry_run: bool) -> Option<u16> {
        self.lock().unwrap().refuse(object, is_dry_run)
    }

    fn change(&self, object: &mut Value, old: Option<&Value>) {
        self.lock().unwrap().change(object, old);
    }
}

#[derive(Default)]
pub(super) struct Store {
    /// By path of the collection, without namespaces.
    pub(super) collections: BTreeMap<String, Collection>,
    pub(super) version: u64,
    pub(super) requests: Vec<(Method, String, String)>,
    /// Forbidden collections.
    pub(super) forbidden: BTreeSet<String>,
    /// Missing collections.
    pub(super) absent: BTreeSet<String>,
    /// Served kinds by group and version: kind and plural.
    pub(super) groups: BTreeMap<(String, String), Vec<(String, String)>>,
    /// By collection.
    pub(super) rules: BTreeMap<String, Box<dyn Rules>>,
}

#[derive(Default)]
pub(super) struct Collection {
    pub(super) objects: BTreeMap<(String, String), Value>,
    pub(super) history: Vec<(u64, Bytes)>,
    pub(super) watchers: Vec<UnboundedSender<Bytes>>,
    /// Watches from versions before this one have expired.
    pub(super) oldest: u64,
    /// Number of continue tokens that will expire.
    pub(super) expired_pages: usize,
    /// Whether events are withheld from watches, and the withheld events.
    pub(super) is_withheld: bool,
    pub(super) untold: Vec<Bytes>,
}

impl Store {
    /// Answers a read.
    pub(super) fn look(&mut self, path: &str, query: &str) -> Response<Body> {
        if let Some(found) = self.discover(path) {
            return found;
        }
        let (collection, namespace, name) = parts(path);
        if let Some(refusal) = self.refuse(&collection) {
            return refusal;
        }
        match name {
            Some(name) => self.read(&collection, &namespace, &name),
            None if query.contains("watch=true") => self.watch(&collection, query),
            None => self.list(&collection, query),
        }
    }

    /// Executes a write or a dry run.
    pub(super) fn write(
        &mut self,
        method: &Method,
        path: &str,
        is_dry_run: bool,
        body: &[u8],
    ) -> Response<Body> {
        let (collection, namespace, name) = parts(path);
        if let Some(refusal) = self.refuse(&collection) {
            return refusal;
        }
        if method == Method::DELETE {
            let removed = self.remove(&collection, &namespace, name.as_deref().unwrap());
            return removed.map_or_else(|| failure(404), |object| answer(200, &object));
        }
        let object: Value = serde_json::from_slice(body).unwrap();
        let name = name.or_else(|| object["metadata"]["name"].as_str().map(str::to_owned));
        let key = (namespace, name.unwrap());
        match self.admit(method, &collection, &key, object, is_dry_run) {
            Ok(object) if is_dry_run => answer(200, &object),
            Ok(object) => {
                self.store(&collection, object);
                answer(200, &self.collections[&collection].objects[&key])
            }
            Err(code) => failure(code),
        }
    }

    fn refuse(&self, collection: &str) -> Option<Response<Body>> {
        let is_absent = self.absent.contains(collection);
        let is_forbidden = self.forbidden.contains(collection);
        is_absent.then_some(404).or(is_forbidden.then_some(403)).map(failure)
    }

    fn discover(&self, path: &str) -> Option<Response<Body>> {
        let rest = path.strip_prefix("/apis/")?;
        let (group, version) = match rest.split('/').collect::<Vec<_>>()[..] {
            [group] => (group, None),
            [group, version] => (group, Some(version)),
            _ => return None,
        };
        if let Some(version) = version {
            let Some(kinds) = self.groups.get(&(group.to_owned(), version.to_owned())) else {
                return Some(failure(404));
            };
            let kinds = kinds.iter().map(|(kind, plural)| {
                json!({"kind": kind, "name": plural, "singularName": "", "namespaced": true,
                    "verbs": ["get", "list", "watch"]})
            });
            let resources: Vec<_> = kinds.collect();
            let list = json!({"groupVersion": rest, "resources": resources});
            return Some(answer(200, &list));
        }
        let versions = self.groups.keys().filter(|(known, _)| known == group);
        let versions = versions.map(|(_, version)| {
            json!({"groupVersion": format!("{group}/{version}"), "version": version})
        });
        let versions: Vec<_> = versions.collect();
        if versions.is_empty() {
            return Some(failure(404));
        }
        Some(answer(200, &json!({"name": group, "versions": versions})))
    }

    /// Stores an object; returns its version.
    pub(super) fn store(&mut self, collection: &str, mut object: Value) -> u64 {
        self.version += 1;
        let version = self.version;
        object["metadata"]["resourceVersion"] = version.to_string().into();
        let found = self.collections.entry(collection.to_owned()).or_default();
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = (text("namespace"), text("name"));
        let old = found.objects.get(&key);
        if let Some(rules) = self.rules.get(collection) {
            rules.change(&mut object, old);
        }
        let event = if old.is_some() { "MODIFIED" } else { "ADDED" };
        found.tell(version, event, &object);
        found.objects.insert(key, object);
        version
    }

    /// Removes an object and returns it.
    pub(super) fn remove(
        &mut self,
        collection: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Value> {
        let found = self.collections.get_mut(collection)?;
        let mut object = found.objects.remove(&(namespace.to_owned(), name.to_owned()))?;
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        found.tell(self.version, "DELETED", &object);
        Some(object)
    }

    fn read(&self, collection: &str, namespace: &str, name: &str) -> Response<Body> {
        let key = (namespace.to_owned(), name.to_owned());
        let found = self.collections.get(collection).and_then(|found| found.objects.get(&key));
        found.map_or_else(|| failure(404), |object| answer(200, object))
    }

    /// The object that a write would store, or the status with which it is rejected.
    fn admit(
        &self,
        method: &Method,
        collection: &str,
        key: &(String, String),
        mut object: Value,
        is_dry_run: bool,
    ) -> Result<Value, u16> {
        let rules = self.rules.get(collection);
        if let Some(code) = rules.and_then(|rules| rules.refuse(&object, is_dry_run)) {
            return Err(code);
        }
        let old = self.collections.get(collection).and_then(|found| found.objects.get(key));
        match (method.as_str(), old) {
            ("POST", Some(_)) => return Err(409),
            ("PUT" | "PATCH", None) => return Err(404),
            ("PUT", Some(old))
                if object["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"] =>
            {
                return Err(409);
            }
            ("PATCH", Some(old)) => {
                let mut merged = old.clone();
                merge(&mut merged, object);
                object = merged;
            }
            _ => {}
        }
        let (namespace, name) = key;
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = namespace.as_str().into();
        }
        object["metadata"]["name"] = name.as_str().into();
        if let Some(rules) = rules.filter(|_| is_dry_run) {
            rules.change(&mut object, old);
        }
        Ok(object)
    }

    fn list(&mut self, collection: &str, query: &str) -> Response<Body> {
        let version = self.version;
        let found = self.collections.entry(collection.to_owned()).or_default();
        let number = |name: &str| {
            let part = query.split('&').find_map(|part| part.strip_prefix(name));
            part.and_then(|text| text.parse::<usize>().ok())
        };
        let begin = number("continue=").unwrap_or(0);
        if begin > 0 && found.expired_pages > 0 {
            found.expired_pages -= 1;
            return failure(410);
        }
        let limit = number("limit=").unwrap_or(usize::MAX);
        let items: Vec<_> = found.objects.values().skip(begin).take(limit).collect();
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if begin + items.len() < found.objects.len() {
            metadata["continue"] = (begin + items.len()).to_string().into();
        }
        answer(200, &json!({"kind": "List", "metadata": metadata, "items": items}))
    }

    fn watch(&mut self, collection: &str, query: &str) -> Response<Body> {
        let found = self.collections.entry(collection.to_owned()).or_default();
        let from = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
        let from: u64 = from.unwrap().parse().unwrap();
        if from < found.oldest {
            return failure(410);
        }
        let (sender, receiver) = unbounded_channel();
        for (_, line) in found.history.iter().filter(|(version, _)| *version > from) {
            sender.send(line.clone()).unwrap();
        }
        found.watchers.push(sender);
        let lines = UnboundedReceiverStream::new(receiver).map(Ok::<Bytes, Infallible>);
        Response::new(Body::from_stream(lines))
    }
}

impl Collection {
    fn tell(&mut self, version: u64, event: &str, object: &Value) {
        let line: Bytes = (json!({"type": event, "object": object}).to_string() + "\n").into();
        self.history.push((version, line.clone()));
        if self.is_withheld {
            self.untold.push(line);
        } else {
            self.say(&line);
        }
    }

    /// Sends a line to all watches.
    pub(super) fn say(&mut self, line: &Bytes) {
        self.watchers.retain(|watcher| watcher.send(line.clone()).is_ok());
    }
}

/// A JSON merge patch.
fn merge(into: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *into = patch;
        return;
    };
    for (key, value) in patch {
        merge(&mut into[key], value);
    }
}

/// Collection, namespace and name of a path.
fn parts(path: &str) -> (String, String, Option<String>) {
    let mut parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let root = if parts[0] == "api" { 2 } else { 3 };
    let is_namespaced = parts.get(root) == Some(&"namespaces") && parts.len() > root + 2;
    let namespace = if is_namespaced {
        parts.drain(root..root + 2).nth(1).unwrap_or_default().to_owned()
    } else {
        String::new()
    };
    let name = parts.get(root + 1).map(|name| (*name).to_owned());
    (format!("/{}", parts[..=root].join("/")), namespace, name)
}

pub(super) fn failure(code: u16) -> Response<Body> {
    let (code, status) = crate::failure(code, &format!("test failure {code}"));
    answer(code, &status)
}

fn answer(code: u16, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}
