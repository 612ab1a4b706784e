//! The results as text.

use std::fmt::Write as _;

use octavo_term::{RowStyle, TextTable, paint};

use super::{Component, Finding, Findings, NodeReport, State, Validation};
use crate::offer::Offer;

/// The results of one node, a line for each component.
pub(crate) fn findings_text(findings: &Findings, colour: bool) -> String {
    let mut text = String::new();
    for finding in &findings.components {
        let Finding { component, state, message, remedy } = finding;
        let line = format!("{component}: {}: {message}", state.word());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", paint(&line, style(*state), colour));
        if let Some(remedy) = remedy {
            let _ = writeln!(text, "  remedy: {remedy}");
        }
    }
    text
}

/// A line for each node, and what keeps components from being ready; with `is_wide` also what was found of the others.
pub(crate) fn validation_text(validation: &Validation, is_wide: bool, colour: bool) -> String {
    let mut table = TextTable::new(&["NODE", "MODE", "DRIVER", "TOOLKIT", "CUDA", "PLUGIN"]);
    for report in &validation.nodes {
        let mode = report.offer.as_ref().map_or("-", Offer::mode);
        let states = Component::ALL.map(|component| {
            let mut found = report.findings.components.iter();
            let found = found.find(|finding| finding.component == component);
            found.map_or("-", |finding| finding.state.word())
        });
        let worst = report.findings.components.iter().map(|finding| style(finding.state));
        let worst = worst.max_by_key(|style| {
            [RowStyle::Good, RowStyle::Warn, RowStyle::Strong].iter().position(|it| it == style)
        });
        let cells = [report.node.as_str(), mode].into_iter().chain(states);
        table.row(worst.unwrap_or(RowStyle::Plain), cells);
    }
    let mut text = table.draw(true, colour);
    let details: String = validation.nodes.iter().map(|report| details(report, is_wide)).collect();
    if !details.is_empty() {
        let _ = write!(text, "\n{details}");
    }
    text
}

/// The messages of a node. Components that were not tried for one reason have one line.
fn details(report: &NodeReport, is_wide: bool) -> String {
    let node = &report.node;
    let mut text = String::new();
    let mut findings = report.findings.components.iter().peekable();
    while let Some(finding) = findings.next() {
        let Finding { component, state, message, remedy } = finding;
        match state {
            State::Ready if !is_wide => continue,
            State::Ready | State::Failed => {
                let _ = writeln!(text, "{node}: {component}: {}: {message}", state.word());
            }
            State::NotTried => {
                let mut names = vec![component.name()];
                let is_same = |next: &&Finding| next.state == *state && next.message == *message;
                while let Some(next) = findings.next_if(is_same) {
                    names.push(next.component.name());
                }
                let (names, verb) = (joined(&names), if names.len() == 1 { "was" } else { "were" });
                let _ = writeln!(text, "{node}: {message}: {names} {verb} not tried");
            }
        }
        if let Some(remedy) = remedy {
            let _ = writeln!(text, "  remedy: {remedy}");
        }
    }
    text
}

/// `a, b and c`.
fn joined(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

fn style(state: State) -> RowStyle {
    match state {
        State::Ready => RowStyle::Good,
        State::NotTried => RowStyle::Warn,
        State::Failed => RowStyle::Strong,
    }
}
