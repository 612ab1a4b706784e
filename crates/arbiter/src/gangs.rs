//! Gangs: the shares of one claim on several GPUs of a node.
//!
//! The processes of a job on several GPUs wait for each other: a kernel of NCCL spins until its peers on the other GPUs run. So the
//! shares of a gang have their turns together, on all its GPUs or on none.
//!
//! ```text
//! waits    it takes only what no other share wants: a GPU on which nothing else waits
//! called   its turn is next: on all its GPUs the holders end at once, and no other share begins
//! has      it has its turn; on all GPUs it began in one step
//! ```
//!
//! When a turn ends, a kernel may be in flight on one GPU whose peer on another one has not been launched. It would spin until the next
//! turn. So a member whose thread waits may launch a kernel at a time while another member's work does not get on.
//!
//! A gang is called when no other share stands before it on any of its GPUs, and when all holders have had their quantum.
//! While it waits for that, turns that others begin on its GPUs have no quantum. So a GPU does not idle until the call, and the
//! call comes within a quantum.
//!
//! Gangs are compared by one number each, so they are in one order, and of two gangs with a GPU in common the first one is
//! called. No gang keeps a GPU while it waits for another GPU for longer than a deadline. So gangs do not block each other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use octavo_api::config::ComputePart;

use crate::account::{Account, Phase};
use crate::turn::{Rank, by_balance, own_rank};
use crate::{Activity, Arbiter, Settings};

/// What a member of a gang may do on its GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// Its gang waits.
    Waits,
    /// Its gang waits, and work of the gang that is in flight on another GPU waits for this one.
    Awaited,
    /// Its gang will have its turn once all its GPUs are clear.
    Called,
    /// Its gang has its turn.
    Has,
}

/// Where a gang is between two turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GangPhase {
    Waits,
    Called { since: u64 },
    Has { since: u64 },
}

/// A member on one GPU.
#[derive(Clone, Debug)]
struct Member<K> {
    share: K,
    /// When its own processes last ran or waited.
    last_active: Option<u64>,
    /// Whether a thread of its own processes waits.
    is_waiting: bool,
    /// Whether it belongs to the gang now: its GPU was used not long ago.
    is_at_work: bool,
    /// Whether work in flight on another GPU waits for a launch on this one.
    is_awaited: bool,
}

/// The shares of one claim, by GPU.
#[derive(Clone, Debug)]
pub(crate) struct Gang<G, K> {
    members: BTreeMap<G, Member<K>>,
    phase: GangPhase,
}

/// The arbiters of GPUs.
type Arbiters<G, K> = BTreeMap<G, Arbiter<K>>;

/// Order of gangs: the greater one is called first.
type Standing<C> = (Rank, i128, Reverse<C>);

impl<G: Ord + Clone, K: Ord + Clone> Gang<G, K> {
    /// A gang of shares, one on each GPU.
    pub(crate) fn new() -> Self {
        Self { members: BTreeMap::new(), phase: GangPhase::Waits }
    }

    /// Takes the members that there are now.
    pub(crate) fn set_members(&mut self, shares: BTreeMap<G, K>) {
        let mut old = std::mem::take(&mut self.members);
        let member = |(gpu, share): (G, K)| {
            let known = old.remove(&gpu).filter(|member| member.share == share);
            let new = Member {
                share,
                last_active: None,
                is_waiting: false,
                is_at_work: false,
                is_awaited: false,
            };
            (gpu, known.unwrap_or(new))
        };
        self.members = shares.into_iter().map(member).collect();
    }

    /// Takes what its shares do. Returns whether those that have no lease are to be taken for waiting: one of them waits.
    pub(crate) fn observe(
        &mut self,
        now: u64,
        settings: &Settings,
        activity: impl Fn(&G, &K) -> (Activity, bool),
    ) -> bool {
        for (gpu, member) in &mut self.members {
            let (now_does, is_free) = activity(gpu, &member.share);
            member.is_waiting = now_does.processes > 0 && now_does.is_waiting;
            if member.is_waiting || now_does.running > 0 || is_free {
                member.last_active = Some(now);
            }
            let is_recent = |last: u64| now.saturating_sub(last) < settings.alone_after.max(1);
            member.is_at_work = now_does.processes > 0 && member.last_active.is_some_and(is_recent);
        }
        if self.at_work().count() < 2 {
            // Its only member is a share like others.
            self.phase = GangPhase::Waits;
            self.members.values_mut().for_each(|member| member.is_at_work = false);
        }
        self.phase == GangPhase::Waits && self.at_work().any(|(_, member)| member.is_waiting)
    }

