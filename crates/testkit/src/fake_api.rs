//! The parts of an API server that publishers, watches, leases and events need, in memory.

mod store;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use http::{Method, Request, Response};
use kube::Client;
use serde_json::Value;

pub use store::Rules;
use store::{Store, failure};

/// The server as one client reaches it. Clones are cheap and share server and connection.
#[derive(Clone, Default)]
pub struct FakeApi {
    inner: Arc<Mutex<Store>>,
    link: Arc<Mutex<Link>>,
}

/// Faults of a connection.
#[derive(Default)]
struct Link {
    /// Statuses of the next failing requests, by method.
    failures: BTreeMap<String, Vec<u16>>,
    /// Whether writes are executed but not answered.
    is_mute: bool,
    /// Which of the next writes are executed but fail for the client.
    unanswered: Vec<bool>,
    /// Whether requests are neither executed nor answered.
    is_dead: bool,
}

impl FakeApi {
    /// A client of this server.
    pub fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let server = server.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let query = head.uri.query().unwrap_or_default();
                let answer = server.answer(&head.method, head.uri.path(), query, &body);
                match answer {
                    Some(answer) => Ok::<_, Infallible>(answer),
                    None => std::future::pending().await,
                }
            }
        });
        Client::new(service, "default")
    }

    /// The same server over another connection with its own faults.
    #[must_use]
    pub fn link(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), link: Arc::default() }
    }

    /// Stores an object as another client would; returns its version.
    pub fn put(&self, collection: &str, object: Value) -> u64 {
        self.inner.lock().unwrap().store(collection, object)
    }

    /// Deletes an object as another client would.
    pub fn delete(&self, collection: &str, namespace: &str, name: &str) {
        self.inner.lock().unwrap().remove(collection, namespace, name).unwrap();
    }

    /// A stored object.
    pub fn object(&self, collection: &str, namespace: &str, name: &str) -> Option<Value> {
        let inner = self.inner.lock().unwrap();
        let key = (namespace.to_owned(), name.to_owned());
        inner.collections.get(collection)?.objects.get(&key).cloned()
    }

    /// All objects of a collection.
    pub fn objects(&self, collection: &str) -> Vec<Value> {
        let inner = self.inner.lock().unwrap();
        let found = inner.collections.get(collection);
        found.map(|found| found.objects.values().cloned().collect()).unwrap_or_default()
    }

    /// Sends a line to all watches without storing it.
    pub fn say(&self, collection: &str, text: &str) {
        let mut inner = self.inner.lock().unwrap();
        let found = inner.collections.entry(collection.to_owned()).or_default();
        found.say(&Bytes::from(text.to_owned()));
    }

    /// Ends all watches of a collection, as servers regularly do.
    pub fn end_watches(&self, collection: &str) {
        let mut inner = self.inner.lock().unwrap();
        inner.collections.entry(collection.to_owned()).or_default().watchers.clear();
    }

    /// Number of watches of a collection.
    pub fn watchers(&self, collection: &str) -> usize {
        let mut inner = self.inner.lock().unwrap();
        let found = inner.collections.entry(collection.to_owned()).or_default();
        found.watchers.retain(|watcher| !watcher.is_closed());
        found.watchers.len()
    }

    /// Forgets the changes of a collection so far.
    pub fn compact(&self, collection: &str) {
        let mut inner = self.inner.lock().unwrap();
        let version = inner.version;
        let found = inner.collections.entry(collection.to_owned()).or_default();
        found.history.clear();
        found.oldest = version;
    }

    /// Expires the next continue token of a collection.
    pub fn expire_page(&self, collection: &str) {
        let mut inner = self.inner.lock().unwrap();
        inner.collections.entry(collection.to_owned()).or_default().expired_pages = 1;
    }

    /// Forbids or allows reading a collection.
    pub fn forbid(&self, collection: &str, is_forbidden: bool) {
        let mut inner = self.inner.lock().unwrap();
        if is_forbidden {
            inner.forbidden.insert(collection.to_owned());
        } else {
            inner.forbidden.remove(collection);
        }
    }

    /// Removes or restores a collection.
    pub fn remove_collection(&self, collection: &str, is_absent: bool) {
        let mut inner = self.inner.lock().unwrap();
        if is_absent {
            inner.absent.insert(collection.to_owned());
            inner.collections.remove(collection);
        } else {
            inner.absent.remove(collection);
        }
    }

    /// Serves these kinds (kind and plural) in a version of a group; without kinds the version is
    /// not served.
    pub fn serve(&self, group: &str, version: &str, kinds: &[(&str, &str)]) {
        let mut inner = self.inner.lock().unwrap();
        let key = (group.to_owned(), version.to_owned());
        if kinds.is_empty() {
            inner.groups.remove(&key);
            return;
        }
        let kinds = kinds.iter().map(|(kind, plural)| ((*kind).to_owned(), (*plural).to_owned()));
        inner.groups.insert(key, kinds.collect());
    }

    /// Applies rules to the objects of a collection.
    pub fn rule(&self, collection: &str, rules: impl Rules + 'static) {
        self.inner.lock().unwrap().rules.insert(collection.to_owned(), Box::new(rules));
    }

    /// Withholds the events of a collection from all watches, or releases them.
    pub fn withhold(&self, collection: &str, is_withheld: bool) {
        let mut inner = self.inner.lock().unwrap();
        let found = inner.collections.entry(collection.to_owned()).or_default();
        found.is_withheld = is_withheld;
        for line in std::mem::take(&mut found.untold) {
            found.say(&line);
        }
    }

    /// Fails the next requests of a method with these statuses, except dry runs.
    pub fn fail(&self, method: &Method, statuses: &[u16]) {
        self.link.lock().unwrap().failures.insert(method.to_string(), statuses.to_vec());
    }

    /// Executes writes without answering them, or answers again.
    pub fn mute(&self, is_mute: bool) {
        self.link.lock().unwrap().is_mute = is_mute;
    }

    /// Which of the next writes are executed but fail for the client, as on a server that is too
    /// slow for it.
    pub fn leave_unanswered(&self, writes: &[bool]) {
        self.link.lock().unwrap().unanswered = writes.to_vec();
    }

    /// Neither executes nor answers requests, or does both again.
    pub fn kill(&self, is_dead: bool) {
        self.link.lock().unwrap().is_dead = is_dead;
    }

    /// Requests so far: method, path, query.
    pub fn requests(&self) -> Vec<(Method, String, String)> {
        self.inner.lock().unwrap().requests.clone()
    }

    /// Queries of lists (`false`) or watches (`true`) of a collection.
    pub fn queries(&self, collection: &str, is_watch: bool) -> Vec<String> {
        let requests = self.requests().into_iter();
        requests
            .filter(|(method, path, query)| {
                method == Method::GET
                    && path == collection
                    && query.contains("watch=true") == is_watch
            })
            .map(|(_, _, query)| query)
            .collect()
    }

    fn answer(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        body: &[u8],
    ) -> Option<Response<Body>> {
        let mut inner = self.inner.lock().unwrap();
        inner.requests.push((method.clone(), path.to_owned(), query.to_owned()));
        let mut link = self.link.lock().unwrap();
        if link.is_dead {
            return None;
        }
        let is_dry_run = query.contains("dryRun=All");
        if let Some(failures) = link.failures.get_mut(method.as_str())
            && !failures.is_empty()
            && !is_dry_run
        {
            return Some(failure(failures.remove(0)));
        }
        if method == Method::GET {
            return Some(inner.look(path, query));
        }
        let answer = inner.write(method, path, is_dry_run, body);
        if link.is_mute {
            return None;
        }
        let is_unanswered = !is_dry_run && !link.unanswered.is_empty() && link.unanswered.remove(0);
        Some(if is_unanswered && answer.status().is_success() { failure(504) } else { answer })
    }
}
