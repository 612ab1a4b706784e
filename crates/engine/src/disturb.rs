//! Whom to move or evict so that something fits, with the least disturbance.
//!
//! 1. *Bound*: what would fit if everybody went who may be disturbed? If that is too little, the
//!    answer is no, without a search.
//! 2. *Offers*: for each node the cheapest pods that make room for 1, 2, ... members. Nodes that
//!    are alike up to names and numbers offer the same and are looked at once: 4,000 equal pods on
//!    500 full nodes are one node.
//! 3. *Choice*: for each domain in which the gang may be, the nodes with the least sum.
//! 4. *Play*: victims go, members come, moved pods get places on nodes from which nobody is moved
//!    away (the fullest that fit, the largest pod first); who turns out not to be needed stays, the
//!    dearest asked first.
//!
//! Victims are units. A pod goes alone where its workload has more members than it needs; else the
//! whole workload goes, wherever its members are. A moved pod moves alone, within the domain in
//! which its workload must be.
//!
//! Of two sets of victims the better one has, in this order: fewer pods, fewer evictions, a lower
//! highest priority of who is evicted, less work lost (seconds at risk times GPUs), lower priorities
//! in sum, smaller pods, newer workloads; before age the judge is asked about the members' own
//! places. Nobody is disturbed to save hops.
//!
//! There are no chains (a pod that moves to where another one moves away, or to where somebody is
//! evicted for it alone), and nobody moves within its node: so moves can be carried out in any order,
//! and a place is free when its move starts.
//! Members of a gang above its minimum disturb nobody; they come later, by growth.

mod bound;
mod choose;
mod homes;
mod offers;
pub(crate) mod places;
mod price;
mod rehearsal;
mod remedy;
mod scene;
mod stage;
mod view;
mod who;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use price::Price;
pub(crate) use rehearsal::Rehearsal;
pub use remedy::cheapest_remedy;

use crate::World;
use crate::decision::{Answer, Disturbance, Placed, Plan, Reason, Refusal, RunnerUp};
use crate::fit;
use crate::node::NodeId;
use crate::objective::{Unit, Vector};
use crate::solve::areas::{roots, tiers};
use crate::solve::need::{Need, needs};
use crate::solve::{Judge, Request, ranks, ring_hops};
use crate::topology::{DomainId, LevelId};
use crate::workload::Profile;
use homes::Way;
use places::is_at_home;
use scene::Known;
use stage::{Play, Stage, Staged, Stuck};
use who::{Crowd, Kind};

/// Domains that are played through at most once a plan is found.
const MOST_PLAYED: usize = 8;

/// Whom a decision may disturb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// How many pods may be moved at most, of workloads that are movable, whatever their priority.
    pub moves: u32,
    /// Who may be evicted; none: nobody.
    pub evictions: Option<Evictions>,
    /// States of nodes that are looked at, about, before the search ends.
    pub steps: u64,
}

/// Who may be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evictions {
    /// Preemptible workloads of a priority below this one.
    pub below_priority: i32,
    /// Of these tenants; none: of any.
    pub tenants: Option<BTreeSet<Arc<str>>>,
}

impl Allowance {
    /// Steps that are enough for clusters of some thousand nodes.
    pub const STEPS: u64 = 4_000_000;

    /// Nobody.
    pub fn nothing() -> Self {
        Self { moves: 0, evictions: None, steps: Self::STEPS }
    }

    /// Up to so many moves, no eviction.
    pub fn moves(moves: u32) -> Self {
        Self { moves, ..Self::nothing() }
    }

    /// Evictions of anybody preemptible below a priority, no moves.
    pub fn evictions_below(priority: i32) -> Self {
        let evictions = Evictions { below_priority: priority, tenants: None };
        Self { evictions: Some(evictions), ..Self::nothing() }
    }

