//! The pods of a list in drawn order, brought to a demand.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::num::NonZeroU64;

use super::order_statistics::RemainingItems;
use super::{Arrival, ArrivalError, Factor, MAX_ARRIVALS, originals, sorted};
use crate::go_rand::GoRand;
use crate::trace::Trace;

/// The text between a pod's name and its copy number.
pub(super) const COPY_SUFFIX: &str = "-tuned-";

/// Steps 2 to 4 of the protocol.
pub(super) fn shuffled(
    trace: &Trace,
    factor: Option<Factor>,
    rand: &mut GoRand,
) -> Result<Vec<Arrival>, ArrivalError> {
    let by_name = sorted(&trace.pods, |pod| &pod.name);
    let mut pods = originals(by_name.iter().copied());
    rand.shuffle(&mut pods);
    let Some(factor) = factor else { return Ok(pods) };
    let capacity =
        NonZeroU64::new(trace.capacity_gpu_milli()).ok_or(ArrivalError::NoGpus { factor })?;
    let demand = trace.demand_gpu_milli();
    if demand == 0 {
        return Err(ArrivalError::NoDemand { factor });
    }
    match factor.compare_demand(demand, capacity) {
        // Not even a pod without GPUs is drawn.
        Ordering::Equal => {}
        Ordering::Greater => tune_down(&mut pods, trace, factor, capacity, rand),
        Ordering::Less => tune_up(&mut pods, &by_name, trace, factor, capacity, rand)?,
    }
    Ok(pods)
}

fn tune_up(
    pods: &mut Vec<Arrival>,
    by_name: &[usize],
    trace: &Trace,
    factor: Factor,
    capacity: NonZeroU64,
    rand: &mut GoRand,
) -> Result<(), ArrivalError> {
    let mut demand = trace.demand_gpu_milli();
    let names = trace.pods.iter().map(|pod| pod.name.as_str());
    let like_copies: BTreeSet<&str> = names.filter(|name| name.contains(COPY_SUFFIX)).collect();
    let is_taken =
        |copy: &Arrival| !like_copies.is_empty() && like_copies.contains(&*copy.name(&trace.pods));
    let mut number = 0;
    while let Some(row) = rand.index(by_name.len()).and_then(|index| by_name.get(index)) {
        let pod = &trace.pods[*row];
        // Per GPU, as the authors' simulator has it, though the demand then grows by all of them.
        if factor.is_passed_by(demand + u64::from(pod.gpu_milli), capacity) {
            break;
        }
        if pods.len() >= MAX_ARRIVALS {
            return Err(ArrivalError::TooManyPods { factor });
        }
        demand += pod.total_gpu_milli();
        let mut copy = Arrival { row: *row, copy: Some(number) };
        // Numbers only grow, so each name of the list is met once at most.
        while is_taken(&copy) {
            number += 1;
            copy.copy = Some(number);
        }
        pods.push(copy);
        number += 1;
    }
    Ok(())
}

fn tune_down(
    pods: &mut Vec<Arrival>,
    trace: &Trace,
    factor: Factor,
    capacity: NonZeroU64,
    rand: &mut GoRand,
) {
    let mut demand = trace.demand_gpu_milli();
    // The removal happens once at the end: removing pods singly would shift the tail each time.
    let mut remaining = RemainingItems::all(pods.len());
    let mut is_gone = vec![false; pods.len()];
    while factor.is_passed_by(demand, capacity) {
        let drawn = rand.index(remaining.count()).and_then(|place| remaining.take(place));
        let Some(index) = drawn else { break };
        is_gone[index] = true;
        demand -= trace.pods[pods[index].row].total_gpu_milli();
    }
    let mut is_gone = is_gone.into_iter();
    pods.retain(|_| !is_gone.next().unwrap_or_default());
}