    fn at_work(&self) -> impl Iterator<Item = (&G, &Member<K>)> {
        self.members.iter().filter(|(_, member)| member.is_at_work)
    }

    /// Whether a share is one of its members at work.
    pub(crate) fn has_member(&self, gpu: &G, share: &K) -> bool {
        self.members.get(gpu).is_some_and(|member| member.is_at_work && member.share == *share)
    }

    /// GPUs of its members.
    pub(crate) fn gpus(&self) -> impl Iterator<Item = &G> {
        self.members.keys()
    }

    /// Its members at work, with their accounts and arbiters.
    fn accounts<'a>(
        &'a self,
        arbiters: &'a Arbiters<G, K>,
    ) -> impl Iterator<Item = (&'a Arbiter<K>, &'a K, &'a Account)> {
        self.at_work().filter_map(|(gpu, member)| {
            let arbiter = arbiters.get(gpu)?;
            Some((arbiter, &member.share, arbiter.shares.get(&member.share)?))
        })
    }

    /// Its place among gangs: by rank, then by the least balance of a member on a GPU that others use, measured by its request.
    fn standing<C>(&self, name: C, arbiters: &Arbiters<G, K>) -> Standing<C> {
        let rank = self.accounts(arbiters).map(|(_, _, account)| own_rank(account)).min();
        let balance = |account: &Account| {
            i128::from(account.balance) * i128::from(ComputePart::WHOLE.0)
                / i128::from(account.terms.weight())
        };
        let contended = self.accounts(arbiters).filter(|(arbiter, share, _)| {
            arbiter.shares.iter().any(|(other, account)| other != *share && account.is_active())
        });
        let least = contended.map(|(_, _, account)| balance(account)).min();
        (rank.unwrap_or(Rank::Filler), least.unwrap_or(0), Reverse(name))
    }

    /// Whether its turn has lasted for its quantum.
    fn has_had_turn(&self, now: u64, settings: &Settings, arbiters: &Arbiters<G, K>) -> bool {
        let GangPhase::Has { since } = self.phase else { return false };
        let quantum = self.accounts(arbiters).map(|(_, _, it)| settings.quantum(&it.terms));
        now.saturating_sub(since) >= quantum.max().unwrap_or(0)
    }

    /// Whether none of its members had anything to do for a moment.
    fn is_quiet(&self, now: u64, settings: &Settings, arbiters: &Arbiters<G, K>) -> bool {
        self.accounts(arbiters).all(|(_, _, account)| account.quiet(now) >= settings.idle_after)
    }

    /// Whether its turn ends for a share that is in no gang, or because it cannot go on.
    fn must_end(&self, now: u64, settings: &Settings, arbiters: &Arbiters<G, K>) -> bool {
        let (had_turn, is_quiet) =
            (self.has_had_turn(now, settings, arbiters), self.is_quiet(now, settings, arbiters));
        self.accounts(arbiters).any(|(arbiter, _, member)| {
            let others = arbiter.shares.values().filter(|it| it.seat.is_none());
            let mut others = others.filter(|it| arbiter.is_candidate(it));
            let is_stalled = member.stalled(now) >= settings.quantum(&member.terms);
            member.is_throttled
                || others.any(|other| {
                    let by_rank = own_rank(other).cmp(&own_rank(member));
                    is_quiet
                        || is_stalled
                        || by_rank.is_gt()
                        || (by_rank.is_eq()
                            && (member.is_free || (had_turn && by_balance(other, member).is_gt())))
                })
        })
    }

    /// Whether no share that is in no gang stands before it, on any of its GPUs.
    fn is_first(&self, now: u64, settings: &Settings, arbiters: &Arbiters<G, K>) -> bool {
        self.accounts(arbiters).all(|(arbiter, _, member)| {
            let is_behind = |other: &Account| {
                let order =
                    own_rank(member).cmp(&own_rank(other)).then_with(|| by_balance(member, other));
                if other.is_holding() {
                    other.is_free || other.quiet(now) >= settings.idle_after || order.is_gt()
                } else {
                    !arbiter.is_candidate(other) || order.is_ge()
                }
            };
            let mut others = arbiter.shares.values().filter(|it| it.seat.is_none());
            let leaves_time = arbiter.leaves_time_for(member.terms.class);
            !member.is_throttled && leaves_time && others.all(is_behind)
        })
    }

    /// Whether all its GPUs can be cleared now: the holders have had their turns, and none is late.
    fn can_be_called(&self, now: u64, settings: &Settings, arbiters: &Arbiters<G, K>) -> bool {
        self.accounts(arbiters).all(|(arbiter, share, member)| {
            let ends = |other: &Account| match other.phase {
                Phase::Stopped => true,
                Phase::Draining { since } => {
                    other.activity.running == 0
                        || other.is_late(now, settings.window)
                        || now.saturating_sub(since) < settings.gang_deadline
                }
                // The turn of another gang is looked at as a whole.
                Phase::Holding { since, is_filler } => {
                    is_filler
                        || other.seat.is_some()
                        || other.is_free
                        || own_rank(member) > own_rank(other)
                        || other.quiet(now) >= settings.idle_after
                        || now.saturating_sub(since) >= settings.quantum(&other.terms)
                }
            };
            arbiter.shares.iter().all(|(other, account)| other == share || ends(account))
        })
    }

    /// Whether all its GPUs are clear. Beside a late share on one GPU it would spin on all others.
    fn is_clear(&self, settings: &Settings, arbiters: &Arbiters<G, K>) -> bool {
        self.accounts(arbiters)
            .all(|(arbiter, share, _)| arbiter.is_clear_for(share, settings.window))
    }

    /// Finds the members for which work in flight on other GPUs waits, after a turn.
    fn find_awaited(&mut self, now: u64, settings: &Settings, arbiters: &Arbiters<G, K>) {
        let is_stuck = |account: &Account| {
            let Phase::Draining { since } = account.phase else { return false };
            let last = account.last_progress.map_or(since, |last| last.max(since));
            account.activity.running > 0
                && now.saturating_sub(last) >= settings.interval
                && !account.is_late(now, 2 * settings.quantum(&account.terms))
        };
        let has_stuck = self.accounts(arbiters).any(|(_, _, account)| is_stuck(account));
        for (gpu, member) in &mut self.members {
            let account = arbiters.get(gpu).and_then(|it| it.shares.get(&member.share));
            member.is_awaited = has_stuck
                && member.is_at_work
                && member.is_waiting
                && account.is_some_and(|account| !account.is_holding());
        }
    }

    fn seat(&self, member: &Member<K>) -> Seat {
        match self.phase {
            GangPhase::Waits if member.is_awaited => Seat::Awaited,
            GangPhase::Waits => Seat::Waits,
            GangPhase::Called { .. } => Seat::Called,
            GangPhase::Has { .. } => Seat::Has,
        }
    }
}

