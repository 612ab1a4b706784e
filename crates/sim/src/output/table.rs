//! Tables for terminals: columns, no borders, one line a row.

use std::fmt::Write as _;

use octavo_term::TextTable;

use super::{Report, Summary};
use crate::replay::Run;

/// Characters of a hash that are shown.
const HASH_CHARS: usize = 12;

pub(super) fn draw(report: &Report<'_>) -> String {
    let mut text = heading(report);
    let mut header = vec![
        "POLICY",
        "SEED",
        "ALLOCATED%",
        "FIRST-SKIP%",
        "AT-90%",
        "MULTI%",
        "IDLE",
        "UNUSED",
        "FRAG%",
        "P50-US",
        "P99-US",
        "HASH",
        "VALID",
    ];
    if report.departures {
        header.splice(3..3, ["GIVEN%", "MEAN%"]);
    }
    let runs = report.runs.iter().map(|run| run_row(run, report.departures));
    text.push_str(&grid(&header, runs, 2));
    text.push('\n');
    let mut header = vec!["POLICY", "RUNS", "ALLOCATED%", "SD", "FIRST-SKIP%", "AT-90%", "MULTI%"];
    if report.departures {
        header.extend(["GIVEN%", "SD"]);
    } else {
        header.extend(["BY-TABLE%", "PUBLISHED%", "DIFFERENCE"]);
    }
    let rows = report.policies.iter().map(|summary| summary_row(summary, report.departures));
    text.push_str(&grid(&header, rows, 1));
    for run in report.runs.iter().filter(|run| !run.valid) {
        let violation = run.violation.as_deref().unwrap_or_default();
        let _ = writeln!(text, "not valid: {} with seed {}: {violation}", run.policy, run.seed);
    }
    text
}

fn heading(report: &Report<'_>) -> String {
    let Some(run) = report.runs.first() else { return String::new() };
    let metrics = &run.metrics;
    let mut text = format!("{} nodes, {} GPUs; ", metrics.nodes, metrics.gpus);
    let _ = write!(text, "{} pods", metrics.pods);
    if report.runs.iter().any(|other| other.metrics.pods != metrics.pods) {
        text.push_str(", and about as many with other seeds");
    }
    let _ = write!(text, ", {}", report.order);
    if let Some(inflate) = report.inflate {
        // 130 and not 130.00.
        let percent = (inflate * 10_000.0).round() / 100.0;
        let _ = write!(text, ", tuned to {percent} % demand");
    }
    if report.departures {
        text.push_str(", leaving at their times; skipped pods are lost and never wait");
    }
    text.push_str("\n\n");
    text
}

fn run_row(run: &Run, departures: bool) -> Vec<String> {
    let metrics = &run.metrics;
    let mut row = vec![
        label(run.policy.name(), run.popularity),
        run.seed.to_string(),
        percent(Some(metrics.allocated_ratio)),
    ];
    if departures {
        let sums = metrics.over_time;
        row.push(percent(sums.and_then(|sums| sums.given_ratio)));
        row.push(percent(sums.and_then(|sums| sums.allocated_ratio_mean)));
    }
    row.extend([
        percent(metrics.first_skip),
        percent(metrics.allocated_at_0_9),
        percent(metrics.accepted_multi_gpu),
        format!("{:.1}", metrics.idle_gpus),
        metrics.unused_gpus.to_string(),
        percent(Some(metrics.fragmentation.ratio)),
        format!("{:.1}", run.times.decision_us_p50),
        format!("{:.1}", run.times.decision_us_p99),
        run.placement_hash.chars().take(HASH_CHARS).collect(),
        if run.valid { "yes" } else { "NO" }.to_owned(),
    ]);
    row
}

fn summary_row(summary: &Summary, departures: bool) -> Vec<String> {
    let mean = |name| summary.figure(name).map(|spread| spread.mean);
    let sd = |name| summary.figure(name).map(|spread| spread.sd);
    let mut row = vec![
        label(summary.policy.name(), summary.popularity),
        summary.runs.to_string(),
        percent(mean("allocated_ratio")),
        percent(sd("allocated_ratio")),
        percent(mean("first_skip")),
        percent(mean("allocated_at_0_9")),
        percent(mean("accepted_multi_gpu")),
    ];
    if departures {
        row.extend([percent(mean("given_ratio")), percent(sd("given_ratio"))]);
    } else {
        let by_table = mean("allocated_ratio_published");
        let difference = by_table.zip(summary.published).map(|(ours, theirs)| ours - theirs);
        row.extend([
            percent(by_table),
            percent(summary.published),
            difference.map_or_else(dash, |part| format!("{:+.2}", part * 100.0)),
        ]);
    }
    row
}

fn label(policy: &str, popularity: Option<crate::replay::Popularity>) -> String {
    // Only Octavo's policy can run with and without known popularity.
    match popularity {
        Some(crate::replay::Popularity::Known) if policy == "octavo" => "octavo (known)".to_owned(),
        _ => policy.to_owned(),
    }
}

fn percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(dash, |ratio| format!("{:.2}", ratio * 100.0))
}

fn dash() -> String {
    "-".to_owned()
}

/// Columns from `numbers` on are numeric and right-aligned.
fn grid(
    header: &[&'static str],
    rows: impl Iterator<Item = Vec<String>>,
    numbers: usize,
) -> String {
    let mut table = TextTable::new(header).align_right(numbers..header.len());
    for row in rows {
        table.plain(row);
    }
    table.plain_text()
}
