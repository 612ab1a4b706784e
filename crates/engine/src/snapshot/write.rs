//! A world becomes a document.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{
    ClassForm, GangForm, GpusForm, GroupForm, LevelForm, LimitForm, MemberForm, NodeForm, PartForm,
    ProfileForm, SegmentForm, ShapeForm, Snapshot, VERSION, WorkloadForm,
};
use crate::World;
use crate::cluster::Cluster;
use crate::gang::{Gang, NodeLimit};
use crate::gpu::{ModelId, ModelSet, Slices};
use crate::node::NodeClass;
use crate::shape::{GpuDemand, Shape};
use crate::topology::{LevelId, Topology};
use crate::workload::{Member, Profile, Workload};

impl Snapshot {
    /// The document of a world and of gangs that wait. Labels are those of the topology, under the
    /// names of its levels: others decide nothing any more.
    pub fn of(world: &World, waiting: &[Gang]) -> Self {
        let (cluster, topology) = (&world.cluster, &world.topology);
        let names: BTreeMap<&NodeClass, String> = cluster
            .classes()
            .iter()
            .enumerate()
            .map(|(number, class)| (class, format!("class-{number}")))
            .collect();
        let used: BTreeSet<_> = cluster.nodes().map(|node| cluster.class(node)).collect();
        let level = |name: &Arc<str>| LevelForm {
            name: name.to_string(),
            label: name.to_string(),
            unique: false,
        };
        let node = |node| {
            let closed = |(number, gpu): (u16, &crate::GpuFree)| gpu.is_closed.then_some(number);
            NodeForm {
                name: cluster.name(node).to_owned(),
                class: names.get(cluster.class(node)).cloned().unwrap_or_default(),
                labels: labels(topology, node),
                closed: !cluster.is_open(node),
                closed_gpus: (0..).zip(cluster.gpus(node)).filter_map(closed).collect(),
            }
        };
        Self {
            version: VERSION,
            synthetic: false,
            levels: topology.levels().iter().skip(1).map(level).collect(),
            models: cluster.models().to_vec(),
            classes: names
                .iter()
                .filter(|(class, _)| used.contains(*class))
                .map(|(class, name)| (name.clone(), class_form(class, cluster)))
                .collect(),
            nodes: cluster.nodes().map(node).collect(),
            tenants: BTreeMap::new(),
            running: world.workloads.iter().map(|(_, workload)| running(workload, world)).collect(),
            waiting: waiting.iter().map(|gang| gang_form(gang, world)).collect(),
            packing: None,
        }
    }
}

fn labels(topology: &Topology, node: crate::NodeId) -> BTreeMap<String, String> {
    let domains = topology.ancestors(topology.home(node)).map(|id| topology.domain(id));
    let inner = domains.filter(|domain| domain.parent.is_some());
    let label = |domain: &crate::topology::Domain| {
        let level = &topology.levels()[usize::from(domain.level.0)];
        (level.to_string(), domain.name.to_string())
    };
    inner.map(label).collect()
}

fn class_form(class: &NodeClass, cluster: &Cluster) -> ClassForm {
    let model = cluster.models().get(usize::from(class.model.0));
    ClassForm {
        capacity: class.capacity,
        gpus: class.gpus,
        model: model.filter(|_| class.gpus > 0).map(|model| model.name.clone()),
        links: class.links.clone(),
        marks: class.marks,
        refuses: class.refuses,
        cents_per_hour: class.cents_per_hour,
        idle_watts: class.idle_watts,
        full_watts: class.full_watts,
        package_cores: class.package_cores,
        hazard_ppm: class.hazard_ppm,
    }
}

