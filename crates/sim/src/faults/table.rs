//! Reports as text: columns, one line a row.

use std::fmt::Write as _;

use octavo_term::TextTable;

use super::args::{RunReport, SweepReport};
use super::policy::Policy;
use super::published::Reproduction;
use super::study::{Length, Study};
use super::summary::Summary;
use super::sweep::{Cell, CellResult};
use crate::metrics::summary::Spread;

/// Each policy of a run.
pub(super) fn run(report: &RunReport<'_>) -> String {
    let mut table = TextTable::new(&[
        "POLICY",
        "ETTR%",
        "SD",
        "LOST-GPU-H",
        "SD",
        "HOURS",
        "SD",
        "FAILURES",
        "SWAPS",
        "REQUEUES",
        "WAITS",
        "FETCHED",
        "RETIRED",
        "UNFINISHED",
    ])
    .align_right(1..14);
    for summary in report.policies {
        table.plain(row(summary));
    }
    format!("{}\n\n{}", heading(report.study, report.seeds), table.plain_text())
}

/// The best policy of each cell, then the cells in which it is not Octavo's.
pub(super) fn sweep(report: &SweepReport<'_>) -> String {
    let mut table = TextTable::new(&[
        "LEMONS",
        "FACTOR",
        "SPARES",
        "ALARMS",
        "BLAME%",
        "BEST",
        "ETTR%",
        "LOST-GPU-H",
        "SD",
        "OCTAVO-ETTR%",
        "OCTAVO-GPU-H",
        "SD",
        "REQUEUE-GPU-H",
        "ORACLE-GPU-H",
    ])
    .align_right((0..5).chain(6..14));
    for result in report.cells {
        table.plain(cell_row(result));
    }
    let mut text = format!("{}\n\n{}\n", heading(report.study, report.seeds), table.plain_text());
    let others: Vec<String> = report.cells.iter().filter_map(not_best).collect();
    let has_octavo = report.cells.iter().any(|result| find(result, Policy::Octavo).is_some());
    if has_octavo {
        let (others, cells) = (others.len(), report.cells.len());
        let _ = writeln!(text, "octavo is best in {} of {cells} cells", cells - others);
    }
    for line in others {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Published figures beside the simulator's.
pub(super) fn reproduction(figures: &[Reproduction]) -> String {
    let mut table = TextTable::new(&[
        "FIGURE",
        "POLICY",
        "PUBLISHED",
        "FOUND",
        "SD",
        "RUNS",
        "DIFFERENCE",
        "ALLOWED",
        "REPRODUCED",
    ])
    .align_right(2..8);
    for figure in figures {
        let digits = if figure.published < 10.0 { 3 } else { 1 };
        table.plain([
            figure.name.to_owned(),
            figure.policy.to_string(),
            format!("{:.digits$}", figure.published),
            format!("{:.digits$}", figure.found.mean),
            format!("{:.digits$}", figure.found.sd),
            figure.found.runs.to_string(),
            format!("{:+.digits$}", figure.found.mean - figure.published),
            format!("{:.digits$}", figure.allowed),
            if figure.is_reproduced { "yes" } else { "NO" }.to_owned(),
        ]);
    }
    table.plain_text()
}

/// The study in a line.
pub(super) fn heading(study: &Study, seeds: &[i64]) -> String {
    let length = match study.job.length {
        Length::Computing(span) => format!("{span} of computing"),
        Length::Elapsed(span) => span.to_string(),
    };
    format!(
        "a job on {} of {} servers with {} GPUs each, {} spares, {length}; {} seeds",
        study.job.servers,
        study.fleet.servers,
        study.fleet.gpus_per_server,
        study.fleet.spares,
        seeds.len(),
    )
}

/// The values of a cell in words.
pub(super) fn cell_name(cell: &Cell) -> String {
    format!(
        "lemons {} x {}, {} spares, {} false alarms a day, wrong blame {}",
        cell.lemons.share, cell.lemons.factor, cell.spares, cell.false_alarms, cell.wrong_blame,
    )
}

fn row(summary: &Summary) -> Vec<String> {
    let whole = |spread: Spread| format!("{:.0}", spread.mean);
    vec![
        summary.policy.to_string(),
        percent(summary.ettr.mean),
        percent(summary.ettr.sd),
        whole(summary.lost_gpu_hours),
        format!("{:.0}", summary.lost_gpu_hours.sd),
        format!("{:.1}", summary.hours.mean),
        format!("{:.1}", summary.hours.sd),
        whole(summary.failures),
        whole(summary.swaps),
        whole(summary.requeues),
        whole(summary.waits),
        whole(summary.fetched),
        whole(summary.retired),
        summary.unfinished.to_string(),
    ]
}

fn cell_row(result: &CellResult) -> Vec<String> {
    let cell = &result.cell;
    let mut row = vec![
        cell.lemons.share.to_string(),
        cell.lemons.factor.to_string(),
        cell.spares.to_string(),
        cell.false_alarms.to_string(),
        percent(cell.wrong_blame),
        result.best.map_or_else(dash, |best| best.to_string()),
    ];
    for policy in [result.best, Some(Policy::Octavo)] {
        let found = policy.and_then(|policy| find(result, policy));
        row.push(found.map_or_else(dash, |summary| percent(summary.ettr.mean)));
        row.push(found.map_or_else(dash, lost));
        row.push(found.map_or_else(dash, |summary| format!("{:.0}", summary.lost_gpu_hours.sd)));
    }
    for policy in [Policy::RequeueAll, Policy::Oracle] {
        row.push(find(result, policy).map_or_else(dash, lost));
    }
    row
}

/// The line about a cell in which another policy loses less than Octavo's.
pub(super) fn not_best(result: &CellResult) -> Option<String> {
    let octavo = find(result, Policy::Octavo)?;
    let best = find(result, result.best.filter(|best| *best != Policy::Octavo)?)?;
    let less = octavo.lost_gpu_hours.mean - best.lost_gpu_hours.mean;
    Some(format!(
        "not best: {}: {} loses {less:.0} GPU-hours less, {:.1} of its standard deviations",
        cell_name(&result.cell),
        best.policy,
        if best.lost_gpu_hours.sd > 0.0 { less / best.lost_gpu_hours.sd } else { 0.0 },
    ))
}

fn find(result: &CellResult, policy: Policy) -> Option<&Summary> {
    result.policies.iter().find(|summary| summary.policy == policy)
}

fn lost(summary: &Summary) -> String {
    format!("{:.0}", summary.lost_gpu_hours.mean)
}

fn percent(ratio: f64) -> String {
    format!("{:.2}", ratio * 100.0)
}

fn dash() -> String {
    "-".to_owned()
}
