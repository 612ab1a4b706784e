//! Running workloads of a synthetic cluster.
//!
//! The largest workloads are placed first. Small ones go to randomly drawn nodes with free
//! capacity, so that GPUs are fragmented as in a long-running cluster. The list is then shuffled.

use octavo_engine::snapshot::{
    MemberRecord, PartRecord, ProfileRecord, ShapeRecord, Snapshot, WorkloadRecord,
};
use octavo_engine::{NodeId, Placement, Shape, World, fit, pick};

use super::demand;
use super::gangs;
use super::machines::MachineSpec;
use super::mix::WorkloadKind;
use super::random::Random;
use super::{GenerateError, Options, tenant};

/// Nodes that are drawn for a pod; the fullest that it fits is taken.
const CANDIDATE_NODES: usize = 4;

/// Consecutive workloads that are too large or have no placement before a kind is given up.
const MAX_FAILED_ATTEMPTS: u32 = 24;

/// Fills the cluster of a document.
pub(super) fn run(
    options: &Options,
    machines: &[MachineSpec],
    snapshot: &mut Snapshot,
) -> Result<(), GenerateError> {
    let world = snapshot.world()?;
    let target = world.cluster.totals().gpu_milli * i64::from(options.fill.milli()) / 1000;
    let random = Random::new(options.seed, "running");
    let mut fill = Fill { options, machines, world, random, target, running: Vec::new() };
    let (mut parts, all) = (0, i64::from(options.mix.sum().max(1)));
    for kind in WorkloadKind::ALL {
        // Cumulative: a later kind fills what an earlier kind could not.
        parts += i64::from(options.mix.of(kind));
        if options.mix.of(kind) > 0 {
            fill.fill_up_to(target * parts / all, kind);
        }
    }
    snapshot.running = fill.finish();
    Ok(())
}

struct Fill<'a> {
    options: &'a Options,
    machines: &'a [MachineSpec],
    world: World,
    random: Random,
    /// Thousandths of GPUs to allocate in total.
    target: i64,
    running: Vec<(WorkloadKind, WorkloadRecord)>,
}

