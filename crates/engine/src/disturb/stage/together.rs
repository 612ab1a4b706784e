//! Groups that lie together in one domain of a level, number after number: where the next ones go depends on
//! who went where before.

use std::collections::{BTreeMap, BTreeSet};

use super::super::homes;
use super::super::price::Price;
use super::super::who::Unit;
use super::{Play, Stage, Stuck};
use crate::solve::need::Home;
use crate::solve::rules::Seated;
use crate::topology::{DomainId, LevelId};

/// So often in one play a number that had its places goes elsewhere because those after it found none.
pub(super) const MOST_WAYS_BACK: u32 = 64;

/// How far a stage is, to come back to.
struct Point {
    rehearsal: usize,
    placements: usize,
    gone: Vec<bool>,
    lost: Vec<u32>,
    units: BTreeSet<Unit>,
    seated: Seated,
}

impl Stage<'_, '_> {
    /// Places groups in this order; those of the numbers in `free` choose where they are together.
    pub(super) fn place_all(
        &mut self,
        order: &[usize],
        free: &BTreeMap<u32, LevelId>,
        domain: DomainId,
        ways_back: &mut u32,
    ) -> Result<(), Stuck> {
        let needs = self.play.needs;
        for (at, group) in order.iter().enumerate() {
            let number = needs[*group].together.filter(|number| free.contains_key(number));
            let Some(number) = number else {
                self.place_group(*group, domain, needs[*group].home)?;
                continue;
            };
            let (own, rest): (Vec<usize>, Vec<usize>) =
                order[at..].iter().partition(|group| needs[**group].together == Some(number));
            for home in self.cheapest_homes(number, free[&number], &own, domain) {
                let point = self.point();
                let home = Home::Within(home);
                let mut own = own.iter();
                let is_there =
                    own.try_for_each(|group| self.place_group(*group, domain, home)).is_ok();
                if is_there && self.place_all(&rest, free, domain, ways_back).is_ok() {
                    return Ok(());
                }
                self.go_back(point);
                if is_there {
                    *ways_back = ways_back.saturating_sub(1);
                }
                if *ways_back == 0 || *self.spent > self.play.limit {
                    break;
                }
            }
            return Err(Stuck::NoRoom);
        }
        Ok(())
    }

    /// Where groups that lie together could be, by what that costs now if each chooses for itself there.
    fn cheapest_homes(
        &mut self,
        number: u32,
        level: LevelId,
        own: &[usize],
        domain: DomainId,
    ) -> Vec<DomainId> {
        let (needs, reach) = (self.play.needs, self.play.reach);
        let topology = &self.rehearsal.world().topology;
        let homes = homes::homes(topology, needs, reach, domain, number, level);
        let mut ranked: Vec<(Price, DomainId)> = Vec::new();
        for home in homes {
            let groups = own.iter().filter(|group| Play::count(&needs[**group]) > 0);
            let prices = groups.map(|group| {
                let choice = self.choose(*group, home, Play::count(&needs[*group]));
                choice.map(|choice| choice.price)
            });
            let sum = prices.into_iter().try_fold(Price::ZERO, |sum, price| Some(sum.plus(price?)));
            ranked.extend(sum.map(|sum| (sum, home)));
        }
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, home)| home).collect()
    }

    fn point(&self) -> Point {
        Point {
            rehearsal: self.rehearsal.checkpoint(),
            placements: self.placements.len(),
            gone: self.gone.clone(),
            lost: self.lost.clone(),
            units: self.units.clone(),
            seated: self.seated.clone(),
        }
    }

    fn go_back(&mut self, point: Point) {
        self.rehearsal.roll_back(point.rehearsal);
        self.placements.truncate(point.placements);
        (self.gone, self.lost, self.units) = (point.gone, point.lost, point.units);
        self.seated = point.seated;
        for node in &self.touched {
            self.known.forget(*node);
        }
    }
}