    /// Whether a workload may be evicted.
    pub fn may_evict(&self, profile: &Profile) -> bool {
        self.evictions.as_ref().is_some_and(|evictions| {
            profile.is_preemptible
                && profile.priority < evictions.below_priority
                && evictions.tenants.as_ref().is_none_or(|only| only.contains(&profile.tenant))
        })
    }
}

/// A plan that disturbs as few as possible, within `allowance`. The workload of the request's name
/// is not disturbed. `world` is as before when this returns.
///
/// A refusal says [`Reason::Bound`] where a bound proves it; [`Reason::Steps`] where no plan was
/// found, for which the choice of victims is no proof; [`Reason::Exhausted`] where groups that must lie
/// together fit the gang's domains each by itself, but no one domain of theirs has room for all.
pub fn plan(
    world: &mut World,
    request: &Request<'_>,
    allowance: &Allowance,
    judge: &dyn Judge,
) -> Answer {
    let mut spent = 0;
    let mut answer = search(world, request, allowance, judge, &mut spent);
    if matches!(answer, Err(Reason::Spares { .. })) && spent < allowance.steps {
        // No bound tells which nodes must stay free: once more without those.
        let forbidden = &judge.kept_free(world) | request.forbidden;
        let spared = Request { forbidden: &forbidden, ..*request };
        answer = search(world, &spared, allowance, judge, &mut spent).or(answer);
    }
    if matches!(answer, Err(Reason::Steps { .. })) && allowance.moves > 0 && spent < allowance.steps
    {
        // Moves that seemed the least disturbance found no place; evictions need none.
        let rest = Allowance { moves: 0, ..allowance.clone() };
        answer = search(world, request, &rest, judge, &mut spent).or(answer);
    }
    answer.map_err(|reason| Refusal { reason, remedy: None, steps: spent })
}

/// A domain played through.
struct Played {
    domain: DomainId,
    level: LevelId,
    /// In words, for whoever compares it with another.
    place: String,
    staged: Staged,
    cost: Vector,
}

fn search(
    world: &mut World,
    request: &Request<'_>,
    allowance: &Allowance,
    judge: &dyn Judge,
    spent: &mut u64,
) -> Result<Plan, Reason> {
    request.gang.check(world.topology.levels().len())?;
    let needs = needs(&world.topology, request);
    let own = world.workloads.named(&request.gang.profile.name);
    let mut crowd = Crowd::gather(world, allowance, own);
    let reach = bound::reach(world, &crowd, request, &needs);
    *spent += (world.cluster.node_count() * needs.len()) as u64;
    let mut open: Vec<(DomainId, LevelId)> = Vec::new();
    let mut loosest = (Vec::new(), LevelId(0));
    for level in tiers(request.gang) {
        let roots = roots(&world.topology, request, level);
        for root in &roots {
            let is_new = open.iter().all(|(known, _)| known != root);
            if is_new && bound::admits(&world.topology, &needs, &reach, *root) {
                open.push((*root, level));
            }
        }
        loosest = (roots, level);
    }
    if open.is_empty() {
        let (roots, level) = loosest;
        let failed = bound::failed(world, request, &needs, &reach, &roots, level);
        return Err(failed.map_or_else(|| exhausted(world, level, roots.len()), Reason::Bound));
    }
    if allowance.evictions.is_none()
        && let Some(failed) = bound::failed_by_moves(world, request, &needs)
    {
        return Err(Reason::Bound(failed));
    }
    let ways = homes::ways(&world.topology, &needs, &reach, &open);
    if ways.is_empty() {
        return Err(exhausted(world, loosest.1, open.len()));
    }
    let kinds = crowd.tell_kinds(world);
    let mut known = Known::new(world.cluster.node_count(), kinds.len());
    known.is_stuck = (0..)
        .zip(&kinds)
        .map(|(number, kind)| !can_move(world, request, &crowd, number, kind))
        .collect();
    let play = Play {
        request,
        needs: &needs,
        reach: &reach,
        crowd: &crowd,
        kinds: &kinds,
        most_moves: allowance.moves,
        limit: allowance.steps,
    };
    let played = play_all(world, play, &mut known, &ways, allowance, judge, spent);
    finish(&play, judge, played, *spent)
}