/// Decides which gangs are called, and whose turns end. The arbiters have taken what their shares do.
pub(crate) fn call<G: Ord + Clone, K: Ord + Clone, C: Ord + Clone>(
    gangs: &mut BTreeMap<C, Gang<G, K>>,
    arbiters: &mut Arbiters<G, K>,
    settings: &Settings,
    now: u64,
) {
    set_seats(gangs, arbiters);
    let mut taken = BTreeSet::new();
    for gang in gangs.values_mut() {
        gang.find_awaited(now, settings, arbiters);
        let is_over = match gang.phase {
            GangPhase::Waits => false,
            GangPhase::Called { since } => now.saturating_sub(since) >= settings.gang_deadline,
            GangPhase::Has { .. } => gang.must_end(now, settings, arbiters),
        };
        if is_over {
            gang.phase = GangPhase::Waits;
        }
        if matches!(gang.phase, GangPhase::Called { .. }) {
            taken.extend(gang.at_work().map(|(gpu, _)| gpu.clone()));
        }
    }
    set_seats(gangs, arbiters);
    let mut waiting: Vec<(Standing<C>, C)> = gangs
        .iter()
        .filter(|(_, gang)| gang.phase == GangPhase::Waits)
        .filter(|(_, gang)| gang.at_work().any(|(_, member)| member.is_waiting))
        .map(|(name, gang)| (gang.standing(name.clone(), arbiters), name.clone()))
        .collect();
    waiting.sort_by(|one, other| other.cmp(one));
    let mut wanted = BTreeSet::new();
    for (standing, name) in waiting {
        let Some(gang) = gangs.get(&name) else { continue };
        let own: BTreeSet<G> = gang.at_work().map(|(gpu, _)| gpu.clone()).collect();
        if !own.is_disjoint(&taken) || !gang.is_first(now, settings, arbiters) {
            continue;
        }
        let rivals: Vec<C> = gangs
            .iter()
            .filter(|(_, rival)| matches!(rival.phase, GangPhase::Has { .. }))
            .filter(|(_, rival)| rival.at_work().any(|(gpu, _)| own.contains(gpu)))
            .map(|(rival, _)| rival.clone())
            .collect();
        let yields = |rival: &C| {
            gangs.get(rival).is_none_or(|it| {
                it.is_quiet(now, settings, arbiters)
                    || it.standing(rival.clone(), arbiters) < standing
            })
        };
        if !rivals.iter().all(yields) {
            continue;
        }
        let is_over = |rival: &C| {
            gangs.get(rival).is_none_or(|it| {
                it.is_quiet(now, settings, arbiters)
                    || it.has_had_turn(now, settings, arbiters)
                    || it.standing(rival.clone(), arbiters).0 < standing.0
            })
        };
        wanted.extend(own.iter().cloned());
        taken.extend(own.iter().cloned());
        if gang.can_be_called(now, settings, arbiters) && rivals.iter().all(is_over) {
            for rival in rivals {
                if let Some(rival) = gangs.get_mut(&rival) {
                    rival.phase = GangPhase::Waits;
                }
            }
            if let Some(gang) = gangs.get_mut(&name) {
                gang.phase = GangPhase::Called { since: now };
            }
        }
    }
    for (gpu, arbiter) in arbiters.iter_mut() {
        arbiter.is_wanted = wanted.contains(gpu);
    }
    set_seats(gangs, arbiters);
}

