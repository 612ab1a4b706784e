//! The world changed for a while: everything is undone when the rehearsal is dropped.

use crate::World;
use crate::cluster::ClusterError;
use crate::placement::Placement;
use crate::resources::Resources;
use crate::workload::Member;

/// A world that is put back as it was. As [`crate::cluster::trial::Trial`], but the whole world can
/// be read meanwhile.
#[derive(Debug)]
pub(crate) struct Rehearsal<'w> {
    world: &'w mut World,
    done: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    Placed(Resources, Placement),
    Released(Resources, Placement),
}

impl<'w> Rehearsal<'w> {
    pub(crate) fn new(world: &'w mut World) -> Self {
        Self { world, done: Vec::new() }
    }

    pub(crate) fn world(&self) -> &World {
        self.world
    }

    /// The world, for whoever leaves it as it was.
    pub(crate) fn world_mut(&mut self) -> &mut World {
        self.world
    }

    pub(crate) fn place(
        &mut self,
        requests: &Resources,
        placement: &Placement,
    ) -> Result<(), ClusterError> {
        self.world.cluster.place(requests, placement)?;
        self.done.push(Step::Placed(*requests, placement.clone()));
        Ok(())
    }

    pub(crate) fn release(
        &mut self,
        requests: &Resources,
        placement: &Placement,
    ) -> Result<(), ClusterError> {
        self.world.cluster.release(requests, placement)?;
        self.done.push(Step::Released(*requests, placement.clone()));
        Ok(())
    }

    /// Takes a member off its node.
    pub(crate) fn take_off(&mut self, member: &Member) -> Result<(), ClusterError> {
        self.release(&member.shape.resources, &member.placement)
    }

    /// Puts members back where they were: all of them, or nothing happens.
    pub(crate) fn put_back(&mut self, members: &[Member]) -> Result<(), ClusterError> {
        let save_point = self.checkpoint();
        for member in members {
            if let Err(error) = self.place(&member.shape.resources, &member.placement) {
                self.roll_back(save_point);
                return Err(error);
            }
        }
        Ok(())
    }

    /// The point at which the rehearsal is now, for [`Self::roll_back`].
    pub(crate) fn checkpoint(&self) -> usize {
        self.done.len()
    }

    /// Undoes what was done since a checkpoint.
    pub(crate) fn roll_back(&mut self, save_point: usize) {
        while self.done.len() > save_point {
            let outcome = match self.done.pop() {
                Some(Step::Placed(requests, placement)) => {
                    self.world.cluster.release(&requests, &placement)
                }
                // What was free is overdrawn where a node shrank meanwhile: the pod was there.
                Some(Step::Released(requests, placement)) => {
                    self.world.cluster.place_running(&requests, &placement)
                }
                None => return,
            };
            debug_assert!(outcome.is_ok(), "what was done can be undone: {outcome:?}");
        }
    }
}

impl Drop for Rehearsal<'_> {
    fn drop(&mut self) {
        self.roll_back(0);
    }
}
