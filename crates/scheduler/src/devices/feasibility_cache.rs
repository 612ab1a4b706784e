//! Results of the allocator by request and node, kept until the node's holdings or hardware change.
//! What an empty node would serve is kept until the hardware changes, whatever comes and goes.
//!
//! Members of a gang mostly make the same requests through claims of their own, and rejected pods
//! are retried often.

use std::collections::{BTreeMap, HashMap};
use std::sync::{MutexGuard, PoisonError};

use octavo_kube_io::objects::NodeName;

use super::Devices;
use super::ask::Ask;
use super::pod_allocation::{PodAllocation, PodAllocationError};

/// Most requests whose results are kept. The least recently used one is evicted.
const MAX_CACHED: usize = 64;
/// Maximum number of requests with a key. One more request replaces the keys of all.
const MAX_KEYS: usize = 8192;

/// Identifies what an ask requests from the allocator. Asks with the same key have the same result
/// on every node. Equal asks keep their key while results come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey(u64);

/// The allocator's result for a request on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feasibility {
    /// It has devices.
    Feasible {
        /// How early the alternatives are that `firstAvailable` requests get there
        /// ([`octavo_dra::prioritized_list_score`]); greater is better.
        list_score: u8,
    },
    /// It has none now, but would have them if no claim held any of the node's devices.
    Taken,
    /// The node has none, whatever leaves it.
    Never,
    /// The claims, or objects that they refer to, are invalid and must be corrected.
    Invalid,
}

/// Results by request and node.
#[derive(Debug, Default)]
pub(super) struct FeasibilityCache {
    by_text: HashMap<String, RequestKey>,
    cached: BTreeMap<u64, CachedKey>,
    /// Keys are never reused, so an evicted key does not find another request's results.
    next: u64,
    clock: u64,
    /// How often the allocator ran.
    #[cfg(test)]
    allocator_calls: u64,
}

#[derive(Debug, Default)]
struct CachedKey {
    last_used: u64,
    nodes: HashMap<NodeName, Feasibility>,
    /// Whether the node would serve the request if it were empty.
    empty: HashMap<NodeName, bool>,
}

impl FeasibilityCache {
    /// Forgets all results.
    pub(super) fn clear(&mut self) {
        self.cached.clear();
    }

    /// Forgets the results of a node, whose hardware has changed.
    pub(super) fn forget(&mut self, node: &str) {
        for cached in self.cached.values_mut() {
            cached.nodes.remove(node);
            cached.empty.remove(node);
        }
    }

    /// Forgets the results of a node whose holdings have changed.
    pub(super) fn holdings_changed(&mut self, node: &str) {
        for cached in self.cached.values_mut() {
            cached.nodes.remove(node);
        }
    }

    /// Forgets the results of all nodes, whose holdings may have changed.
    pub(super) fn all_holdings_changed(&mut self) {
        for cached in self.cached.values_mut() {
            cached.nodes.clear();
        }
    }

    fn request_key(&mut self, text: String) -> RequestKey {
        let request_key = if let Some(request_key) = self.by_text.get(&text) {
            *request_key
        } else {
            if self.by_text.len() >= MAX_KEYS {
                self.by_text.clear();
                self.cached.clear();
            }
            let request_key = RequestKey(self.next);
            self.next += 1;
            self.by_text.insert(text, request_key);
            request_key
        };
        self.clock += 1;
        if !self.cached.contains_key(&request_key.0) {
            let used_last = self.cached.iter().min_by_key(|(_, cached)| cached.last_used);
            let oldest = used_last.map(|(key, _)| *key);
            if let Some(oldest) = oldest.filter(|_| self.cached.len() >= MAX_CACHED) {
                self.cached.remove(&oldest);
            }
        }
        self.cached.entry(request_key.0).or_default().last_used = self.clock;
        request_key
    }
}

impl Devices {
    /// The key of what an ask requests.
    pub fn request_key(&self, ask: &Ask) -> RequestKey {
        self.feasibility_cache().request_key(ask.text())
    }

    /// The allocator's result for an ask with this key on a node. Whether the node reaches claims
    /// that are allocated already is not checked: see [`Devices::is_allowed`].
    pub fn feasibility(&self, ask: &Ask, request_key: RequestKey, node: &str) -> Feasibility {
        let Some((name, _)) = self.nodes.get_key_value(node) else {
            return self.compute(ask, node, None);
        };
        let cached = |cache: &FeasibilityCache| {
            let cached = cache.cached.get(&request_key.0)?;
            Some((cached.nodes.get(node).copied(), cached.empty.get(node).copied()))
        };
        let (now, empty) = cached(&self.feasibility_cache()).unwrap_or_default();
        if let Some(answer) = now {
            return answer;
        }
        if !self.is_allowed(ask, node) {
            return Feasibility::Never;
        }
        let answer = self.compute(ask, node, empty);
        if let Some(cached) = self.feasibility_cache().cached.get_mut(&request_key.0) {
            cached.nodes.insert(name.clone(), answer);
            if matches!(answer, Feasibility::Taken | Feasibility::Never) {
                cached.empty.insert(name.clone(), answer == Feasibility::Taken);
            }
        }
        answer
    }

    /// The allocator's result. `empty` tells whether the empty node would do, if known.
    fn compute(&self, ask: &Ask, node: &str, empty: Option<bool>) -> Feasibility {
        if empty == Some(false) {
            return Feasibility::Never;
        }
        #[cfg(test)]
        {
            self.feasibility_cache().allocator_calls += 1;
        }
        match self.allocate(ask, node, None) {
            Ok(allocation) => Feasibility::Feasible { list_score: list_score(&allocation) },
            Err(PodAllocationError::Refused(refusal)) if !refusal.is_node_specific() => {
                Feasibility::Invalid
            }
            Err(_) => {
                let would_do = empty.unwrap_or_else(|| {
                    let found = self.allocate_when_empty(ask, node, &[]);
                    // A search that gave up proves nothing.
                    let error = found.as_ref().err();
                    error.is_none_or(PodAllocationError::is_undecided)
                });
                if would_do { Feasibility::Taken } else { Feasibility::Never }
            }
        }
    }

    /// How often the allocator ran.
    #[cfg(test)]
    pub(crate) fn times_asked(&self) -> u64 {
        self.feasibility_cache().allocator_calls
    }

    pub(super) fn feasibility_cache(&self) -> MutexGuard<'_, FeasibilityCache> {
        self.feasibility.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The score of the alternatives that claims get.
fn list_score(allocation: &PodAllocation) -> u8 {
    let claims = allocation.claims.iter().map(|write| {
        let allocated = write.allocation.as_ref().map(|written| written.allocation.clone());
        let claim = &write.claim.claim;
        octavo_dra::Claim { allocation: allocated.or(claim.allocation.clone()), ..claim.clone() }
    });
    let claims: Vec<octavo_dra::Claim> = claims.collect();
    let claims: Vec<&octavo_dra::Claim> = claims.iter().collect();
    u8::try_from(octavo_dra::prioritized_list_score(&claims)).unwrap_or(u8::MAX)
}
