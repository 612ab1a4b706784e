//! What would fit if something were otherwise: the nodes empty, GPUs or plain resources in plenty.
//! That is asked when a gang is refused, to say what is scarce.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::cluster::Cluster;
use crate::cluster::states::{NodeState, StateId};
use crate::fit;
use crate::gpu::GpuFree;
use crate::node::{ClassId, NodeId};
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};

/// What is taken to be otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Yardstick {
    /// Nothing: as things are.
    Free,
    /// Nothing runs on the nodes. What is closed stays closed.
    Empty,
    /// The pods ask for no plain resources.
    GpusAlone,
    /// The pods ask for no GPUs, but go only where those of the shape may go.
    PlainAlone,
}

/// A shape under a yardstick, with what was computed of each state.
#[derive(Debug)]
pub(crate) struct Measure<'a> {
    cluster: &'a Cluster,
    shape: &'a Shape,
    /// The shape as it is asked for under the yardstick.
    asked: Shape,
    yardstick: Yardstick,
    known: Vec<Option<(StateId, u32)>>,
    /// Of empty nodes: by class and closed GPUs as bits.
    empty: BTreeMap<(ClassId, u64), u32>,
}

impl<'a> Measure<'a> {
    pub(crate) fn new(cluster: &'a Cluster, shape: &'a Shape, yardstick: Yardstick) -> Self {
        let mut asked = shape.clone();
        match yardstick {
            Yardstick::Free | Yardstick::Empty => {}
            Yardstick::GpusAlone => asked.resources = Resources::default(),
            Yardstick::PlainAlone => asked.gpus = GpuDemand::None,
        }
        let known = vec![None; cluster.states().slot_count()];
        Self { cluster, shape, asked, yardstick, known, empty: BTreeMap::new() }
    }

    /// How many pods fit a node.
    pub(crate) fn times(&mut self, node: NodeId) -> u32 {
        if node.0 as usize >= self.cluster.node_count() {
            return 0;
        }
        let id = self.cluster.state(node);
        if let Some(Some((known, times))) = self.known.get(id.slot as usize)
            && *known == id
        {
            return *times;
        }
        let state = self.cluster.states().state(id);
        let times = match state {
            Some(state) if self.yardstick == Yardstick::Empty => self.of_empty(state),
            Some(state) => self.compute(state),
            None => 0,
        };
        if let Some(slot) = self.known.get_mut(id.slot as usize) {
            *slot = Some((id, times));
        }
        times
    }

    fn compute(&self, state: &NodeState) -> u32 {
        let class = &self.cluster.classes()[state.class.0 as usize];
        if !fit::is_allowed(class, self.shape) {
            return 0;
        }
        fit::times(self.cluster, state, &self.asked)
    }

    /// Empty nodes of a class are alike but for what is closed.
    fn of_empty(&mut self, state: &NodeState) -> u32 {
        if !state.is_open {
            return 0;
        }
        let bits = (0..).zip(&state.gpus).filter(|(_, gpu)| gpu.is_closed);
        let key = (state.class, bits.fold(0, |bits, (gpu, _): (u32, _)| bits | 1_u64 << gpu));
        if let Some(times) = self.empty.get(&key) {
            return *times;
        }
        let class = &self.cluster.classes()[state.class.0 as usize];
        let idle = self.cluster.models().get(usize::from(class.model.0)).map(GpuFree::idle);
        let gpus: SmallVec<[GpuFree; 8]> = state
            .gpus
            .iter()
            .map(|gpu| GpuFree { is_closed: gpu.is_closed, ..idle.unwrap_or(*gpu) })
            .collect();
        let empty = NodeState { free: class.capacity, gpus, ..state.clone() };
        let times = self.compute(&empty);
        self.empty.insert(key, times);
        times
    }
}
