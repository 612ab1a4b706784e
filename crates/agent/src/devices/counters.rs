//! Counters of a GPU, consumed by the whole GPU and by its MIG placements. They make overlapping devices exclude one
//! another (KEP-4815).
//!
//! Names and totals are those of NVIDIA's DRA driver. A total is the maximum over all profiles, not the GPU's amount:
//! on an A100 98 of 108 multiprocessors.

use std::collections::BTreeMap;

use octavo_dra::{CounterConsumption, CounterSet, Quantity};
use octavo_gpu::Gpu;
use octavo_gpu::mig::{MigPlacement, MigProfile};

use super::names::counter_set_name;

/// Resources of a profile besides memory slices: counter name, capacity name, amount.
pub(super) fn engines(profile: &MigProfile) -> [(&'static str, &'static str, u32); 6] {
    [
        ("multiprocessors", "multiprocessors", profile.multiprocessors),
        ("copy-engines", "copyEngines", profile.copy_engines),
        ("decoders", "decoders", profile.decoders),
        ("encoders", "encoders", profile.encoders),
        ("jpeg-engines", "jpegEngines", profile.jpeg_engines),
        ("ofa-engines", "ofaEngines", profile.ofa_engines),
    ]
}

/// Frame buffer of an instance of a profile.
pub(super) fn memory(profile: &MigProfile) -> Quantity {
    let mib = i64::try_from(profile.memory_mib).unwrap_or(i64::MAX >> 20);
    Quantity::binary(mib.saturating_mul(1 << 20))
}

/// The counter set of a GPU with MIG; `None` without MIG.
pub(super) fn counter_set(gpu: &Gpu) -> Option<CounterSet> {
    let mut counters = BTreeMap::new();
    let mut raise = |name: String, amount: Quantity| {
        let total = counters.entry(name).or_insert(amount);
        *total = amount.max(*total);
    };
    for profile in &gpu.mig_profiles {
        for (counter, _, amount) in engines(profile) {
            raise(counter.to_owned(), Quantity::decimal(amount.into()));
        }
        raise("memory".to_owned(), memory(profile));
        for placement in &profile.placements {
            for slice in slices(*placement) {
                raise(slice_counter(slice), Quantity::decimal(1));
            }
        }
    }
    let has_slices = counters.contains_key(&slice_counter(0));
    has_slices.then(|| CounterSet { name: counter_set_name(gpu.number), counters })
}

/// Consumption of the whole GPU: all counters.
pub(super) fn all(set: &CounterSet) -> CounterConsumption {
    consumption(&set.name, set.counters.clone())
}

/// Consumption of an instance of a profile at a placement.
pub(super) fn part(
    minor: u32,
    profile: &MigProfile,
    placement: MigPlacement,
) -> CounterConsumption {
    let engines = engines(profile)
        .map(|(counter, _, amount)| (counter.to_owned(), Quantity::decimal(amount.into())));
    let slices = slices(placement).map(|slice| (slice_counter(slice), Quantity::decimal(1)));
    let memory = [("memory".to_owned(), memory(profile))];
    consumption(&counter_set_name(minor), engines.into_iter().chain(memory).chain(slices).collect())
}

/// The memory slices of a placement.
pub(super) fn slices(placement: MigPlacement) -> std::ops::Range<u32> {
    placement.start..placement.start.saturating_add(placement.size)
}

fn slice_counter(slice: u32) -> String {
    format!("memory-slice-{slice}")
}

/// Omits zero amounts: with 26 devices per GPU they would be a tenth of the published data.
fn consumption(set: &str, mut counters: BTreeMap<String, Quantity>) -> CounterConsumption {
    counters.retain(|_, amount| *amount > Quantity::ZERO);
    CounterConsumption { counter_set: set.to_owned(), counters }
}
