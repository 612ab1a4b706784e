//! Tables of figures.

use std::fmt::Write as _;

use super::escape::Escaped;
use super::input::{Input, SavedPolicy, SavedRun, SavedSpread};
use super::page::label;
use crate::metrics::summary::Spread;

/// Classes of pods, as runs name them.
const CLASSES: [(&str, &str); 5] = [
    ("cpu_only", "No GPU"),
    ("share", "Part of a GPU"),
    ("one_gpu", "One GPU"),
    ("multi_gpu", "Several GPUs"),
    ("model_constrained", "Named models"),
];

/// The number format of a figure.
#[derive(Clone, Copy)]
enum CellFormat {
    /// A ratio, in percent.
    Percent,
    /// GPUs, one decimal.
    Gpus,
    /// Microseconds.
    Micros,
}

/// The figures of each policy. Columns without any value are left out.
pub(super) fn figures(input: &Input) -> String {
    let policies = &input.saved.policies;
    let columns = [
        ("allocated_ratio", "Allocated %", CellFormat::Percent),
        ("given_ratio", "GPU time given %", CellFormat::Percent),
        ("allocated_ratio_mean", "In use over time %", CellFormat::Percent),
        ("allocated_ratio_published", "By table rule %", CellFormat::Percent),
        ("first_skip", "First skip at %", CellFormat::Percent),
        ("first_skip_any", "First skip of any pod at %", CellFormat::Percent),
        ("allocated_at_0_9", "Allocated at 90 %", CellFormat::Percent),
        ("accepted_multi_gpu", "Placed, several GPUs %", CellFormat::Percent),
        ("idle_gpus", "Idle GPUs", CellFormat::Gpus),
        ("fragmentation_at_0_9_ratio", "Fragments at 90 %", CellFormat::Percent),
        ("fragmentation_ratio", "Fragments %", CellFormat::Percent),
        ("decision_us_p50", "Decision p50 µs", CellFormat::Micros),
        ("decision_us_p99", "Decision p99 µs", CellFormat::Micros),
    ];
    let has = |name: &str| policies.iter().any(|policy| policy.figures.contains_key(name));
    let columns: Vec<_> = columns.into_iter().filter(|(name, _, _)| has(name)).collect();
    let is_compared = policies.iter().any(|policy| policy.published.is_some());
    let mut header = vec!["Policy"];
    for (name, title, _) in &columns {
        header.push(title);
        if *name == "allocated_ratio_published" && is_compared {
            header.extend(["Published %", "Difference"]);
        }
    }
    header.push("Valid runs");
    let mut table =
        HtmlTable::new("Figures of each policy: mean, and standard deviation over the seeds");
    table.header(&header);
    for policy in policies {
        let mut cells = Vec::new();
        for (name, _, unit) in &columns {
            let spread = policy.figures.get(*name).copied();
            cells.push(spread.map_or_else(none, |spread| formatted(spread, *unit, policy.runs)));
            if *name == "allocated_ratio_published" && is_compared {
                let theirs = policy.published;
                cells.push(theirs.map_or_else(none, percent));
                let difference = spread.zip(theirs).map(|(ours, theirs)| ours.mean - theirs);
                cells.push(difference.map_or_else(none, |part| format!("{:+.2}", part * 100.0)));
            }
        }
        cells.push(format!("{} of {}", policy.valid_runs, policy.runs));
        table.row(&label(&policy.policy, policy.popularity.as_deref()), &cells);
    }
    table.end()
}

