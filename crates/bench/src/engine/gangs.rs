//! Gangs: a large one, an impossible one, the shapes of Kueue's benchmarks, and small ones against
//! an exhaustive search.

use std::collections::BTreeSet;

use octavo_engine::objective::CostTerm;
use octavo_engine::plan::{Plan, Reason};
use octavo_engine::{Gang, GpuDemand, LevelId, World};
use octavo_figure::{Figure, Goal};

use super::clusters::{self, Mix};
use super::exhaustive::fewest_hops;
use super::live::{Decision, LiveEngine, milliseconds};
use crate::split_mix::SplitMix64;

/// Repetitions of a timed request.
const REPEATS: usize = 9;
/// Small instances that are compared with the best.
const SMALL_INSTANCES: u64 = 400;

/// A gang of whole nodes and an impossible one, on a half-full cluster.
pub(super) fn large(nodes: u32) -> anyhow::Result<Vec<Figure>> {
    let mut world = clusters::empty(nodes, 16)?;
    clusters::fill_half(&mut world, Mix::Varied)?;
    let mut engine = LiveEngine::new(world);
    engine.waiting = clusters::waiting_gangs();
    let gang = |count| whole_nodes("large", count, None);
    let (mut cold, mut warm, mut no, mut first_no, mut fair) =
        (vec![], vec![], vec![], vec![], vec![]);
    let members = nodes / 10;
    for _ in 0..REPEATS {
        engine.forget();
        let (plan, took) = engine.plan(&gang(members))?;
        check(&mut engine.world, &gang(members), &plan)?;
        cold.push(milliseconds(took));
        warm.push(milliseconds(engine.plan(&gang(members))?.1));
        // By a leader that has decided before, and by a new one, which learns from all pods first.
        for refused in [&mut no, &mut first_no] {
            let Decision { answer, took } = engine.decide(&gang(nodes / 4))?;
            let bound =
                matches!(answer, Err(refusal) if matches!(refusal.reason, Reason::Bound(_)));
            anyhow::ensure!(bound, "an impossible gang was not refused with a bound");
            refused.push(milliseconds(took));
            engine.forget();
        }
    }
    engine.set_policy(&["podsDisturbed", "fairnessDeficit", "hops", "packingPrice"])?;
    for _ in 0..REPEATS {
        engine.forget();
        fair.push(milliseconds(engine.plan(&gang(members))?.1));
    }
    let name = |what: String| format!("{what}, {nodes} nodes half full, 64 gangs wait");
    let large = format!("gang of {members} x 8 GPUs");
    let no_to = format!("\"no\" to {} x 8 GPUs with its bound", nodes / 4);
    Ok(vec![
        Figure::new(
            name(format!("{large}, first decision of a new leader")),
            "ms",
            &cold,
            Goal::Below(200.0),
        )?,
        Figure::new(name(format!("{large}, asked again")), "ms", &warm, Goal::None)?,
        Figure::new(name(format!("{large}, by fair shares first")), "ms", &fair, Goal::None)?,
        Figure::new(name(no_to.clone()), "ms", &no, Goal::Below(1.0))?,
        Figure::new(name(no_to + ", first decision of a new leader"), "ms", &first_no, Goal::None)?,
    ])
}

/// 640 nodes in 10 racks, 1,000 and 2,500 nodes: racks spanned, whole racks left free, time.
pub(super) fn kueue_shapes() -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (nodes, per_rack, count, fewest) in
        [(640, 64, 100, 2), (1_000, 50, 120, 3), (2_500, 50, 500, 10)]
    {
        let mut times = Vec::new();
        let (mut spanned, mut free) = (0, 0);
        for _ in 0..REPEATS {
            let mut engine = LiveEngine::new(clusters::empty(nodes, per_rack)?);
            let gang = whole_nodes("kueue", count, Some(LevelId(2)));
            let (plan, took) = engine.plan(&gang)?;
            let world = &mut engine.world;
            check(world, &gang, &plan)?;
            times.push(milliseconds(took));
            let racks: BTreeSet<_> = plan
                .placements
                .iter()
                .map(|placed| world.topology.domain_of(placed.placement.node, LevelId(2)))
                .collect();
            (spanned, free) = (racks.len(), (nodes / per_rack) as usize - racks.len());
        }
        let name = |what: &str| format!("{what}, {count} of {nodes} nodes, {per_rack} a rack");
        let count = |number: usize| u32::try_from(number).map(f64::from);
        figures.extend([
            Figure::new(
                name("racks spanned"),
                "racks",
                &[count(spanned)?],
                Goal::Exactly(f64::from(fewest)),
            )?,
            Figure::new(name("racks left whole"), "racks", &[count(free)?], Goal::None)?,
            Figure::new(name("time"), "ms", &times, Goal::None)?,
        ]);
    }
    Ok(figures)
}

/// Hops above the minimum, on small clusters.
pub(super) fn against_exact() -> anyhow::Result<Vec<Figure>> {
    let mut random = SplitMix64(5);
    let (mut gaps, mut wrong, mut impossible) = (Vec::new(), 0.0, 0.0);
    for _ in 0..SMALL_INSTANCES {
        let mut world = clusters::empty(6 + u32::try_from(random.below(6))?, 2)?;
        clusters::fill_some(&mut world, &mut random)?;
        let each = 1 + u16::try_from(random.below(4))?;
        let shape = clusters::pod(GpuDemand::Whole { count: each });
        let gang = Gang::new("small", (*shape).clone(), 2 + u32::try_from(random.below(6))?);
        let best = fewest_hops(&world, &gang)?;
        let mut engine = LiveEngine::new(world);
        match (engine.decide(&gang)?.answer, best) {
            (Ok(plan), Some(best)) => {
                check(&mut engine.world, &gang, &plan)?;
                let found = plan.cost.of(CostTerm::Hops);
                let gap = u32::try_from(found - best).map(f64::from)?;
                gaps.push(if best == 0 {
                    gap
                } else {
                    100.0 * gap / f64::from(u32::try_from(best)?)
                });
            }
            (Err(_), None) => impossible += 1.0,
            _ => wrong += 1.0,
        }
    }
    let name = |what: &str| format!("{what}, {SMALL_INSTANCES} gangs on 6 to 11 nodes");
    let worst = gaps.iter().copied().fold(0.0, f64::max);
    Ok(vec![
        Figure::new(
            name("hops above the fewest possible, median"),
            "%",
            &gaps,
            Goal::Exactly(0.0),
        )?,
        Figure::new(name("hops above the fewest possible, worst"), "%", &[worst], Goal::None)?,
        Figure::new(name("wrong answers"), "cases", &[wrong], Goal::Exactly(0.0))?,
        Figure::new(name("impossible gangs"), "cases", &[impossible], Goal::None)?,
    ])
}

/// Members of eight GPUs each.
fn whole_nodes(name: &str, count: u32, preferred: Option<LevelId>) -> Gang {
    let shape = clusters::pod(GpuDemand::Whole { count: clusters::GPUS });
    let mut gang = Gang::new(name, (*shape).clone(), count);
    gang.profile.topology.preferred = preferred;
    gang
}

/// Checks that a plan has all members and fits the cluster.
fn check(world: &mut World, gang: &Gang, plan: &Plan) -> anyhow::Result<()> {
    anyhow::ensure!(plan.placements.len() == gang.count() as usize, "members are missing");
    let mut txn = octavo_engine::transaction::Transaction::new(&mut world.cluster);
    for placed in &plan.placements {
        let shape = &gang.groups[placed.group as usize].shape;
        txn.place(&shape.resources, &placed.placement)?;
    }
    Ok(())
}
