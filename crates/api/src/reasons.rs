//! The catalogue of all reasons in conditions, events and metric labels: where each one appears, what it means, and
//! what to do.

mod agent;
mod claims;
mod controller;
mod health;
mod maintenance;
mod scheduler;

use std::fmt::Write as _;

/// A reason, as programs and people find it in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The reason on the wire.
    pub reason: &'static str,
    /// The objects with the condition or event, and the metric with the label.
    pub reported_on: &'static str,
    /// What happened.
    pub meaning: &'static str,
    /// What to do; empty if nothing is to be done.
    pub remedy: &'static str,
}

/// Reasons of one subject.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Its heading.
    pub title: &'static str,
    /// What holds for all its reasons; empty if nothing does.
    pub note: &'static str,
    /// Its reasons, in alphabetical order. A reason with several meanings is in several sections.
    pub reasons: &'static [Reason],
}

/// The whole catalogue.
pub const SECTIONS: &[Section] = &[
    Section {
        title: "Agent: claims that are not prepared or unprepared",
        note: claims::REFUSALS_NOTE,
        reasons: claims::REFUSALS,
    },
    Section { title: "Agent: prepared claims", note: "", reasons: claims::PREPARED },
    Section { title: "Agent: nodes and GPUs", note: "", reasons: agent::NODES },
    Section {
        title: "Agent: bypasses that are not detected",
        note: "",
        reasons: agent::BLIND_SPOTS,
    },
    Section { title: "Controller: ComputeDomains", note: "", reasons: controller::DOMAINS },
    Section { title: "Controller: health of GPUs", note: "", reasons: health::POLICIES },
    Section { title: "Controller: work on nodes", note: "", reasons: maintenance::WORK },
    Section {
        title: "Controller: translated pods without a claim template",
        note: "",
        reasons: controller::TEMPLATES,
    },
    Section { title: "Scheduler: pods and gangs", note: "", reasons: scheduler::PODS },
    Section { title: "Scheduler: placement policies", note: "", reasons: scheduler::POLICIES },
    Section {
        title: "Scheduler: nodes that it does not model",
        note: "",
        reasons: scheduler::UNMODELED_NODES,
    },
    Section { title: "Scheduler: failed writes", note: "", reasons: scheduler::FAILURES },
];

/// The reasons of events of nodes.
pub fn node_reasons() -> &'static [Reason] {
    agent::NODES
}

/// The page `docs/reference/reasons.md`.
pub fn reference() -> String {
    let mut page = String::from(
        "# Reasons\n\nGenerated; do not edit. Every reason that Octavo writes into conditions, events and metric labels.\n",
    );
    // Writing to a string does not fail.
    for Section { title, note, reasons } in SECTIONS {
        let _ = write!(page, "\n## {title}\n\n");
        if !note.is_empty() {
            let _ = write!(page, "{note}\n\n");
        }
        page.push_str("| reason | where | meaning | what to do |\n|---|---|---|---|\n");
        for Reason { reason, reported_on, meaning, remedy } in *reasons {
            let _ = writeln!(page, "| `{reason}` | {reported_on} | {meaning} | {remedy} |");
        }
    }
    page
}

/// A row of the catalogue.
const fn row(
    reason: &'static str,
    reported_on: &'static str,
    meaning: &'static str,
    remedy: &'static str,
) -> Reason {
    Reason { reason, reported_on, meaning, remedy }
}

#[cfg(test)]
mod tests;
