//! Whether processes that ask at the same time are ever granted more than their share, told by two who do not
//! ask the ledger: the processes' own sum of what they hold, and the chip.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::Programs;
use super::bed::{Bed, CONTEXT_BYTES, Ledger, Observer};
use super::client::Client;
use crate::figure::{Figure, Goal};

const PROCESSES: u64 = 8;
/// Allocations that each of them asks for.
const WISHES: u64 = 20_000;
/// Longer than any machine takes.
const SECONDS: u64 = 3_600;
/// Memory of the share: half of what they would hold together.
const MEMORY: u64 = 8 << 30;
/// How long the chip is left alone between two looks.
const LOOK: Duration = Duration::from_micros(200);

/// What came of a race.
#[derive(Debug, Default)]
struct Outcome {
    granted: u64,
    refused: u64,
    /// Grants after which the processes held more than the share.
    over: u64,
    /// The most that they held.
    highest: u64,
    /// The most that the chip had given out beyond the share.
    beyond: u64,
    looks: u64,
}

/// Races behind a wall and without one.
pub(super) fn run(programs: &Programs) -> anyhow::Result<Vec<Figure>> {
    let held = race(programs, true)?;
    ensure!(held.refused > 0, "nothing was refused: the processes never met their wall");
    let bare = race(programs, false)?;
    // A check that cannot fail shows nothing.
    ensure!(
        bare.over > 0 && bare.beyond > 0,
        "without a wall nothing was granted beyond the share: the check sees nothing"
    );
    let wishes = PROCESSES * WISHES;
    let count = |what: &str, value: u64, goal| {
        let what = format!("{what}, {wishes} wishes of {PROCESSES} processes");
        Figure::new(what, "grants", &[number(value)], goal)
    };
    let memory = |what: &str, value: u64, goal| {
        Figure::new(what, "MiB", &[number(value) / 1_048_576.0], goal)
    };
    Ok(vec![
        count("beyond the share, by the processes' sum", held.over, Goal::Exactly(0.0))?,
        count("granted", held.granted, Goal::None)?,
        count("refused", held.refused, Goal::None)?,
        memory("the most that they held beside contexts", held.highest, Goal::None)?,
        memory(
            &format!("beyond the share at any of {} looks at the chip", held.looks),
            held.beyond,
            Goal::Exactly(0.0),
        )?,
        count("the same without a wall: beyond the share", bare.over, Goal::Above(0.0))?,
        memory(
            &format!("the same without a wall: at any of {} looks", bare.looks),
            bare.beyond,
            Goal::Above(0.0),
        )?,
    ])
}

fn race(programs: &Programs, has_wall: bool) -> anyhow::Result<Outcome> {
    let bed = Bed::new(programs)?;
    let share = bed.share("team", MEMORY)?;
    let mut clients = Vec::new();
    for _ in 0..PROCESSES {
        clients.push(bed.client(has_wall.then_some(&share))?);
    }
    let observer = bed.chip()?;
    let contexts = PROCESSES * CONTEXT_BYTES;
    let at_rest = Ledger { processes: PROCESSES, bytes: contexts };
    if has_wall {
        share.expect(at_rest)?;
    }
    // Code of kernels is in no ledger: the chip has it beside.
    let code = observer.used().checked_sub(contexts).context("the chip has fewer contexts")?;
    let is_over = AtomicBool::new(false);
    let (outcome, (most, looks)) = thread::scope(|scope| {
        let watch = scope.spawn(|| watch(&observer, &is_over));
        let outcome = ask(&bed, &mut clients, contexts);
        is_over.store(true, Relaxed);
        let seen = watch.join().map_err(|_| anyhow::anyhow!("nobody watched the chip"));
        anyhow::Ok((outcome?, seen?))
    })?;
    if has_wall {
        share.expect(at_rest)?;
    }
    ensure!(observer.used() == contexts + code, "memory was not given back");
    Ok(Outcome { beyond: most.saturating_sub(MEMORY + code), looks, ..outcome })
}

/// Lets all clients run and adds up what they say.
fn ask(bed: &Bed, clients: &mut [Client], contexts: u64) -> anyhow::Result<Outcome> {
    let sum = bed.file("sum");
    for (seed, client) in clients.iter_mut().enumerate() {
        let limit = MEMORY - contexts;
        client.tell(&format!("race {WISHES} {SECONDS} {seed} {limit} {}", sum.display()))?;
    }
    let mut outcome = Outcome::default();
    for client in clients {
        let answer = client.numbers()?;
        let [granted, refused, over, highest] = *answer.as_slice() else {
            anyhow::bail!("a client told of its race {answer:?}");
        };
        outcome.granted += granted;
        outcome.refused += refused;
        outcome.over += over;
        outcome.highest = outcome.highest.max(highest);
    }
    Ok(outcome)
}

/// The most that the chip has given out at a look, and the number of looks.
fn watch(observer: &Observer, is_over: &AtomicBool) -> (u64, u64) {
    let (mut most, mut looks) = (0, 0);
    while !is_over.load(Relaxed) {
        most = most.max(observer.used());
        looks += 1;
        thread::sleep(LOOK);
    }
    (most, looks)
}

#[expect(clippy::cast_precision_loss, reason = "counts and bytes are far below 2^52")]
fn number(value: u64) -> f64 {
    value as f64
}
