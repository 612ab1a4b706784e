//! What must be written so that the API has the slices that are wanted: pure, no I/O.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use octavo_dra::Quantity;

/// Devices that a slice may hold, and how many of them when any uses taints or another advanced
/// feature (resource.k8s.io/v1, limits of `ResourceSliceSpec.devices`).
const MOST_DEVICES: usize = 128;
const MOST_ADVANCED_DEVICES: usize = 64;
/// How many writes are remembered that a server changed: more than a pool has slices.
const MOST_SETTLED: usize = 64;
/// Longest name of an object.
const LONGEST_NAME: usize = 253;

/// The pool as it should be.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) driver: &'a str,
    pub(crate) node: &'a str,
    pub(crate) pool: &'a str,
    pub(crate) devices: &'a [api::Device],
    pub(crate) owner: &'a OwnerReference,
}

/// One write to the API.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    Create(Box<api::ResourceSlice>),
    Replace(Box<api::ResourceSlice>),
    Delete(String),
}

/// What a server made of devices that were sent to it: fields whose feature is off are dropped
/// without a word. Without this memory such a slice would be written again for ever.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settled(Vec<(Vec<api::Device>, Vec<api::Device>)>);

impl Settled {
    /// Remembers what became of a write; returns whether the server changed it.
    pub(crate) fn remember(
        &mut self,
        sent: &api::ResourceSlice,
        kept: &api::ResourceSlice,
    ) -> bool {
        let (sent, kept) = (comparable(sent), comparable(kept));
        let is_changed = sent != kept;
        self.0.retain(|(known, _)| *known != sent);
        if is_changed {
            if self.0.len() == MOST_SETTLED {
                self.0.remove(0);
            }
            self.0.push((sent, kept));
        }
        is_changed
    }

    fn is_same(&self, wanted: &[api::Device], found: &[api::Device]) -> bool {
        wanted == found || self.0.iter().any(|(sent, kept)| sent == wanted && kept == found)
    }
}

/// Plans the writes, in order. Nothing is planned if all is as wanted.
///
/// Any change is a new generation of the whole pool: allocators then wait for the pool to be
/// complete instead of seeing half of it.
pub(crate) fn plan(
    wanted: &Wanted<'_>,
    found: &BTreeMap<String, api::ResourceSlice>,
    settled: &Settled,
) -> Vec<Write> {
    let chunks = chunks(wanted.devices);
    let (ours, others): (Vec<_>, Vec<_>) = found.values().partition(|slice| {
        slice.spec.pool.name == wanted.pool
            && slice.spec.node_name.as_deref() == Some(wanted.node)
            && slice.spec.driver == wanted.driver
    });
    let mut writes: Vec<_> = others.into_iter().map(delete).collect();
    if is_as_wanted(wanted, &chunks, &ours, settled) {
        return writes;
    }
    let generation = ours.iter().map(|slice| slice.spec.pool.generation).max().unwrap_or(0) + 1;
    let count = i64::try_from(chunks.len()).unwrap_or(i64::MAX);
    let taken: Vec<_> = found.keys().map(String::as_str).collect();
    for (index, devices) in chunks.iter().enumerate() {
        let mut slice = api::ResourceSlice {
            metadata: ObjectMeta {
                owner_references: Some(vec![wanted.owner.clone()]),
                ..ObjectMeta::default()
            },
            spec: api::ResourceSliceSpec {
                driver: wanted.driver.to_owned(),
                node_name: Some(wanted.node.to_owned()),
                pool: api::ResourcePool {
                    name: wanted.pool.to_owned(),
                    generation,
                    resource_slice_count: count,
                },
                devices: (!devices.is_empty()).then(|| devices.to_vec()),
                ..api::ResourceSliceSpec::default()
            },
        };
        if let Some(old) = ours.get(index) {
            slice.metadata.name.clone_from(&old.metadata.name);
            slice.metadata.resource_version.clone_from(&old.metadata.resource_version);
            keep_times(&mut slice, &ours);
            writes.push(Write::Replace(Box::new(slice)));
        } else {
            slice.metadata.name = Some(free_name(wanted, index, &taken));
            keep_times(&mut slice, &ours);
            writes.push(Write::Create(Box::new(slice)));
        }
    }
    writes.extend(ours.iter().skip(chunks.len()).map(|slice| delete(slice)));
    writes
}

