//! A demand as a `ResourceClaimTemplate` of `resource.k8s.io/v1`.
//!
//! Several shares are several requests with `distinctAttribute`: in Kubernetes 1.36 that constraint does not tell apart the
//! devices of one request. Whole GPUs are one request with a count, since each takes all memory.

use std::fmt::Write as _;

use octavo_api::names::{CAPACITY_COMPUTE, CAPACITY_MEMORY, CLASS_GPU, DRIVER, OCTAVO_API_VERSION};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::demand::{Demand, Memory, Portion};
use crate::report::{Reason, Report};
use crate::selection::{Selection, has_memory, is_product};
use crate::{GpuModel, ModelSource, Options};

/// Limit of a request's alternatives: `FirstAvailableDeviceRequestMaxSize` of `resource.k8s.io`.
const MAX_ALTERNATIVES: usize = 8;
/// Limit of an expression's length in bytes: `CELSelectorExpressionMaxLength`.
const MAX_EXPRESSION: usize = 10 * 1024;
/// The largest memory that a quantity of the API holds in bytes, in MiB.
const MAX_MIB: u64 = (i64::MAX >> 20).unsigned_abs();
/// Length of the part of a template's name that comes from the workload's name.
const MAX_BASE: usize = 40;
/// Length of a DNS label.
pub(crate) const MAX_LABEL: usize = 63;
/// Bytes of the digest in a template's name.
const DIGEST_BYTES: usize = 5;

/// The spec of a claim, and what it gives in words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClaimSpec {
    /// `spec.devices` of the claim.
    pub(crate) devices: Value,
    /// `2 shares of 3000Mi of GPUs`.
    pub(crate) summary: String,
}

/// One way to serve a request.
struct Alternative {
    name: String,
    selectors: Vec<String>,
    capacity: Map<String, Value>,
}

/// The claim for a demand. `None` if it is refused; `field` names what asks for it.
pub(crate) fn claim(
    demand: &Demand,
    selection: &Selection,
    options: &Options,
    field: &str,
    report: &mut Report,
) -> Option<ClaimSpec> {
    let models = options.models.as_slice();
    let accepted: Vec<&GpuModel> = models.iter().filter(|model| selection.accepts(model)).collect();
    let alternatives = alternatives(demand, selection, options, &accepted, field, report)?;
    let selectors = alternatives.iter().flat_map(|alternative| &alternative.selectors);
    if selectors.into_iter().any(|expression| expression.len() > MAX_EXPRESSION) {
        let cause = format!("its CEL selector would be longer than {MAX_EXPRESSION} bytes");
        report.refuse(Reason::ExpressionTooLong, field, cause, "shorten the pod's lists of GPUs");
        return None;
    }
    let is_share = demand.memory != Memory::All && !demand.is_exclusive;
    let names: Vec<String> = match (demand.count, is_share) {
        (count, true) if count > 1 => (0..count).map(|index| format!("gpu-{index}")).collect(),
        _ => vec!["gpu".to_owned()],
    };
    let count = (!is_share && demand.count > 1).then_some(demand.count);
    let requests = names.iter().map(|name| request(name, &alternatives, count));
    let mut devices = json!({ "requests": requests.collect::<Vec<_>>() });
    let mut constraints = Vec::new();
    if names.len() > 1 {
        let attribute = format!("{DRIVER}/uuid");
        constraints.push(json!({ "requests": names, "distinctAttribute": attribute }));
    }
    if selection.is_one_numa_node && demand.count > 1 {
        let attribute = "resource.kubernetes.io/numaNode";
        constraints.push(json!({ "requests": names, "matchAttribute": attribute }));
    }
    if !constraints.is_empty() {
        devices["constraints"] = constraints.into();
    }
    if demand.is_urgent && is_share {
        let parameters = json!({
            "apiVersion": OCTAVO_API_VERSION, "kind": "GpuShareConfig", "class": "LatencyCritical",
        });
        let opaque = json!({ "driver": DRIVER, "parameters": parameters });
        devices["config"] = json!([{ "requests": names, "opaque": opaque }]);
    }
    Some(ClaimSpec { devices, summary: summary(demand, alternatives.len()) })
}

fn alternatives(
    demand: &Demand,
    selection: &Selection,
    options: &Options,
    accepted: &[&GpuModel],
    field: &str,
    report: &mut Report,
) -> Option<Vec<Alternative>> {
    let mut selectors = selection.type_expressions();
    selectors.extend(selection.uuid_expressions());
    let mut capacity = Map::new();
    if demand.compute > 0 && !demand.is_exclusive {
        capacity.insert(CAPACITY_COMPUTE.to_owned(), demand.compute.to_string().into());
    }
    let one =
        |selectors, capacity| Some(vec![Alternative { name: String::new(), selectors, capacity }]);
    match demand.memory {
        Memory::All => one(selectors, capacity),
        Memory::Mib(mib) => {
            check_memory(mib, options.models_from, accepted, field, report)?;
            if demand.is_exclusive {
                selectors.push(has_memory(mib));
            } else {
                capacity.insert(CAPACITY_MEMORY.to_owned(), format!("{mib}Mi").into());
            }
            one(selectors, capacity)
        }
        // All of a GPU is at least any part of it.
        Memory::Portion(_) if demand.is_exclusive => one(selectors, capacity),
        Memory::Portion(portion) => {
            check_models(options, accepted, field, report)?;
            Some(by_model(portion, &selection.uuid_expressions(), &capacity, accepted))
        }
    }
}

