//! A model of how a GPU divides its time among contexts. It is a model, not hardware.
//!
//! A context has one queue of kernels. A kernel that has begun runs to its end, alone. The GPU serves one context for
//! a slice of time, and looks at the end of each kernel whether the slice is over. Then the next context with work
//! has its turn, as the driver does it without MPS. All times are in nanoseconds of virtual time.

use std::collections::VecDeque;

/// The contexts of one GPU, and its time.
#[derive(Clone, Debug)]
pub struct Contexts {
    slice: u64,
    switch: u64,
    now: u64,
    busy: u64,
    all: Vec<Context>,
    running: Option<Running>,
}

/// A context of a [`Contexts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContextId(usize);

#[derive(Clone, Debug, Default)]
struct Context {
    /// Durations of the kernels that have not ended.
    queue: VecDeque<u64>,
    completed: u64,
    served: u64,
}

/// The kernel that runs.
#[derive(Clone, Copy, Debug)]
struct Running {
    context: usize,
    begins: u64,
    ends: u64,
    slice_ends: u64,
}

impl Contexts {
    /// A GPU whose slices last `slice`. A change from one context with work to another takes `switch`, and counts as
    /// time of the one that follows.
    pub fn new(slice: u64, switch: u64) -> Self {
        Self { slice, switch, now: 0, busy: 0, all: Vec::new(), running: None }
    }

    /// Creates a context.
    pub fn create(&mut self) -> ContextId {
        self.all.push(Context::default());
        ContextId(self.all.len() - 1)
    }

    /// Ends a context with all its kernels, as the end of its process does.
    pub fn destroy(&mut self, ContextId(id): ContextId) {
        self.all[id].queue.clear();
        if let Some(running) = self.running.filter(|running| running.context == id) {
            self.account(running, self.now);
            self.running = None;
            self.begin_next(id, self.now);
        }
    }

    /// Launches a kernel that takes `duration`, at least one nanosecond.
    pub fn launch(&mut self, ContextId(id): ContextId, duration: u64) {
        self.all[id].queue.push_back(duration.max(1));
        if self.running.is_none() {
            self.begin(id, self.now, 0, self.now + self.slice);
        }
    }

    /// When the running kernel ends; `None` if the GPU is idle.
    pub fn next_end(&self) -> Option<u64> {
        self.running.map(|running| running.ends)
    }

    /// Moves time on. Time never moves back.
    pub fn advance(&mut self, to: u64) {
        while let Some(running) = self.running.filter(|running| running.ends <= to) {
            self.account(running, running.ends);
            self.running = None;
            let context = &mut self.all[running.context];
            context.queue.pop_front();
            context.completed += 1;
            let has_slice = running.ends < running.slice_ends;
            if has_slice && !context.queue.is_empty() {
                self.begin(running.context, running.ends, 0, running.slice_ends);
            } else {
                self.begin_next(running.context, running.ends);
            }
        }
        self.now = self.now.max(to);
    }

    /// The time.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Kernels of a context that have ended.
    pub fn completed(&self, ContextId(id): ContextId) -> u64 {
        self.all[id].completed
    }

    /// Kernels of a context that have not ended.
    pub fn in_flight(&self, ContextId(id): ContextId) -> usize {
        self.all[id].queue.len()
    }

    /// Time for which a context was served, up to the end of its last kernel.
    pub fn served(&self, ContextId(id): ContextId) -> u64 {
        self.all[id].served
    }

    /// Time for which any context was served, up to the end of the last kernel.
    pub fn busy(&self) -> u64 {
        self.busy
    }

    fn account(&mut self, running: Running, until: u64) {
        let served = until.saturating_sub(running.begins);
        self.all[running.context].served += served;
        self.busy += served;
    }

    /// Begins the next context's turn after that of `last`.
    fn begin_next(&mut self, last: usize, at: u64) {
        let count = self.all.len();
        let mut ring = (1..=count).map(|step| (last + step) % count);
        if let Some(next) = ring.find(|id| !self.all[*id].queue.is_empty()) {
            let change = if next == last { 0 } else { self.switch };
            self.begin(next, at, change, at + change + self.slice);
        }
    }

    fn begin(&mut self, context: usize, begins: u64, change: u64, slice_ends: u64) {
        if let Some(duration) = self.all[context].queue.front() {
            let ends = begins.saturating_add(change).saturating_add(*duration);
            self.running = Some(Running { context, begins, ends, slice_ends });
        }
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
