//! HAMi's annotations of a pod.

use serde_json::Value;

use crate::json::{object, scalar};
use crate::keys::{
    GPU_POLICY, NODE_POLICY, NOUSE_GPUTYPE, NOUSE_GPUUUID, NUMA_BIND, USE_GPUTYPE, USE_GPUUUID,
    VGPU_MODE,
};
use crate::report::{Reason, Report};
use crate::selection::{Selection, TypePart};

/// Reads the annotations: the selection of GPUs, and the refusals of what has no equal.
pub(crate) fn selection(pod: &Value, report: &mut Report) -> Selection {
    let annotations = pod.get("metadata").and_then(|metadata| object(metadata, "annotations"));
    let value = |key: &str| scalar(annotations?.get(key)?);
    let mut selection = Selection::default();
    if let Some(list) = value(USE_GPUTYPE) {
        let parts = types(&list);
        if parts.contains(&TypePart::Every) {
            report.change(annotation(USE_GPUTYPE, &list), "removed, every GPU matches it");
        } else if parts.is_empty() && !list.trim().is_empty() {
            matches_nothing(USE_GPUTYPE, &list, report);
        } else {
            selection.types = names(parts);
            became_selector(USE_GPUTYPE, &list, "productName", report);
        }
    }
    if let Some(list) = value(NOUSE_GPUTYPE) {
        let parts = types(&list);
        if parts.contains(&TypePart::Every) {
            matches_nothing(NOUSE_GPUTYPE, &list, report);
        } else {
            selection.not_types = names(parts);
            became_selector(NOUSE_GPUTYPE, &list, "productName", report);
        }
    }
    if let Some(list) = value(USE_GPUUUID) {
        selection.uuids = entries(&list).map(str::to_owned).collect();
        if selection.uuids.is_empty() && !list.trim().is_empty() {
            matches_nothing(USE_GPUUUID, &list, report);
        } else {
            became_selector(USE_GPUUUID, &list, "uuid", report);
        }
    }
    if let Some(list) = value(NOUSE_GPUUUID) {
        selection.not_uuids = entries(&list).map(str::to_owned).collect();
        became_selector(NOUSE_GPUUUID, &list, "uuid", report);
    }
    if let Some(text) = value(NUMA_BIND) {
        // The words of Go's `strconv.ParseBool`. HAMi takes others for false.
        selection.is_one_numa_node = ["1", "t", "T", "true", "TRUE", "True"].contains(&&*text);
        let became = if selection.is_one_numa_node {
            "a constraint: GPUs of a claim have one NUMA node"
        } else {
            "removed, it asks for nothing"
        };
        report.change(annotation(NUMA_BIND, &text), became);
    }
    if let Some(mode) = value(VGPU_MODE) {
        vgpu_mode(&mode, report);
    }
    for (key, is_of_gpus) in [(NODE_POLICY, false), (GPU_POLICY, true)] {
        if let Some(list) = value(key) {
            policy(key, &list, is_of_gpus, report);
        }
    }
    selection
}

/// A device serves the pod if the annotation contains the device's mode (`checkType`).
fn vgpu_mode(mode: &str, report: &mut Report) {
    let field = annotation(VGPU_MODE, mode);
    if mode.contains("hami-core") {
        report.change(field, "removed, a share is enforced by Octavo's guard or the driver");
    } else if mode.contains("mig") {
        let cause = "HAMi chooses the MIG profile by memory, and a claim names it";
        let remedy = "write a claim of the class mig.nvidia.com (examples/mig.yaml), or remove the annotation for a share";
        report.refuse(Reason::NoEqual, field, cause, remedy);
    } else if mode.contains("mps") {
        let cause = "Octavo starts no Multi-Process Service for shares";
        report.refuse(Reason::NoEqual, field, cause, "remove the annotation for a share");
    } else {
        let cause = "HAMi knows hami-core, mig and mps, and no GPU has another mode";
        report.refuse(Reason::MatchesNothing, field, cause, "remove the annotation for a share");
    }
}

/// A list of policies, which HAMi prefers in this order (`PolicyContains`).
fn policy(key: &str, list: &str, is_of_gpus: bool, report: &mut Report) {
    let field = || annotation(key, list);
    for policy in entries(list) {
        match policy {
            "binpack" => report.change(
                field(),
                "removed, Octavo's scheduler packs without it (Kubernetes' own decides by its profile)",
            ),
            "topology-aware" if is_of_gpus => report.change(
                field(),
                "removed, Octavo's scheduler prefers GPUs with fast links (Kubernetes' own does not)",
            ),
            "spread" if is_of_gpus => report.refuse(
                Reason::NoEqual,
                field(),
                "a claim cannot prefer unused GPUs",
                "remove the annotation, or ask for whole GPUs",
            ),
            "spread" => report.refuse(
                Reason::NoEqual,
                field(),
                "it is a preference among nodes of HAMi's scheduler",
                "write `topologySpreadConstraints` by kubernetes.io/hostname, and remove the annotation",
            ),
            "mutex" if is_of_gpus => report.refuse(
                Reason::NoEqual,
                field(),
                "a share cannot ask for an unused GPU",
                "ask for whole GPUs with nvidia.com/gpucores: 100, and remove the annotation",
            ),
            "numa" if is_of_gpus => report.refuse(
                Reason::NoEqual,
                field(),
                "a claim can require one NUMA node, and not prefer it",
                "write nvidia.com/numa-bind: \"true\" for a requirement, or remove the annotation",
            ),
            _ => report.refuse(
                Reason::NoEqual,
                field(),
                format!("the policy {policy:?} is not known"),
                "remove the annotation",
            ),
        }
    }
}

fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

fn types(list: &str) -> Vec<TypePart> {
    entries(list).map(TypePart::new).collect()
}

fn names(parts: Vec<TypePart>) -> Vec<String> {
    let name = |part| match part {
        TypePart::Name(name) => Some(name),
        TypePart::Every => None,
    };
    parts.into_iter().filter_map(name).collect()
}

fn matches_nothing(key: &str, list: &str, report: &mut Report) {
    let cause = "no GPU is left";
    report.refuse(
        Reason::MatchesNothing,
        annotation(key, list),
        cause,
        "name the GPUs, or remove it",
    );
}

fn became_selector(key: &str, list: &str, attribute: &str, report: &mut Report) {
    let became = match entries(list).next() {
        None => "removed, it asks for nothing".to_owned(),
        Some(_) => format!("a selector on the attribute {attribute}"),
    };
    report.change(annotation(key, list), became);
}

fn annotation(key: &str, value: &str) -> String {
    format!("annotation {key}: {value}")
}
