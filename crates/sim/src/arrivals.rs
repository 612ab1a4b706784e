//! The order in which pods arrive and, in runs with departures, leave.
//!
//! [`Order::Shuffled`] is the protocol of "Beware of Fragmentation" (Weng et al., USENIX ATC 2023).
//! It follows the authors' simulator (hkust-adsl/kubernetes-scheduler-simulator,
//! `pkg/simulator/core.go` and `simulator.go`) draw for draw with [`GoRand`]:
//!
//! 1. Seed the generator. Draw one number, which the simulator prints for debugging.
//! 2. Sort the pods by name and shuffle them.
//! 3. If the demand is below `factor` times the cluster's GPUs, *tune up*. Draw pods uniformly and
//!    with replacement from the list sorted by name. Append copies called `NAME-tuned-0`,
//!    `NAME-tuned-1`, and so on. Stop before a drawn pod's milli *per GPU* would pass the target.
//!    Eight whole GPUs count as one here, so the last pod may pass the target; the next draw then
//!    ends the loop. A copy number whose name a listed pod already has is skipped, which changes no
//!    draw. The authors' simulator would reject such a copy.
//! 4. If the demand is above, *tune down*: remove uniformly drawn pods until the demand is at most
//!    the target. The remaining pods keep their order.
//! 5. Number the nodes, sorted by name, by a drawn permutation. The lowest number wins ties.
//!
//! In the authors' runs, parts of Kubernetes draw retry delays from the same generator during step
//! 5. Two of their runs may therefore differ; two runs of this simulator never do.

use std::borrow::Cow;

use crate::go_rand::GoRand;
use crate::trace::{PodRow, Trace};

mod factor;
mod order_statistics;
mod shuffled;
#[cfg(test)]
mod tests;

pub use factor::Factor;
use shuffled::{COPY_SUFFIX, shuffled};

/// Arrivals at which a factor is refused: more than any cluster's list, little enough to hold.
pub const MAX_ARRIVALS: usize = 4_000_000;

/// The order in which the pods of a list arrive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Order {
    /// The order of the list. No pod leaves.
    Listed,
    /// The paper's protocol. No pod leaves.
    Shuffled {
        /// Of Go's generator; the paper used 42 to 51.
        seed: i64,
        /// Demand over capacity that the list is tuned to. `None` keeps the list's own demand.
        factor: Option<Factor>,
    },
    /// At their times of creation, leaving at their times of deletion, if they have one.
    ByCreationTime,
}

/// A pod that arrives: a row of the list or a copy of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Index of the row in the trace's pods.
    pub row: usize,
    /// Number of the copy, counted over all copies but for numbers that the list has taken; none:
    /// the row itself.
    pub copy: Option<u32>,
}

/// Something that happens to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Seconds since the start of the trace; `None` in orders without times.
    pub at: Option<u64>,
    /// The change.
    pub change: Change,
}

/// An arrival or departure, as an index into [`Arrivals::pods`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The pod arrives and needs a placement.
    Arrive(usize),
    /// The pod's lifetime ends. The pod may never have been placed.
    Depart(usize),
}

/// The arrivals and departures of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrivals {
    /// All pods in the order of their arrival.
    pub pods: Vec<Arrival>,
    /// The events, in order.
    pub events: Vec<Event>,
    /// Indices of the trace's nodes in the order in which ties fall to them.
    pub node_order: Vec<usize>,
}

/// Why a list cannot arrive in an order.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrivalError {
    /// The text or number is no factor.
    #[error(
        "`{0}` is not a factor of demand over capacity; expected a number above 0, such as 1.3"
    )]
    Factor(String),
    /// The nodes have no GPU, so demand has no share of them.
    #[error("the nodes have no GPUs, so no demand is {factor} times their GPUs; omit the factor")]
    NoGpus {
        /// The factor.
        factor: Factor,
    },
    /// No pod asks for a GPU, so no number of copies reaches the factor.
    #[error(
        "no pod requests a GPU, so copies cannot reach {factor} times the cluster's GPUs; omit the factor"
    )]
    NoDemand {
        /// The factor.
        factor: Factor,
    },
    /// The factor needs more copies than can be held.
    #[error(
        "a factor of {factor} needs more than {MAX_ARRIVALS} pods of this list; choose a smaller factor"
    )]
    TooManyPods {
        /// The factor.
        factor: Factor,
    },
    /// A pod's time of creation is not known.
    #[error(
        "pod `{pod}` has no creation_time ({missing} of {pods} have none), so the list cannot be \
         ordered by time; use a list with times or a shuffled order"
    )]
    NoTimes {
        /// The first such pod.
        pod: String,
        /// Number of such pods.
        missing: usize,
        /// Pods in the list.
        pods: usize,
    },
}

