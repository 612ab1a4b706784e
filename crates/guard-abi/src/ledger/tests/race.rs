//! Concurrent processes, in every order that a scheduler generates, killed at any step.

mod model;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;

use shuttle::rand::{Rng, thread_rng};
use shuttle::{check_dfs, check_pct, check_random, thread};

use self::model::{Process, Share, check_then_add, claim_slot_unannounced, reap_without_lock};
use super::super::*;

const LIMIT: u64 = 10;

/// Runs a test in random orders, and in orders of few but far-reaching preemptions.
fn explore(test: impl Fn() + Clone + Send + Sync + 'static) {
    check_random(test.clone(), 1500);
    check_pct(test, 1500, 3);
}

/// The failure of a test that is wrong on purpose.
fn failure(test: impl Fn() + Clone + Send + Sync + 'static) -> String {
    let failed =
        catch_unwind(AssertUnwindSafe(|| explore(test))).expect_err("it was not found out");
    *failed.downcast::<String>().expect("a message")
}

/// Waits for the end of all threads.
fn join_all<T>(threads: impl IntoIterator<Item = thread::JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// A process that charges and releases, partly at random.
fn run_randomly(process: &Process, turns: usize) {
    let Some(slot) = process.claim_slot() else { return };
    for _ in 0..turns {
        let bytes = thread_rng().gen_range(1..=8);
        if process.allocate(slot, bytes).is_ok() && thread_rng().gen_bool(0.6) {
            process.free(slot, bytes);
        }
    }
}

#[test]
fn a_share_is_never_over_granted() {
    explore(|| {
        let share = Share::new(4, LIMIT, thread_rng().gen_range(0..3));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let process = share.process();
                thread::spawn(move || run_randomly(&process, 3))
            })
            .collect();
        join_all(threads);
    });
}

#[test]
fn two_concurrent_charges_never_exceed_the_limit() {
    check_dfs(
        || {
            let share = Share::new(2, LIMIT, 0);
            let processes = [share.process(), share.process()].map(|process| {
                let slot = process.claim_slot().unwrap();
                (process, slot)
            });
            let threads = processes.map(|(process, slot)| {
                // One attempt each: the orders of more are too many.
                thread::spawn(move || process.try_charge_once(slot, 6))
            });
            let granted = threads.map(|thread| thread.join().unwrap());
            assert!(granted.iter().filter(|granted| **granted).count() <= 1);
        },
        None,
    );
}

#[test]
fn the_model_finds_a_check_then_act_race() {
    let failure = failure(|| {
        let share = Share::new(4, LIMIT, 0);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let process = share.process();
                thread::spawn(move || {
                    let slot = process.claim_slot().unwrap();
                    if check_then_add(&process, slot, 6) {
                        process.record_allocation(6);
                    }
                })
            })
            .collect();
        join_all(threads);
    });
    assert!(failure.contains("over-granted"), "{failure}");
}

#[test]
fn the_model_finds_a_slot_announced_too_late() {
    let failure = failure(|| {
        let share = Share::new(4, LIMIT, 0);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let process = share.process();
                thread::spawn(move || {
                    if claim_slot_unannounced(&process, 6) {
                        process.record_allocation(6);
                    }
                })
            })
            .collect();
        join_all(threads);
    });
    assert!(failure.contains("over-granted"), "{failure}");
}

/// Kills a process at some step, beside one that charges and releases; then the whole share must be
/// free.
fn killed(steps: u64) {
    let share = Share::new(3, LIMIT, 0);
    let victim = share.process_killed_after(steps);
    let other = share.process();
    let victim = thread::spawn(move || run_randomly(&victim, 3));
    let other = thread::spawn(move || {
        let slot = other.claim_slot().unwrap();
        for bytes in [7, 4] {
            if other.allocate(slot, bytes).is_ok() {
                other.free(slot, bytes);
            }
        }
        (other, slot)
    });
    let (other, slot) = other.join().unwrap();
    victim.join().unwrap();
    share.kill_all_but(&other);
    assert_eq!(other.allocate(slot, LIMIT), Ok(()), "killed after {steps} steps");
    other.free(slot, LIMIT);
    share.kill_all();
    // Also for a process that starts afterwards.
    let new_process = share.process();
    let slot = new_process.claim_slot().unwrap();
    assert_eq!(new_process.allocate(slot, LIMIT), Ok(()), "killed after {steps} steps");
}

#[test]
fn a_process_that_is_killed_at_any_step_leaves_nothing() {
    // More steps than it needs: in the last runs the process ends by itself.
    for steps in 0..48 {
        check_random(move || killed(steps), 50);
        check_pct(move || killed(steps), 50, 3);
    }
}

