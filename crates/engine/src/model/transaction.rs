//! Changes with rollback: a search places and releases, and keeps the result only on success.

use super::cluster::{Cluster, ClusterError};
use super::placement::Placement;
use super::resources::Resources;
use super::workload::Member;

/// Changes of a cluster, or of the cluster of a world, with an undo log. Dropping the transaction
/// rolls back what is not committed.
#[derive(Debug)]
pub struct Transaction<'a, T: AsMut<Cluster> = Cluster> {
    target: &'a mut T,
    log: Vec<Step>,
}

/// A point to which a transaction can be rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Checkpoint(usize);

#[derive(Debug)]
enum Step {
    Placed(Resources, Placement),
    Released(Resources, Placement),
}

impl AsMut<Self> for Cluster {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

impl<'a, T: AsMut<Cluster>> Transaction<'a, T> {
    /// An empty transaction.
    pub fn new(target: &'a mut T) -> Self {
        Self { target, log: Vec::new() }
    }

    /// The cluster or world with the changes so far.
    pub fn target(&self) -> &T {
        self.target
    }

    /// The same, for callers that leave it as it was.
    pub(crate) fn target_mut(&mut self) -> &mut T {
        self.target
    }

    /// See [`Cluster::place`].
    pub fn place(
        &mut self,
        requests: &Resources,
        placement: &Placement,
    ) -> Result<(), ClusterError> {
        self.target.as_mut().place(requests, placement)?;
        self.log.push(Step::Placed(*requests, placement.clone()));
        Ok(())
    }

    /// See [`Cluster::release`].
    pub fn release(
        &mut self,
        requests: &Resources,
        placement: &Placement,
    ) -> Result<(), ClusterError> {
        self.target.as_mut().release(requests, placement)?;
        self.log.push(Step::Released(*requests, placement.clone()));
        Ok(())
    }

    /// Releases what a member holds.
    pub(crate) fn release_member(&mut self, member: &Member) -> Result<(), ClusterError> {
        self.release(&member.shape.resources, &member.placement)
    }

    /// Places members where they were: all of them, or none.
    pub(crate) fn restore_members(&mut self, members: &[Member]) -> Result<(), ClusterError> {
        let point = self.checkpoint();
        for member in members {
            if let Err(error) = self.place(&member.shape.resources, &member.placement) {
                self.roll_back(point);
                return Err(error);
            }
        }
        Ok(())
    }

    /// The current point, for [`Self::roll_back`].
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint(self.log.len())
    }

    /// Undoes the changes since `point`.
    pub fn roll_back(&mut self, point: Checkpoint) {
        while self.log.len() > point.0 {
            let outcome = match self.log.pop() {
                Some(Step::Placed(requests, placement)) => {
                    self.target.as_mut().release(&requests, &placement)
                }
                // The pod ran there before. Its node may have shrunk meanwhile, so resources may be
                // overdrawn.
                Some(Step::Released(requests, placement)) => {
                    self.target.as_mut().place_running(&requests, &placement)
                }
                None => return,
            };
            debug_assert!(outcome.is_ok(), "a logged change can be undone: {outcome:?}");
        }
    }

    /// Keeps the changes.
    pub fn commit(mut self) {
        self.log.clear();
    }
}

impl<T: AsMut<Cluster>> Drop for Transaction<'_, T> {
    fn drop(&mut self) {
        self.roll_back(Checkpoint(0));
    }
}