fn check_memory(
    mib: u64,
    models_from: ModelSource,
    accepted: &[&GpuModel],
    field: &str,
    report: &mut Report,
) -> Option<()> {
    let largest = accepted.iter().max_by_key(|model| model.memory_mib);
    let cause = match largest {
        Some(largest) if mib > largest.memory_mib => {
            format!("the largest known GPU has {}Mi ({})", largest.memory_mib, largest.product_name)
        }
        None | Some(_) if mib > MAX_MIB => "no quantity is so large".to_owned(),
        None | Some(_) => return Some(()),
    };
    let remedy = models_from.remedy_for_memory();
    report.refuse(Reason::TooMuchMemory, field, cause, remedy);
    None
}

fn check_models(
    options: &Options,
    accepted: &[&GpuModel],
    field: &str,
    report: &mut Report,
) -> Option<()> {
    if accepted.is_empty() {
        let is_none_known = options.models.as_slice().is_empty();
        let (cause, remedy) = options.models_from.no_model(is_none_known);
        report.refuse(Reason::NoModel, field, cause, remedy);
        return None;
    }
    if accepted.len() > MAX_ALTERNATIVES {
        let cause = format!(
            "the pod accepts {} GPU models, and a request has at most {MAX_ALTERNATIVES} alternatives",
            accepted.len()
        );
        let remedy = options.models_from.remedy_for_number();
        report.refuse(Reason::TooManyModels, field, cause, remedy);
        return None;
    }
    Some(())
}

/// An alternative for each model, in the order of the models. A model's name is the condition on its type.
fn by_model(
    portion: Portion,
    selectors: &[String],
    capacity: &Map<String, Value>,
    accepted: &[&GpuModel],
) -> Vec<Alternative> {
    let mut names = Vec::new();
    let alternative = |model: &&GpuModel| {
        let name = unique(&label(&model.product_name, MAX_LABEL), &names);
        names.push(name.clone());
        let mut capacity = capacity.clone();
        let mib = portion.of(model.memory_mib);
        capacity.insert(CAPACITY_MEMORY.to_owned(), format!("{mib}Mi").into());
        let mut own = vec![is_product(&model.product_name)];
        own.extend_from_slice(selectors);
        Alternative { name, selectors: own, capacity }
    };
    accepted.iter().map(alternative).collect()
}

fn request(name: &str, alternatives: &[Alternative], count: Option<usize>) -> Value {
    if let [only] = alternatives {
        return json!({ "name": name, "exactly": device_request(only, count) });
    }
    let named = |alternative: &Alternative| {
        let mut request = device_request(alternative, count);
        request["name"] = alternative.name.as_str().into();
        request
    };
    let alternatives: Vec<Value> = alternatives.iter().map(named).collect();
    json!({ "name": name, "firstAvailable": alternatives })
}

fn device_request(alternative: &Alternative, count: Option<usize>) -> Value {
    let mut request = json!({ "deviceClassName": CLASS_GPU });
    if !alternative.selectors.is_empty() {
        let cel = |expression: &String| json!({ "cel": { "expression": expression } });
        request["selectors"] = alternative.selectors.iter().map(cel).collect();
    }
    if !alternative.capacity.is_empty() {
        request["capacity"] = json!({ "requests": alternative.capacity });
    }
    if let Some(count) = count {
        request["count"] = count.into();
    }
    request
}

fn summary(demand: &Demand, alternatives: usize) -> String {
    let Demand { count, memory, compute, is_exclusive, .. } = *demand;
    let gpus = if count == 1 { "GPU" } else { "GPUs" };
    let memory = match memory {
        _ if is_exclusive => {
            return format!("{count} whole {gpus}, since 100 percent exclude others");
        }
        Memory::All => "all memory".to_owned(),
        Memory::Mib(mib) => format!("{mib}Mi"),
        Memory::Portion(_) if alternatives > 1 => {
            format!("a part of the memory, in MiB for each of {alternatives} models")
        }
        Memory::Portion(_) => "a part of the memory, in MiB for the only model".to_owned(),
    };
    match compute {
        0 => format!("{count} {gpus} with {memory}"),
        _ => format!("{count} {gpus} with {compute} percent of the time and {memory}"),
    }
}

/// The template for a claim. Its name comes from the workload's name and the claim's content, since a template's spec
/// cannot change.
pub(crate) fn template(spec: &ClaimSpec, base: &str, namespace: Option<&str>) -> Value {
    let digest = Sha256::digest(spec.devices.to_string());
    let digest = digest.iter().take(DIGEST_BYTES).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let base = label(base, MAX_BASE);
    let name =
        if base.is_empty() { format!("gpu-{digest}") } else { format!("{base}-gpu-{digest}") };
    let mut metadata = json!({ "name": name });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": metadata,
        "spec": { "spec": { "devices": spec.devices } },
    })
}

/// A text as a DNS label of at most `length` bytes, possibly empty.
pub(crate) fn label(text: &str, length: usize) -> String {
    let mut label = String::new();
    for letter in text.chars().map(|letter| letter.to_ascii_lowercase()) {
        if letter.is_ascii_alphanumeric() {
            label.push(letter);
        } else if !label.ends_with('-') && !label.is_empty() {
            label.push('-');
        }
    }
    label.truncate(length);
    label.trim_end_matches('-').to_owned()
}

/// The label, with a number if it is taken or empty.
pub(crate) fn unique(wanted: &str, taken: &[String]) -> String {
    let free = |name: &String| !name.is_empty() && !taken.contains(name);
    let numbered = |number: usize| {
        let end = format!("-{number}");
        let begin = wanted.get(..wanted.len().min(MAX_LABEL - end.len())).unwrap_or("gpu");
        format!("{}{end}", if begin.is_empty() { "gpu" } else { begin.trim_end_matches('-') })
    };
    let mut names = std::iter::once(wanted.to_owned()).chain((2..).map(numbered));
    names.find(free).unwrap_or_default()
}
