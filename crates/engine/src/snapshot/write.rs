//! A world becomes a document.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_health::risk::RiskClass;

use super::{
    ClassRecord, GangRecord, GroupRecord, MemberRecord, NodeRecord, PartRecord, ProfileRecord,
    SegmentRecord, ShapeRecord, Snapshot, VERSION, WorkloadRecord,
};
use crate::World;
use crate::cluster::Cluster;
use crate::gang::Gang;
use crate::gpu::{ModelId, ModelSet, Slices};
use crate::node::NodeClass;
use crate::placement::GpuPart;
use crate::shape::Shape;
use crate::topology::{Level, LevelId, Topology};
use crate::workload::{Member, Profile, Workload};

impl Snapshot {
    /// The document of a world and of waiting gangs. Labels are those of the topology, under the
    /// names of its levels; other labels no longer matter.
    pub fn of(world: &World, waiting: &[Gang]) -> Self {
        let (cluster, topology) = (&world.cluster, &world.topology);
        let names: BTreeMap<&NodeClass, String> = cluster
            .classes()
            .iter()
            .enumerate()
            .map(|(number, class)| (class, format!("class-{number}")))
            .collect();
        let used: BTreeSet<_> = cluster.nodes().map(|node| cluster.class(node)).collect();
        let level = |name: &Arc<str>| Level {
            name: name.to_string(),
            label: name.to_string(),
            is_unique: false,
        };
        let node = |node| {
            let closed = |(number, gpu): (u16, &crate::GpuFree)| gpu.is_closed.then_some(number);
            let risk = |(number, gpu): (u16, &crate::GpuFree)| {
                (gpu.risk > RiskClass::Usual).then_some((number, gpu.risk))
            };
            NodeRecord {
                name: cluster.name(node).to_owned(),
                class: names.get(cluster.class(node)).cloned().unwrap_or_default(),
                labels: labels(topology, node),
                closed: !cluster.is_open(node),
                closed_gpus: (0..).zip(cluster.gpus(node)).filter_map(closed).collect(),
                risks: (0..).zip(cluster.gpus(node)).filter_map(risk).collect(),
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
                .map(|(class, name)| (name.clone(), class_record(class, cluster)))
                .collect(),
            nodes: cluster.nodes().map(node).collect(),
            tenants: BTreeMap::new(),
            eviction_limits: world
                .workloads
                .eviction_limits
                .iter()
                .map(|(_, name, allowance)| (name.to_string(), allowance))
                .collect(),
            running: world.workloads.iter().map(|(_, workload)| running(workload, world)).collect(),
            waiting: waiting.iter().map(|gang| gang_record(gang, world)).collect(),
            packing: None,
        }
    }
}

fn labels(topology: &Topology, node: crate::NodeId) -> BTreeMap<String, String> {
    let domains = topology.ancestors(topology.leaf_domain(node)).map(|id| topology.domain(id));
    let inner = domains.filter(|domain| domain.parent.is_some());
    let label = |domain: &crate::topology::Domain| {
        let level = &topology.levels()[usize::from(domain.level.0)];
        (level.to_string(), domain.name.to_string())
    };
    inner.map(label).collect()
}

fn class_record(class: &NodeClass, cluster: &Cluster) -> ClassRecord {
    let model = cluster.models().get(usize::from(class.model.0));
    ClassRecord {
        capacity: class.capacity,
        gpus: class.gpus,
        model: model.filter(|_| class.gpus > 0).map(|model| model.name.clone()),
        links: class.links.clone(),
        features: class.features,
        taints: class.taints,
        cents_per_hour: class.cents_per_hour,
        idle_watts: class.idle_watts,
        full_watts: class.full_watts,
        package_cores: class.package_cores,
        hazard_ppm: class.hazard_ppm,
    }
}

fn running(workload: &Workload, world: &World) -> WorkloadRecord {
    let mut shapes: Vec<&Shape> = Vec::new();
    let mut members = Vec::new();
    for (rank, member) in (0..).zip(&workload.members) {
        let Some(member) = member else { continue };
        let known = shapes.iter().position(|shape| **shape == *member.shape);
        let shape = known.unwrap_or_else(|| {
            shapes.push(&member.shape);
            shapes.len() - 1
        });
        members.push(member_record(rank, shape, member, world));
    }
    WorkloadRecord {
        profile: profile_record(&workload.profile, &world.topology),
        min_members: workload.min_members,
        whole: workload.coupling.is_whole,
        fixed: workload.coupling.is_fixed,
        shapes: shapes.into_iter().map(|shape| shape_record(shape, &world.cluster)).collect(),
        members,
    }
}

fn member_record(rank: u32, shape: usize, member: &Member, world: &World) -> MemberRecord {
    let limit = member.limit.and_then(|id| world.workloads.eviction_limits.name(id));
    MemberRecord {
        rank,
        shape: u32::try_from(shape).unwrap_or(u32::MAX),
        node: world.cluster.name(member.placement.node).to_owned(),
        gpus: member.placement.gpus.iter().map(PartRecord::of).collect(),
        limit: limit.map(ToString::to_string),
    }
}

impl PartRecord {
    /// The record of a part of a GPU.
    pub fn of(part: &GpuPart) -> Self {
        Self {
            gpu: part.gpu,
            milli: part.milli,
            memory_mib: part.memory_mib,
            start: part.slices.first(),
            size: part.slices.count(),
            media: part.slices.overlaps(Slices::MEDIA),
        }
    }
}

/// The record of a shape.
pub(crate) fn shape_record(shape: &Shape, cluster: &Cluster) -> ShapeRecord {
    let is_any = shape.models == ModelSet::ALL;
    let models = (0..).map(ModelId).zip(cluster.models());
    let allowed = models.filter(|(id, _)| !is_any && shape.models.has(*id));
    ShapeRecord {
        resources: shape.resources,
        gpus: shape.gpus.clone(),
        models: allowed.map(|(_, model)| model.name.clone()).collect(),
        needs: shape.needs,
        tolerates: shape.tolerates,
    }
}

fn profile_record(profile: &Profile, topology: &Topology) -> ProfileRecord {
    ProfileRecord {
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

fn gang_record(gang: &Gang, world: &World) -> GangRecord {
    let topology = &world.topology;
    let group = |group: &crate::Group| GroupRecord {
        name: group.name.to_string(),
        shape: shape_record(&group.shape, &world.cluster),
        count: group.count,
        min: (group.min != group.count).then_some(group.min),
        required: level_name(group.topology.required, topology),
        preferred: level_name(group.topology.preferred, topology),
        colocation_id: group.colocation_id,
        segment: group.segment.and_then(|segment| {
            let level = level_name(Some(segment.level), topology)?;
            Some(SegmentRecord { size: segment.size, level })
        }),
        forbidden: group.forbidden.iter().map(|id| world.cluster.name(*id).to_owned()).collect(),
        limits: group.limits.clone(),
        penalties: group
            .penalties
            .iter()
            .map(|(id, points)| (world.cluster.name(*id).to_owned(), *points))
            .collect(),
    };
    GangRecord {
        profile: profile_record(&gang.profile, topology),
        groups: gang.groups.iter().map(group).collect(),
    }
}

fn level_name(level: Option<LevelId>, topology: &Topology) -> Option<String> {
    topology.levels().get(usize::from(level?.0)).map(ToString::to_string)
}
