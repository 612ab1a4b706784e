//! Groups that lie together in one domain of a level: each domain that could hold all of them is a way of its
//! own to play a larger one through. Chosen by one group alone it might not be one for the others.
//!
//! Where there are several such numbers of groups, the ways are those of one of them: where the others go
//! depends on who went where before, and is chosen as the domain is played.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::bound::most_in;
use super::stage::Play;
use crate::solve::need::{Home, Need, is_within};
use crate::topology::{DomainId, LevelId, Topology};

/// A domain, and where in it groups are that lie together.
pub(super) struct Way<'a> {
    pub(super) domain: DomainId,
    /// The level at which the gang is together then.
    pub(super) level: LevelId,
    /// The groups that this way puts into one domain within; none: each chooses for itself.
    pub(super) number: Option<u32>,
    pub(super) needs: Cow<'a, [Need]>,
}

/// The ways to play domains through; none for those in which no domain could hold groups that lie
/// together, each by itself.
pub(super) fn ways<'a>(
    topology: &Topology,
    needs: &'a [Need],
    reach: &[Vec<u32>],
    open: &[(DomainId, LevelId)],
) -> Vec<Way<'a>> {
    let order = Play::order(needs);
    let mut ways = Vec::new();
    for &(domain, level) in open {
        let numbers = numbers(topology, needs, domain);
        // The number that is placed first.
        let first = order
            .iter()
            .find_map(|group| needs[*group].together.filter(|number| numbers.contains_key(number)));
        let Some(first) = first else {
            ways.push(Way { domain, level, number: None, needs: Cow::Borrowed(needs) });
            continue;
        };
        let of = |number: u32, own: LevelId| homes(topology, needs, reach, domain, number, own);
        if numbers.iter().any(|(number, own)| of(*number, *own).is_empty()) {
            continue;
        }
        ways.extend(of(first, numbers[&first]).into_iter().map(|home| {
            let mut needs = needs.to_vec();
            let own = needs.iter_mut().filter(|need| need.together == Some(first));
            own.for_each(|need| need.home = Home::Within(home));
            Way { domain, level, number: Some(first), needs: Cow::Owned(needs) }
        }));
    }
    ways
}

/// Numbers of groups that may choose where in a domain they lie together, and the level at which.
pub(super) fn numbers(
    topology: &Topology,
    needs: &[Need],
    domain: DomainId,
) -> BTreeMap<u32, LevelId> {
    let mut numbers = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for need in needs.iter().filter(|need| Play::count(need) > 0) {
        let (Some(number), Some(level)) = (need.together, need.required) else { continue };
        let may_choose = need.home == Home::Anywhere && level > topology.domain(domain).level;
        // One group alone chooses well by itself.
        if may_choose && !seen.insert(number) {
            numbers.insert(number, level);
        }
    }
    numbers
}

/// Domains of a level in a larger one that could hold each group of a number by itself.
pub(super) fn homes(
    topology: &Topology,
    needs: &[Need],
    reach: &[Vec<u32>],
    domain: DomainId,
    number: u32,
    level: LevelId,
) -> Vec<DomainId> {
    let holds_all = |home: &DomainId| {
        let own = needs.iter().zip(reach).filter(|(need, _)| need.together == Some(number));
        own.into_iter().all(|(need, reach)| {
            most_in(topology, need, reach, *home) >= u64::from(Play::count(need))
        })
    };
    let inside = topology.at(level).map(|(id, _)| id);
    inside.filter(|id| is_within(topology, *id, domain)).filter(holds_all).collect()
}
