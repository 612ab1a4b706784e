//! Octavo's packing policy: what is left is priced, and a pod goes where it costs least.
//!
//! ```text
//! popularity --tables--> values of GPUs' rests, typical shapes, reserve     now and then
//!                           |                        |
//! log of changes ----> worth of each state       places left of each        what changed
//!                           |                        |
//!                        index of a shape: gain   which are tight           each decision
//!                           '----------- best -------'
//! ```
//!
//! A node's worth (`potential`) is what is left of its GPUs at the prices of a cutting-stock
//! problem (`value`) less what typical pods cannot use of it. A pod goes to the node that loses
//! least worth, but takes the last places of pods of several GPUs only where there is no other
//! (`reserve`). A pod that fits somewhere is always placed.
//!
//! Popularity is known ahead, or learned from the pods that came so far. What was learned is
//! slowly forgotten, so that the policy follows a mix that shifts; over the time in which a cluster
//! is filled once, forgetting hardly shows.

mod books;
mod candidates;
mod index;
mod ledger;
mod levels;
mod popularity;
mod potential;
mod prior;
mod reserve;
mod schedule;
mod simplex;
mod tables;
#[cfg(test)]
mod tests;
mod turnover;
mod value;

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::packing::{Choice, Packing};
use crate::placement::Placement;
use crate::shape::Shape;
use books::Books;
pub use popularity::Popularity;
use schedule::Schedule;
use turnover::Turnover;

/// Octavo's packing policy. It must be asked about one cluster only.
#[derive(Clone, Debug)]
pub struct Price {
    popularity: Popularity,
    /// When to learn; none if everything is known.
    schedule: Option<Schedule>,
    turnover: Turnover,
    books: Option<Books>,
}

impl Price {
    /// The policy for pods that come as often as `popularity` says, now and always.
    pub fn known(popularity: Popularity) -> Self {
        Self::new(popularity, None)
    }

    /// The policy that learns from the pods that came so far which will come.
    pub fn learned() -> Self {
        Self::new(Popularity::default(), Some(Schedule::default()))
    }

    fn new(popularity: Popularity, schedule: Option<Schedule>) -> Self {
        Self { popularity, schedule, turnover: Turnover::default(), books: None }
    }

    /// The books for the cluster as it is now, made anew where popularity has changed or the
    /// cluster has got new classes of nodes.
    fn books(&mut self, cluster: &Cluster) -> &mut Books {
        let is_due = self.schedule.as_mut().is_some_and(|one| one.is_due(&self.popularity));
        let books = self.books.take().filter(|books| !is_due && books.is_for(cluster));
        let books = books.unwrap_or_else(|| {
            let books =
                Books::new(cluster, &self.popularity, self.schedule.is_some(), self.turnover);
            if let Some(schedule) = &mut self.schedule {
                schedule.learned(&self.popularity, books.pods_to_fill(cluster));
            }
            books
        });
        self.books.insert(books)
    }
}

impl Packing for Price {
    fn name(&self) -> &'static str {
        "octavo"
    }

    fn arrived(&mut self, shape: &Arc<Shape>) {
        if let Some(schedule) = &mut self.schedule {
            self.popularity.count(shape);
            schedule.arrived(&mut self.popularity);
        }
        if self.turnover.came() {
            self.books = None;
        }
    }

    fn released(&mut self, _: &Arc<Shape>, _: &Placement) {
        self.turnover.left();
    }

    fn choose(&mut self, cluster: &Cluster, shape: &Arc<Shape>) -> Option<Choice> {
        self.books(cluster).choose(cluster, shape)
    }
}
