//! Annotations and labels of pods and workloads.

use serde_json::Value;

use crate::json::{Object, object_at, remove_if_empty, scalar};
use crate::keys::{self, Handling};
use crate::report::{Reason, Report};

/// What metadata belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A pod or a pod template.
    Pod,
    /// A pod at its admission. Its labels stay: selectors of its owner, of Services and of disruption budgets find it by them.
    AdmittedPod,
    /// A workload. Only names with a domain have a meaning there.
    Workload,
}

/// Whether metadata has a key of HAMi or KAI.
pub(crate) fn has_signs(holder: &Value, owner: Owner) -> bool {
    let of_annotations: fn(&str) -> bool = match owner {
        Owner::Pod => keys::is_sign,
        Owner::AdmittedPod => keys::is_annotation_sign,
        Owner::Workload => keys::is_sign_of_workload,
    };
    let of_labels = if owner == Owner::AdmittedPod { keys::is_label_sign } else { of_annotations };
    let metadata = holder.get("metadata");
    [("annotations", of_annotations), ("labels", of_labels)].iter().any(|(kind, is_sign)| {
        let map = metadata.and_then(|metadata| metadata.get(*kind)).and_then(Value::as_object);
        map.is_some_and(|map| map.keys().any(|key| is_sign(key)))
    })
}

/// Whether metadata or the scheduler's name show KAI, and not HAMi.
pub(crate) fn is_of_kai(holder: &Value) -> bool {
    let metadata = holder.get("metadata");
    let has_key = ["annotations", "labels"].iter().any(|kind| {
        let map = metadata.and_then(|metadata| metadata.get(*kind)).and_then(Value::as_object);
        map.is_some_and(|map| map.keys().any(|key| keys::is_of_kai(key)))
    });
    let spec = holder.get("spec");
    let scheduler = spec.and_then(|spec| spec.get("schedulerName")).and_then(Value::as_str);
    has_key || scheduler.is_some_and(keys::is_scheduler_of_kai)
}

/// Removes or replaces the keys of HAMi and KAI; labels of a pod at its admission are read, and stay. Returns the priority class under KAI's label. Names that may also be of others
/// are KAI's only where something else is.
pub(crate) fn translate(
    holder: &mut Value,
    owner: Owner,
    is_of_kai: bool,
    report: &mut Report,
) -> Option<String> {
    let mut priority = None;
    let metadata = holder.get_mut("metadata")?;
    for (kind, singular) in [("annotations", "annotation"), ("labels", "label")] {
        let stays = owner == Owner::AdmittedPod && kind == "labels";
        let Some(map) = metadata.get_mut(kind).and_then(Value::as_object_mut) else { continue };
        let found: Vec<(String, Handling)> = map
            .keys()
            .filter(|key| match owner {
                Owner::Pod | Owner::AdmittedPod => keys::is_sign(key) || is_of_kai,
                Owner::Workload => {
                    keys::is_sign_of_workload(key) || is_of_kai && *key == keys::PRIORITY_LABEL
                }
            })
            .filter_map(|key| Some((key.clone(), keys::handling(key)?)))
            // KAI reads its class from labels.
            .filter(|(_, handling)| *handling != Handling::PriorityClass || kind == "labels")
            .collect();
        let mut annotations = Object::new();
        for (key, handling) in found {
            let value = if stays { map.get(&key).cloned() } else { map.remove(&key) };
            let value = value.and_then(|value| scalar(&value)).unwrap_or_default();
            let field = format!("{singular} {key}: {value}");
            match handling {
                Handling::Read | Handling::State | Handling::Queue | Handling::Topology
                    if stays => {}
                // Its reader reports it. On a workload nothing reads it.
                Handling::Read if owner != Owner::Workload => {}
                Handling::Read => report.change(field, "removed, it had no effect here"),
                Handling::State => report.change(field, "removed, a scheduler had written it"),
                Handling::Queue => report.change(
                    field,
                    "removed, Octavo has no queues: quota and fair shares are for Kueue or a ResourceQuota",
                ),
                Handling::Topology => {
                    report.change(field, "removed, Octavo's scheduler has one topology");
                }
                Handling::Becomes(name) => {
                    report.change(field, format!("annotation {name}, for Octavo's scheduler"));
                    annotations.insert(name.to_owned(), value.into());
                }
                Handling::PriorityClass => priority = Some(value),
                Handling::NoEqual(cause, remedy) => {
                    report.refuse(Reason::NoEqual, field, cause, remedy);
                }
                Handling::Unknown => {
                    let cause = "this program does not know it";
                    report.refuse(Reason::UnknownKey, field, cause, "remove it if it is not needed");
                }
            }
        }
        if !stays {
            remove_if_empty(metadata, kind);
        }
        if !annotations.is_empty()
            && let Some(map) = object_at(metadata, "annotations").and_then(Value::as_object_mut)
        {
            map.extend(annotations);
        }
    }
    priority
}
