//! Plans the writes that make the API's slices the wanted ones: pure, no I/O.

mod content_digest;
mod names;
mod observed;
mod server_mutations;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use octavo_dra::{CounterSet, Device};

use super::convert;
use content_digest::ContentDigest;
use observed::Times;

pub(crate) use names::name;
pub(crate) use observed::ObservedSlice;
pub(crate) use server_mutations::ServerMutations;

/// Limit of devices in a slice, and the limit if any device has taints or takes counters
/// (resource.k8s.io/v1, `ResourceSliceSpec.devices`).
const MAX_DEVICES: usize = 128;
const MAX_ADVANCED_DEVICES: usize = 64;
/// Limit of counter sets in a slice.
const MAX_COUNTER_SETS: usize = 8;

/// The wanted pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) driver: &'a str,
    pub(crate) node: &'a str,
    pub(crate) pool: &'a str,
    pub(crate) counters: &'a [CounterSet],
    pub(crate) devices: &'a [Device],
    pub(crate) owner: &'a OwnerReference,
}

/// The known state of the API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed<'a> {
    /// The driver's slices of the node, by name.
    pub(crate) found: &'a BTreeMap<String, ObservedSlice>,
    /// Names of foreign slices.
    pub(crate) taken: &'a BTreeSet<String>,
    /// How the server changes content that is sent to it.
    pub(crate) server_mutations: &'a ServerMutations,
}

/// The content of one slice: counter sets or devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Part<'a> {
    Counters(&'a [CounterSet]),
    Devices(&'a [Device]),
}

/// The writes for a pool, in order.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    wanted: Wanted<'a>,
    generation: i64,
    count: i64,
    times: Times,
    pub(crate) writes: Vec<Write<'a>>,
}

/// One write to the API.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write<'a> {
    Put(Put<'a>),
    Delete(String),
}

/// A slice that is created or replaced.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Put<'a> {
    pub(crate) name: String,
    /// Whether no slice of this name exists.
    pub(crate) is_new: bool,
    /// Version of the slice that it replaces.
    resource_version: Option<String>,
    part: Part<'a>,
}

/// Plans the writes, in order. There are none if the slices are as wanted.
///
/// A change is a new generation of the whole pool: allocators then wait for the complete pool
/// instead of seeing half of it. An unfinished generation with the wanted content is completed. No
/// allocator has used it yet. A server that is too slow for a whole pool must not receive all
/// of it again and again. The content of a slice never changes within a generation.
///
/// Slices with counter sets are first by name and written last. If the server drops the draws of
/// devices on counters, the pool can thus be corrected before it is complete.
pub(crate) fn plan<'a>(wanted: &Wanted<'a>, seen: &Observed<'_>) -> Plan<'a> {
    let parts = parts(wanted);
    let (ours, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
        seen.found.iter().partition(|(_, slice)| slice.is_of_pool(wanted));
    let names = names::for_parts(wanted, parts.len(), &ours, seen);
    let mut writes: Vec<_> = others.into_keys().cloned().map(Write::Delete).collect();
    let spare = ours.keys().filter(|name| !names.contains(**name));
    let spare: Vec<_> = spare.map(|name| Write::Delete((*name).clone())).collect();
    let count = i64::try_from(parts.len()).unwrap_or(i64::MAX);
    let newest = ours.values().map(|slice| slice.generation).max().unwrap_or(0);
    let places: Vec<_> = names.into_iter().zip(parts).collect();
    let pool = NewestGeneration {
        wanted,
        server_mutations: seen.server_mutations,
        ours: &ours,
        generation: newest,
        count,
    };
    let is_begun = pool.can_be_completed(&places);
    let generation = if is_begun { newest } else { newest + 1 };
    let mut counters_last = Vec::new();
    for (name, part) in places {
        if is_begun && pool.has(&name) {
            continue;
        }
        let old = ours.get(&name);
        let resource_version = old.and_then(|old| old.resource_version.clone());
        let write = Write::Put(Put { name, is_new: old.is_none(), resource_version, part });
        match part {
            Part::Counters(_) => counters_last.push(write),
            Part::Devices(_) => writes.push(write),
        }
    }
    writes.append(&mut counters_last);
    writes.extend(spare);
    let mut times = Times::new();
    for (of, time) in ours.values().flat_map(|slice| &slice.times) {
        times.entry(of.clone()).or_insert_with(|| time.clone());
    }
    Plan { wanted: *wanted, generation, count, times, writes }
}

impl Plan<'_> {
    /// The slice as it is sent.
    pub(crate) fn slice(&self, put: &Put<'_>) -> api::ResourceSlice {
        let (counters, devices) = (put.part.counters(), put.part.devices());
        let counters = counters.iter().map(convert::counter_set_to_api).collect::<Vec<_>>();
        let devices = devices.iter().map(convert::device_to_api).collect::<Vec<_>>();
        let mut slice = api::ResourceSlice {
            metadata: ObjectMeta {
                name: Some(put.name.clone()),
                owner_references: Some(vec![self.wanted.owner.clone()]),
                resource_version: put.resource_version.clone(),
                ..ObjectMeta::default()
            },
            spec: api::ResourceSliceSpec {
                driver: self.wanted.driver.to_owned(),
                node_name: Some(self.wanted.node.to_owned()),
                pool: api::ResourcePool {
                    name: self.wanted.pool.to_owned(),
                    generation: self.generation,
                    resource_slice_count: self.count,
                },
                shared_counters: (!counters.is_empty()).then_some(counters),
                devices: (!devices.is_empty()).then_some(devices),
                ..api::ResourceSliceSpec::default()
            },
        };
        observed::restore_times(&mut slice, &self.times);
        slice
    }
}

