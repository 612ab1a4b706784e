//! `PodGroup` objects: Octavo's own, Kubernetes' own, and those of other schedulers.

use std::sync::Arc;

use super::error::GroupError;
use super::name::GroupKind;
use super::reader::GroupReader;
use super::spec::{SegmentTopology, Subgroup, lower_minimums};
use super::spec_field::SpecField;

/// Reads a `PodGroup` of `octavo.dev/v1alpha1`.
pub(super) fn octavo(read: &mut GroupReader<'_>) -> Result<(), GroupError> {
    let spec = read.spec.clone();
    let min = spec.at("minMember").count()?;
    for entry in spec.at("subGroups").list()? {
        let (required, preferred) = topology(&entry.at("topology"))?;
        let segment = segment(&entry.at("segment"))?;
        read.add(Subgroup {
            name: entry.at("name").name()?.into(),
            min: entry.at("minMember").count()?.unwrap_or(1),
            required,
            preferred,
            segment,
            ..Subgroup::default()
        });
    }
    if read.group.subs.is_empty() {
        read.add(Subgroup::only(min.unwrap_or(1)));
    }
    let sum: u64 = read.group.subs.iter().map(|sub| u64::from(sub.min)).sum();
    if let Some(min) = min.filter(|min| u64::from(*min) != sum) {
        let group = spec.group();
        return Err(GroupError::invalid(format!(
            "{group} needs at least {min} members, but its subgroups need {sum} together; make the \
             numbers equal, or leave out the minimum of the whole group"
        )));
    }
    (read.group.required, read.group.preferred) = topology(&spec.at("topology"))?;
    read.group.policy = spec.at("placementPolicy").text()?.map(Arc::from);
    read.group.is_preemptible =
        spec.at("preemptible").is_null() || spec.at("preemptible").flag()?;
    if !spec.at("movable").is_null() {
        read.hints.is_movable = Some(spec.at("movable").flag()?);
    }
    read.hints.seconds_at_risk = spec.at("secondsAtRisk").count()?.or(read.hints.seconds_at_risk);
    let mode = spec.at("disruptionMode");
    read.group.is_whole = match mode.text()? {
        None | Some("Single") => false,
        Some("All") => true,
        Some(_) => return Err(mode.wrong("Single or All")),
    };
    Ok(())
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
pub(super) fn native(read: &mut GroupReader<'_>) -> Result<(), GroupError> {
    let spec = read.spec.clone();
    if let Some(parent) = spec.at("parentCompositePodGroupName").text()? {
        let what = format!("being a part of CompositePodGroup {parent:?}");
        let hint = "make one PodGroup of octavo.dev with a subgroup for each part";
        return Err(GroupError::unsupported(spec.group(), &what, hint));
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
    read.add(Subgroup::only(min));
    let topologies = spec.at("schedulingConstraints").at("topology").list()?;
    read.group.required = match topologies.as_slice() {
        [] => None,
        [one] => Some(one.at("key").name()?.into()),
        _ => {
            let what = "more than one topology constraint";
            return Err(GroupError::unsupported(spec.group(), what, "keep the tightest one"));
        }
    };
    read.group.priority = spec.at("priority").number()?;
    // 1.36 uses the names Pod and PodGroup, 1.37 one of two fields.
    let mode = spec.at("disruptionMode");
    read.group.is_whole = match mode.value().as_str() {
        Some("Pod" | "") => false,
        Some("PodGroup") => true,
        Some(_) => return Err(mode.wrong("Pod or PodGroup")),
        None => !mode.at("all").is_null(),
    };
    Ok(())
}

/// Reads a `PodGroup` of the scheduler plugins (`scheduling.x-k8s.io/v1alpha1`) or of Volcano
/// (`scheduling.volcano.sh/v1beta1`). `minResources` is ignored: the pods' own requests count.
pub(super) fn foreign(read: &mut GroupReader<'_>) -> Result<(), GroupError> {
    let min = read.spec.at("minMember").count()?.unwrap_or(1);
    if read.group.name.kind == GroupKind::VolcanoPodGroup {
        for (task, place) in read.spec.at("minTaskMember").map()? {
            let min = place.count()?.unwrap_or(0);
            read.add(Subgroup { name: task.into(), min, ..Subgroup::default() });
        }
    }
    if read.group.subs.is_empty() {
        read.add(Subgroup::only(min));
    } else {
        lower_minimums(&mut read.group.subs, min);
    }
    Ok(())
}
