//! A model of tenants: random work under the plan, and checks that broken plans do not pass.

use super::*;

/// Numbers that look random (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

const SIZE: u64 = 80;

/// What went wrong.
#[derive(Debug, PartialEq, Eq)]
enum Broken {
    /// The GPU has less memory than its shares.
    Overcommitted,
    /// A share within its request was moved.
    MovedWithin,
    /// A share did not get memory within its request.
    NoRequest,
    /// A share was out for too long while it wanted to return.
    Starved,
}

/// Runs tenants for some minutes. `spoil` may change the plan's moves, or what it believes.
fn run(seed: u64, spoil: impl Fn(&mut GpuMemory, &mut Vec<Move>, &Gpu)) -> Result<u32, Broken> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let count = 2 + random.below(4);
    let request = SIZE / count;
    let names: Vec<String> = (0..count).map(|number| format!("share-{number}")).collect();
    let shares: Vec<_> =
        names.iter().map(|name| (name.as_str(), request, SIZE.min(request * 2), 0)).collect();
    let (mut gpu, mut memory) = Gpu::with(&shares);
    let mut moves_seen = 0;
    let mut waiting = BTreeMap::new();
    for _ in 0..600 {
        // The tenants work.
        for (number, name) in names.iter().enumerate() {
            let is_out = memory.is_suspended(name);
            let granted = gpu.granted.get(name).copied().unwrap_or(0);
            let share = gpu.shares.get_mut(name).expect("a share");
            let chance = random.below(10);
            share.is_active = !is_out && chance > 2;
            share.is_waiting = is_out && chance > 2;
            if is_out {
                continue;
            }
            if let Some(need) = share.need
                && share.used + need <= granted
            {
                share.used += need;
                share.need = None;
            } else if gpu.answered.contains(name) {
                if share.need.is_some_and(|need| share.used + need <= share.request) {
                    return Err(Broken::NoRequest);
                }
                share.need = None;
            }
            let wanted = (1 + random.below(request)) * GIB;
            if share.need.is_none() && chance == 9 && share.used + wanted <= share.limit {
                if share.used + wanted <= granted {
                    share.used += wanted;
                } else {
                    share.need = Some(wanted);
                }
            } else if share.need.is_none() && chance == 3 {
                share.used = share.used.saturating_sub(wanted);
            }
            share.driver = Some(share.used);
            // Of each second one some memory stays on the GPU.
            let staying = share.used.min(share.request / 2);
            share.movable = (number % 2 == 1).then_some(share.used - staying);
        }
        let physical: u64 = gpu.shares.values().map(|share| share.driver.unwrap_or(0)).sum();
        if physical > SIZE * GIB {
            return Err(Broken::Overcommitted);
        }
        let mut moves = gpu.step(&mut memory, 1);
        spoil(&mut memory, &mut moves, &gpu);
        for moved in moves {
            moves_seen += 1;
            match moved {
                Move::Out(name, bytes) => {
                    let share = gpu.share(&name);
                    if share.used <= share.request || bytes != share.leaving() {
                        return Err(Broken::MovedWithin);
                    }
                    share.driver = Some(share.used - bytes);
                    memory.left(&name, gpu.at, true);
                }
                Move::In(name) => {
                    let used = gpu.share(&name).used;
                    gpu.share(&name).driver = Some(used);
                    let present: u64 =
                        gpu.shares.values().map(|share| share.driver.unwrap_or(0)).sum();
                    if present > SIZE * GIB {
                        return Err(Broken::Overcommitted);
                    }
                    memory.returned(&name, gpu.at, true);
                }
            }
        }
        for name in &names {
            let wants = memory.swapped(name) > 0 && gpu.shares[name].is_waiting;
            let since = *waiting.entry(name.clone()).or_insert(gpu.at);
            if memory.swapped(name) == 0 {
                waiting.insert(name.clone(), gpu.at);
            } else if wants && gpu.at.saturating_sub(since) > Duration::from_mins(5) {
                return Err(Broken::Starved);
            }
        }
    }
    Ok(moves_seen)
}

#[test]
fn random_work_overcommits_and_starves_nothing() {
    let mut moves = 0;
    for seed in 1..=200 {
        moves += run(seed, |_, _, _| {}).unwrap_or_else(|broken| panic!("seed {seed}: {broken:?}"));
    }
    assert!(moves > 1_000, "the tenants have not been in each other's way: {moves} moves");
}

#[test]
fn the_same_work_gives_the_same_moves() {
    let moves = || (1..=20).map(|seed| run(seed, |_, _, _| {}).unwrap()).collect::<Vec<_>>();
    assert_eq!(moves(), moves());
}

/// Whether any of some runs fails in a way.
fn fails(broken: &Broken, spoil: impl Fn(&mut GpuMemory, &mut Vec<Move>, &Gpu)) -> bool {
    (1..=50).any(|seed| run(seed, &spoil).is_err_and(|found| found == *broken))
}

#[test]
fn the_checks_find_broken_plans() {
    // One that does not reserve memory before a share returns.
    assert!(fails(&Broken::Overcommitted, |memory, moves, _| {
        let out =
            memory.accounts.iter_mut().filter(|(_, it)| matches!(it.place, Place::Out { .. }));
        for (name, account) in out {
            if let Place::Out { bytes, staying, .. } = account.place {
                account.place = Place::Returning { bytes, staying };
                moves.push(Move::In(name.clone()));
            }
        }
    }));
    // One that moves the share with the most memory.
    assert!(fails(&Broken::MovedWithin, |memory, moves, gpu| {
        for moved in moves {
            if let Move::Out(name, bytes) = moved
                && let Some((other, share)) =
                    gpu.shares.iter().find(|(_, it)| it.used > 0 && it.used <= it.request)
            {
                if let Some(account) = memory.accounts.get_mut(name) {
                    account.place = Place::Resident(gpu.at);
                }
                (*name, *bytes) = (other.clone(), share.used);
            }
        }
    }));
    // One that lets no share return.
    assert!(fails(&Broken::Starved, |memory, moves, gpu| {
        moves.retain(|moved| match moved {
            Move::In(name) => {
                memory.returned(name, gpu.at, false);
                false
            }
            Move::Out(..) => true,
        });
    }));
}
