//! Policies that are good for tests only.

use super::*;

/// Takes the first node that fits, and its first GPUs that fit.
pub(super) struct FirstFit;

/// Nothing, ever.
pub(super) struct Lazy;

/// Takes the first GPUs of the first node, even if they are allocated.
pub(super) struct Greedy;

fn choice(node: octavo_engine::NodeId, gpus: impl Iterator<Item = u16>, shape: &Shape) -> Choice {
    let part = |gpu| GpuPart {
        gpu,
        milli: shape.gpus.milli(),
        slices: octavo_engine::gpu::Slices::NONE,
        memory_mib: 0,
    };
    let gpus = gpus.take(usize::from(shape.gpus.count())).map(part).collect();
    Choice { placement: Placement { node, gpus }, score: 0, runner_up: None }
}

impl Packing for FirstFit {
    fn name(&self) -> &'static str {
        "first-fit"
    }

    fn choose(&mut self, cluster: &Cluster, shape: &Arc<Shape>) -> Option<Choice> {
        let fits = |node: &octavo_engine::NodeId| {
            let state = cluster.states().state(cluster.state(*node)).unwrap();
            octavo_engine::fit::fits(cluster, state, shape)
        };
        let node = cluster.nodes().find(fits)?;
        let gpus = (0..).zip(cluster.gpus(node));
        let gpus = gpus.filter(|(_, gpu)| gpu.milli >= shape.gpus.milli()).map(|(gpu, _)| gpu);
        Some(choice(node, gpus, shape))
    }
}

impl Packing for Lazy {
    fn name(&self) -> &'static str {
        "lazy"
    }

    fn choose(&mut self, _: &Cluster, _: &Arc<Shape>) -> Option<Choice> {
        None
    }
}

impl Packing for Greedy {
    fn name(&self) -> &'static str {
        "greedy"
    }

    fn choose(&mut self, cluster: &Cluster, shape: &Arc<Shape>) -> Option<Choice> {
        Some(choice(cluster.nodes().next()?, 0.., shape))
    }
}
