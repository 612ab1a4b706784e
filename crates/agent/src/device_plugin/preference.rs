//! Which of a resource's free devices a container should rather have. No I/O.
//!
//! ```text
//! whole GPUs               the set with the most NVLink links inside; of equal ones that with GPUs nearest in PCIe and NUMA
//! replicas, MIG devices    distributed: of the parts with the fewest containers; packed: of those with the most
//! ```

use std::collections::BTreeMap;

use octavo_api::plugin_config::AllocationPolicy;
use octavo_gpu::{Gpu, Inventory};

use super::resources::{PluginDevice, Resource};

/// Above so many sets of GPUs, they are chosen one after another. A node of 16 GPUs has 12,870 sets of eight.
const MAX_SETS: u64 = 20_000;

/// What one link of NVLink is worth, beside which closeness in the node decides between equals.
const LINK: u64 = 1_000;
/// What GPUs of one PCIe root complex are worth.
const SAME_ROOT: u64 = 10;
/// What GPUs of one NUMA node are worth.
const SAME_NUMA_NODE: u64 = 1;

/// The devices that a container should have: `required` and more of `available`, `size` in all, or fewer if no more are
/// available. Ids that are not of the resource are no devices.
pub(crate) fn preferred(
    inventory: &Inventory,
    resource: &Resource,
    policy: AllocationPolicy,
    (available, required): (&[String], &[String]),
    size: usize,
) -> Vec<String> {
    let by_id: BTreeMap<&str, &PluginDevice> =
        resource.devices.iter().map(|device| (device.id.as_str(), device)).collect();
    let required: Vec<&PluginDevice> =
        required.iter().filter_map(|id| by_id.get(id.as_str()).copied()).collect();
    let mut free: Vec<&PluginDevice> = resource
        .devices
        .iter()
        .filter(|device| available.contains(&device.id))
        .filter(|device| !required.iter().any(|other| other.id == device.id))
        .collect();
    let wanted = size.saturating_sub(required.len()).min(free.len());
    let is_whole = resource.devices.iter().all(|device| device.part.instance.is_none());
    let chosen = if is_whole && resource.sharing.is_none() {
        linked(inventory, &required, &free, wanted)
    } else {
        spread(resource, policy, &mut free, wanted)
    };
    required.into_iter().chain(chosen).map(|device| device.id.clone()).collect()
}

/// Replicas of the devices, or MIG devices of the GPUs, with the fewest or with the most containers. Of equal ones that from
/// which this choice took the fewest comes first, then the first in the resource's order.
fn spread<'a>(
    resource: &'a Resource,
    policy: AllocationPolicy,
    free: &mut Vec<&'a PluginDevice>,
    wanted: usize,
) -> Vec<&'a PluginDevice> {
    let place = |device: &'a PluginDevice| -> &'a str {
        if resource.sharing.is_some() { &device.part.uuid } else { &device.part.gpu }
    };
    // Devices in use, and those taken by this choice, by place.
    let mut in_use: BTreeMap<&str, usize> = BTreeMap::new();
    for device in &resource.devices {
        let is_used = !free.iter().any(|other| other.id == device.id);
        *in_use.entry(place(device)).or_default() += usize::from(is_used);
    }
    let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
    let mut chosen = Vec::new();
    while chosen.len() < wanted {
        let best = free.iter().enumerate().min_by_key(|(position, device)| {
            let used = in_use.get(place(device)).copied().unwrap_or_default();
            let rank = match policy {
                AllocationPolicy::Distributed => used,
                AllocationPolicy::Packed => usize::MAX - used,
            };
            (rank, taken.get(place(device)).copied().unwrap_or_default(), *position)
        });
        let Some((position, _)) = best else { break };
        let device = free.remove(position);
        *in_use.entry(place(device)).or_default() += 1;
        *taken.entry(place(device)).or_default() += 1;
        chosen.push(device);
    }
    chosen
}

