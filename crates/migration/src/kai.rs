//! KAI Scheduler: fractions of GPUs by annotations of the pod.
//!
//! The rules are those of `ValidateGpuRequests` in KAI's `pkg/binder/plugins/gpusharing/gpu-request`. KAI divides the node
//! label `nvidia.com/gpu.memory`, rounded down to 100 MiB. Here the driver's total is divided, which is up to 99 MiB more.

use octavo_api::names::EXTENDED_RESOURCE_GPU;
use octavo_dra::MAX_RESULTS_PER_CLAIM;
use serde_json::Value;

use crate::demand::{Demand, Memory, Portion, PortionError};
use crate::json::{object, scalar};
use crate::keys::{GPU_FRACTION, GPU_FRACTION_CONTAINER, GPU_FRACTION_NUM_DEVICES, GPU_MEMORY};
use crate::pod::ContainerRef;
use crate::report::{Reason, Report};

/// A demand, and the container that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fraction {
    /// Position in the list of containers.
    pub(crate) container: usize,
    /// What it gets.
    pub(crate) demand: Demand,
    /// The annotations as written.
    pub(crate) field: String,
}

/// Reads the fraction that a pod asks for. `None` if there is none, or if it is refused.
pub(crate) fn fraction(
    pod: &Value,
    containers: &[ContainerRef],
    report: &mut Report,
) -> Option<Fraction> {
    let refused = report.refusals.len();
    let fraction = annotation(pod, GPU_FRACTION);
    let memory_mib = annotation(pod, GPU_MEMORY);
    let devices = annotation(pod, GPU_FRACTION_NUM_DEVICES);
    let name = annotation(pod, GPU_FRACTION_CONTAINER);
    let count = devices.as_deref().map_or(1, |written| count(written, report));
    let memory = match (&fraction, &memory_mib) {
        (Some(fraction), Some(mib)) => {
            let field = format!("annotations {GPU_FRACTION}: {fraction} with {GPU_MEMORY}: {mib}");
            let cause = "both say how much memory each GPU gives";
            report.refuse(Reason::Conflict, field, cause, "remove one of them");
            Memory::All
        }
        (Some(fraction), None) => portion(fraction, report),
        (None, Some(mib)) => amount(mib, report),
        (None, None) => {
            if let Some(written) = &devices {
                let field = field(GPU_FRACTION_NUM_DEVICES, written);
                let cause = "there is neither gpu-fraction nor gpu-memory";
                report.refuse(Reason::Conflict, field, cause, "add one of them, or remove it");
            }
            if let Some(name) = &name {
                report.change(field(GPU_FRACTION_CONTAINER, name), "removed, there is no fraction");
            }
            return None;
        }
    };
    let has_gpus = |container: &ContainerRef| {
        let resources = container.at(pod).and_then(|container| container.get("resources"));
        let limits = resources.and_then(|resources| object(resources, "limits"));
        limits.is_some_and(|limits| limits.contains_key(EXTENDED_RESOURCE_GPU))
    };
    for container in containers.iter().filter(|container| has_gpus(container)) {
        let field = format!("{EXTENDED_RESOURCE_GPU} of container {}", container.name);
        let cause = "the pod also asks for a fraction of a GPU, and KAI serves one of both";
        report.refuse(Reason::Conflict, field, cause, "remove it, or the pod's annotation");
    }
    let container = match &name {
        Some(name) => containers.iter().position(|container| container.name == *name),
        None => containers.iter().position(|container| !container.is_init()),
    };
    if container.is_none() {
        let field = field(GPU_FRACTION_CONTAINER, name.as_deref().unwrap_or_default());
        let cause = "the pod has no such container";
        report.refuse(Reason::NoSuchContainer, field, cause, "name one of its containers");
    }
    if report.refusals.len() > refused {
        return None;
    }
    let written = [
        (GPU_FRACTION, fraction),
        (GPU_MEMORY, memory_mib),
        (GPU_FRACTION_NUM_DEVICES, devices),
        (GPU_FRACTION_CONTAINER, name),
    ];
    let written = written.into_iter().filter_map(|(key, value)| Some(format!("{key}: {}", value?)));
    let demand = Demand { count, memory, compute: 0, is_exclusive: false, is_urgent: false };
    let field = format!("annotation {}", written.collect::<Vec<_>>().join(", "));
    Some(Fraction { container: container?, demand, field })
}

fn portion(written: &str, report: &mut Report) -> Memory {
    let (reason, cause, remedy) = match Portion::parse(written) {
        Ok(portion) => return Memory::Portion(portion),
        Err(PortionError::NotANumber) => (
            Reason::NotANumber,
            "it is no decimal number",
            "write one between 0 and 1, such as 0.5",
        ),
        Err(PortionError::TooSmall) => {
            (Reason::OutOfRange, "a fraction is above 0", "write one between 0 and 1, or remove it")
        }
        Err(PortionError::TooLarge) => (
            Reason::OutOfRange,
            "a fraction is below 1",
            "ask for whole GPUs with nvidia.com/gpu, or several fractions with gpu-fraction-num-devices",
        ),
    };
    report.refuse(reason, field(GPU_FRACTION, written), cause, remedy);
    Memory::All
}

fn amount(written: &str, report: &mut Report) -> Memory {
    match written.parse::<u64>() {
        Ok(mib) if mib > 0 => return Memory::Mib(mib),
        Ok(_) => {
            let remedy = "write the memory in MiB, or remove it";
            report.refuse(Reason::OutOfRange, field(GPU_MEMORY, written), "it is 0", remedy);
        }
        Err(_) => {
            let remedy = "write the memory in MiB, without a unit";
            let cause = "it is no whole number";
            report.refuse(Reason::NotANumber, field(GPU_MEMORY, written), cause, remedy);
        }
    }
    Memory::All
}

fn count(written: &str, report: &mut Report) -> usize {
    let field = field(GPU_FRACTION_NUM_DEVICES, written);
    match written.parse::<u64>().map(usize::try_from) {
        Err(_) => {
            let cause = "it is no whole number";
            report.refuse(Reason::NotANumber, field, cause, "write a number of GPUs");
        }
        Ok(Ok(0)) => {
            report.refuse(
                Reason::OutOfRange,
                field,
                "it is 0",
                "write a number of GPUs, or remove it",
            );
        }
        Ok(Ok(count)) if count <= MAX_RESULTS_PER_CLAIM => return count,
        Ok(_) => {
            let cause = format!("a claim has at most {MAX_RESULTS_PER_CLAIM} devices");
            let remedy = "divide the container's work among several pods";
            report.refuse(Reason::TooManyGpus, field, cause, remedy);
        }
    }
    1
}

fn annotation(pod: &Value, key: &str) -> Option<String> {
    scalar(object(pod.get("metadata")?, "annotations")?.get(key)?)
}

fn field(key: &str, value: &str) -> String {
    format!("annotation {key}: {value}")
}
