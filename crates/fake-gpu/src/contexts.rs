//! Contexts of one GPU in memory, in virtual time. They take turns as `turns.rs` says.

use std::collections::VecDeque;

use crate::turns::{Queues, Turns};

/// A slice of the driver's time slicing, in nanoseconds.
pub const SLICE: u64 = 2_000_000;

/// What a change between contexts takes, in nanoseconds.
pub const SWITCH: u64 = 160_000;

/// The contexts of one GPU, and its time.
#[derive(Clone, Debug)]
pub struct Contexts {
    now: u64,
    turns: Turns,
    all: Kernels,
}

/// A context of a [`Contexts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContextId(usize);

#[derive(Clone, Debug, Default)]
struct Kernels {
    contexts: Vec<Context>,
    busy: u64,
}

#[derive(Clone, Debug, Default)]
struct Context {
    /// Durations of the kernels that have not ended.
    queue: VecDeque<u64>,
    completed: u64,
    served: u64,
}

impl Queues for Kernels {
    fn count(&self) -> usize {
        self.contexts.len()
    }

    fn first(&self, context: usize) -> Option<u64> {
        self.contexts[context].queue.front().copied()
    }

    fn end_first(&mut self, context: usize, _: u64) {
        let context = &mut self.contexts[context];
        context.queue.pop_front();
        context.completed += 1;
    }

    fn serve(&mut self, context: usize, nanos: u64) {
        self.contexts[context].served += nanos;
        self.busy += nanos;
    }
}

impl Contexts {
    /// A GPU whose slices last `slice`. A change from one context with work to another takes `switch`, and counts as
    /// time of the one that follows.
    pub fn new(slice: u64, switch: u64) -> Self {
        let turns = Turns { slice, switch, running: None };
        Self { now: 0, turns, all: Kernels::default() }
    }

    /// Creates a context.
    pub fn create(&mut self) -> ContextId {
        self.all.contexts.push(Context::default());
        ContextId(self.all.contexts.len() - 1)
    }

    /// Ends a context with all its kernels, as the end of its process does.
    pub fn destroy(&mut self, ContextId(id): ContextId) {
        self.all.contexts[id].queue.clear();
        if self.turns.running.is_some_and(|running| running.context == id) {
            self.turns.abandon(&mut self.all, self.now);
        }
    }

    /// Launches a kernel that takes `duration`, at least one nanosecond.
    pub fn launch(&mut self, ContextId(id): ContextId, duration: u64) {
        self.all.contexts[id].queue.push_back(duration.max(1));
        self.turns.begin_if_idle(&self.all, id, self.now);
    }

    /// When the running kernel ends; `None` if the GPU is idle.
    pub fn next_end(&self) -> Option<u64> {
        self.turns.running.map(|running| running.ends)
    }

    /// Moves time on. Time never moves back.
    pub fn advance(&mut self, to: u64) {
        self.turns.advance(&mut self.all, to);
        self.now = self.now.max(to);
    }

    /// The time.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Kernels of a context that have ended.
    pub fn completed(&self, ContextId(id): ContextId) -> u64 {
        self.all.contexts[id].completed
    }

    /// Kernels of a context that have not ended.
    pub fn in_flight(&self, ContextId(id): ContextId) -> usize {
        self.all.contexts[id].queue.len()
    }

    /// Time for which a context was served, up to the end of its last kernel.
    pub fn served(&self, ContextId(id): ContextId) -> u64 {
        self.all.contexts[id].served
    }

    /// Time for which any context was served, up to the end of the last kernel.
    pub fn busy(&self) -> u64 {
        self.all.busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps two kernels of `duration` queued in each context for `time`; returns the time each was served.
    fn run(durations: &[u64], time: u64) -> Vec<u64> {
        let mut gpu = Contexts::new(2_000, 0);
        let contexts: Vec<_> = durations.iter().map(|_| gpu.create()).collect();
        while gpu.now() < time {
            for (context, duration) in contexts.iter().zip(durations) {
                while gpu.in_flight(*context) < 2 {
                    gpu.launch(*context, *duration);
                }
            }
            gpu.advance(gpu.next_end().unwrap());
        }
        contexts.iter().map(|context| gpu.served(*context)).collect()
    }

    #[test]
    fn contexts_with_work_are_served_evenly() {
        assert_eq!(run(&[100, 500], 400_000), [200_000, 200_000]);
        assert_eq!(run(&[100, 100, 100, 100], 400_000), [100_000; 4]);
    }

    #[test]
    fn a_kernel_that_has_begun_runs_to_its_end() {
        let served = run(&[100, 10_000], 1_200_000);
        assert_eq!(served, [200_000, 1_000_000], "a slice of 2,000 and a kernel of 10,000 in turn");
    }

    #[test]
    fn a_change_counts_for_the_context_that_follows() {
        let mut gpu = Contexts::new(100, 7);
        let (one, other) = (gpu.create(), gpu.create());
        gpu.launch(one, 100);
        gpu.launch(other, 100);
        gpu.launch(one, 100);
        gpu.advance(1_000);
        assert_eq!((gpu.served(one), gpu.served(other), gpu.busy()), (207, 107, 314));
        assert_eq!(gpu.next_end(), None);
        gpu.launch(other, 50);
        assert_eq!(gpu.next_end(), Some(1_050), "an idle GPU begins at once");
    }

    #[test]
    fn the_end_of_a_context_frees_the_gpu() {
        let mut gpu = Contexts::new(100, 0);
        let (one, other) = (gpu.create(), gpu.create());
        gpu.launch(one, u64::MAX);
        gpu.launch(other, 10);
        gpu.advance(5_000);
        assert_eq!(gpu.completed(other), 0);
        gpu.destroy(one);
        gpu.advance(5_010);
        assert_eq!((gpu.completed(other), gpu.served(one)), (1, 5_000));
    }
}
