//! Time that memory enforcement adds to a call. Three clients of one GPU are measured in turn,
//! batch by batch, so that disturbances of the machine affect all of them. Batches are shorter than
//! a scheduler time slice. The median of several batches is used, since other processes run on the
//! machine too.

use anyhow::ensure;
use octavo_figure::{Figure, Goal, percentile};

use super::Programs;
use super::bed::{CONTEXT_BYTES, Ledger, Testbed};
use super::client::Client;

/// Processes of the large share.
const PROCESSES: u64 = 100;
/// Memory that each of them holds.
const HELD_BYTES: u64 = 64 << 20;
/// Memory of both shares: enough for the held and the measured memory.
const SHARE_BYTES: u64 = 16 << 30;
/// Size of the allocation that is measured.
const PAIR_BYTES: u64 = 2 << 20;
/// Samples of each call and client, after one that is thrown away, and batches of a sample.
pub(crate) const SAMPLES: usize = 21;
const BATCHES: usize = 15;

/// A measured call: its name, the client's command, calls per batch, and the goals for the added
/// time in a share of one process and of many.
const CALLS: [(&str, &str, u32, [Goal; 2]); 4] = [
    ("cuLaunchKernel", "launch", 2_000, [Goal::Below(10.0), Goal::Below(10.0)]),
    ("cuMemAlloc and cuMemFree", "pair", 1_000, [Goal::None, Goal::Below(200.0)]),
    ("cuMemAllocAsync and cuMemFreeAsync", "async", 1_000, [Goal::None, Goal::None]),
    // After the pools gave their memory back: it settles what is charged for them.
    ("cuMemGetInfo", "question", 200, [Goal::None, Goal::None]),
];

/// Measures all calls.
pub(super) fn run(programs: &Programs) -> anyhow::Result<Vec<Figure>> {
    let testbed = Testbed::new(programs)?;
    let (small, large) =
        (testbed.share("small", SHARE_BYTES)?, testbed.share("large", SHARE_BYTES)?);
    let mut other_clients = Vec::new();
    for _ in 1..PROCESSES {
        // The simulated driver scans all processes of its GPU on each request for memory, which is
        // slow.
        let mut other = testbed.client_on_twin(&large)?;
        other.done(&format!("take {HELD_BYTES}"))?;
        other_clients.push(other);
    }
    let mut clients = [
        testbed.client_in_place(None)?,
        testbed.client_in_place(Some(&small))?,
        testbed.client_in_place(Some(&large))?,
    ];
    // Correctness before speed: all memory is counted, and counted once.
    for client in &mut clients {
        client.done(&format!("take {HELD_BYTES}"))?;
    }
    small.expect(Ledger { processes: 1, bytes: CONTEXT_BYTES + HELD_BYTES })?;
    let all = PROCESSES * (CONTEXT_BYTES + HELD_BYTES);
    large.expect(Ledger { processes: PROCESSES, bytes: all })?;
    let total = |client: &mut Client| client.ask("memory").map(|answer| answer.get(1).copied());
    let [bare, one, many] = &mut clients;
    ensure!(total(bare)? > Some(SHARE_BYTES), "the driver without enforcement shows a share");
    ensure!(total(one)? == Some(SHARE_BYTES), "a share does not show its own size");
    ensure!(total(many)? == Some(SHARE_BYTES), "a share does not show its own size");
    let beyond = many.ask(&format!("take {}", SHARE_BYTES - all + 1))?;
    ensure!(
        beyond == [2],
        "one byte beyond the share's free memory: the driver returned {beyond:?}"
    );

    let mut figures = Vec::new();
    for (call, command, count, goals) in CALLS {
        let line = if matches!(command, "pair" | "async") {
            format!("{command} {count} {PAIR_BYTES}")
        } else {
            format!("{command} {count}")
        };
        figures.extend(measure(call, &line, count, goals, &mut clients)?);
    }
    small.expect(Ledger { processes: 1, bytes: CONTEXT_BYTES + HELD_BYTES })?;
    large.expect(Ledger { processes: PROCESSES, bytes: all })?;
    Ok(figures)
}

/// One call: its cost without enforcement, and the time that either share adds.
fn measure(
    call: &str,
    line: &str,
    count: u32,
    goals: [Goal; 2],
    clients: &mut [Client; 3],
) -> anyhow::Result<Vec<Figure>> {
    let mut times = [const { Vec::new() }; 3];
    for sample in 0..=SAMPLES {
        let middle = middle(line, count, clients)?;
        if sample > 0 {
            for (times, time) in times.iter_mut().zip(middle) {
                times.push(time);
            }
        }
    }
    let [bare, one, many] = &times;
    let added = |times: &[f64]| -> Vec<f64> {
        times.iter().zip(bare).map(|(time, bare)| time - bare).collect()
    };
    let [one_goal, many_goal] = goals;
    Ok(vec![
        Figure::new(format!("{call}, simulated driver alone"), "ns", bare, Goal::None)?,
        Figure::new(
            format!("{call}, added by memory enforcement, 1 process"),
            "ns",
            &added(one),
            one_goal,
        )?,
        Figure::new(
            format!("{call}, added by memory enforcement, {PROCESSES} processes"),
            "ns",
            &added(many),
            many_goal,
        )?,
    ])
}

/// The time of a call for each client: the median of several batches, in nanoseconds.
pub(crate) fn middle<const N: usize>(
    line: &str,
    count: u32,
    clients: &mut [Client; N],
) -> anyhow::Result<[f64; N]> {
    let mut batches = [const { Vec::new() }; N];
    for batch in 0..BATCHES {
        for turn in 0..clients.len() {
            let index = (batch + turn) % clients.len();
            if let (Some(client), Some(batches)) = (clients.get_mut(index), batches.get_mut(index))
            {
                batches.push(nanoseconds(&client.ask(line)?) / f64::from(count));
            }
        }
    }
    Ok(batches.map(|mut batches| {
        batches.sort_by(f64::total_cmp);
        percentile(&batches, 50.0).unwrap_or(0.0)
    }))
}

#[expect(clippy::cast_precision_loss, reason = "a batch takes far less than 2^52 nanoseconds")]
fn nanoseconds(answer: &[u64]) -> f64 {
    answer.first().copied().unwrap_or(0) as f64
}
