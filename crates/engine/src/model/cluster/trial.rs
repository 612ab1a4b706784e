//! Changes that may be taken back: a search places and releases, and keeps what is good.

use super::{Cluster, ClusterError};
use crate::placement::Placement;
use crate::resources::Resources;

/// Changes of a cluster that are undone when the trial is dropped, unless they are committed.
#[derive(Debug)]
pub struct Trial<'a> {
    cluster: &'a mut Cluster,
    done: Vec<Step>,
}

/// A point to which a trial can be rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Checkpoint(usize);

#[derive(Debug)]
enum Step {
    Placed(Resources, Placement),
    Released(Resources, Placement),
}

impl<'a> Trial<'a> {
    /// A trial on a cluster.
    pub fn new(cluster: &'a mut Cluster) -> Self {
        Self { cluster, done: Vec::new() }
    }

    /// The cluster as it would be.
    pub fn cluster(&self) -> &Cluster {
        self.cluster
    }

    /// See [`Cluster::place`].
    pub fn place(
        &mut self,
        requests: &Resources,
        placement: &Placement,
    ) -> Result<(), ClusterError> {
        self.cluster.place(requests, placement)?;
        self.done.push(Step::Placed(*requests, placement.clone()));
        Ok(())
    }

    /// See [`Cluster::release`].
    pub fn release(
        &mut self,
        requests: &Resources,
        placement: &Placement,
    ) -> Result<(), ClusterError> {
        self.cluster.release(requests, placement)?;
        self.done.push(Step::Released(*requests, placement.clone()));
        Ok(())
    }

    /// The point at which the trial is now.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint(self.done.len())
    }

    /// Undoes what was done since `point`.
    pub fn roll_back(&mut self, point: Checkpoint) {
        while self.done.len() > point.0 {
            let outcome = match self.done.pop() {
                Some(Step::Placed(requests, placement)) => {
                    self.cluster.release(&requests, &placement)
                }
                // What was free is overdrawn where a node shrank meanwhile: the pod was there.
                Some(Step::Released(requests, placement)) => {
                    self.cluster.place_running(&requests, &placement)
                }
                None => return,
            };
            debug_assert!(outcome.is_ok(), "what was done can be undone: {outcome:?}");
        }
    }

    /// Keeps what was done.
    pub fn commit(mut self) {
        self.done.clear();
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        self.roll_back(Checkpoint(0));
    }
}
