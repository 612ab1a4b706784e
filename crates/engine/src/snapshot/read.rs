//! Reads a document into a world; errors name the invalid part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{
    ClassRecord, GangRecord, PartRecord, ProfileRecord, ShapeRecord, Snapshot, VERSION,
    WorkloadRecord,
};
use crate::World;
use crate::cluster::{Cluster, ClusterError};
use crate::gang::{Gang, GangError, Group, Segment};
use crate::gpu::{ModelId, ModelSet, Slices, WHOLE};
use crate::node::{NodeClass, NodeId, NodeSpec};
use crate::placement::{GpuPart, Placement};
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};
use crate::topology::{LevelId, Topology, TopologyError};
use crate::workload::{
    Coupling, LimitId, Member, Profile, TopologyConstraint, Workload, Workloads,
};

/// The maximum of any amount: far above any machine, far below an overflow of sums.
const MAX_AMOUNT: i64 = 1 << 40;

/// Why a document is no world.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Of another version.
    #[error("the snapshot is of version {0}; this program reads version {VERSION}")]
    Version(u32),
    /// A name that means nothing.
    #[error("{place}: there is no {kind} named {name:?}{}", among(.known))]
    Unknown {
        /// The location.
        place: String,
        /// Of what.
        kind: &'static str,
        /// The name.
        name: String,
        /// The known names, if they are few enough to list.
        known: Vec<String>,
    },
    /// An amount that cannot be.
    #[error("{place}: {field} is {value}; it must be {wanted}")]
    Amount {
        /// The location.
        place: String,
        /// Which.
        field: &'static str,
        /// The amount.
        value: i64,
        /// The allowed values.
        wanted: String,
    },
    /// Two workloads of one name, or two members of one rank.
    #[error("{place} is listed twice")]
    Twice {
        /// The duplicate.
        place: String,
    },
    /// A placement that does not fit, or a node that cannot be.
    #[error("{place}: {error}")]
    Cluster {
        /// The location.
        place: String,
        /// Why.
        error: ClusterError,
    },
    /// No topology.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A gang that makes no sense.
    #[error(transparent)]
    Gang(#[from] GangError),
}

impl Snapshot {
    /// The world of the document.
    pub fn world(&self) -> Result<World, SnapshotError> {
        if self.version != VERSION {
            return Err(SnapshotError::Version(self.version));
        }
        let cluster = self.cluster()?;
        // Ids follow names; labels must follow ids.
        let mut labels = vec![BTreeMap::new(); cluster.node_count()];
        for node in &self.nodes {
            if let Some(id) = cluster.node_named(&node.name) {
                labels[id.0 as usize].clone_from(&node.labels);
            }
        }
        let topology = Topology::from_labels(&self.levels, &labels)?;
        let mut world = World { cluster, topology, workloads: Workloads::default() };
        let known = &mut world.workloads.eviction_limits;
        let limits = self.eviction_limits.iter();
        let limits: BTreeMap<&str, LimitId> = limits
            .map(|(name, allowance)| (name.as_str(), known.add(name.as_str(), *allowance)))
            .collect();
        for record in &self.running {
            Self::run(record, &limits, &mut world)?;
        }
        Ok(world)
    }

    /// The gangs that wait, for a world of this document.
    pub fn gangs(&self, world: &World) -> Result<Vec<Gang>, SnapshotError> {
        self.waiting.iter().map(|record| gang(record, world)).collect()
    }

    fn cluster(&self) -> Result<Cluster, SnapshotError> {
        let at = |place: String| move |error| SnapshotError::Cluster { place, error };
        let mut cluster =
            Cluster::new(self.models.clone(), Vec::new()).map_err(at("models".to_owned()))?;
        // In the order of the document, which is that of the ids: ties are decided as before.
        for node in &self.nodes {
            let place = || format!("node {:?}", node.name);
            let class = self.classes.get(&node.class).ok_or_else(|| {
                unknown(place(), "class", &node.class, self.classes.keys().cloned())
            })?;
            let class = node_class(&node.class, class, &cluster)?;
            let (name, labels) = (node.name.as_str().into(), node.labels.clone());
            let id = cluster.add_node(&NodeSpec { name, class, labels }).map_err(at(place()))?;
            for gpu in &node.closed_gpus {
                cluster.set_gpu_open(id, *gpu, false).map_err(at(place()))?;
            }
            for (gpu, risk) in &node.risks {
                cluster.set_gpu_risk(id, *gpu, *risk).map_err(at(place()))?;
            }
            if node.closed {
                cluster.set_open(id, false).map_err(at(place()))?;
            }
        }
        Ok(cluster)
    }

