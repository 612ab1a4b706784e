//! HAMi: resources of containers, and annotations of the pod.
//!
//! Resources follow `GenerateResourceRequests` and `Fit` of HAMi's `pkg/device/nvidia/device.go`, with the chart's defaults:
//! `memoryFactor` 1, `defaultMemory` and `defaultCores` 0, `defaultGPUNum` 1.

mod annotations;

use octavo_api::names::EXTENDED_RESOURCE_GPU;
use octavo_dra::{MAX_RESULTS_PER_CLAIM, Quantity};
use serde_json::Value;

pub(crate) use annotations::selection;

use crate::demand::{Demand, Memory, Portion};
use crate::json::{object, scalar};
use crate::keys::{GPUCORES, GPUMEM, GPUMEM_PERCENTAGE, HAMI_RESOURCES, PRIORITY};
use crate::report::{Reason, Report};

/// A whole GPU in percent.
const ALL: i128 = 100;

/// What a container wants of HAMi.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// It has no resource of HAMi, and asks for no GPU.
    Nothing,
    /// It has resources that give it no GPU.
    NoGpu,
    /// It has a number of whole GPUs and no other resource of HAMi, as with any device plugin.
    WholeGpus(Demand),
    /// Parts of GPUs, or GPUs for themselves.
    Parts(Demand),
}

/// Whether a container has a resource that only HAMi knows.
pub(crate) fn has_resources(container: &Value) -> bool {
    HAMI_RESOURCES.iter().any(|name| resource(container, name).is_some())
}

/// What a container wants. `None` if that is refused.
pub(crate) fn wanted(container: &Value, name: &str, report: &mut Report) -> Option<Wanted> {
    let refused = report.refusals.len();
    let mut number = |key: &str, unit: &str| number(container, key, unit, name, report);
    let count = number(EXTENDED_RESOURCE_GPU, "a whole number of GPUs");
    let memory_mib = number(GPUMEM, "a whole number of MiB");
    let percentage = number(GPUMEM_PERCENTAGE, "a whole number of percent");
    let cores = number(GPUCORES, "a whole number of percent");
    let priority = number(PRIORITY, "0 or 1");
    let field = |key: &str, value: i128| field(key, value, name);
    for (key, value) in [(GPUMEM_PERCENTAGE, percentage), (GPUCORES, cores)] {
        if let Some(value) = value.filter(|value| *value > ALL) {
            let remedy = "write at most 100, or more GPUs";
            report.refuse(Reason::OutOfRange, field(key, value), "a GPU has 100 percent", remedy);
        }
    }
    if let Some(value) = priority.filter(|value| *value > 1) {
        let cause = "HAMi knows 0, which is high, and 1, which is low";
        report.refuse(Reason::OutOfRange, field(PRIORITY, value), cause, "write 0 or 1");
    }
    // HAMi takes 0 for not given.
    let memory_mib = memory_mib.filter(|mib| *mib > 0);
    let percentage = percentage.filter(|percent| *percent > 0);
    if let (Some(mib), Some(percent)) = (memory_mib, percentage) {
        let field =
            format!("{GPUMEM}: {mib} with {GPUMEM_PERCENTAGE}: {percent} of container {name}");
        let cause = "both say how much memory each GPU gives, and HAMi heeds the first alone";
        report.refuse(Reason::Conflict, field, cause, "remove one of them");
    }
    let wants_part =
        [GPUMEM, GPUMEM_PERCENTAGE, GPUCORES].iter().any(|key| resource(container, key).is_some());
    // HAMi's webhook adds one GPU to a container that asks for a part without a number.
    let count = count.unwrap_or(i128::from(wants_part));
    let most = i128::try_from(MAX_RESULTS_PER_CLAIM).unwrap_or(i128::MAX);
    if count > most {
        let field = field(EXTENDED_RESOURCE_GPU, count);
        let cause = format!("a claim has at most {most} devices");
        report.refuse(
            Reason::TooManyGpus,
            field,
            cause,
            "divide the container's work among several pods",
        );
    }
    let memory = match (memory_mib, percentage) {
        (Some(mib), _) => Memory::Mib(u64::try_from(mib).unwrap_or(u64::MAX)),
        (None, Some(percent)) if percent < ALL => {
            Memory::Portion(Portion::percent(u8::try_from(percent).unwrap_or(u8::MAX)))
        }
        (None, _) => Memory::All,
    };
    if report.refusals.len() > refused {
        return None;
    }
    let compute = u8::try_from(cores.unwrap_or_default()).unwrap_or_default();
    let demand = Demand {
        count: usize::try_from(count).unwrap_or_default(),
        memory,
        compute,
        // `Fit`: 100 percent need an unused GPU, and leave it to no other pod.
        is_exclusive: i128::from(compute) == ALL,
        is_urgent: priority == Some(0),
    };
    let has_resources = has_resources(container);
    Some(match demand.count {
        0 if has_resources => Wanted::NoGpu,
        0 => Wanted::Nothing,
        _ if has_resources => Wanted::Parts(demand),
        _ => Wanted::WholeGpus(demand),
    })
}

/// A resource's amount as a whole number, at least 0. `None` if it is absent or refused.
fn number(
    container: &Value,
    key: &str,
    unit: &str,
    name: &str,
    report: &mut Report,
) -> Option<i128> {
    let value = resource(container, key)?;
    let written = scalar(value);
    let amount = written.as_deref().and_then(|text| text.parse::<Quantity>().ok());
    let field = || field(key, written.clone().unwrap_or_else(|| value.to_string()), name);
    match amount {
        Some(amount) if amount.is_whole() && amount >= Quantity::ZERO => {
            let amount = amount.value();
            if amount <= i128::from(i32::MAX) {
                return Some(amount);
            }
            let cause = "HAMi counts in 32 bits";
            report.refuse(Reason::OutOfRange, field(), cause, format!("write {unit}"));
        }
        Some(_) => {
            let cause = "it is negative or not whole";
            report.refuse(Reason::OutOfRange, field(), cause, format!("write {unit}"));
        }
        None => {
            let cause = "it is no quantity";
            report.refuse(Reason::NotANumber, field(), cause, format!("write {unit}"));
        }
    }
    None
}

/// A container's resource. HAMi reads limits first.
fn resource<'a>(container: &'a Value, key: &str) -> Option<&'a Value> {
    let resources = container.get("resources")?;
    ["limits", "requests"].iter().find_map(|list| object(resources, list)?.get(key))
}

/// The container's resources of HAMi and its GPUs, as written.
pub(crate) fn described(container: &Value, name: &str) -> String {
    let keys = std::iter::once(EXTENDED_RESOURCE_GPU).chain(HAMI_RESOURCES);
    let value = |key: &str| Some(format!("{key}: {}", scalar(resource(container, key)?)?));
    let values: Vec<String> = keys.filter_map(value).collect();
    format!("{} of container {name}", values.join(", "))
}

fn field(key: &str, value: impl std::fmt::Display, name: &str) -> String {
    format!("{key}: {value} of container {name}")
}