/// The newest generation of a pool, which may be unfinished.
struct NewestGeneration<'a> {
    wanted: &'a Wanted<'a>,
    server_mutations: &'a ServerMutations,
    ours: &'a BTreeMap<&'a String, &'a ObservedSlice>,
    generation: i64,
    count: i64,
}

impl NewestGeneration<'_> {
    /// Whether the slice with this name belongs to this generation.
    fn has(&self, name: &String) -> bool {
        self.ours.get(name).is_some_and(|slice| slice.generation == self.generation)
    }

    /// Whether the existing slices are as wanted and the missing ones can be written in the right
    /// order.
    fn can_be_completed(&self, places: &[(String, Part<'_>)]) -> bool {
        let newest = self.ours.values().filter(|slice| slice.generation == self.generation);
        let (there, missing): (Vec<_>, Vec<_>) =
            places.iter().partition(|(name, _)| self.has(name));
        let is_counters = |(_, part): &&(String, Part<'_>)| matches!(part, Part::Counters(_));
        // Devices after the counters would be offered before they are read back.
        let is_late = !missing.is_empty()
            && places.iter().any(|place| is_counters(&place))
            && !missing.iter().any(is_counters);
        let is_as_wanted = |(name, part): &(String, Part<'_>)| {
            self.ours.get(name).is_some_and(|slice| {
                slice.count == self.count
                    && slice.is_owned(self.wanted)
                    && self
                        .server_mutations
                        .is_same(ContentDigest::wanted(*part), slice.content_digest)
            })
        };
        !there.is_empty()
            && newest.count() == there.len()
            && !is_late
            && there.into_iter().all(is_as_wanted)
    }
}

/// Divides a pool into slices. There is at least one, so that a pool without devices is complete.
fn parts<'a>(wanted: &Wanted<'a>) -> Vec<Part<'a>> {
    let is_advanced = |device: &Device| !device.taints.is_empty() || !device.consumes.is_empty();
    let has_advanced = wanted.devices.iter().any(is_advanced);
    let most = if has_advanced { MAX_ADVANCED_DEVICES } else { MAX_DEVICES };
    let counters = wanted.counters.chunks(MAX_COUNTER_SETS).map(Part::Counters);
    let mut parts: Vec<_> =
        counters.chain(wanted.devices.chunks(most).map(Part::Devices)).collect();
    if parts.is_empty() {
        parts.push(Part::Devices(&[]));
    }
    parts
}

impl<'a> Part<'a> {
    fn counters(self) -> &'a [CounterSet] {
        match self {
            Self::Counters(sets) => sets,
            Self::Devices(_) => &[],
        }
    }

    fn devices(self) -> &'a [Device] {
        match self {
            Self::Counters(_) => &[],
            Self::Devices(devices) => devices,
        }
    }
}
