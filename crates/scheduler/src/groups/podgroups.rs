//! `PodGroup` objects: Octavo's own, Kubernetes' own, and those of other schedulers.

use std::sync::Arc;

use octavo_kube_io::objects::WatchedObject;

use super::error::GroupError;
use super::name::{GroupKind, GroupName};
use super::placement_hints::PlacementHints;
use super::spec::{
    Announcer, DEFAULT_SUBGROUP, GroupSpec, SegmentTopology, Subgroup, lower_minimums,
};
use super::spec_field::SpecField;

/// Reads a `PodGroup` of `octavo.dev/v1alpha1`.
pub(super) fn octavo(
    object: &WatchedObject,
    name: GroupName,
    announcer: Announcer,
) -> Result<GroupSpec, GroupError> {
    let group = name.to_string();
    let spec = SpecField::spec(&object.spec, &group);
    let min = spec.at("minMember").count()?;
    let mut subs = Vec::new();
    for entry in spec.at("subGroups").list()? {
        let (required, preferred) = topology(&entry.at("topology"))?;
        let segment = segment(&entry.at("segment"))?;
        subs.push(Subgroup {
            name: entry.at("name").name()?.into(),
            min: entry.at("minMember").count()?.unwrap_or(1),
            count: None,
            is_late: false,
            required,
            preferred,
            segment,
        });
    }
    if subs.is_empty() {
        let min = min.unwrap_or(1);
        subs.push(Subgroup { name: DEFAULT_SUBGROUP.into(), min, ..Subgroup::default() });
    }
    let sum: u64 = subs.iter().map(|sub| u64::from(sub.min)).sum();
    if let Some(min) = min.map(u64::from).filter(|min| *min != sum) {
        return Err(GroupError::MinimumsDiffer { group, min, sum });
    }
    let mut read = GroupSpec::new(name, announcer, subs);
    (read.required, read.preferred) = topology(&spec.at("topology"))?;
    read.policy = spec.at("placementPolicy").text()?.map(Arc::from);
    read = read.with(&PlacementHints::of(&object.meta)?);
    let is_disabled = |key: &str| -> Result<bool, GroupError> {
        let place = spec.at(key);
        Ok(!place.is_null() && !place.flag()?)
    };
    if is_disabled("preemptible")? {
        read.is_preemptible = false;
    }
    if !spec.at("movable").is_null() {
        read.is_movable = spec.at("movable").flag()?;
    }
    if let Some(seconds) = spec.at("secondsAtRisk").count()? {
        read.seconds_at_risk = seconds;
    }
    let mode = spec.at("disruptionMode");
    read.is_whole = match mode.text()? {
        None | Some("Single") => false,
        Some("All") => true,
        Some(_) => return Err(mode.wrong("Single or All")),
    };
    Ok(read)
}

fn segment(place: &SpecField<'_>) -> Result<Option<SegmentTopology>, GroupError> {
    if place.is_null() {
        return Ok(None);
    }
    let size = place.at("size");
    let size = size.count()?.ok_or_else(|| size.wrong("the members of a segment"))?;
    Ok(Some(SegmentTopology { size, level: place.at("level").name()?.into() }))
}

/// Name of a topology level.
type Level = Option<Arc<str>>;

/// The required level and the preferred one.
fn topology(place: &SpecField<'_>) -> Result<(Level, Level), GroupError> {
    let name = |key| Ok(place.at(key).text()?.map(Arc::from));
    Ok((name("required")?, name("preferred")?))
}

/// Reads a `PodGroup` of `scheduling.k8s.io`: `v1alpha2` (Kubernetes 1.36), `v1alpha3` and
/// `v1beta1` (1.37). With the policy `basic` its pods are placed one by one.
pub(super) fn native(
    object: &WatchedObject,
    name: GroupName,
    announcer: Announcer,
) -> Result<GroupSpec, GroupError> {
    let group = name.to_string();
    let spec = SpecField::spec(&object.spec, &group);
    if let Some(parent) = spec.at("parentCompositePodGroupName").text()? {
        let what = format!("being a part of CompositePodGroup {parent:?}");
        let hint = "make one PodGroup of octavo.dev with a subgroup for each part";
        return Err(GroupError::Unsupported { group, what, hint });
    }
    let policy = spec.at("schedulingPolicy");
    let min = match (policy.at("gang").is_null(), policy.at("basic").is_null()) {
        (false, true) => {
            let min = policy.at("gang").at("minCount");
            min.count()?.filter(|min| *min > 0).ok_or_else(|| min.wrong("1 or more"))?
        }
        (true, false) => 0,
        _ => return Err(policy.wrong("either gang or basic")),
    };
    let sub = Subgroup { name: DEFAULT_SUBGROUP.into(), min, ..Subgroup::default() };
    let mut read = GroupSpec::new(name, announcer, vec![sub]);
    let topologies = spec.at("schedulingConstraints").at("topology").list()?;
    read.required = match topologies.as_slice() {
        [] => None,
        [one] => Some(one.at("key").name()?.into()),
        _ => {
            let what = "more than one topology constraint".to_owned();
            let hint = "keep the tightest one";
            return Err(GroupError::Unsupported { group, what, hint });
        }
    };
    read.priority = spec.at("priority").number()?;
    // 1.36 uses the names Pod and PodGroup, 1.37 one of two fields.
    let mode = spec.at("disruptionMode");
    read.is_whole = match mode.value().as_str() {
        Some("Pod" | "") => false,
        Some("PodGroup") => true,
        Some(_) => return Err(mode.wrong("Pod or PodGroup")),
        None => !mode.at("all").is_null(),
    };
    Ok(read.with(&PlacementHints::of(&object.meta)?))
}

/// Reads a `PodGroup` of the scheduler plugins (`scheduling.x-k8s.io/v1alpha1`) or of Volcano
/// (`scheduling.volcano.sh/v1beta1`). `minResources` is ignored: the pods' own requests count.
pub(super) fn foreign(
    object: &WatchedObject,
    name: GroupName,
    announcer: Announcer,
) -> Result<GroupSpec, GroupError> {
    let group = name.to_string();
    let spec = SpecField::spec(&object.spec, &group);
    let min = spec.at("minMember").count()?.unwrap_or(1);
    let mut subs = Vec::new();
    if name.kind == GroupKind::VolcanoPodGroup {
        for (task, place) in spec.at("minTaskMember").map()? {
            let min = place.count()?.unwrap_or(0);
            subs.push(Subgroup { name: task.into(), min, ..Subgroup::default() });
        }
    }
    if subs.is_empty() {
        subs.push(Subgroup { name: DEFAULT_SUBGROUP.into(), min, ..Subgroup::default() });
    } else {
        lower_minimums(&mut subs, min);
    }
    Ok(GroupSpec::new(name, announcer, subs).with(&PlacementHints::of(&object.meta)?))
}