/// Begins the turns of gangs that were called and whose GPUs are all clear.
pub(crate) fn begin<G: Ord + Clone, K: Ord + Clone, C: Ord>(
    gangs: &mut BTreeMap<C, Gang<G, K>>,
    arbiters: &mut Arbiters<G, K>,
    settings: &Settings,
    now: u64,
) {
    for gang in gangs.values_mut() {
        if !matches!(gang.phase, GangPhase::Called { .. }) || !gang.is_clear(settings, arbiters) {
            continue;
        }
        gang.phase = GangPhase::Has { since: now };
        for (gpu, member) in gang.at_work() {
            let account = arbiters.get_mut(gpu).and_then(|it| it.shares.get_mut(&member.share));
            if let Some(account) = account.filter(|account| !account.is_holding()) {
                account.begin_turn(now, false);
            }
        }
    }
    set_seats(gangs, arbiters);
}

fn set_seats<G: Ord + Clone, K: Ord + Clone, C>(
    gangs: &BTreeMap<C, Gang<G, K>>,
    arbiters: &mut Arbiters<G, K>,
) {
    for gang in gangs.values() {
        for (gpu, member) in &gang.members {
            let account = arbiters.get_mut(gpu).and_then(|it| it.shares.get_mut(&member.share));
            if let Some(account) = account {
                account.seat = member.is_at_work.then(|| gang.seat(member));
            }
        }
    }
}