/// Ways with what they are about to cost, their level and domain. Half of what may still be looked at is
/// kept to play the best of them.
fn estimates(
    world: &World,
    play: Play<'_>,
    known: &mut Known,
    ways: &[Way<'_>],
    spent: &mut u64,
) -> Vec<(Price, Reverse<LevelId>, DomainId, usize)> {
    let limit = *spent + play.limit.saturating_sub(*spent) / 2;
    // What is the same for all ways of a domain.
    let mut of_rest: BTreeMap<DomainId, Option<Price>> = BTreeMap::new();
    let (mut order, mut next) = (Vec::new(), None);
    for (way, Way { domain, level, number, needs }) in ways.iter().enumerate() {
        let play = Play { needs, limit, ..play };
        let is_own = |need: &Need| number.is_some() && need.together == *number;
        let rest = *of_rest
            .entry(*domain)
            .or_insert_with(|| play.estimate(world, known, spent, *domain, |need| !is_own(need)));
        let own = play.estimate(world, known, spent, *domain, is_own);
        if let (Some(rest), Some(own)) = (rest, own) {
            order.push((rest.max(own), Reverse(*level), *domain, way));
        }
        if *spent > limit {
            // What was not looked at to the end may be possible all the same.
            next = Some((Price::ZERO, Reverse(*level), *domain, way));
            break;
        }
    }
    if order.is_empty() { next.into_iter().collect() } else { order }
}

/// Plays the most promising domains through; the reason if there is none.
fn play_all(
    world: &mut World,
    play: Play<'_>,
    known: &mut Known,
    ways: &[Way<'_>],
    allowance: &Allowance,
    judge: &dyn Judge,
    spent: &mut u64,
) -> Result<Vec<Played>, Reason> {
    let limit = allowance.steps;
    let mut order = estimates(world, play, known, ways, spent);
    order.sort_unstable();
    let mut played: Vec<Played> = Vec::new();
    let mut denied = None;
    for (price, Reverse(level), domain, number) in order {
        let best = played.iter().map(|played| played.staged.price).min();
        let is_dearer =
            best.is_some_and(|best| (price.pods, price.evicted) > (best.pods, best.evicted));
        if played.len() >= MOST_PLAYED || *spent > limit || (is_dearer && played.len() > 1) {
            break;
        }
        let play = Play { needs: &ways[number].needs, ..play };
        let Some((staged, cost)) = play_one(world, &play, known, judge, domain, spent, limit)
        else {
            continue;
        };
        let evictions = staged.evictions(play.crowd);
        let disturbance = Disturbance { moves: &staged.moves, evictions: &evictions };
        let placed = &staged.placements;
        match judge.check(world, play.request.gang, placed, disturbance, &cost) {
            Ok(()) => {
                let place = match ways[number].number {
                    Some(_) => ranks::place(world, placed),
                    None => world.topology.path(domain),
                };
                played.push(Played { domain, level, place, staged, cost });
            }
            Err(reason) => denied = denied.or(Some(reason)),
        }
    }
    if played.is_empty() {
        return Err(denied.unwrap_or(Reason::Steps { limit: limit.min(*spent) }));
    }
    Ok(played)
}

/// Plays one domain through; pods that turn out not to be movable there are left out.
fn play_one(
    world: &mut World,
    play: &Play<'_>,
    known: &mut Known,
    judge: &dyn Judge,
    domain: DomainId,
    spent: &mut u64,
    limit: u64,
) -> Option<(Staged, Vector)> {
    let is_stuck = known.is_stuck.clone();
    let mut outcome = None;
    // Each round but the last makes one kind of pods stuck.
    for _ in 0..=play.kinds.len() {
        let stage = Stage::new(world, play, known, spent);
        match stage.run(domain, |world, placed| {
            cost(world, play.request, judge, placed, Disturbance::default())
        }) {
            Ok(found) => {
                outcome = Some(found);
                break;
            }
            Err(Stuck::Kind(kind)) if *spent <= limit && !known.is_stuck[kind as usize] => {
                known.set_stuck(kind);
            }
            Err(_) => break,
        }
    }
    if known.is_stuck != is_stuck {
        known.restore(is_stuck);
    }
    let staged = outcome?.0;
    // The seats were compared among themselves; the plan costs what its victims' going changes, too.
    let evictions = staged.evictions(play.crowd);
    let disturbance = Disturbance { moves: &staged.moves, evictions: &evictions };
    let mut cost = cost(world, play.request, judge, &staged.placements, disturbance);
    cost.set(Unit::PodsDisturbed, staged.price.pods);
    Some((staged, cost))
}

/// What the members' places cost; hops over all members where some are pinned.
fn cost(
    world: &World,
    request: &Request<'_>,
    judge: &dyn Judge,
    placed: &[Placed],
    disturbance: Disturbance<'_>,
) -> Vector {
    let mut cost = judge.cost(world, request.gang, placed, disturbance);
    if !request.pinned.is_empty() {
        let mut ring: BTreeMap<u32, NodeId> =
            request.pinned.iter().map(|pin| (pin.rank, pin.placement.node)).collect();
        ring.extend(placed.iter().map(|placed| (placed.rank, placed.placement.node)));
        let own = ring_hops(&world.topology, placed.iter().map(|one| one.placement.node));
        cost.add(Unit::Hops, ring_hops(&world.topology, ring.into_values()) - own);
    }
    cost
}

fn finish(
    play: &Play<'_>,
    judge: &dyn Judge,
    played: Result<Vec<Played>, Reason>,
    steps: u64,
) -> Result<Plan, Reason> {
    let mut played = played?;
    played.sort_by(|one, other| {
        let (price, other_price) = (one.staged.price, other.staged.price);
        let by_price = price.without_age().cmp(&other_price.without_age());
        by_price
            .then_with(|| judge.compare(&one.cost, &other.cost))
            .then_with(|| price.age.cmp(&other_price.age))
            .then_with(|| other.level.cmp(&one.level))
            .then_with(|| one.domain.cmp(&other.domain))
    });
    let mut played = played.into_iter();
    let Some(best) = played.next() else { return Err(Reason::Steps { limit: steps }) };
    let second = played.find(|second| second.place != best.place);
    let runner_up = second.map(|second| {
        let is_dearer = second.staged.price.pods.cmp(&best.staged.price.pods) == Ordering::Greater;
        let worse_in = if is_dearer {
            Some(Unit::PodsDisturbed)
        } else {
            judge.worse_in(&best.cost, &second.cost)
        };
        RunnerUp { place: second.place, cost: second.cost, worse_in }
    });
    Ok(Plan {
        evictions: best.staged.evictions(play.crowd),
        moves: best.staged.moves,
        placements: best.staged.placements,
        cost: best.cost,
        runner_up,
        steps,
    })
}

/// Whether there is a place at all to which pods of a kind could be moved now.
fn can_move(world: &World, request: &Request<'_>, crowd: &Crowd, number: u32, kind: &Kind) -> bool {
    let is_wanted =
        crowd.pods.iter().any(|pod| pod.kind == number && crowd.crews[pod.crew as usize].may_move);
    is_wanted
        && world.cluster.states().iter().any(|(_, state, nodes)| {
            fit::fits(&world.cluster, state, &kind.shape)
                && nodes.iter().any(|node| {
                    !request.forbidden.contains(node)
                        && is_at_home(&world.topology, kind.home, *node)
                })
        })
}

fn exhausted(world: &World, level: LevelId, searched: usize) -> Reason {
    let name = world.topology.levels().get(usize::from(level.0));
    let name = name.map_or_else(|| "cluster".into(), Arc::clone);
    Reason::Exhausted { level: name, searched: u32::try_from(searched).unwrap_or(u32::MAX) }
}
