//! The servers on which the job computes, so that one of them can be drawn at once.

use crate::generate::random::Random;

/// A server's index in the fleet.
pub(super) type Server = usize;

/// The job's servers, good and bad ones apart.
#[derive(Clone, Debug)]
pub(super) struct Members {
    good: Vec<Server>,
    bad: Vec<Server>,
    /// For each server of the fleet: its place in its list.
    places: Vec<Option<Place>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    is_bad: bool,
    index: usize,
}

impl Members {
    pub(super) fn new(fleet: usize) -> Self {
        Self { good: Vec::new(), bad: Vec::new(), places: vec![None; fleet] }
    }

    pub(super) fn contains(&self, server: Server) -> bool {
        self.places[server].is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.good.len() + self.bad.len()
    }

    pub(super) fn good(&self) -> usize {
        self.good.len()
    }

    pub(super) fn bad(&self) -> usize {
        self.bad.len()
    }

    pub(super) fn add(&mut self, server: Server, is_bad: bool) {
        let list = self.list(is_bad);
        let index = list.len();
        list.push(server);
        self.places[server] = Some(Place { is_bad, index });
    }

    /// Removes a server if it is a member. The last one of its list takes its place.
    pub(super) fn remove(&mut self, server: Server) -> bool {
        let Some(place) = self.places[server].take() else { return false };
        let list = self.list(place.is_bad);
        list.swap_remove(place.index);
        if let Some(moved) = list.get(place.index).copied() {
            self.places[moved] = Some(place);
        }
        true
    }

    /// Removes all and returns them.
    pub(super) fn take(&mut self) -> Vec<Server> {
        let mut all = std::mem::take(&mut self.good);
        all.append(&mut self.bad);
        for server in &all {
            self.places[*server] = None;
        }
        all
    }

    /// A good or a bad member.
    pub(super) fn draw(&self, is_bad: bool, random: &mut Random) -> Option<Server> {
        let list = if is_bad { &self.bad } else { &self.good };
        list.get(random.index(list.len())).copied()
    }

    /// Any member, each as likely as the other.
    pub(super) fn draw_any(&self, random: &mut Random) -> Option<Server> {
        let index = random.index(self.len());
        self.good.get(index).or_else(|| self.bad.get(index - self.good.len())).copied()
    }

    fn list(&mut self, is_bad: bool) -> &mut Vec<Server> {
        if is_bad { &mut self.bad } else { &mut self.good }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_and_go() {
        let mut members = Members::new(10);
        for server in 0..6 {
            members.add(server, server % 2 == 1);
        }
        assert!(members.remove(0) && !members.remove(0) && !members.remove(9));
        assert_eq!((members.len(), members.good(), members.bad()), (5, 2, 3));
        let mut random = Random::seeded(1);
        for _ in 0..50 {
            assert!([2, 4].contains(&members.draw(false, &mut random).unwrap()));
            assert!([1, 3, 5].contains(&members.draw(true, &mut random).unwrap()));
            assert!(members.contains(members.draw_any(&mut random).unwrap()));
        }
        let mut all = members.take();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3, 4, 5]);
        assert_eq!((members.len(), members.draw_any(&mut random)), (0, None));
        assert!(!members.contains(1));
    }
}