impl ArrivalError {
    /// Whether the request is invalid for every trace.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Factor(_) => true,
            Self::NoGpus { .. }
            | Self::NoDemand { .. }
            | Self::TooManyPods { .. }
            | Self::NoTimes { .. } => false,
        }
    }
}

impl Arrival {
    /// The pod's name, unique in the run.
    pub fn name<'a>(&self, pods: &'a [PodRow]) -> Cow<'a, str> {
        let name = pods.get(self.row).map_or("", |pod| pod.name.as_str());
        match self.copy {
            None => Cow::Borrowed(name),
            Some(copy) => Cow::Owned(format!("{name}{COPY_SUFFIX}{copy}")),
        }
    }
}

impl Arrivals {
    /// Puts the trace's pods in order.
    pub fn of(trace: &Trace, order: Order) -> Result<Self, ArrivalError> {
        let by_name = sorted(&trace.nodes, |node| &node.name);
        match order {
            Order::Listed => Ok(Self::timeless(originals(0..trace.pods.len()), by_name)),
            Order::ByCreationTime => by_creation_time(&trace.pods, by_name),
            Order::Shuffled { seed, factor } => {
                let mut rand = GoRand::new(seed);
                rand.int63();
                let pods = shuffled(trace, factor, &mut rand)?;
                // Node i gets the number drawn for it, and the numbers are the order.
                let mut node_order = by_name.clone();
                for (node, number) in by_name.iter().zip(rand.perm(by_name.len())) {
                    node_order[number] = *node;
                }
                Ok(Self::timeless(pods, node_order))
            }
        }
    }

    /// Thousandths of GPUs that all arrivals ask for.
    pub fn demand_gpu_milli(&self, pods: &[PodRow]) -> u64 {
        self.pods
            .iter()
            .filter_map(|arrival| pods.get(arrival.row))
            .map(PodRow::total_gpu_milli)
            .sum()
    }

    fn timeless(pods: Vec<Arrival>, node_order: Vec<usize>) -> Self {
        let arrive = |index| Event { at: None, change: Change::Arrive(index) };
        Self { events: (0..pods.len()).map(arrive).collect(), pods, node_order }
    }
}

fn originals(rows: impl IntoIterator<Item = usize>) -> Vec<Arrival> {
    rows.into_iter().map(|row| Arrival { row, copy: None }).collect()
}

/// Indices of the items in the order of their names, byte by byte as Go compares strings.
fn sorted<T>(items: &[T], name: impl Fn(&T) -> &String) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|left, right| name(&items[*left]).cmp(name(&items[*right])));
    order
}

/// Events by time; at the same second those leave first that came before it. A pod that lives for
/// no second leaves right after it came. The authors' simulator sorts so, too.
fn by_creation_time(pods: &[PodRow], node_order: Vec<usize>) -> Result<Arrivals, ArrivalError> {
    let times: Vec<u64> = pods.iter().filter_map(|pod| pod.creation_time).collect();
    if let Some(pod) = pods.iter().find(|pod| pod.creation_time.is_none()) {
        let missing = pods.len() - times.len();
        return Err(ArrivalError::NoTimes { pod: pod.name.clone(), missing, pods: pods.len() });
    }
    let mut order = sorted(pods, |pod| &pod.name);
    order.sort_by_key(|row| times[*row]);
    let mut events = Vec::with_capacity(2 * order.len());
    for (index, row) in order.iter().enumerate() {
        events.push(Event { at: Some(times[*row]), change: Change::Arrive(index) });
        if let Some(deletion) = pods[*row].deletion_time {
            events.push(Event { at: Some(deletion), change: Change::Depart(index) });
        }
    }
    // The sort is stable: at the same second, an earlier pod's departure stays before a later
    // arrival.
    events.sort_by_key(|event| event.at);
    Ok(Arrivals { pods: originals(order), events, node_order })
}
