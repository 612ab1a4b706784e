//! Probes which fields an API server keeps, by dry-run creates of slices.

use k8s_openapi::api::resource::v1 as api;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use octavo_dra::{
    AllowedAmounts, Capacity, CounterConsumption, CounterSet, Device, DeviceTaint, NodeScope,
    Quantity, RequestPolicy, Slice, TaintEffect,
};

use super::convert;
use super::features::{Feature, Features};

/// Name of everything in a probe: device, counter set, counter, capacity.
const PROBE: &str = "probe";

/// The pool that a probe imitates.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeTarget<'a> {
    pub(super) driver: &'a str,
    pub(super) node: &'a str,
    pub(super) pool: &'a str,
    /// Name of a slice that does not exist.
    pub(super) name: &'a str,
}

/// Finds out whether a server keeps the fields of a feature. It stores nothing.
pub(super) async fn probe(
    slices: &Api<api::ResourceSlice>,
    place: ProbeTarget<'_>,
    feature: Feature,
    features: &mut Features,
) -> Result<(), kube::Error> {
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    for slice in probe_slices(place, feature) {
        match slices.create(&parameters, &slice).await {
            Ok(kept) => {
                features.compare(&slice, &kept);
                if features.drops(feature) {
                    return Ok(());
                }
            }
            // Older servers have other validation for the same fields.
            Err(kube::Error::Api(status)) if status.code == 422 => {
                tracing::warn!(?feature, reason = %status.message, "the API server rejects a feature");
                features.set(feature, false);
                return Ok(());
            }
            // A webhook that does not support dry runs. Writes are read back in any case.
            Err(kube::Error::Api(status)) if status.code == 400 => {
                tracing::warn!(?feature, reason = %status.message, "cannot probe which fields the API server keeps");
                features.set(feature, true);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Slices that use a feature in all ways in which published slices do.
fn probe_slices(place: ProbeTarget<'_>, feature: Feature) -> Vec<api::ResourceSlice> {
    let one = Quantity::decimal(1);
    let counters = || [(PROBE.to_owned(), one)].into();
    let mut device = Device { name: PROBE.to_owned(), ..Device::default() };
    let mut sets = Vec::new();
    match feature {
        Feature::Counters => {
            sets.push(CounterSet { name: PROBE.to_owned(), counters: counters() });
            let counter_set = PROBE.to_owned();
            device.consumes = vec![CounterConsumption { counter_set, counters: counters() }];
        }
        Feature::Shares => {
            let allowed = AllowedAmounts::Range { min: one, max: Some(one), step: None };
            let policy = Some(RequestPolicy { default: Some(one), allowed });
            device.allow_multiple = true;
            device.capacity = [(PROBE.to_owned(), Capacity { value: one, policy })].into();
        }
        Feature::Taints | Feature::TaintsWithoutEffect => {
            let effect = match feature {
                Feature::TaintsWithoutEffect => TaintEffect::None,
                _ => TaintEffect::NoSchedule,
            };
            let key = "octavo.dev/probe".to_owned();
            device.taints = vec![DeviceTaint { key, value: String::new(), effect }];
        }
    }
    let slice = |counters: Vec<CounterSet>, devices| api::ResourceSlice {
        metadata: ObjectMeta { name: Some(place.name.to_owned()), ..ObjectMeta::default() },
        spec: convert::to_api(&Slice {
            driver: place.driver.to_owned(),
            pool: place.pool.to_owned(),
            generation: 1,
            slice_count: 1,
            nodes: NodeScope::Node(place.node.to_owned()),
            counters,
            devices,
            ..Slice::default()
        }),
    };
    let mut slices = vec![slice(Vec::new(), vec![device])];
    if !sets.is_empty() {
        slices.push(slice(sets, Vec::new()));
    }
    slices
}
