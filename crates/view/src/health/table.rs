//! The table format of [`HealthReport`].

use octavo_api::node_health::is_in_service;
use octavo_term::{RowStyle, TextTable};

use super::report::{GpuHealth, HealthReport, WorkRemark, counted};
use super::words::{api_name, since};
use crate::top::TableOptions;

/// Draws a report: GPUs, a line of sums, remarks.
pub fn render(report: &HealthReport, options: TableOptions) -> String {
    if !report.defined {
        return "The cluster has no definition of NodeHealth (octavo.dev/v1alpha1), so nothing is known of the health of \
                GPUs. `octavo upgrade` installs it.\n"
            .to_owned();
    }
    let mut parts = Vec::new();
    if !report.gpus.is_empty() {
        parts.push(table(report, options));
    }
    let mut lines = vec![sums(report)];
    lines.extend(remarks(report));
    parts.push(lines.into_iter().map(|line| line + "\n").collect());
    parts.join("\n")
}

fn table(report: &HealthReport, options: TableOptions) -> String {
    let narrow =
        ["NODE", "GPU", "STATE", "SINCE", "NEEDS", "WAITS FOR", "POLICY", "MODE", "REASON"];
    let more = ["IN USE", "RISK", "ATTEMPT", "ORDER", "UUID"];
    let mut header = narrow.to_vec();
    if options.wide {
        header.extend(more);
    }
    header.push("MESSAGE");
    let mut table = TextTable::new(&header);
    for gpu in &report.gpus {
        let style = match gpu.state.as_str() {
            "Healthy" => RowStyle::Good,
            state if is_in_service(state) => RowStyle::Plain,
            _ => RowStyle::Warn,
        };
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let mut cells = vec![
            gpu.node.clone(),
            gpu.gpu.clone(),
            gpu.state.clone(),
            since(&gpu.since, options.now),
            needs(gpu),
            text(&gpu.waits),
            gpu.policy.clone().unwrap_or_else(|| "none".to_owned()),
            text(&gpu.mode),
            text(&gpu.reason),
        ];
        if options.wide {
            let used = if gpu.occupied { "yes" } else { "no" };
            cells.extend([
                used.to_owned(),
                text(&gpu.risk),
                gpu.attempt.to_string(),
                gpu.order.to_string(),
                gpu.uuid.clone(),
            ]);
        }
        cells.push(text(&gpu.message));
        table.row(style, cells);
    }
    table.draw(options.headers, options.colour)
}

/// What a GPU needs, or the remedy that runs.
fn needs(gpu: &GpuHealth) -> String {
    match (gpu.remedy, gpu.needs) {
        (Some(remedy), _) => format!("{} runs", api_name(remedy)),
        (None, Some(needs)) => api_name(needs),
        (None, None) if gpu.state == "Verifying" => "test runs".to_owned(),
        (None, None) => String::new(),
    }
}

fn sums(report: &HealthReport) -> String {
    let totals = report.totals;
    if totals.nodes == 0 && report.nodes_without_health.is_empty() {
        return "There is no NodeHealth. The agent of each node with GPUs writes one: `octavo doctor` says whether agents run."
            .to_owned();
    }
    let states = counted(totals.states).into_iter();
    let states = states.map(|(state, count)| format!("{count} {state}")).collect::<Vec<_>>();
    let states = if states.is_empty() { String::new() } else { format!(": {}", states.join(", ")) };
    format!(
        "{}, {}, {} in service{states}.",
        many(totals.nodes, "node"),
        many(totals.gpus, "GPU"),
        totals.in_service
    )
}

fn many(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Work on nodes, in a sentence.
fn work(work: &WorkRemark) -> String {
    let WorkRemark { maintenance, message, nodes, pods_left, .. } = work;
    if !work.accepted {
        return format!("The Maintenance {maintenance} is not carried out: {message}.");
    }
    let nodes = many(usize::try_from(*nodes).unwrap_or_default(), "node");
    let message = message.trim_start_matches("it ");
    let left = match pods_left {
        0 => String::new(),
        left => format!(" {left} pods with GPUs are to leave."),
    };
    format!("Maintenance {maintenance} {message}, of {nodes}.{left}")
}

/// Remarks that a reader should not miss.
fn remarks(report: &HealthReport) -> Vec<String> {
    let mut lines = Vec::new();
    for policy in &report.stopped_policies {
        let until = policy.until.as_ref().map(|until| format!(" until {until}"));
        lines.push(format!(
            "Remedies of the HealthPolicy {} are stopped{}: {}.",
            policy.policy,
            until.unwrap_or_default(),
            policy.message
        ));
    }
    for policy in &report.refused_policies {
        lines
            .push(format!("The HealthPolicy {} is not in use: {}.", policy.policy, policy.message));
    }
    lines.extend(report.maintenances.iter().map(work));
    for refusal in &report.nodes_without_policy {
        let (node, message) = (&refusal.node, &refusal.message);
        lines.push(format!(
            "The agent of node {node} does not use the HealthPolicy of its node: {message}."
        ));
    }
    for node in &report.nodes_without_health {
        lines.push(format!(
            "Node {node} has an agent and no NodeHealth: the agent is older than NodeHealth, or cannot write it. See its log."
        ));
    }
    for unread in &report.unreadable {
        lines.push(format!(
            "The {} {} cannot be parsed: {}. Use the octavo of the agents' version.",
            unread.kind, unread.name, unread.message
        ));
    }
    for gap in &report.gaps {
        lines
            .push(format!("Not shown, because reading is denied: {} ({}).", gap.kind, gap.message));
    }
    lines
}
