//! A node as it would be without some of its pods.

use smallvec::SmallVec;

use crate::World;
use crate::cluster::Cluster;
use crate::cluster::states::NodeState;
use crate::node::NodeId;
use crate::workload::Member;

/// The free capacity of a node; GPUs by index, whatever their links.
pub(super) fn of_node(cluster: &Cluster, node: NodeId) -> Option<NodeState> {
    let state = cluster.states().state(cluster.state(node))?;
    let gpus = cluster.gpus(node).into();
    Some(NodeState { class: state.class, is_open: state.is_open, free: state.free, gpus })
}

/// Takes a pod away.
pub(super) fn take_off(state: &mut NodeState, member: &Member) {
    state.free = state.free.plus(&member.shape.resources);
    for part in &member.placement.gpus {
        if let Some(gpu) = state.gpus.get_mut(usize::from(part.gpu)) {
            *gpu = gpu.with(part, u32::MAX).unwrap_or(*gpu);
        }
    }
}

/// Puts a pod back that was taken away.
pub(super) fn put_back(state: &mut NodeState, member: &Member) {
    state.free = state.free.minus(&member.shape.resources);
    for part in &member.placement.gpus {
        if let Some(gpu) = state.gpus.get_mut(usize::from(part.gpu)) {
            *gpu = gpu.without(part).unwrap_or(*gpu);
        }
    }
}

/// Keys of pods on one GPU, and what each has of it.
type Parts = SmallVec<[(u32, u16, u16, u32); 2]>;

/// A signature of a node and its pods, and the order of the pods that matches it. Nodes that differ
/// only in GPU numbers have equal signatures. `key` identifies the relevant properties of a pod.
/// Pods with one key keep the order of `pods`.
pub(super) fn signature(
    world: &World,
    state: &NodeState,
    pods: &[(u32, &Member)],
) -> (Vec<u64>, SmallVec<[u16; 8]>) {
    let class = &world.cluster.classes()[state.class.0 as usize];
    let mut on: SmallVec<[Parts; 8]> = state.gpus.iter().map(|_| Parts::new()).collect();
    for (key, member) in pods {
        for part in &member.placement.gpus {
            if let Some(on) = on.get_mut(usize::from(part.gpu)) {
                on.push((*key, part.milli, part.slices.0, part.memory_mib));
            }
        }
    }
    for on in &mut on {
        on.sort_unstable();
    }
    let mut order: SmallVec<[usize; 8]> = (0..state.gpus.len()).collect();
    if class.links.is_flat() {
        order.sort_by(|a, b| (state.gpus[*a], &on[*a]).cmp(&(state.gpus[*b], &on[*b])));
    }
    let mut ranks: SmallVec<[u64; 8]> = SmallVec::from_elem(0, order.len());
    for (rank, gpu) in (0..).zip(&order) {
        ranks[*gpu] = rank;
    }
    let mut rows: Vec<(u32, SmallVec<[u64; 4]>, u16)> = Vec::with_capacity(pods.len());
    for (number, (key, member)) in (0..).zip(pods) {
        let mut parts: SmallVec<[u64; 4]> = SmallVec::new();
        for part in &member.placement.gpus {
            let rank = ranks.get(usize::from(part.gpu)).copied().unwrap_or(u64::MAX);
            let amounts = u64::from(part.milli) << 16 | u64::from(part.slices.0);
            parts.push(rank << 32 | amounts);
            parts.push(part.memory_mib.into());
        }
        rows.push((*key, parts, number));
    }
    rows.sort_unstable();
    let amounts = [state.free.cpu_milli, state.free.memory_mib, state.free.pods];
    let mut words = vec![u64::from(state.class.0) << 1 | u64::from(state.is_open)];
    words.extend(amounts.map(i64::cast_unsigned));
    for gpu in order {
        let gpu = &state.gpus[gpu];
        let shared = u64::from(gpu.milli) << 17 | u64::from(gpu.slices.0) << 1;
        words.push(shared | u64::from(gpu.is_closed));
        words.push(u64::from(gpu.memory_mib) << 16 | u64::from(gpu.best_effort));
    }
    for (key, parts, _) in &rows {
        words.push(u64::from(*key) << 32 | parts.len() as u64);
        words.extend(parts);
    }
    (words, rows.into_iter().map(|(_, _, number)| number).collect())
}
