//! Gangs of pods and their minimums, as Octavo's scheduler reads them: from labels of pods, and the objects that these name.
//!
//! | a pod's gang | its minimum |
//! |---|---|
//! | `PodGroup` of `octavo.dev`, by label | `spec.minMember`, or the sum of its subgroups' |
//! | `PodGroup` of `scheduling.k8s.io`, by `spec.schedulingGroup` | `spec.schedulingPolicy.gang.minCount` |
//! | its `Job`, with the label `octavo.dev/gang` | the label's number, or as many pods as the Job runs at a time |

#[cfg(test)]
mod tests;

use std::fmt;

use octavo_api::names::{GANG, POD_GROUP};
use octavo_kube_io::objects::{Meta, Pod, WatchedObject};
use octavo_kube_io::watch::WantedKind;
use serde_json::Value;

/// What announces a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GangKind {
    /// Octavo's `PodGroup`.
    PodGroup,
    /// Kubernetes' `PodGroup`.
    NativePodGroup,
    /// A `Job`.
    Job,
}

/// Name of a gang.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GangName {
    /// What announces it.
    pub kind: GangKind,
    /// Namespace of its pods.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

/// A pod's gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGang {
    /// The gang.
    pub name: GangName,
    /// The minimum, if the pod itself says it.
    pub minimum: Option<u32>,
}

/// The kinds of objects that announce gangs.
pub fn kinds() -> Vec<WantedKind> {
    let wanted = |group: &str, versions: &[&str], kind: &str, labels: Option<&str>| WantedKind {
        group: group.to_owned(),
        versions: versions.iter().map(|version| (*version).to_owned()).collect(),
        kind: kind.to_owned(),
        labels: labels.map(str::to_owned),
    };
    vec![
        wanted("octavo.dev", &["v1alpha1"], "PodGroup", None),
        wanted("scheduling.k8s.io", &["v1beta1", "v1alpha3", "v1alpha2"], "PodGroup", None),
        wanted("batch", &["v1"], "Job", Some(GANG)),
    ]
}

impl GangKind {
    /// That of objects with an `apiVersion` and kind.
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        match (api_version.split('/').next()?, kind) {
            ("octavo.dev", "PodGroup") => Some(Self::PodGroup),
            ("scheduling.k8s.io", "PodGroup") => Some(Self::NativePodGroup),
            ("batch", "Job") => Some(Self::Job),
            _ => None,
        }
    }
}

impl fmt::Display for GangName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            GangKind::PodGroup => "PodGroup",
            GangKind::NativePodGroup => "PodGroup.scheduling.k8s.io",
            GangKind::Job => "Job",
        };
        write!(f, "{kind} {}/{}", self.namespace, self.name)
    }
}

/// The gang of a pod. Labels that contradict themselves name none: the scheduler reports them.
pub fn gang_of(pod: &Pod) -> Option<PodGang> {
    let named = |kind, name: &str| GangName {
        kind,
        namespace: pod.meta.name.namespace.to_string(),
        name: name.to_owned(),
    };
    if let Some(name) = text(&pod.meta, POD_GROUP) {
        return Some(PodGang { name: named(GangKind::PodGroup, name), minimum: None });
    }
    let gang = text(&pod.meta, GANG);
    if gang == Some("false") {
        return None;
    }
    if let Some(name) = &pod.spec.group {
        return Some(PodGang { name: named(GangKind::NativePodGroup, name), minimum: None });
    }
    let owner = pod.meta.owner.as_ref();
    let job = owner.filter(|owner| owner.kind == "Job" && owner.api_version == "batch/v1")?;
    let minimum = match gang? {
        "true" => None,
        number => Some(number.parse().ok()?),
    };
    Some(PodGang { name: named(GangKind::Job, &job.name), minimum })
}

/// The gang that an object announces, with its minimum; 0 if it needs none.
pub fn announced(object: &WatchedObject) -> Option<(GangName, u32)> {
    let kind = GangKind::of(&object.api_version, &object.kind)?;
    let name = GangName {
        kind,
        namespace: object.meta.name.namespace.to_string(),
        name: object.meta.name.name.to_string(),
    };
    let spec = &object.spec;
    let minimum = match kind {
        GangKind::PodGroup => match spec["subGroups"].as_array().map(Vec::as_slice) {
            None | Some([]) => count(&spec["minMember"]).unwrap_or(1),
            Some(parts) => {
                let of = |part: &Value| count(&part["minMember"]).unwrap_or(1);
                parts.iter().map(of).fold(0, u32::saturating_add)
            }
        },
        GangKind::NativePodGroup => {
            count(&spec["schedulingPolicy"]["gang"]["minCount"]).unwrap_or_default()
        }
        GangKind::Job => {
            let parallelism = count(&spec["parallelism"]).unwrap_or(1);
            count(&spec["completions"]).map_or(parallelism, |it| it.min(parallelism))
        }
    };
    Some((name, minimum))
}

/// An annotation, or else the label.
fn text<'a>(meta: &'a Meta, key: &str) -> Option<&'a str> {
    meta.annotations.get(key).or_else(|| meta.labels.get(key)).map(String::as_str)
}

fn count(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|count| u32::try_from(count).ok())
}