    fn run(
        record: &WorkloadRecord,
        limits: &BTreeMap<&str, LimitId>,
        world: &mut World,
    ) -> Result<(), SnapshotError> {
        let place = || format!("workload {:?}", record.profile.name);
        let shapes: Vec<_> = record
            .shapes
            .iter()
            .map(|record| Ok(Arc::new(shape(&place, record, &world.cluster)?)))
            .collect::<Result<_, SnapshotError>>()?;
        let mut members: Vec<Option<Member>> = Vec::new();
        for member in &record.members {
            let place = || format!("{}, rank {}", place(), member.rank);
            let (rank, placed) =
                (member.rank as usize, placement(&place, &member.node, &member.gpus, world)?);
            let shape = shapes.get(member.shape as usize).ok_or_else(|| {
                let wanted = format!("below {}", shapes.len());
                amount(place(), "shape", member.shape.into(), wanted)
            })?;
            if member.rank >= crate::gang::MAX_MEMBERS {
                let wanted = format!("below {}", crate::gang::MAX_MEMBERS);
                return Err(amount(place(), "rank", member.rank.into(), wanted));
            }
            if members.len() <= rank {
                members.resize(rank + 1, None);
            }
            if members[rank].is_some() {
                return Err(SnapshotError::Twice { place: place() });
            }
            let limit = member.limit.as_deref().map(|name| {
                let limit = limits.get(name).copied();
                limit.ok_or_else(|| unknown(place(), "eviction limit", name, []))
            });
            let limit = limit.transpose()?;
            let outcome = world.cluster.place_running(&shape.resources, &placed);
            outcome.map_err(|error| SnapshotError::Cluster { place: place(), error })?;
            members[rank] = Some(Member { shape: Arc::clone(shape), placement: placed, limit });
        }
        let profile = profile(&record.profile, &world.topology)?;
        let coupling = Coupling { is_whole: record.whole, is_fixed: record.fixed };
        let workload = Workload { profile, min_members: record.min_members, coupling, members };
        let added = world.workloads.add(workload);
        added.map(drop).ok_or_else(|| SnapshotError::Twice { place: place() })
    }
}

/// A class's form becomes a class.
fn node_class(
    name: &str,
    record: &ClassRecord,
    cluster: &Cluster,
) -> Result<NodeClass, SnapshotError> {
    let place = || format!("class {name:?}");
    check_resources(&place, &record.capacity)?;
    let model = match &record.model {
        None if record.gpus == 0 => ModelId::default(),
        model => model_of(&place, model.as_deref().unwrap_or_default(), cluster)?,
    };
    for level in &record.links.0 {
        if level.len() != usize::from(record.gpus) {
            let value = i64::try_from(level.len()).unwrap_or(i64::MAX);
            let wanted = format!("{} (one group for each GPU)", record.gpus);
            return Err(amount(place(), "length of a level of links", value, wanted));
        }
    }
    if i64::from(record.hazard_ppm) > 1_000_000 {
        let wanted = "at most 1000000 (certain)".to_owned();
        return Err(amount(place(), "hazardPpm", record.hazard_ppm.into(), wanted));
    }
    Ok(NodeClass {
        capacity: record.capacity,
        gpus: record.gpus,
        model,
        links: record.links.clone(),
        features: record.features,
        taints: record.taints,
        cents_per_hour: record.cents_per_hour,
        idle_watts: record.idle_watts,
        full_watts: record.full_watts,
        package_cores: record.package_cores,
        hazard_ppm: record.hazard_ppm,
    })
}

/// A gang's form becomes a gang of a world.
pub(super) fn gang(record: &GangRecord, world: &World) -> Result<Gang, SnapshotError> {
    let profile = profile(&record.profile, &world.topology)?;
    let mut groups = Vec::new();
    for group in &record.groups {
        let place = || format!("gang {:?}, group {:?}", record.profile.name, group.name);
        let level = |name: &Option<String>| level(&place, name.as_deref(), &world.topology);
        let segment = match &group.segment {
            None => None,
            Some(segment) => level(&Some(segment.level.clone()))?
                .map(|level| Segment { size: segment.size, level }),
        };
        let node = |name: &String| node(&place, name, world);
        let forbidden = group.forbidden.iter().map(node).collect::<Result<_, _>>()?;
        let penalties = group.penalties.iter();
        let penalties = penalties
            .map(|(name, points)| Ok((node(name)?, *points)))
            .collect::<Result<_, SnapshotError>>()?;
        groups.push(Group {
            name: group.name.as_str().into(),
            shape: Arc::new(shape(&place, &group.shape, &world.cluster)?),
            count: group.count,
            min: group.min.unwrap_or(group.count),
            topology: TopologyConstraint {
                required: level(&group.required)?,
                preferred: level(&group.preferred)?,
            },
            colocation_id: group.colocation_id,
            segment,
            forbidden,
            limits: group.limits.clone(),
            penalties: Arc::new(penalties),
        });
    }
    let gang = Gang { profile, groups };
    gang.check(world.topology.levels().len())?;
    Ok(gang)
}

fn profile(record: &ProfileRecord, topology: &Topology) -> Result<Profile, SnapshotError> {
    let place = || format!("workload {:?}", record.name);
    Ok(Profile {
        name: record.name.as_str().into(),
        tenant: record.tenant.as_str().into(),
        priority: record.priority,
        is_preemptible: !record.not_preemptible,
        is_movable: !record.not_movable,
        seconds_at_risk: record.seconds_at_risk,
        topology: TopologyConstraint {
            required: level(&place, record.required.as_deref(), topology)?,
            preferred: level(&place, record.preferred.as_deref(), topology)?,
        },
    })
}

