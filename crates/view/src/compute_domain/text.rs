//! The text format of [`DomainExplanation`].

use std::fmt::Write as _;

use jiff::Timestamp;
use octavo_api::imex::ImexServices;
use octavo_term::{RowStyle, TextTable, paint};

use super::{DomainExplanation, DomainState, Missing, NodeReport, PodReport, Step};
use crate::age::age;

/// Nodes and missing things that are shown, unless all are requested.
const MAX_ROWS: usize = 20;
/// Place of the column of channels, which only domains that share cliques have.
const CHANNEL_COLUMN: usize = 3;

/// Text options.
#[derive(Clone, Copy, Debug)]
pub struct DomainTextOptions {
    /// All nodes and all that is missing, however many.
    pub wide: bool,
    /// Whether tables have a line of headers.
    pub headers: bool,
    /// Whether lines are coloured.
    pub colour: bool,
    /// The moment from which ages are counted.
    pub now: Timestamp,
}

/// Draws an explanation.
pub fn render(explanation: &DomainExplanation, options: DomainTextOptions) -> String {
    let mut parts = vec![headline(explanation, options), domain(explanation)];
    if !explanation.nodes.is_empty() {
        parts.push(format!("Nodes\n{}", nodes(&explanation.nodes, options)));
    }
    if !explanation.missing.is_empty() {
        parts.push(format!("What is missing\n{}", missing(&explanation.missing, options)));
    }
    if !explanation.notes.is_empty() {
        let lines = explanation.notes.iter().fold(String::new(), |mut lines, note| {
            // Writing to a string cannot fail.
            let _ = writeln!(lines, "  {}\n    do: {}", note.text, note.remedy);
            lines
        });
        parts.push(format!("Also\n{lines}"));
    }
    if !explanation.gaps.is_empty() {
        let lines = explanation.gaps.iter().fold(String::new(), |mut lines, gap| {
            let _ = writeln!(lines, "  {}: {}", gap.kind, gap.message);
            lines
        });
        parts.push(format!("Not taken into account, because it could not be read\n{lines}"));
    }
    parts.join("\n")
}

fn headline(explanation: &DomainExplanation, options: DomainTextOptions) -> String {
    let all = explanation.nodes.len();
    let ready = explanation.nodes.iter().filter(|node| node.ready).count();
    let pods_wait = explanation.missing.iter().any(|it| matches!(it.step, Step::Claim | Step::Pod));
    let state = match (explanation.state, explanation.waits) {
        (DomainState::Deleting, _) => "is being deleted",
        (DomainState::Ready, false) => "is ready",
        (DomainState::Ready, true) if pods_wait => "is ready, and pods of it wait",
        (DomainState::Ready, true) => "is ready, and something is missing",
        (DomainState::NotReady, _) => "is not ready",
    };
    let since = match (explanation.waits, explanation.created) {
        (true, Some(created)) => format!(", created {} ago", age(created, options.now)),
        _ => String::new(),
    };
    let DomainExplanation { namespace, name, .. } = explanation;
    let line = format!(
        "ComputeDomain {namespace}/{name} {state}: {ready} of {all} nodes are ready{since}"
    );
    let style = if explanation.waits { RowStyle::Warn } else { RowStyle::Strong };
    paint(&line, style, options.colour) + "\n"
}

fn domain(explanation: &DomainExplanation) -> String {
    let mut text = format!("Its pods wait for {}.\n", explanation.pods_wait_for);
    // The default is known, so it is not repeated.
    if explanation.services != ImexServices::PerDomain.to_string() {
        let _ = writeln!(text, "IMEX services: {}.", explanation.services);
    }
    let mut table = TextTable::new(&[]);
    for found in &explanation.conditions {
        let words = [found.kind.as_str(), &found.status, &found.reason, &found.message];
        table.plain(words.map(|word| format!("  {word}")));
    }
    if !explanation.conditions.is_empty() {
        let _ = write!(text, "\nConditions\n{}", table.draw(false, false));
    }
    text
}

fn nodes(nodes: &[NodeReport], options: DomainTextOptions) -> String {
    let has_channels = nodes.iter().any(|node| node.channel.is_some());
    let mut header = vec!["  NODE", "CLIQUE", "INDEX", "STATE", "MISSING", "DAEMON", "PODS"];
    if has_channels {
        header.insert(CHANNEL_COLUMN, "CHANNEL");
    }
    let mut table = TextTable::new(&header);
    // Nodes that lack something come first where not all are shown.
    let is_short = nodes.len() > MAX_ROWS && !options.wide;
    let (waiting, done): (Vec<_>, Vec<_>) =
        nodes.iter().partition(|node| !is_short || node.missing.is_some());
    let shown = if is_short { MAX_ROWS } else { nodes.len() };
    for node in waiting.into_iter().chain(done).take(shown) {
        let style = if node.missing.is_some() { RowStyle::Warn } else { RowStyle::Plain };
        let dash = || "-".to_owned();
        let mut cells = vec![
            format!("  {}", node.node),
            node.clique.clone().unwrap_or_else(dash),
            node.index.map_or_else(dash, |index| index.to_string()),
            if node.ready { "Ready".to_owned() } else { "NotReady".to_owned() },
            node.missing.map_or_else(dash, |step| step.word().to_owned()),
            node.daemon.clone().unwrap_or_else(dash),
            if node.pods.is_empty() { dash() } else { pods(&node.pods) },
        ];
        if has_channels {
            let channel = node.channel.map_or_else(dash, |channel| channel.to_string());
            cells.insert(CHANNEL_COLUMN, channel);
        }
        table.row(style, cells);
    }
    let more = nodes.len().saturating_sub(shown);
    table.draw(options.headers, options.colour) + &rest(more)
}

/// Pods that do not run have their phase.
fn pods(pods: &[PodReport]) -> String {
    let words = pods.iter().map(|pod| match &*pod.phase {
        "Running" => pod.name.clone(),
        phase => format!("{} ({phase})", pod.name),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn missing(missing: &[Missing], options: DomainTextOptions) -> String {
    let shown = if options.wide { missing.len() } else { MAX_ROWS };
    let mut text = String::new();
    for Missing { subject, problem, cause, remedy, .. } in missing.iter().take(shown) {
        let _ = writeln!(text, "  {subject}: {problem}");
        if let Some(cause) = cause {
            // The kubelet's words may have several lines.
            let cause = cause.lines().map(str::trim).collect::<Vec<_>>().join(" ");
            let _ = writeln!(text, "    why: {cause}");
        }
        let _ = writeln!(text, "    do: {remedy}");
    }
    text + &rest(missing.len().saturating_sub(shown))
}

fn rest(more: usize) -> String {
    if more == 0 { String::new() } else { format!("  and {more} more (-o wide, -o json)\n") }
}
