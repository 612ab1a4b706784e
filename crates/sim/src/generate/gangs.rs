//! Gangs of a synthetic cluster.

use octavo_engine::Resources;
use octavo_engine::snapshot::{
    GangRecord, GroupRecord, ProfileRecord, SegmentRecord, ShapeRecord, Snapshot,
};

use super::demand;
use super::machines::MachineSpec;
use super::mix::WorkloadKind;
use super::random::Random;
use super::{Options, tenant};

/// Weights of gang sizes, in whole nodes.
const GANG_SIZES: [(u32, u64); 6] = [(6, 2), (5, 4), (4, 8), (2, 16), (1, 32), (1, 64)];

/// Draws the whole nodes of a gang on such machines, at most `most`. `None` if that is less than
/// two.
pub(super) fn size(random: &mut Random, machine: &MachineSpec, most: u64) -> Option<u64> {
    // Whole cliques are the reason to buy such machines.
    let clique = machine.clique.map(u64::from).filter(|_| random.chance(30));
    let drawn = clique.or_else(|| random.weighted(&GANG_SIZES).copied())?;
    let size = drawn.min(most);
    (size >= 2).then_some(size)
}

/// Adds gangs that wait.
pub(super) fn wait(options: &Options, machines: &[MachineSpec], snapshot: &mut Snapshot) {
    let mut random = Random::new(options.seed, "waiting");
    let digits = options.waiting.to_string().len();
    for number in 1..=options.waiting {
        let machine = &machines[random.index(machines.len())];
        let nodes = options.nodes.unwrap_or(machine.nodes_per_rack);
        let of_model = snapshot.nodes.iter().filter(|node| node.class == machine.name).count();
        // Up to half of all such nodes, so that some gangs fit and some do not.
        let most = (of_model as u64 / 2).max(2);
        let name = format!("next-{number:0digits$}");
        let Some(count) = size(&mut random, machine, most) else { continue };
        let Some(shape) = demand::shape(WorkloadKind::Gang, machine, &mut random) else { continue };
        let mut shape = demand::form(&shape);
        if machines.len() > 1 {
            shape.models.push(machine.model.name.clone());
        }
        let profile = profile(&mut random, options, name, count <= u64::from(nodes));
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let segment = machine.clique.filter(|_| count % 2 == 0 && random.chance(50));
        let workers = GroupRecord {
            name: "workers".to_owned(),
            shape,
            count,
            segment: segment.map(|_| SegmentRecord { size: 2, level: "clique".to_owned() }),
            ..GroupRecord::default()
        };
        let mut groups = Vec::new();
        if random.chance(25) {
            groups.push(launcher());
        }
        groups.push(workers);
        snapshot.waiting.push(GangRecord { profile, groups });
    }
}

fn profile(random: &mut Random, options: &Options, name: String, fits_rack: bool) -> ProfileRecord {
    let level = |level: &str| Some(level.to_owned());
    let (required, preferred) = match random.below(3) {
        0 if fits_rack => (level("rack"), None),
        1 => (level("block"), level("rack")),
        _ => (None, level("rack")),
    };
    ProfileRecord {
        name,
        tenant: tenant(random, options.tenants),
        priority: random.weighted(&[(5, 0), (3, 50), (2, 100)]).copied().unwrap_or_default(),
        not_preemptible: false,
        not_movable: false,
        seconds_at_risk: u32::try_from(random.between(5, 60) * 60).unwrap_or_default(),
        required,
        preferred,
    }
}

/// A pod that starts the others and needs no GPU.
fn launcher() -> GroupRecord {
    GroupRecord {
        name: "launcher".to_owned(),
        shape: ShapeRecord { resources: Resources::of_pod(2000, 4096), ..ShapeRecord::default() },
        count: 1,
        ..GroupRecord::default()
    }
}