fn level(
    place: &dyn Fn() -> String,
    name: Option<&str>,
    topology: &Topology,
) -> Result<Option<LevelId>, SnapshotError> {
    let Some(name) = name else { return Ok(None) };
    let known = || topology.levels().iter().map(ToString::to_string);
    let level = topology.level_named(name);
    level.map(Some).ok_or_else(|| unknown(place(), "level", name, known()))
}

fn shape(
    place: &dyn Fn() -> String,
    record: &ShapeRecord,
    cluster: &Cluster,
) -> Result<Shape, SnapshotError> {
    check_resources(place, &record.resources)?;
    match &record.gpus {
        GpuDemand::Share { milli, .. } if *milli > WHOLE => {
            let wanted = format!("at most {WHOLE}, a whole GPU");
            return Err(amount(place(), "milli", (*milli).into(), wanted));
        }
        GpuDemand::Share { milli: 0, memory_mib: 0, .. } => {
            let wanted = "above 0, or memoryMib above 0: a share is of something".to_owned();
            return Err(amount(place(), "milli", 0, wanted));
        }
        GpuDemand::Mig { profile, .. } => {
            let known = cluster.models().iter().flat_map(|model| &model.mig);
            let names: BTreeSet<&str> = known.map(|profile| &*profile.name).collect();
            if !names.contains(&**profile) {
                let names = names.into_iter().map(str::to_owned);
                return Err(unknown(place(), "MIG profile", profile, names));
            }
        }
        GpuDemand::None | GpuDemand::Whole { .. } | GpuDemand::Share { .. } => {}
    }
    let mut shape = any_shape(record, models(place, record, cluster)?);
    if let GpuDemand::Share { count, milli, memory_mib: 0 } = shape.gpus {
        shape.gpus = GpuDemand::of(count, milli);
    }
    Ok(shape)
}

/// The shape of a record as written, without validation.
pub(crate) fn any_shape(record: &ShapeRecord, models: ModelSet) -> Shape {
    let ShapeRecord { resources, needs, tolerates, .. } = *record;
    Shape { resources, gpus: record.gpus.clone(), models, needs, tolerates }
}

/// The models that a form names.
pub(crate) fn models(
    place: &dyn Fn() -> String,
    record: &ShapeRecord,
    cluster: &Cluster,
) -> Result<ModelSet, SnapshotError> {
    if record.models.is_empty() {
        return Ok(ModelSet::ALL);
    }
    let with = |set: ModelSet, name: &String| Ok(set.with(model_of(place, name, cluster)?));
    record.models.iter().try_fold(ModelSet(0), with)
}

/// The model of a name.
pub(crate) fn model_of(
    place: &dyn Fn() -> String,
    name: &str,
    cluster: &Cluster,
) -> Result<ModelId, SnapshotError> {
    let known = || cluster.models().iter().map(|model| model.name.clone());
    cluster.model_named(name).ok_or_else(|| unknown(place(), "model", name, known()))
}

/// The node of a name.
pub(super) fn node(
    place: &dyn Fn() -> String,
    name: &str,
    world: &World,
) -> Result<NodeId, SnapshotError> {
    world.cluster.node_named(name).ok_or_else(|| unknown(place(), "node", name, []))
}

/// A placement on the node with that name.
pub(super) fn placement(
    place: &dyn Fn() -> String,
    name: &str,
    gpus: &[PartRecord],
    world: &World,
) -> Result<Placement, SnapshotError> {
    let node = node(place, name, world)?;
    let part = |part: &PartRecord| GpuPart {
        gpu: part.gpu,
        milli: part.milli,
        slices: part.start.map_or(Slices::NONE, |start| {
            let engines = if part.media { Slices::MEDIA } else { Slices::NONE };
            Slices::range(start, part.size).plus(engines)
        }),
        memory_mib: part.memory_mib,
    };
    Ok(Placement { node, gpus: gpus.iter().map(part).collect() })
}

fn check_resources(place: &dyn Fn() -> String, resources: &Resources) -> Result<(), SnapshotError> {
    let fields = [
        ("cpuMilli", resources.cpu_milli),
        ("memoryMib", resources.memory_mib),
        ("pods", resources.pods),
    ];
    match fields.into_iter().find(|(_, value)| !(0..=MAX_AMOUNT).contains(value)) {
        Some((field, value)) => Err(amount(place(), field, value, format!("0 to {MAX_AMOUNT}"))),
        None => Ok(()),
    }
}

fn unknown(
    place: String,
    kind: &'static str,
    name: &str,
    known: impl IntoIterator<Item = String>,
) -> SnapshotError {
    SnapshotError::Unknown {
        place,
        kind,
        name: name.to_owned(),
        known: known.into_iter().collect(),
    }
}

fn amount(place: String, field: &'static str, value: i64, wanted: String) -> SnapshotError {
    SnapshotError::Amount { place, field, value, wanted }
}

fn among(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; there are: {}", names.join(", ")) }
}
