//! The order in which a policy prefers servers.

use super::history::History;
use super::members::Server;
use super::policy::Choice;
use super::servers::Servers;
use crate::generate::random::Random;

/// What a choice may look at.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) servers: &'a Servers,
    pub(super) history: &'a History,
    /// Seconds since the start.
    pub(super) seconds: u64,
}

impl Known<'_> {
    /// How little a choice wants a server: less is better.
    fn dislike(self, choice: Choice, server: Server) -> (bool, i64) {
        let is_last =
            choice == Choice::Settled && self.history.is_on_probation(server, self.seconds);
        let dislike = match choice {
            Choice::List | Choice::Uniform => 0,
            Choice::Fewest => i64::try_from(self.servers.blamed(server)).unwrap_or(i64::MAX),
            Choice::Risk | Choice::Settled => self.history.risk(server, self.seconds),
            Choice::Oracle => i64::from(self.servers.is_bad(server)),
        };
        (is_last, dislike)
    }
}

/// So many of the available servers, best first; fewer if there are not so many. Equal ones are
/// drawn, but a list keeps to its order.
pub(super) fn best(
    choice: Choice,
    available: &[Server],
    wanted: usize,
    known: Known<'_>,
    random: &mut Random,
) -> Vec<Server> {
    let wanted = wanted.min(available.len());
    if choice == Choice::List {
        // Which of them compute and which stand by is chance.
        let mut chosen = available[..wanted].to_vec();
        random.shuffle(&mut chosen);
        return chosen;
    }
    let key = |server: &Server| (known.dislike(choice, *server), random.next_u64(), *server);
    let mut keys: Vec<_> = available.iter().map(key).collect();
    if let Some(last) = wanted.checked_sub(1) {
        keys.select_nth_unstable(last);
    }
    keys.truncate(wanted);
    keys.sort_unstable();
    keys.into_iter().map(|(.., server)| server).collect()
}

/// So many replacements among the idle servers, or `None` if there are not so many. Equal ones come
/// in the order of the list.
pub(super) fn replacements(
    choice: Choice,
    idle: impl Iterator<Item = Server>,
    wanted: usize,
    known: Known<'_>,
) -> Option<Vec<Server>> {
    let mut idle: Vec<_> = idle
        .enumerate()
        .map(|(place, server)| (known.dislike(choice, server), place, server))
        .collect();
    if wanted == 0 || idle.len() < wanted {
        return (wanted == 0).then(Vec::new);
    }
    idle.select_nth_unstable(wanted - 1);
    idle.truncate(wanted);
    idle.sort_unstable();
    Some(idle.into_iter().map(|(.., server)| server).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::study::Study;
    use octavo_health::risk::Blame;

    #[test]
    fn each_choice_has_its_order() {
        let study = Study::default();
        let mut random = Random::seeded(1);
        let mut servers = Servers::new(&study, &mut random);
        let mut history = History::new(&study);
        for (server, times) in [(0, 2), (1, 1), (2, 0), (3, 3)] {
            for time in 0..times {
                servers.blame(server, time);
                history.blamed(server, time, Blame::WHOLE);
            }
        }
        let known = Known { servers: &servers, history: &history, seconds: 0 };
        let list = [3, 0, 1, 2];
        for choice in [Choice::Fewest, Choice::Risk, Choice::Settled] {
            assert_eq!(best(choice, &list, 3, known, &mut random), [2, 1, 0], "{choice:?}");
            let found = replacements(choice, list.into_iter(), 2, known);
            assert_eq!(found, Some(vec![2, 1]), "{choice:?}");
        }
        let mut repaired = history.clone();
        repaired.repaired(2, 0);
        let fresh = Known { history: &repaired, ..known };
        assert_eq!(
            best(Choice::Settled, &list, 3, fresh, &mut random),
            [1, 0, 3],
            "2 is on probation"
        );
        let settled = Known { seconds: 86_400, ..fresh };
        assert_eq!(best(Choice::Settled, &list, 3, settled, &mut random), [2, 1, 0]);
        let mut chosen = best(Choice::List, &list, 2, known, &mut random);
        chosen.sort_unstable();
        assert_eq!(chosen, [0, 3]);
        assert_eq!(replacements(Choice::List, list.into_iter(), 2, known), Some(vec![3, 0]));
        assert_eq!(replacements(Choice::List, list.into_iter(), 5, known), None);
        assert_eq!(best(Choice::Uniform, &list, 9, known, &mut random).len(), 4);
        let bad = (0..100).filter(|server| servers.is_bad(*server)).count();
        let all: Vec<Server> = (0..100).collect();
        let chosen = best(Choice::Oracle, &all, 100 - bad, known, &mut random);
        assert!(chosen.iter().all(|server| !servers.is_bad(*server)));
    }
}
