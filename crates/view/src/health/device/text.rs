//! The text format of [`DeviceReport`].

use std::fmt::Write as _;

use jiff::Timestamp;
use octavo_api::node_health::is_in_service;
use octavo_health::remedy::Remedy;
use octavo_term::{RowStyle, paint};

use super::DeviceReport;
use crate::age::age;
use crate::health::words::{self, api_name, since};
use crate::snapshot::{Gap, GapKind, Holder};

/// Text options.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTextOptions {
    /// Whether lines are coloured.
    pub colour: bool,
    /// The moment from which ages are counted.
    pub now: Timestamp,
}

/// Draws what is known of a GPU.
pub fn render(report: &DeviceReport, options: DeviceTextOptions) -> String {
    let parts = [
        headline(report, options),
        section("What happens next", &report.next),
        section("What a person can do", &report.options),
        section("Policy", &[policy(report)]),
        section("History", &history(report, options)),
        section("Orders", &orders(report, options)),
        section("Held by", &holders(report, options)),
        section("Not shown, because reading is denied", &gaps(report)),
    ];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("\n")
}

fn headline(report: &DeviceReport, options: DeviceTextOptions) -> String {
    let gpu = &report.health;
    let product = report.product.as_ref().map_or_else(String::new, |name| format!(", {name}"));
    let line = format!(
        "{} of node {} ({}{product}) is {} since {} ({} ago).",
        gpu.gpu,
        gpu.node,
        gpu.uuid,
        gpu.state,
        gpu.since,
        since(&gpu.since, options.now)
    );
    let style = if is_in_service(&gpu.state) { RowStyle::Plain } else { RowStyle::Warn };
    let line = paint(&line, style, options.colour);
    let state = words::state(&gpu.state);
    let why = match (&gpu.message, &gpu.reason) {
        (Some(message), Some(reason)) => Some(format!("{message} ({reason})")),
        (Some(words), None) | (None, Some(words)) => Some(words.clone()),
        (None, None) => None,
    };
    let why = why.map_or_else(String::new, |why| format!(" Why: {why}."));
    format!("{line}\n{state}{why}\n")
}

fn policy(report: &DeviceReport) -> String {
    match (&report.health.policy, &report.health.mode) {
        (Some(policy), Some(mode)) => {
            format!("The agent decides by the HealthPolicy {policy}, in the mode {mode}.")
        }
        _ => {
            "No HealthPolicy is in force on the node: the agent decides by its defaults. It fences and tests, and resets nothing."
                .to_owned()
        }
    }
}

fn history(report: &DeviceReport, options: DeviceTextOptions) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(history) = &report.history {
        let returned = history.returned.as_ref().map(|returned| {
            let ago = since(returned, options.now);
            format!("It last returned after a fault of its own at {returned} ({ago} ago).")
        });
        lines.extend(returned);
        if history.relapses > 0 {
            lines.push(format!("Relapses in a row: {}.", history.relapses));
        }
        if history.has_failed {
            lines.push("It had a fault of its own since it was last in service.".to_owned());
        }
        if history.is_held {
            lines.push("A person fenced it.".to_owned());
        }
        if history.tried != Remedy::Test {
            let tried = words::remedy(history.tried);
            lines.push(format!("The harshest remedy since it was last in service is {tried}."));
        }
        if history.blame_milli > 0 {
            let (whole, part) = (history.blame_milli / 1_000, history.blame_milli % 1_000);
            lines.push(format!(
                "Failures that are attributed to it: {whole}.{part:03}. Older ones count less."
            ));
        }
    }
    if let Some(problem) = &report.record_problem {
        lines.push(format!("Its record cannot be read by this version of octavo: {problem}."));
    }
    if report.health.attempt > 0 {
        lines.push(format!("Its last remedy or test has the number {}.", report.health.attempt));
    }
    if let Some(risk) = &report.health.risk {
        lines.push(format!("The class of its risk is {risk}."));
    }
    if !report.reset_reaches.is_empty() {
        lines.push(format!("A reset of it reaches {}, too.", report.reset_reaches.join(", ")));
    }
    lines
}

fn orders(report: &DeviceReport, options: DeviceTextOptions) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(order) = &report.given_order {
        let state = if order.is_done { "is carried out" } else { "is not carried out yet" };
        let reason = order.reason.as_ref().map(|reason| format!(" Its reason: {reason}."));
        let (number, word) = (order.number, api_name(order.word));
        lines.push(format!(
            "Order {number} of a person ({word}) {state}.{}",
            reason.unwrap_or_default()
        ));
    }
    if let Some(permit) = &report.permit {
        let ago = since(&permit.since, options.now);
        let remedy = words::remedy(permit.remedy);
        let is_void = report.health.attempt > permit.after_attempt;
        let void = if is_void { " A later attempt began, so the permit is void." } else { "" };
        lines.push(format!("The controller has permitted {remedy} for {ago}.{void}"));
    }
    if let Some(evicts) = &report.evicts_since {
        let ago = since(evicts, options.now);
        lines.push(format!("The controller has evicted its pods for {ago}."));
    }
    lines
}

fn holders(report: &DeviceReport, options: DeviceTextOptions) -> Vec<String> {
    let is_partial = |gap: &Gap| matches!(gap.kind, GapKind::Slices | GapKind::ClaimsElsewhere);
    if report.holders.is_empty() && report.gaps.iter().any(is_partial) {
        return Vec::new();
    }
    if report.holders.is_empty() {
        let used = "Processes use it, and no claim has it: pods of a device plugin, or programs of the host.";
        let free = "No claim has it, and no process uses it.";
        return vec![if report.health.occupied { used } else { free }.to_owned()];
    }
    let line = |holder: &Holder| {
        let names = holder.names().join(", ");
        let part = if holder.share.is_some() || holder.via_part { ", a part of it" } else { "" };
        let ago =
            holder.since.map_or_else(String::new, |at| format!(", for {}", age(at, options.now)));
        format!("{names}, by the claim {}/{}{part}{ago}.", holder.namespace, holder.claim)
    };
    report.holders.iter().map(line).collect()
}

fn gaps(report: &DeviceReport) -> Vec<String> {
    report.gaps.iter().map(|gap| format!("{} ({}).", gap.kind, gap.message)).collect()
}

fn section(heading: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut text = format!("{heading}\n");
    for line in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  - {line}");
    }
    text
}