fn is_as_wanted(
    wanted: &Wanted<'_>,
    chunks: &[&[api::Device]],
    ours: &[&api::ResourceSlice],
    settled: &Settled,
) -> bool {
    let Some(first) = ours.first() else { return false };
    ours.len() == chunks.len()
        && ours.iter().zip(chunks).all(|(slice, devices)| {
            let spec = &slice.spec;
            let owners = slice.metadata.owner_references.as_deref().unwrap_or_default();
            spec.pool.generation == first.spec.pool.generation
                && usize::try_from(spec.pool.resource_slice_count) == Ok(chunks.len())
                && spec.shared_counters.as_ref().is_none_or(Vec::is_empty)
                && owners.iter().any(|owner| owner.uid == wanted.owner.uid)
                && settled.is_same(&normal(devices), &comparable(slice))
        })
}

/// Cuts devices into slices; at least one, so that a pool without devices is a complete one.
fn chunks(devices: &[api::Device]) -> Vec<&[api::Device]> {
    let is_advanced = devices.iter().any(|device| {
        device.taints.is_some()
            || device.consumes_counters.is_some()
            || device.allow_multiple_allocations.is_some()
    });
    let most = if is_advanced { MOST_ADVANCED_DEVICES } else { MOST_DEVICES };
    if devices.is_empty() { vec![devices] } else { devices.chunks(most).collect() }
}

fn delete(slice: &api::ResourceSlice) -> Write {
    Write::Delete(slice.metadata.name.clone().unwrap_or_default())
}

/// The time at which a taint was set is the server's to give; a slice that is written again for
/// another reason must not make old taints look new.
fn keep_times(slice: &mut api::ResourceSlice, ours: &[&api::ResourceSlice]) {
    for device in slice.spec.devices.iter_mut().flatten() {
        let old = ours
            .iter()
            .flat_map(|slice| slice.spec.devices.iter().flatten())
            .find(|old| old.name == device.name);
        for taint in device.taints.iter_mut().flatten() {
            let same = old.iter().flat_map(|old| old.taints.iter().flatten()).find(|old| {
                old.key == taint.key && old.value == taint.value && old.effect == taint.effect
            });
            taint.time_added = same.and_then(|old| old.time_added.clone());
        }
    }
}

/// A slice's devices without what the server adds or writes in its own way.
fn comparable(slice: &api::ResourceSlice) -> Vec<api::Device> {
    normal(slice.spec.devices.as_deref().unwrap_or_default())
}

fn normal(devices: &[api::Device]) -> Vec<api::Device> {
    let mut devices = devices.to_vec();
    for device in &mut devices {
        for taint in device.taints.iter_mut().flatten() {
            taint.time_added = None;
            taint.value = taint.value.take().filter(|value| !value.is_empty());
        }
        for capacity in device.capacity.iter_mut().flat_map(BTreeMap::values_mut) {
            if let Ok(quantity) = capacity.value.0.parse::<Quantity>() {
                capacity.value.0 = quantity.nanos().to_string();
            }
        }
        device.taints = device.taints.take().filter(|taints| !taints.is_empty());
        device.attributes = device.attributes.take().filter(|map| !map.is_empty());
        device.capacity = device.capacity.take().filter(|map| !map.is_empty());
    }
    devices
}

/// `<node>-<driver>-<number>`: allocators try the slices of a pool in order of name.
fn free_name(wanted: &Wanted<'_>, index: usize, taken: &[&str]) -> String {
    let mut number = index;
    loop {
        let tail = format!("-{}-{number:03}", wanted.driver);
        let mut node = wanted.node.to_owned();
        if node.len() + tail.len() > LONGEST_NAME {
            let mark = format!("-{:016x}", fingerprint(wanted.node));
            node.truncate(LONGEST_NAME - tail.len() - mark.len());
            // A label may not begin with a dash.
            node.truncate(node.trim_end_matches(['.', '-']).len());
            node.push_str(&mark);
        }
        let name = node + &tail;
        if !taken.contains(&name.as_str()) {
            return name;
        }
        number += 1000;
    }
}

/// FNV-1a: the same number for the same text in every version of the program.
fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
