//! Defragmentation without a request: the moves with the most gain per pod.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::World;
use crate::cluster::Cluster;
use crate::gpu::GpuFree;
use crate::node::NodeId;
use crate::objective::CostTerm;
use crate::plan::{Move, Plan};
use crate::preemption::relocation;
use crate::topology::{DomainId, Topology};
use crate::transaction::Transaction;
use crate::workload::{Member, MemberId, Workload};

/// A sequence of at most `moves` moves of movable pods; each can run after the previous ones. No
/// pod moves twice. The steps are batches: a GPU or a node is drained, and each of its pods goes to
/// the fullest node that it fits.
///
/// The gain is counted in thousandths of GPUs. Unused GPUs count once, again if their whole node is
/// unused, and again if its whole tightest domain is. The batch with the most gain per pod is taken
/// first; ties go to fewer pods, then to the lower node. The search ends when no batch has a gain.
///
/// It also ends after about `steps` evaluated node states (see
/// [`crate::preemption::PreemptionBudget::steps`]), with the moves found so far.
pub fn defragment(world: &mut World, moves: u32, steps: u64) -> Plan {
    let mut txn = Transaction::new(world);
    let mut plan = Plan::default();
    let (mut moved, mut left) = (BTreeSet::new(), moves as usize);
    while left > 0 && plan.steps < steps {
        plan.steps += txn.target().cluster.node_count() as u64;
        let batches = batches(txn.target(), &moved, left);
        let mut best: Option<(Score, Vec<Move>)> = None;
        for batch in batches {
            // `most` is the maximum gain of the batch, and the best batches come first.
            if best.as_ref().is_some_and(|(score, _)| !batch.most.is_better(*score)) {
                break;
            }
            if plan.steps >= steps {
                break;
            }
            let found = try_batch(&mut txn, &batch, &mut plan.steps);
            let Some((gain, moves)) = found else { continue };
            let score = Score { gain, pods: moves.len() };
            if gain > 0 && best.as_ref().is_none_or(|(best, _)| score.is_better(*best)) {
                best = Some((score, moves));
            }
        }
        let Some((_, moves)) = best else { break };
        left -= moves.len();
        for step in moves {
            if apply_move(&mut txn, &step).is_none() {
                break;
            }
            moved.insert(step.member);
            plan.moves.push(step);
        }
    }
    let count = i64::try_from(plan.moves.len()).unwrap_or(i64::MAX);
    plan.cost.set(CostTerm::PodsDisturbed, count);
    plan
}

/// A gain, and the number of pods moved for it.
#[derive(Clone, Copy, Debug)]
struct Score {
    gain: i64,
    pods: usize,
}

impl Score {
    fn is_better(self, other: Self) -> bool {
        let each = |score: Self, by: usize| i128::from(score.gain) * by as i128;
        let (own, others) = (each(self, other.pods), each(other, self.pods));
        own > others || (own == others && self.pods < other.pods)
    }
}

/// Pods that go together.
struct Batch {
    node: NodeId,
    members: Vec<MemberId>,
    most: Score,
}

/// All batches of at most `most` pods, the largest maximum gain first.
fn batches(world: &World, moved: &BTreeSet<MemberId>, most: usize) -> Vec<Batch> {
    let mut found: Vec<Batch> = Vec::new();
    for node in world.cluster.nodes() {
        let pods: Vec<(MemberId, &Member)> = world
            .workloads
            .on(node)
            .filter_map(|id| Some((id, world.workloads.member(id)?)))
            .filter(|(_, member)| !member.placement.gpus.is_empty())
            .collect();
        let gpus = i64::from(world.cluster.class(node).gpus) * 1000;
        let mut sets: BTreeSet<Vec<MemberId>> = BTreeSet::new();
        sets.insert(pods.iter().map(|(id, _)| *id).collect());
        for gpu in 0..world.cluster.class(node).gpus {
            let on = pods
                .iter()
                .filter(|(_, member)| member.placement.gpus.iter().any(|part| part.gpu == gpu));
            sets.insert(on.map(|(id, _)| *id).collect());
        }
        for members in sets {
            let can_go = members.iter().all(|id| {
                let workload = world.workloads.workload(id.workload);
                let may_move = |workload: &Workload| {
                    workload.profile.is_movable && !workload.coupling.is_fixed
                };
                !moved.contains(id) && workload.is_some_and(may_move)
            });
            if members.is_empty() || members.len() > most || !can_go {
                continue;
            }
            let freed: BTreeSet<u16> = members
                .iter()
                .filter_map(|id| world.workloads.member(*id))
                .flat_map(|member| member.placement.gpus.iter().map(|part| part.gpu))
                .collect();
            let is_all = members.len() == pods.len();
            let own = i64::try_from(freed.len()).unwrap_or(0) * 1000;
            let domain =
                if is_all { gpus + gpus_of(world, world.topology.leaf_domain(node)) } else { 0 };
            let most = Score { gain: own + domain, pods: members.len() };
            found.push(Batch { node, members, most });
        }
    }
    // A total order: gain per pod, fewer pods, node.
    found.sort_by(|a, b| {
        let each = |score: Score, by: usize| i128::from(score.gain) * by as i128;
        each(b.most, a.most.pods)
            .cmp(&each(a.most, b.most.pods))
            .then_with(|| a.members.len().cmp(&b.members.len()))
            .then_with(|| a.node.cmp(&b.node))
            .then_with(|| a.members.cmp(&b.members))
    });
    found
}

