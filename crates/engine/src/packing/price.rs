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
//! is filled once, forgetting hardly shows. What was learned can be written down and read back
//! (`saved`): the policy goes on as if nothing had happened.

mod basis;
mod books;
mod candidates;
mod cuts;
mod fleet;
mod index;
mod ledger;
mod levels;
mod popularity;
mod potential;
mod prior;
mod reserve;
mod saved;
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
use basis::Basis;
use books::Books;
pub use popularity::Popularity;
use schedule::Schedule;
use tables::Tables;
use turnover::Turnover;

/// Octavo's packing policy. It must be asked about one cluster only.
#[derive(Clone, Debug)]
pub struct Price {
    popularity: Popularity,
    /// When to learn; none if everything is known.
    schedule: Option<Schedule>,
    turnover: Turnover,
    /// What tables are made of; none where they are to be made anew.
    basis: Option<Basis>,
    /// What follows from the basis and the cluster.
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
        Self { popularity, schedule, turnover: Turnover::default(), basis: None, books: None }
    }

    /// The books for the cluster as it is now, made anew where popularity has changed.
    fn books(&mut self, cluster: &Cluster) -> &mut Books {
        let is_learned = self.schedule.is_some();
        let mut basis = self.basis.take().filter(|one| one.gpus.len() == cluster.models().len());
        if let (Some(schedule), Some(one)) = (&mut self.schedule, &basis)
            && schedule.is_due(&self.popularity, &one.popularity)
        {
            basis = None;
        }
        let mut books = self.books.take().filter(|books| basis.is_some() && books.is_of(cluster));
        let is_new = basis.is_none();
        let mut basis = basis.unwrap_or_else(|| Basis::of(cluster, &self.popularity, is_learned));
        if is_learned && basis.meet(cluster) {
            books = books.map(|books| books.expecting(cluster, &basis.sizes));
        }
        let basis = &*self.basis.insert(basis);
        let books = books.unwrap_or_else(|| {
            let percent = self.turnover.percent();
            Books::new(cluster, Tables::new(cluster.models(), basis, is_learned, percent))
        });
        if let Some(schedule) = self.schedule.as_mut().filter(|_| is_new) {
            schedule.learned(books.pods_to_fill(cluster));
        }
        self.books.insert(books)
    }
}

impl Packing for Price {
    fn name(&self) -> &'static str {
        "octavo"
    }

    fn scores_per_millionth(&self) -> i64 {
        potential::MILLIONTH
    }

    fn arrived(&mut self, shape: &Arc<Shape>) {
        if let Some(schedule) = &mut self.schedule {
            self.popularity.count(shape);
            schedule.arrived(&mut self.popularity);
        }
        if self.turnover.came() {
            self.basis = None;
        }
    }

    fn released(&mut self, _: &Arc<Shape>, _: &Placement) {
        self.turnover.left();
    }

    fn choose(&mut self, cluster: &Cluster, shape: &Arc<Shape>) -> Option<Choice> {
        self.books(cluster).choose(cluster, shape)
    }
}
