//! A model of how a GPU divides its time among contexts. It is a model, not hardware.
//!
//! A context has one queue of kernels. A kernel that has begun runs to its end, alone. The GPU serves one context for
//! a slice of time, and looks at the end of each kernel whether the slice is over. Then the next context with work
//! has its turn, as the driver does it without MPS. All times are in nanoseconds.
//!
//! The queues are elsewhere: in memory ([`crate::contexts`]), or in the file of a GPU ([`crate::clock`]).

/// The queues of the contexts of a GPU.
pub(crate) trait Queues {
    /// Number of contexts. They are numbered from 0, and some may have ended.
    fn count(&self) -> usize;

    /// Duration of the first kernel of a context, if it has one and lives.
    fn first(&self, context: usize) -> Option<u64>;

    /// Ends the first kernel of a context.
    fn end_first(&mut self, context: usize, at: u64);

    /// Counts time for which a context was served.
    fn serve(&mut self, context: usize, nanos: u64);
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    /// How long a turn lasts at least, if there is work.
    pub(crate) slice: u64,
    /// What a change from one context with work to another takes. It counts as time of the one that follows.
    pub(crate) switch: u64,
    /// The kernel that runs.
    pub(crate) running: Option<Running>,
}

/// The kernel that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) context: usize,
    pub(crate) begins: u64,
    pub(crate) ends: u64,
    pub(crate) slice_ends: u64,
}

impl Turns {
    /// Begins the work of a context, if the GPU is idle.
    pub(crate) fn begin_if_idle(&mut self, queues: &impl Queues, context: usize, now: u64) {
        if self.running.is_none() {
            self.begin(queues, context, now, 0, now + self.slice);
        }
    }

    /// Begins the work of any context, if the GPU is idle and one has some.
    pub(crate) fn begin_any_if_idle(&mut self, queues: &impl Queues, now: u64) {
        let mut contexts = 0..queues.count();
        if let Some(next) = contexts.find(|context| queues.first(*context).is_some()) {
            self.begin_if_idle(queues, next, now);
        }
    }

    /// Ends the running kernel early, because its context has ended, and begins the next context's turn.
    pub(crate) fn abandon(&mut self, queues: &mut impl Queues, now: u64) {
        if let Some(running) = self.running.take() {
            queues.serve(running.context, now.saturating_sub(running.begins));
            self.begin_next(queues, running.context, now);
        }
    }

    /// Moves time on.
    pub(crate) fn advance(&mut self, queues: &mut impl Queues, to: u64) {
        while self.running.is_some_and(|running| running.ends <= to) {
            self.step(queues);
        }
    }

    /// Moves time on to the end of the running kernel. Returns that time; `None` if the GPU is idle.
    pub(crate) fn step(&mut self, queues: &mut impl Queues) -> Option<u64> {
        let Running { context, begins, ends, slice_ends } = self.running.take()?;
        queues.serve(context, ends.saturating_sub(begins));
        queues.end_first(context, ends);
        if ends < slice_ends && queues.first(context).is_some() {
            self.begin(queues, context, ends, 0, slice_ends);
        } else {
            self.begin_next(queues, context, ends);
        }
        Some(ends)
    }

    /// Begins the next context's turn after that of `last`.
    pub(crate) fn begin_next(&mut self, queues: &impl Queues, last: usize, at: u64) {
        let count = queues.count();
        let mut ring = (1..=count).map(|step| (last + step) % count);
        if let Some(next) = ring.find(|context| queues.first(*context).is_some()) {
            let change = if next == last { 0 } else { self.switch };
            self.begin(queues, next, at, change, at + change + self.slice);
        }
    }

    fn begin(
        &mut self,
        queues: &impl Queues,
        context: usize,
        begins: u64,
        change: u64,
        slice_ends: u64,
    ) {
        if let Some(duration) = queues.first(context) {
            let ends = begins.saturating_add(change).saturating_add(duration);
            self.running = Some(Running { context, begins, ends, slice_ends });
        }
    }
}