/// The set of GPUs with the most links inside, beside the required ones.
fn linked<'a>(
    inventory: &Inventory,
    required: &[&'a PluginDevice],
    free: &[&'a PluginDevice],
    wanted: usize,
) -> Vec<&'a PluginDevice> {
    let gpu = |device: &PluginDevice| inventory.gpus.iter().find(|it| it.uuid == device.part.gpu);
    let worth = |one: &PluginDevice, other: &PluginDevice| match (gpu(one), gpu(other)) {
        (Some(one), Some(other)) => closeness(one, other),
        _ => 0,
    };
    let own: Vec<u64> =
        free.iter().map(|device| required.iter().map(|other| worth(device, other)).sum()).collect();
    let pairs: Vec<Vec<u64>> =
        free.iter().map(|one| free.iter().map(|other| worth(one, other)).collect()).collect();
    let gain = |set: &[usize], next: usize| -> u64 {
        own[next] + set.iter().map(|member| pairs[*member][next]).sum::<u64>()
    };
    let chosen = if sets(free.len(), wanted) <= MAX_SETS {
        let mut best = Best { set: Vec::new(), worth: None };
        best.extend(&mut Vec::new(), 0, (0, free.len()), wanted, &gain);
        best.set
    } else {
        one_by_one(free.len(), wanted, &gain)
    };
    chosen.into_iter().map(|position| free[position]).collect()
}

/// The best set so far.
struct Best {
    set: Vec<usize>,
    worth: Option<u64>,
}

impl Best {
    /// Tries all sets that begin with `set`. Of equal ones the first stays.
    fn extend(
        &mut self,
        set: &mut Vec<usize>,
        worth: u64,
        (from, to): (usize, usize),
        wanted: usize,
        gain: &impl Fn(&[usize], usize) -> u64,
    ) {
        if set.len() == wanted {
            if self.worth.is_none_or(|best| worth > best) {
                (self.set, self.worth) = (set.clone(), Some(worth));
            }
            return;
        }
        let missing = wanted - set.len();
        // The rest must suffice.
        for next in from..=to.saturating_sub(missing) {
            let more = gain(set, next);
            set.push(next);
            self.extend(set, worth + more, (next + 1, to), wanted, gain);
            set.pop();
        }
    }
}

fn one_by_one(count: usize, wanted: usize, gain: &impl Fn(&[usize], usize) -> u64) -> Vec<usize> {
    let mut set: Vec<usize> = Vec::new();
    while set.len() < wanted {
        let rest = (0..count).filter(|position| !set.contains(position));
        let Some(next) = rest.max_by_key(|next| (gain(&set, *next), usize::MAX - next)) else {
            break;
        };
        set.push(next);
    }
    set
}

/// Number of sets, at most more than [`MAX_SETS`].
fn sets(count: usize, wanted: usize) -> u64 {
    let mut sets: u64 = 1;
    for step in 0..wanted.min(count.saturating_sub(wanted)) {
        let (up, down) = (count - step, step + 1);
        sets = sets.saturating_mul(up as u64) / down as u64;
        if sets > MAX_SETS {
            return sets;
        }
    }
    sets
}

/// How well two GPUs reach each other.
fn closeness(one: &Gpu, other: &Gpu) -> u64 {
    let links = match (&one.nvlink, &other.nvlink) {
        // Each reaches each other over the switches with all its links.
        (Some(a), Some(b)) if a.switched && b.switched => a.links.min(b.links),
        (Some(a), _) => {
            let peer = a.peers.iter().find(|(index, _)| *index == other.index);
            peer.map_or(0, |(_, links)| *links)
        }
        (None, _) => 0,
    };
    let is_same = |a: Option<&String>, b: Option<&String>| a.is_some() && a == b;
    let root = is_same(one.pcie_root.as_ref(), other.pcie_root.as_ref());
    let numa = one.numa_node.is_some() && one.numa_node == other.numa_node;
    LINK * u64::from(links) + SAME_ROOT * u64::from(root) + SAME_NUMA_NODE * u64::from(numa)
}

#[cfg(test)]
mod tests;
