//! Checks that concurrent processes never get more than their share. Two sources other than the
//! ledger confirm it: the processes' own sums, and the simulated GPU.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use octavo_figure::{Figure, Goal};

use super::Programs;
use super::bed::{CONTEXT_BYTES, Ledger, Observer, Testbed};
use super::client::Client;

const PROCESSES: u64 = 8;
/// Allocations that each of them asks for.
const ALLOCATIONS: u64 = 20_000;
/// Longer than any machine takes.
const RACE_TIMEOUT_SECONDS: u64 = 3_600;
/// Memory of the share: half of what the processes would hold together.
const SHARE_BYTES: u64 = 8 << 30;
/// Pause between two polls of the GPU.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Result of a race.
#[derive(Debug, Default)]
struct Outcome {
    granted: u64,
    refused: u64,
    /// Grants after which the processes held more than the share.
    over: u64,
    /// Peak of the processes' sum.
    highest: u64,
    /// Peak of the GPU's allocation beyond the share.
    beyond: u64,
    looks: u64,
}

/// Races with and without memory enforcement.
pub(super) fn run(programs: &Programs) -> anyhow::Result<Vec<Figure>> {
    let held = race(programs, true)?;
    ensure!(held.refused > 0, "nothing was refused: the processes never reached their limit");
    let bare = race(programs, false)?;
    // A check that cannot fail proves nothing.
    ensure!(
        bare.over > 0 && bare.beyond > 0,
        "without enforcement nothing was granted beyond the share: the check is ineffective"
    );
    let allocations = PROCESSES * ALLOCATIONS;
    let count = |what: &str, value: u64, goal| {
        let what = format!("{what}, {allocations} allocations of {PROCESSES} processes");
        Figure::new(what, "grants", &[number(value)], goal)
    };
    let memory = |what: &str, value: u64, goal| {
        Figure::new(what, "MiB", &[number(value) / 1_048_576.0], goal)
    };
    Ok(vec![
        count("beyond the share, by the processes' sum", held.over, Goal::Exactly(0.0))?,
        count("granted", held.granted, Goal::None)?,
        count("refused", held.refused, Goal::None)?,
        memory("peak use besides contexts", held.highest, Goal::None)?,
        memory(
            &format!("beyond the share at any of {} polls of the GPU", held.looks),
            held.beyond,
            Goal::Exactly(0.0),
        )?,
        count("without enforcement: beyond the share", bare.over, Goal::Above(0.0))?,
        memory(
            &format!("without enforcement: at any of {} polls", bare.looks),
            bare.beyond,
            Goal::Above(0.0),
        )?,
    ])
}

fn race(programs: &Programs, is_enforced: bool) -> anyhow::Result<Outcome> {
    let testbed = Testbed::new(programs)?;
    let share = testbed.share("team", SHARE_BYTES)?;
    let mut clients = Vec::new();
    for _ in 0..PROCESSES {
        clients.push(testbed.client(is_enforced.then_some(&share))?);
    }
    let observer = testbed.chip()?;
    let contexts = PROCESSES * CONTEXT_BYTES;
    let at_rest = Ledger { processes: PROCESSES, bytes: contexts };
    if is_enforced {
        share.expect(at_rest)?;
    }
    // The code of kernels is in no ledger; the GPU counts it separately.
    let code = observer.used().checked_sub(contexts).context("the GPU has fewer contexts")?;
    let is_over = AtomicBool::new(false);
    let (outcome, (most, looks)) = thread::scope(|scope| {
        let watch = scope.spawn(|| watch(&observer, &is_over));
        let outcome = ask(&testbed, &mut clients, contexts);
        is_over.store(true, Relaxed);
        let seen = watch.join().map_err(|_| anyhow::anyhow!("the polling thread panicked"));
        anyhow::Ok((outcome?, seen?))
    })?;
    if is_enforced {
        share.expect(at_rest)?;
    }
    ensure!(observer.used() == contexts + code, "memory was not released");
    Ok(Outcome { beyond: most.saturating_sub(SHARE_BYTES + code), looks, ..outcome })
}

/// Lets all clients run and sums up their results.
fn ask(testbed: &Testbed, clients: &mut [Client], contexts: u64) -> anyhow::Result<Outcome> {
    let sum = testbed.file("sum");
    for (seed, client) in clients.iter_mut().enumerate() {
        let limit = SHARE_BYTES - contexts;
        client.send(&format!(
            "race {ALLOCATIONS} {RACE_TIMEOUT_SECONDS} {seed} {limit} {}",
            sum.display()
        ))?;
    }
    let mut outcome = Outcome::default();
    for client in clients {
        let answer = client.receive_numbers()?;
        let [granted, refused, over, highest] = *answer.as_slice() else {
            anyhow::bail!("a client returned {answer:?} for its race");
        };
        outcome.granted += granted;
        outcome.refused += refused;
        outcome.over += over;
        outcome.highest = outcome.highest.max(highest);
    }
    Ok(outcome)
}

/// Polls the GPU. Returns the peak of its allocation and the number of polls.
fn watch(observer: &Observer, is_over: &AtomicBool) -> (u64, u64) {
    let (mut most, mut looks) = (0, 0);
    while !is_over.load(Relaxed) {
        most = most.max(observer.used());
        looks += 1;
        thread::sleep(POLL_INTERVAL);
    }
    (most, looks)
}

#[expect(clippy::cast_precision_loss, reason = "counts and bytes are far below 2^52")]
fn number(value: u64) -> f64 {
    value as f64
}