/// Placed and skipped pods by class.
pub(super) fn classes(input: &Input) -> String {
    let runs = &input.saved.runs;
    let came = |class: &str| {
        runs.iter().any(|run| run.accepted.get(class).is_some_and(|found| found.arrived > 0))
    };
    let classes: Vec<_> = CLASSES.into_iter().filter(|(class, _)| came(class)).collect();
    let mut table =
        HtmlTable::new("Placed pods by request, in percent, and demand at the first skip");
    let mut header = vec!["Policy"];
    for (_, title) in &classes {
        header.extend([*title, "first skip at %"]);
    }
    table.header(&header);
    for policy in &input.saved.policies {
        let policy_runs: Vec<&SavedRun> = runs.iter().filter(|run| is_of(run, policy)).collect();
        let mut cells = Vec::new();
        for (class, _) in &classes {
            let found = |run: &&SavedRun| run.accepted.get(*class).copied();
            let placed = Spread::of(policy_runs.iter().map(|run| found(run)?.ratio));
            let skipped = Spread::of(policy_runs.iter().map(|run| found(run)?.first_skip));
            for spread in [placed, skipped] {
                let spread = spread.map(SavedSpread::from);
                cells.push(spread.map_or_else(none, |spread| {
                    formatted(spread, CellFormat::Percent, policy_runs.len())
                }));
            }
        }
        table.row(&label(&policy.policy, policy.popularity.as_deref()), &cells);
    }
    table.end()
}

/// Each run.
pub(super) fn runs(input: &Input) -> String {
    let mut table = HtmlTable::new("Each run");
    table.header(&[
        "Policy",
        "Seed",
        "Allocated %",
        "First skip at %",
        "Pods",
        "Skipped",
        "Refused",
        "Placements, SHA-256",
        "Valid",
    ]);
    for run in &input.saved.runs {
        let valid = match &run.violation {
            _ if run.valid => "yes".to_owned(),
            Some(violation) => format!("NO: {}", Escaped(violation)),
            None => "NO".to_owned(),
        };
        let hash = &run.placement_hash;
        let short: String = hash.chars().take(12).collect();
        let hash = format!("<code title=\"{}\">{}</code>", Escaped(hash), Escaped(&short));
        let cells = [
            run.seed.to_string(),
            percent(run.allocated_ratio),
            run.first_skip.map_or_else(none, percent),
            run.pods.to_string(),
            run.skipped.to_string(),
            run.refused.to_string(),
            hash,
            valid,
        ];
        table.row(&label(&run.policy, run.popularity.as_deref()), &cells);
    }
    table.end()
}

pub(super) fn is_of(run: &SavedRun, policy: &SavedPolicy) -> bool {
    run.policy == policy.policy && run.popularity == policy.popularity
}

/// A table that scrolls by keyboard if it is too wide.
struct HtmlTable {
    html: String,
}

impl HtmlTable {
    fn new(caption: &str) -> Self {
        let caption = Escaped(caption);
        let html = format!(
            "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"{caption}\">\n<table>\n\
             <caption><span>{caption}</span></caption>\n",
        );
        Self { html }
    }

    fn header(&mut self, titles: &[&str]) {
        self.html.push_str("<thead><tr>");
        for title in titles {
            let _ = write!(self.html, "<th scope=\"col\">{}</th>", Escaped(title));
        }
        self.html.push_str("</tr></thead>\n<tbody>\n");
    }

    /// A row; its cells are HTML.
    fn row(&mut self, name: &str, cells: &[String]) {
        let _ = write!(self.html, "<tr><th scope=\"row\">{}</th>", Escaped(name));
        for cell in cells {
            let _ = write!(self.html, "<td>{cell}</td>");
        }
        self.html.push_str("</tr>\n");
    }

    fn end(mut self) -> String {
        self.html.push_str("</tbody>\n</table>\n</div>\n");
        self.html
    }
}

fn formatted(spread: SavedSpread, unit: CellFormat, runs: usize) -> String {
    let (factor, decimals) = match unit {
        CellFormat::Percent => (100.0, 2),
        CellFormat::Gpus | CellFormat::Micros => (1.0, 1),
    };
    let mut text = format!("{:.decimals$}", spread.mean * factor);
    if spread.runs > 1 {
        let _ = write!(text, " <small>± {:.decimals$}</small>", spread.sd * factor);
    }
    if spread.runs < runs {
        let _ = write!(text, " <small>({} of {runs})</small>", spread.runs);
    }
    text
}

fn percent(ratio: f64) -> String {
    format!("{:.2}", ratio * 100.0)
}

fn none() -> String {
    "–".to_owned()
}
