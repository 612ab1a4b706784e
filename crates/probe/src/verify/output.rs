//! The report as text or JSON.

use std::fmt::Write as _;

use octavo_term::TextTable;

use super::report::{Check, Numbers, Report, Verdict};
use crate::args::OutputFormat;

/// The report in a form.
pub(super) fn text(report: &Report, form: OutputFormat) -> String {
    match form {
        // Numbers and texts are always JSON.
        OutputFormat::Json => serde_json::to_string_pretty(report).unwrap_or_default() + "\n",
        OutputFormat::Table => table(report),
    }
}

fn table(report: &Report) -> String {
    let mut text = String::new();
    for gpu in &report.gpus {
        let tested = &gpu.gpu;
        let _ = writeln!(text, "GPU {}: {} {}", tested.gpu, tested.name, tested.uuid);
        let mut table = TextTable::new(&["CHECK", "RESULT", "NOTE"]);
        for check in &gpu.checks {
            table.plain([
                check.name.text().to_owned(),
                word(check.verdict).to_owned(),
                note(check),
            ]);
        }
        let _ = writeln!(text, "{}", table.plain_text());
    }
    if let Some(message) = &report.message {
        let _ = writeln!(text, "{message}");
    }
    let bad = report.gpus.iter().filter(|gpu| gpu.verdict != Verdict::Passed).count();
    let (all, seconds) = (report.gpus.len(), report.seconds);
    let _ = match report.verdict {
        Verdict::Passed => writeln!(text, "passed: GPUs tested in {seconds:.0} s: {all}"),
        Verdict::Failed => writeln!(
            text,
            "FAILED: GPUs with faults: {bad} of {all}. Keep them out of service: reset them, and test again"
        ),
        Verdict::NotTried => writeln!(text, "not tried: nothing is known of {bad} GPUs of {all}"),
    };
    text
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "passed",
        Verdict::NotTried => "not tried",
        Verdict::Failed => "FAILED",
    }
}

/// The message of a check, and its numbers in words.
fn note(check: &Check) -> String {
    let numbers = check.numbers.as_ref().map(words);
    let parts: Vec<String> = check.message.clone().into_iter().chain(numbers).collect();
    parts.join("; ")
}

fn words(numbers: &Numbers) -> String {
    match numbers {
        Numbers::Memory(numbers) => {
            let first = numbers.first.as_ref().map_or_else(String::new, |first| {
                let (address, expected, found) = (&first.address, &first.expected, &first.found);
                format!("first at {address}: {expected} was written, {found} was read; ")
            });
            format!(
                "{first}{} MiB of {} MiB with each pattern, patterns: {}, {} written, {} read",
                numbers.covered_bytes >> 20,
                numbers.bytes >> 20,
                numbers.patterns,
                rate(numbers.write_rate),
                rate(numbers.read_rate)
            )
        }
        Numbers::Compute(numbers) => {
            let first = numbers.first.as_ref().map_or_else(String::new, |first| {
                let (unit, expected, found) = (first.multiprocessor, &first.expected, &first.found);
                format!(
                    "first by multiprocessor {unit}: {expected} is right, {found} was computed; "
                )
            });
            format!(
                "{first}{} products by {} multiprocessors, {:.0} Gop/s",
                numbers.products,
                numbers.used_multiprocessors,
                numbers.operation_rate / 1e9
            )
        }
        Numbers::Peers(numbers) => {
            let direct = numbers.peers.iter().filter(|peer| peer.is_direct).count();
            let slowest = numbers.peers.iter().map(|peer| peer.rate).reduce(f64::min);
            let slowest =
                slowest.map_or_else(String::new, |slowest| format!(", slowest {}", rate(slowest)));
            format!("peers: {}, of these direct: {direct}{slowest}", numbers.peers.len())
        }
    }
}

/// Bytes in a second, in GB.
fn rate(by_second: f64) -> String {
    format!("{:.1} GB/s", by_second / 1e9)
}
