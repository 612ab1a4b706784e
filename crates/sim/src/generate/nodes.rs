//! Blocks of racks of nodes.

use std::collections::BTreeMap;

use octavo_engine::snapshot::{NodeRecord, Snapshot, VERSION};
use octavo_engine::topology::Level;

use super::machines::MachineSpec;
use super::{GenerateError, Options};

/// Most GPUs of a synthetic cluster.
const MAX_GPUS: u64 = 4_000_000;

/// An empty cluster.
pub(super) fn cluster(options: &Options) -> Result<Snapshot, GenerateError> {
    let machines = machines(options)?;
    let mut snapshot = Snapshot { version: VERSION, synthetic: true, ..Snapshot::default() };
    let has_cliques = machines.iter().any(|machine| machine.clique.is_some());
    let mut levels = vec![("block", false), ("rack", false)];
    levels.extend(has_cliques.then_some(("clique", true)));
    let level = |(name, is_unique): (&str, bool)| Level {
        name: name.to_owned(),
        label: name.to_owned(),
        is_unique,
    };
    snapshot.levels = levels.into_iter().map(level).collect();
    for machine in &machines {
        snapshot.models.push(machine.model.clone());
        snapshot.classes.insert(machine.name.to_owned(), machine.class());
    }
    // Numbers of one width, so that nodes are in order by name.
    let (block_digits, rack_digits) = (digits(options.blocks), digits(options.racks));
    for block in 1..=options.blocks {
        let machine = &machines[(block as usize - 1) % machines.len()];
        let nodes = options.nodes.unwrap_or(machine.nodes_per_rack);
        let node_digits = digits(nodes);
        for rack in 1..=options.racks {
            for node in 1..=nodes {
                let (b, r) = (format!("b{block:0block_digits$}"), format!("r{rack:0rack_digits$}"));
                let name = format!("{b}-{r}-n{node:0node_digits$}");
                let mut labels = BTreeMap::from([("block", b.clone()), ("rack", r.clone())]);
                if let Some(size) = machine.clique {
                    labels.insert("clique", format!("{b}-{r}-c{}", (node - 1) / size + 1));
                }
                let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value));
                snapshot.nodes.push(NodeRecord {
                    name,
                    class: machine.name.to_owned(),
                    labels: labels.collect(),
                    ..NodeRecord::default()
                });
            }
        }
    }
    Ok(snapshot)
}

/// The requested machines, each once, in the order of the options.
pub(super) fn machines(options: &Options) -> Result<Vec<MachineSpec>, GenerateError> {
    let mut machines: Vec<MachineSpec> = Vec::new();
    for machine in &options.machines {
        let mut machine = machine.describe();
        if machines.iter().any(|known| known.name == machine.name) {
            return Err(GenerateError::MachineTwice(machine.name));
        }
        machine.gpus = options.gpus.unwrap_or(machine.gpus);
        machines.push(machine);
    }
    if machines.is_empty() {
        return Err(GenerateError::NoMachines);
    }
    let (count, blocks) = (machines.len(), options.blocks);
    if u64::try_from(count).unwrap_or(u64::MAX) > u64::from(blocks) {
        return Err(GenerateError::TooFewBlocks { machines: count, blocks });
    }
    let per_rack = |machine: &MachineSpec| {
        u64::from(options.nodes.unwrap_or(machine.nodes_per_rack)) * u64::from(machine.gpus)
    };
    let densest = machines.iter().map(per_rack).max().unwrap_or_default();
    let racks = u64::from(options.blocks) * u64::from(options.racks);
    let gpus = racks.saturating_mul(densest);
    if gpus > MAX_GPUS {
        return Err(GenerateError::TooLarge { gpus, most: MAX_GPUS });
    }
    Ok(machines)
}

fn digits(most: u32) -> usize {
    most.to_string().len()
}
