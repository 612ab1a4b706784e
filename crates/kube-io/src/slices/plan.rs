//! What must be written so that the API has the slices that are wanted: pure, no I/O.

mod names;
mod same;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

pub(crate) use names::name;
pub(crate) use same::Settled;

/// Devices that a slice may hold, and how many of them when any has taints or takes counters
/// (resource.k8s.io/v1, limits of `ResourceSliceSpec.devices`).
const MOST_DEVICES: usize = 128;
const MOST_ADVANCED_DEVICES: usize = 64;
/// Counter sets that a slice may hold.
const MOST_COUNTER_SETS: usize = 8;

/// The pool as it should be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) driver: &'a str,
    pub(crate) node: &'a str,
    pub(crate) pool: &'a str,
    pub(crate) counters: &'a [api::CounterSet],
    pub(crate) devices: &'a [api::Device],
    pub(crate) owner: &'a OwnerReference,
}

/// What one slice holds: counter sets or devices.
#[derive(Clone, Copy, Debug)]
enum Part<'a> {
    Counters(&'a [api::CounterSet]),
    Devices(&'a [api::Device]),
}

/// One write to the API.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    Create(Box<api::ResourceSlice>),
    Replace(Box<api::ResourceSlice>),
    Delete(String),
}

/// Plans the writes, in order. Nothing is planned if all is as wanted.
///
/// Any change is a new generation of the whole pool: allocators then wait for the pool to be
/// complete instead of seeing half of it. Counter sets come first by name and are written last: a
/// pool whose devices lost what they take from them can be recognised, and given up, before it is
/// complete.
pub(crate) fn plan(
    wanted: &Wanted<'_>,
    found: &BTreeMap<String, api::ResourceSlice>,
    settled: &Settled,
) -> Vec<Write> {
    let parts = parts(wanted);
    let (ours, others): (Vec<_>, Vec<_>) = found.values().partition(|slice| {
        slice.spec.pool.name == wanted.pool
            && slice.spec.node_name.as_deref() == Some(wanted.node)
            && slice.spec.driver == wanted.driver
    });
    let mut writes: Vec<_> = others.into_iter().map(delete).collect();
    if is_as_wanted(wanted, &parts, &ours, settled) {
        return writes;
    }
    let generation = ours.iter().map(|slice| slice.spec.pool.generation).max().unwrap_or(0) + 1;
    let count = i64::try_from(parts.len()).unwrap_or(i64::MAX);
    let names = names::of_parts(wanted, parts.len(), &ours, found);
    let mut counters_last = Vec::new();
    for (part, name) in parts.iter().zip(names) {
        let old = ours.iter().find(|old| old.metadata.name.as_ref() == Some(&name));
        let mut slice = api::ResourceSlice {
            metadata: ObjectMeta {
                name: Some(name),
                owner_references: Some(vec![wanted.owner.clone()]),
                resource_version: old.and_then(|old| old.metadata.resource_version.clone()),
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
                shared_counters: part.counters().map(<[_]>::to_vec),
                devices: part.devices().map(<[_]>::to_vec),
                ..api::ResourceSliceSpec::default()
            },
        };
        keep_times(&mut slice, &ours);
        let slice = Box::new(slice);
        let write = if old.is_some() { Write::Replace(slice) } else { Write::Create(slice) };
        match part {
            Part::Counters(_) => counters_last.push(write),
            Part::Devices(_) => writes.push(write),
        }
    }
    writes.append(&mut counters_last);
    writes.extend(ours.iter().skip(parts.len()).map(|slice| delete(slice)));
    writes
}

fn is_as_wanted(
    wanted: &Wanted<'_>,
    parts: &[Part<'_>],
    ours: &[&api::ResourceSlice],
    settled: &Settled,
) -> bool {
    let Some(first) = ours.first() else { return false };
    ours.len() == parts.len()
        && ours.iter().zip(parts).all(|(slice, part)| {
            let spec = &slice.spec;
            let owners = slice.metadata.owner_references.as_deref().unwrap_or_default();
            spec.pool.generation == first.spec.pool.generation
                && usize::try_from(spec.pool.resource_slice_count) == Ok(parts.len())
                && owners.iter().any(|owner| owner.uid == wanted.owner.uid)
                && settled.is_same(part.counters(), part.devices(), slice)
        })
}

/// Cuts a pool into slices; at least one, so that a pool without devices is a complete one.
fn parts<'a>(wanted: &Wanted<'a>) -> Vec<Part<'a>> {
    let is_advanced =
        |device: &api::Device| device.taints.is_some() || device.consumes_counters.is_some();
    let has_advanced = wanted.devices.iter().any(is_advanced);
    let most = if has_advanced { MOST_ADVANCED_DEVICES } else { MOST_DEVICES };
    let counters = wanted.counters.chunks(MOST_COUNTER_SETS).map(Part::Counters);
    let mut parts: Vec<_> =
        counters.chain(wanted.devices.chunks(most).map(Part::Devices)).collect();
    if parts.is_empty() {
        parts.push(Part::Devices(&[]));
    }
    parts
}

impl<'a> Part<'a> {
    fn counters(self) -> Option<&'a [api::CounterSet]> {
        match self {
            Self::Counters(sets) => Some(sets),
            Self::Devices(_) => None,
        }
    }

    fn devices(self) -> Option<&'a [api::Device]> {
        match self {
            Self::Devices(devices) if !devices.is_empty() => Some(devices),
            Self::Devices(_) | Self::Counters(_) => None,
        }
    }
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