fn running(workload: &Workload, world: &World) -> WorkloadForm {
    let mut shapes: Vec<&Shape> = Vec::new();
    let mut members = Vec::new();
    for (rank, member) in (0..).zip(&workload.members) {
        let Some(member) = member else { continue };
        let known = shapes.iter().position(|shape| **shape == *member.shape);
        let shape = known.unwrap_or_else(|| {
            shapes.push(&member.shape);
            shapes.len() - 1
        });
        members.push(member_form(rank, shape, member, &world.cluster));
    }
    WorkloadForm {
        profile: profile_form(&workload.profile, &world.topology),
        min_members: workload.min_members,
        whole: workload.bonds.is_whole,
        fixed: workload.bonds.is_fixed,
        shapes: shapes.into_iter().map(|shape| shape_form(shape, &world.cluster)).collect(),
        members,
    }
}

fn member_form(rank: u32, shape: usize, member: &Member, cluster: &Cluster) -> MemberForm {
    MemberForm {
        rank,
        shape: u32::try_from(shape).unwrap_or(u32::MAX),
        node: cluster.name(member.placement.node).to_owned(),
        gpus: member.placement.gpus.iter().map(part_form).collect(),
    }
}

/// The form of a part of a GPU.
pub(super) fn part_form(part: &crate::GpuPart) -> PartForm {
    PartForm {
        gpu: part.gpu,
        milli: part.milli,
        memory_mib: part.memory_mib,
        start: part.slices.first(),
        size: part.slices.count(),
        media: part.slices.overlaps(Slices::MEDIA),
    }
}

/// The form of a shape.
pub(crate) fn shape_form(shape: &Shape, cluster: &Cluster) -> ShapeForm {
    let gpus = match &shape.gpus {
        GpuDemand::None => GpusForm::None,
        GpuDemand::Whole { count } => GpusForm::Whole { count: *count },
        GpuDemand::Share { count, milli, memory_mib } => {
            GpusForm::Share { count: *count, milli: *milli, memory_mib: *memory_mib }
        }
        GpuDemand::Mig { count, profile } => {
            GpusForm::Mig { count: *count, profile: profile.to_string() }
        }
    };
    let allowed = (0..).map(ModelId).zip(cluster.models());
    let allowed = allowed.filter(|(id, _)| shape.models != ModelSet::ALL && shape.models.has(*id));
    ShapeForm {
        resources: shape.resources,
        gpus,
        models: allowed.map(|(_, model)| model.name.clone()).collect(),
        needs: shape.needs,
        tolerates: shape.tolerates,
    }
}

fn profile_form(profile: &Profile, topology: &Topology) -> ProfileForm {
    ProfileForm {
        name: profile.name.to_string(),
        tenant: profile.tenant.to_string(),
        priority: profile.priority,
        not_preemptible: !profile.is_preemptible,
        not_movable: !profile.is_movable,
        seconds_at_risk: profile.seconds_at_risk,
        required: level_name(profile.topology.required, topology),
        preferred: level_name(profile.topology.preferred, topology),
    }
}

fn gang_form(gang: &Gang, world: &World) -> GangForm {
    let topology = &world.topology;
    let group = |group: &crate::Group| GroupForm {
        name: group.name.to_string(),
        shape: shape_form(&group.shape, &world.cluster),
        count: group.count,
        min: (group.min != group.count).then_some(group.min),
        required: level_name(group.topology.required, topology),
        preferred: level_name(group.topology.preferred, topology),
        together: group.together,
        segment: group.segment.and_then(|segment| {
            let level = level_name(Some(segment.level), topology)?;
            Some(SegmentForm { size: segment.size, level })
        }),
        forbidden: group.forbidden.iter().map(|id| world.cluster.name(*id).to_owned()).collect(),
        limits: group.limits.iter().map(|&limit| limit_form(limit)).collect(),
    };
    GangForm {
        profile: profile_form(&gang.profile, topology),
        groups: gang.groups.iter().map(group).collect(),
    }
}

fn limit_form(NodeLimit { over, most }: NodeLimit) -> LimitForm {
    LimitForm { over, most }
}

fn level_name(level: Option<LevelId>, topology: &Topology) -> Option<String> {
    topology.levels().get(usize::from(level?.0)).map(ToString::to_string)
}
