//! Cases by seed: selection, and parallel execution.

use std::ops::Range;

use anyhow::Context as _;

/// The seeds in an environment variable, as in `77..78`; `None` if it is not set.
pub fn chosen(variable: &str) -> anyhow::Result<Option<Range<u64>>> {
    let Ok(text) = std::env::var(variable) else { return Ok(None) };
    let seeds = text.split_once("..").and_then(|(from, to)| {
        let (from, to) = (from.parse().ok()?, to.parse().ok()?);
        (from < to).then_some(from..to)
    });
    seeds.map(Some).with_context(|| format!("{variable} is {text:?}, not a range such as 77..78"))
}

/// Runs `work` on the seeds, divided among all cores.
pub fn in_parallel<T: Send>(
    seeds: Range<u64>,
    work: impl Fn(&mut dyn Iterator<Item = u64>) -> T + Sync,
) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (work, seeds) = (&work, &seeds);
    std::thread::scope(|scope| {
        let start = |thread: usize| {
            // Interleaved, so that hard cases are spread evenly.
            scope.spawn(move || work(&mut seeds.clone().skip(thread).step_by(threads)))
        };
        let started: Vec<_> = (0..threads).map(start).collect();
        let ended = started.into_iter().map(std::thread::ScopedJoinHandle::join);
        ended.map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}
