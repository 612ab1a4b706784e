use std::vec::Vec;

use super::*;

/// A thread that launches or trims.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    step: Step,
    /// Bytes that the launch needs; 0 for a trim.
    wanted: u64,
    epoch: u64,
    idle: u64,
    claimed: u64,
    advance: u64,
    ticket: u64,
    size: u64,
    is_relied_on: bool,
}

/// Next step of a thread.
#[derive(Clone, Copy, Debug, Default)]
enum Step {
    #[default]
    Begin,
    Ask,
    Claim,
    Launch,
    Launched,
    Trim,
    Trimmed,
    AskSize,
    LookForClaims,
    Settle,
    LookAgain,
}

/// Driver, reserve and claims of one GPU.
struct World {
    claims: Entry,
    reserved: u64,
    used: u64,
    counted: u64,
    advanced: u64,
    tickets: u64,
    latest: u64,
}

fn random(state: &mut u64, end: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % end
}

impl World {
    fn step(&mut self, thread: &mut Thread, random: u64) {
        thread.step = match thread.step {
            Step::Begin if random.is_multiple_of(4) => {
                begin_trim(&mut self.claims);
                *thread = Thread::default();
                Step::Trim
            }
            Step::Begin => {
                let epoch = self.claims.extra[EPOCH_WORD];
                *thread = Thread { wanted: 1 + random % 100, epoch, ..Thread::default() };
                Step::Ask
            }
            Step::Ask => {
                thread.idle = self.reserved - self.used;
                Step::Claim
            }
            Step::Claim => {
                let Thread { wanted, epoch, idle, .. } = *thread;
                thread.claimed = try_grant(&mut self.claims, epoch, wanted, idle).unwrap_or(0);
                thread.advance = wanted - thread.claimed;
                self.advanced += thread.advance;
                Step::Launch
            }
            Step::Launch => {
                self.used += thread.wanted;
                self.reserved = self.reserved.max(self.used);
                Step::Launched
            }
            Step::Launched => {
                // The launch has run.
                self.used -= thread.wanted;
                if thread.claimed == 0 {
                    record_end(&mut self.claims, 0);
                }
                Step::AskSize
            }
            Step::Trim => {
                self.reserved = self.used;
                Step::Trimmed
            }
            Step::Trimmed => {
                end_trim(&mut self.claims);
                Step::AskSize
            }
            Step::AskSize => {
                self.tickets += 1;
                (thread.ticket, thread.size) = (self.tickets, self.reserved);
                Step::LookForClaims
            }
            Step::LookForClaims => {
                thread.is_relied_on = self.claims.extra[CLAIMED_WORD] > 0;
                Step::Settle
            }
            Step::Settle => self.settle(thread),
            Step::LookAgain if self.claims.extra[CLAIMED_WORD] == 0 => Step::AskSize,
            Step::LookAgain => Step::Begin,
        };
    }

    fn settle(&mut self, thread: &mut Thread) -> Step {
        let is_latest = self.latest <= thread.ticket;
        self.latest = self.latest.max(thread.ticket);
        self.advanced -= thread.advance;
        if thread.is_relied_on {
            let seen = if is_latest { thread.size } else { 0 };
            self.counted = seen.max(self.counted + thread.advance);
        } else if is_latest {
            self.counted = thread.size;
        }
        thread.advance = 0;
        if thread.claimed > 0 {
            record_end(&mut self.claims, thread.claimed);
            thread.claimed = 0;
            return Step::AskSize;
        }
        if thread.is_relied_on { Step::LookAgain } else { Step::Begin }
    }
}

#[test]
fn concurrent_launches_and_trims_never_exceed_the_charge() {
    for seed in 0..3000 {
        let mut state = seed;
        let claims = Entry { charge: Charge::NONE, context: 0, extra: [0; 2] };
        let (reserved, used, counted, advanced, tickets, latest) = (0, 0, 0, 0, 0, 0);
        let mut world = World { claims, reserved, used, counted, advanced, tickets, latest };
        let mut threads: Vec<Thread> = (0..4).map(|_| Thread::default()).collect();
        for round in 0..600 {
            let place = usize::try_from(random(&mut state, 4)).expect("small");
            // In the end, finished threads do not start again.
            if round >= 500 && matches!(threads[place].step, Step::Begin) {
                continue;
            }
            world.step(&mut threads[place], random(&mut state, 1 << 20));
            let World { counted, advanced, reserved, .. } = world;
            assert!(
                counted + advanced >= reserved,
                "seed {seed}, round {round}: {counted} and {advanced} of {reserved}"
            );
        }
        for thread in &mut threads {
            while !matches!(thread.step, Step::Begin) {
                world.step(thread, 1);
            }
        }
        assert_eq!((world.counted, world.advanced), (world.reserved, 0), "seed {seed}");
        assert_eq!(world.claims.extra[CLAIMED_WORD], 0);
    }
}

#[test]
fn bytes_are_claimed_once() {
    let mut entry = Entry { charge: Charge::NONE, context: 0, extra: [0; 2] };
    assert_eq!(try_grant(&mut entry, 0, 80, 100), Some(80));
    assert_eq!(try_grant(&mut entry, 0, 80, 100), Some(20));
    record_end(&mut entry, 80);
    // That report may be outdated.
    assert_eq!(try_grant(&mut entry, 0, 80, 100), None);
    let epoch = entry.extra[EPOCH_WORD];
    begin_trim(&mut entry);
    assert_eq!(try_grant(&mut entry, epoch, 80, 100), None);
    assert_eq!(try_grant(&mut { entry }, entry.extra[EPOCH_WORD], 80, 100), None);
    end_trim(&mut entry);
    assert_eq!(try_grant(&mut { entry }, entry.extra[EPOCH_WORD], 80, 100), Some(80));
}
