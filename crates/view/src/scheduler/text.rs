//! A scheduler's explanation as text.

use octavo_engine::explain::PreemptionHint;
use octavo_term::{RowStyle, paint};

use super::{GangExplanation, SchedulerExplanation};

/// Text options.
#[derive(Clone, Copy, Debug)]
pub struct GangTextOptions {
    /// Whether lines are coloured.
    pub colour: bool,
}

/// Draws the explanation of a gang.
pub fn render(explanation: &GangExplanation, options: GangTextOptions) -> String {
    let says = &explanation.scheduler_says;
    let state = if explanation.waits { "waits" } else { "does not wait" };
    let style = if explanation.waits { RowStyle::Warn } else { RowStyle::Strong };
    let head = format!("Gang {}/{} {state}", explanation.namespace, explanation.name);
    let head = paint(&head, style, options.colour);
    let body = explanation_lines(says, "");
    let body = if body.is_empty() {
        "  No decision is recorded: none was made since this scheduler became leader, or it was dropped.\n"
            .to_owned()
    } else {
        body
    };
    format!("{head}\n\nOctavo's scheduler ({})\n{body}", explanation.scheduler)
}

/// The indented lines of a scheduler's explanation; empty if it has no content. `shown_message` is
/// the waiting message that is shown elsewhere, so it is not repeated.
pub(crate) fn explanation_lines(says: &SchedulerExplanation, shown_message: &str) -> String {
    let mut lines = Vec::new();
    lines.extend(says.group.iter().map(|group| format!("  gang: {group}")));
    lines.extend(says.loan.iter().map(|loan| format!("  {loan}")));
    let decided = says.decision.as_ref().map(octavo_engine::explain::Explanation::lines);
    let decided = decided.unwrap_or_default();
    if let Some(waiting) = &says.waiting {
        // A refusal is one sentence. The decision has its parts, without the name.
        let infeasible = says.infeasible_nodes.iter().map(|nodes| &*nodes.message);
        let parts: Vec<_> = decided.iter().map(|line| line.trim()).chain(infeasible).collect();
        let is_shown =
            waiting.message == shown_message || parts.join("; ").ends_with(&waiting.message);
        let message = if is_shown { String::new() } else { format!(": {}", waiting.message) };
        lines.push(format!("  waits, {}{message}", waiting.reason));
    }
    if !decided.is_empty() {
        lines.push("  last decision:".to_owned());
        lines.extend(decided.iter().map(|line| format!("    {line}")));
    }
    let now = says.infeasible_nodes.iter().map(|nodes| nodes.message.clone());
    let now = now.chain(says.disturbance.iter().map(PreemptionHint::line));
    let now: Vec<_> = now.chain(says.disturbance_note.clone()).collect();
    if !now.is_empty() {
        lines.push("  currently:".to_owned());
        lines.extend(now.iter().map(|line| format!("    {line}")));
    }
    if lines.is_empty() { String::new() } else { lines.join("\n") + "\n" }
}