#[test]
fn a_reaper_that_is_killed_at_any_step_leaves_nothing() {
    explore(|| {
        let share = Share::new(4, LIMIT, 0);
        let dead = share.process();
        let slot = dead.claim_slot().unwrap();
        dead.allocate(slot, 6).unwrap();
        let survivor = share.process();
        let survivors_slot = survivor.claim_slot().unwrap();
        dead.kill();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let reaper = share.process_killed_after(thread_rng().gen_range(4..20));
                thread::spawn(move || {
                    if let Some(slot) = reaper.claim_slot() {
                        reaper.reap(slot);
                    }
                })
            })
            .collect();
        join_all(threads);
        share.kill_all_but(&survivor);
        assert_eq!(survivor.allocate(survivors_slot, LIMIT), Ok(()));
    });
}

/// A process has died with most of the share. Two others reap dead slots; two new ones may claim
/// its slot at that moment.
fn reap_beside_new_processes(reap: fn(&Process, usize)) {
    let share = Share::new(6, LIMIT, 0);
    let dead = share.process();
    let slot = dead.claim_slot().unwrap();
    dead.allocate(slot, 8).unwrap();
    let living: Vec<_> = (0..2)
        .map(|_| {
            let process = share.process();
            let slot = process.claim_slot().unwrap();
            process.allocate(slot, 1).unwrap();
            (process, slot)
        })
        .collect();
    dead.kill();
    let reapers: Vec<_> = living
        .into_iter()
        .map(|(process, slot)| {
            thread::spawn(move || {
                reap(&process, slot);
                (process, slot)
            })
        })
        .collect();
    let new_processes: Vec<_> = (0..2)
        .map(|_| {
            let process = share.process();
            thread::spawn(move || {
                let slot = process.claim_slot().unwrap();
                let _ = process.allocate(slot, 2);
                (process, slot)
            })
        })
        .collect();
    let processes = join_all(reapers.into_iter().chain(new_processes));
    for (process, slot) in &processes {
        assert_eq!(share.used(*slot), process.held(), "a charge was lost");
    }
    let (process, slot) = &processes[0];
    process.reap(*slot);
    assert_eq!(total(process), share.held(), "something is left of the dead");
}

#[test]
fn racing_reapers_and_new_processes_lose_no_charge() {
    explore(|| reap_beside_new_processes(Process::reap));
}

#[test]
fn the_model_finds_a_reaper_without_the_lock() {
    let failure = failure(|| reap_beside_new_processes(reap_without_lock));
    assert!(failure.contains("a charge was lost"), "{failure}");
}

#[test]
fn a_charge_beside_a_release_succeeds_or_had_no_space() {
    explore(|| {
        let share = Share::new(3, LIMIT, 0);
        let holder = share.process();
        let holders_slot = holder.claim_slot().unwrap();
        holder.allocate(holders_slot, 8).unwrap();
        let asker = share.process();
        let slot = asker.claim_slot().unwrap();
        let holder = Arc::new(holder);
        let releasing = Arc::clone(&holder);
        let release = thread::spawn(move || releasing.free(holders_slot, 8));
        // There is space at the latest when the other process has ended.
        let mut release = Some(release);
        let granted = asker.allocate_with(slot, 6, |_| {
            if let Some(release) = release.take_if(|_| thread_rng().gen_bool(0.5)) {
                release.join().unwrap();
            }
        });
        match granted {
            Ok(()) => assert_eq!(asker.held(), 6),
            Err(refused) => {
                assert!(release.is_some(), "there was room before the last try");
                assert_eq!(refused.used, 8, "what it was refused for");
            }
        }
    });
}

#[test]
fn two_refused_racers_saw_each_other_and_one_alone_succeeds() {
    explore(|| {
        let share = Share::new(3, LIMIT, 0);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let process = share.process();
                thread::spawn(move || {
                    let slot = process.claim_slot().unwrap();
                    let granted = process.allocate(slot, 6);
                    if let Err(refused) = granted {
                        assert_eq!(refused.used, 6, "the charge of the other");
                    }
                    (process, slot, granted)
                })
            })
            .collect();
        let racers = join_all(threads);
        let (process, slot, granted) = &racers[0];
        if racers.iter().all(|(.., granted)| granted.is_err()) {
            assert_eq!(process.allocate(*slot, 6), Ok(()));
        } else if granted.is_err() {
            assert_eq!(process.allocate(*slot, 6), Err(LimitExceeded { used: 6 }));
        }
    });
}