impl Fill<'_> {
    fn used(&self) -> i64 {
        self.world.cluster.totals().used_milli
    }

    /// Adds workloads of a kind until `goal` is allocated or nothing more fits.
    fn fill_up_to(&mut self, goal: i64, kind: WorkloadKind) {
        let mut failed = 0;
        while self.used() < goal && failed < MAX_FAILED_ATTEMPTS {
            let machine = &self.machines[self.random.index(self.machines.len())];
            let done = match kind {
                WorkloadKind::Gang => self.gang(machine, goal),
                _ => self.pod(kind, machine),
            };
            failed = if done.is_some() { 0 } else { failed + 1 };
        }
    }

    /// Adds a gang that stays within the goal for gangs: a single gang could fill the cluster.
    fn gang(&mut self, machine: &MachineSpec, goal: i64) -> Option<()> {
        let room = goal - self.used();
        let most = u64::try_from(room / (i64::from(machine.gpus) * 1000).max(1)).ok()?;
        let count = gangs::size(&mut self.random, machine, most)?;
        let shape = demand::shape(WorkloadKind::Gang, machine, &mut self.random)?;
        let nodes = self.find_free_run(count, &shape)?;
        let place = |node| pick::default_placement(&self.world.cluster, node, &shape);
        let placements: Vec<Placement> = nodes.into_iter().filter_map(place).collect();
        self.add(WorkloadKind::Gang, &shape, &placements)
    }

    /// The first `count` nodes of a domain, in topology order, that the shape fits. The domain is
    /// drawn from those of the tightest level that have enough such nodes.
    fn find_free_run(&mut self, count: u64, shape: &Shape) -> Option<Vec<NodeId>> {
        let World { cluster, topology, .. } = &self.world;
        let fits = |node: &NodeId| {
            let state = cluster.states().state(cluster.state(*node));
            state.is_some_and(|state| fit::fits(cluster, state, shape))
        };
        let mut domains: Vec<_> = topology.domains().collect();
        domains.sort_by_key(|(id, domain)| (std::cmp::Reverse(domain.level), *id));
        let mut level = None;
        let mut found: Vec<Vec<NodeId>> = Vec::new();
        for (id, domain) in domains {
            if level != Some(domain.level) && !found.is_empty() {
                break;
            }
            level = Some(domain.level);
            let free: Vec<NodeId> = topology.nodes(id).iter().copied().filter(fits).collect();
            let run = free.get(..usize::try_from(count).ok()?);
            found.extend(run.map(<[NodeId]>::to_vec));
        }
        let drawn = self.random.index(found.len());
        (!found.is_empty()).then(|| found.swap_remove(drawn))
    }

    fn pod(&mut self, kind: WorkloadKind, machine: &MachineSpec) -> Option<()> {
        let shape = demand::shape(kind, machine, &mut self.random)?;
        if self.used() + demand::milli_of(&shape.gpus, machine) > self.target {
            return None;
        }
        let placement = self.find_placement(&shape)?;
        self.add(kind, &shape, &[placement])
    }

    /// The fullest of some drawn nodes that a shape fits, or else the first fitting node after a
    /// drawn one.
    fn find_placement(&mut self, shape: &Shape) -> Option<Placement> {
        let count = self.world.cluster.node_count();
        let node = |index: usize| u32::try_from(index % count).ok().map(NodeId);
        let drawn: Vec<usize> = (0..CANDIDATE_NODES).map(|_| self.random.index(count)).collect();
        let cluster = &self.world.cluster;
        let free = |placement: &Placement| {
            cluster.gpus(placement.node).iter().map(|gpu| u32::from(gpu.milli)).sum::<u32>()
        };
        let at = |index: usize| pick::default_placement(cluster, node(index)?, shape);
        let best = drawn.iter().filter_map(|index| at(*index)).min_by_key(free);
        best.or_else(|| (0..count).find_map(|step| at(drawn[0] + step)))
    }

    /// Places the members and records them as one workload.
    fn add(&mut self, kind: WorkloadKind, shape: &Shape, placements: &[Placement]) -> Option<()> {
        for placement in placements {
            self.world.cluster.place(&shape.resources, placement).ok()?;
        }
        let member = |(rank, placement): (u32, &Placement)| MemberRecord {
            rank,
            shape: 0,
            node: self.world.cluster.name(placement.node).to_owned(),
            gpus: placement.gpus.iter().map(PartRecord::of).collect(),
            limit: None,
        };
        let members: Vec<_> = (0..).zip(placements).map(member).collect();
        let profile = self.profile(kind);
        let min_members = match kind {
            WorkloadKind::Gang => u32::try_from(members.len()).ok()?,
            _ => 0,
        };
        let shapes: Vec<ShapeRecord> = vec![demand::form(shape)];
        let form =
            WorkloadRecord { profile, min_members, whole: false, fixed: false, shapes, members };
        self.running.push((kind, form));
        Some(())
    }

    fn profile(&mut self, kind: WorkloadKind) -> ProfileRecord {
        let random = &mut self.random;
        let seconds_at_risk = match kind {
            WorkloadKind::Gang => random.between(5, 60) * 60,
            WorkloadKind::Node => random.between(5, 30) * 60,
            WorkloadKind::One => random.between(1, 15) * 60,
            WorkloadKind::Mig | WorkloadKind::Share => 0,
        };
        ProfileRecord {
            // Named after all workloads are placed.
            name: String::new(),
            tenant: tenant(random, self.options.tenants),
            priority: random.weighted(&[(7, 0), (2, 50), (1, 100)]).copied().unwrap_or_default(),
            not_preemptible: random.chance(5),
            not_movable: matches!(kind, WorkloadKind::Share | WorkloadKind::Mig)
                && random.chance(20),
            seconds_at_risk: u32::try_from(seconds_at_risk).unwrap_or_default(),
            required: None,
            preferred: (kind == WorkloadKind::Gang).then(|| "rack".to_owned()),
        }
    }

    /// All workloads in random order, named by kind and position.
    fn finish(mut self) -> Vec<WorkloadRecord> {
        self.random.shuffle(&mut self.running);
        let digits = self.running.len().to_string().len();
        let named = |(number, (kind, mut workload)): (usize, (WorkloadKind, WorkloadRecord))| {
            workload.profile.name = format!("{}-{number:0digits$}", kind.role());
            workload
        };
        (1..).zip(self.running).map(named).collect()
    }
}