/// Tries a batch: its gain and its moves. The transaction is unchanged afterwards.
fn try_batch(
    txn: &mut Transaction<'_, World>,
    batch: &Batch,
    spent: &mut u64,
) -> Option<(i64, Vec<Move>)> {
    let point = txn.checkpoint();
    let mut members: Vec<(MemberId, Member)> = batch
        .members
        .iter()
        .filter_map(|id| Some((*id, txn.target().workloads.member(*id)?.clone())))
        .collect();
    members.sort_by_key(|(id, member)| {
        let cpu = member.shape.resources.cpu_milli;
        (Reverse((member.gpu_milli(), member.shape.gpus.count(), cpu)), *id)
    });
    let sources = BTreeSet::from([batch.node]);
    let mut moves = Vec::new();
    let mut before: BTreeMap<NodeId, i64> = BTreeMap::new();
    note(&mut before, txn.target(), batch.node);
    let mut is_found = true;
    for (id, member) in members {
        *spent += txn.target().cluster.states().iter().count() as u64;
        let place = relocation::relocation_target(txn.target(), id, &sources);
        let Some(to) = place else {
            is_found = false;
            break;
        };
        note(&mut before, txn.target(), to.node);
        let step = Move { member: id, to };
        if txn.place(&member.shape.resources, &step.to).is_err() {
            is_found = false;
            break;
        }
        moves.push((step, member));
    }
    let mut gain = 0;
    if is_found {
        for (_, member) in &moves {
            is_found &= txn.release_member(member).is_ok();
        }
        let domains: BTreeSet<DomainId> =
            before.keys().map(|node| txn.target().topology.leaf_domain(*node)).collect();
        let world = txn.target();
        let nodes = before.iter().map(|(node, before)| worth(&world.cluster, *node) - before);
        let nodes: i64 = nodes.sum();
        let after: i64 = domains.iter().map(|domain| worth_of_domain(world, *domain)).sum();
        txn.roll_back(point);
        let world = txn.target();
        let now: i64 = domains.iter().map(|domain| worth_of_domain(world, *domain)).sum();
        gain = nodes + after - now;
    } else {
        txn.roll_back(point);
    }
    is_found.then(|| (gain, moves.into_iter().map(|(step, _)| step).collect()))
}

/// Moves a pod within the transaction.
fn apply_move(txn: &mut Transaction<'_, World>, step: &Move) -> Option<()> {
    let member = txn.target().workloads.member(step.member)?.clone();
    txn.place(&member.shape.resources, &step.to).ok()?;
    txn.release_member(&member).ok()
}

fn note(before: &mut BTreeMap<NodeId, i64>, world: &World, node: NodeId) {
    before.entry(node).or_insert_with(|| worth(&world.cluster, node));
}

/// Thousandths of unused GPUs, once more if the whole node is unused.
fn worth(cluster: &Cluster, node: NodeId) -> i64 {
    let gpus = cluster.gpus(node);
    let unused = gpus.iter().filter(|gpu| gpu.is_unused()).count();
    let unused = i64::try_from(unused).unwrap_or(0) * 1000;
    if gpus.iter().all(GpuFree::is_unused) { 2 * unused } else { unused }
}

/// Thousandths of all GPUs of a domain below the cluster if none is used.
fn worth_of_domain(world: &World, domain: DomainId) -> i64 {
    let nodes = world.topology.nodes(domain);
    let is_unused = domain != Topology::ROOT
        && nodes.iter().all(|node| world.cluster.gpus(*node).iter().all(GpuFree::is_unused));
    if is_unused { gpus_of(world, domain) } else { 0 }
}

fn gpus_of(world: &World, domain: DomainId) -> i64 {
    if domain == Topology::ROOT {
        return 0;
    }
    let nodes = world.topology.nodes(domain).iter();
    nodes.map(|node| i64::from(world.cluster.class(*node).gpus) * 1000).sum()
}
