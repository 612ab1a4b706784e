//! The table format of [`TopReport`].

use jiff::Timestamp;
use octavo_term::{RowStyle, TextTable};

use super::TopReport;
use crate::age::age;
use crate::snapshot::Holder;
use crate::usage::{GpuState, GpuUse, MigUse, holder_names};

/// Table options.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    /// A line for each GPU with UUID, claim and taints; otherwise free neighbours share a line.
    pub wide: bool,
    /// Whether tables have a line of headers.
    pub headers: bool,
    /// Whether lines are coloured.
    pub colour: bool,
    /// The moment from which ages are counted.
    pub now: Timestamp,
}

/// Draws a report: nodes, GPUs and remarks.
pub fn render(report: &TopReport, options: TableOptions) -> String {
    let mut parts = Vec::new();
    if report.nodes.is_empty() {
        parts.push("No GPUs are published.\n".to_owned());
    } else {
        parts.push(nodes(report, options));
    }
    if !report.gpus.is_empty() {
        parts.push(if options.wide { wide(report, options) } else { narrow(report, options) });
    }
    let remarks = remarks(report);
    if !remarks.is_empty() {
        parts.push(remarks);
    }
    parts.join("\n")
}

fn nodes(report: &TopReport, options: TableOptions) -> String {
    let mut table =
        TextTable::new(&["NODE", "STATUS", "PRODUCT", "GPUS", "USED", "SPLIT", "FREE", "TAINTED"]);
    for node in &report.nodes {
        let style = if node.status != "Ready" && node.status != "Unknown" || node.tainted > 0 {
            RowStyle::Warn
        } else {
            RowStyle::Plain
        };
        let counts = [node.gpus, node.used, node.split, node.free, node.tainted]
            .map(|count| count.to_string());
        let mut cells = vec![node.name.clone(), node.status.clone(), node.products.join(", ")];
        cells.extend(counts);
        table.row(style, cells);
    }
    if report.nodes.len() > 1 {
        let totals = report.totals;
        let mut cells = vec!["TOTAL".to_owned(), String::new(), format!("{} nodes", totals.nodes)];
        let counts = [totals.gpus, totals.used, totals.split, totals.free, totals.tainted];
        cells.extend(counts.map(|count| count.to_string()));
        table.row(RowStyle::Strong, cells);
    }
    table.draw(options.headers, options.colour)
}

fn narrow(report: &TopReport, options: TableOptions) -> String {
    let mut table = TextTable::new(&["NODE", "GPU", "STATE", "MEMORY", "HELD BY", "SINCE"]);
    let mut rest = report.gpus.as_slice();
    while let Some(first) = rest.first() {
        let run = if first.state.is_held() {
            1
        } else {
            rest.iter().take_while(|gpu| can_share_row(first, gpu)).count()
        };
        let (run, tail) = rest.split_at(run);
        let device = match run {
            [.., last] if run.len() > 1 => format!("{} to {}", first.device, last.device),
            _ => first.device.clone(),
        };
        // Holders of a part are shown in the part's line.
        let is_whole = matches!(first.state, GpuState::Used);
        table.row(
            style(first),
            vec![
                first.node.clone(),
                device,
                state(first),
                first.memory.clone().unwrap_or_default(),
                if is_whole { holder_names(&first.holders) } else { String::new() },
                if is_whole { since(&first.holders, options.now) } else { String::new() },
            ],
        );
        for (holder, share) in first.shares() {
            let holders = std::slice::from_ref(holder);
            table.row(
                RowStyle::Plain,
                vec![
                    first.node.clone(),
                    format!("{} share", first.device),
                    share.time(),
                    share.memory.to_string(),
                    holder_names(holders),
                    since(holders, options.now),
                ],
            );
        }
        rest = tail;
    }
    table.draw(options.headers, options.colour)
}

fn wide(report: &TopReport, options: TableOptions) -> String {
    let mut table = TextTable::new(&[
        "NODE", "GPU", "STATE", "MEMORY", "HELD BY", "SINCE", "CLAIM", "PRODUCT", "UUID", "TAINTS",
    ]);
    for gpu in &report.gpus {
        let claims: Vec<String> = gpu
            .holders
            .iter()
            .map(|holder| format!("{}/{}", holder.namespace, holder.claim))
            .collect();
        table.row(
            style(gpu),
            vec![
                gpu.node.clone(),
                gpu.device.clone(),
                match (&gpu.left, gpu.state) {
                    (Some(_), _) | (None, GpuState::Free) => state(gpu),
                    (None, _) => word(gpu),
                },
                gpu.memory.clone().unwrap_or_default(),
                holder_names(&gpu.holders),
                since(&gpu.holders, options.now),
                claims.join(", "),
                gpu.product.clone().unwrap_or_default(),
                gpu.uuid.clone().unwrap_or_default(),
                gpu.taints.join(", "),
            ],
        );
    }
    table.draw(options.headers, options.colour)
}

/// Remarks that a reader should not miss, one per line.
fn remarks(report: &TopReport) -> String {
    let mut lines = Vec::new();
    for claim in &report.idle_claims {
        lines.push(format!(
            "Claim {}/{} holds {} and no pod uses it. Delete it to free {}.",
            claim.namespace,
            claim.claim,
            claim.devices.join(", "),
            if claim.devices.len() == 1 { "the device" } else { "the devices" },
        ));
    }
    for lost in &report.unpublished {
        lines.push(format!(
            "{}/{} is held by {} and no longer published. Is the agent of that node running?",
            lost.pool,
            lost.device,
            holder_names(&lost.holders),
        ));
    }
    for pool in &report.incomplete_pools {
        lines.push(format!(
            "Pool {pool} is incomplete: nothing is allocated from it until all slices are published."
        ));
    }
    for gap in &report.gaps {
        lines
            .push(format!("Not shown, because reading is denied: {} ({}).", gap.kind, gap.message));
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

fn can_share_row(left: &GpuUse, right: &GpuUse) -> bool {
    left.node == right.node
        && left.state == right.state
        && left.memory == right.memory
        && left.product == right.product
        && left.taints == right.taints
        && left.scheduler == right.scheduler
        && left.mig == right.mig
}

/// The state of a GPU. A held GPU shows its taints, a shared GPU its free capacity, and a free GPU
/// its owner.
fn state(gpu: &GpuUse) -> String {
    let mut words = match (&gpu.left, gpu.state) {
        (_, GpuState::Tainted) => return format!("tainted {}", gpu.taints.join(", ")),
        (Some(left), _) => {
            format!("shared, {} and {}% free", left.memory, left.compute)
        }
        (None, _) => word(gpu),
    };
    if let (GpuState::Free, Some(scheduler)) = (gpu.state, &gpu.scheduler) {
        words = format!("{words}, by scheduler {scheduler}");
    }
    if gpu.state.is_held() && !gpu.taints.is_empty() {
        words = format!("{words}, {}", gpu.taints.join(", "));
    }
    words
}

/// The word for the state, and the use of the MIG devices of a GPU in MIG mode.
fn word(gpu: &GpuUse) -> String {
    let word = gpu.state.word();
    match gpu.mig {
        None => word.to_owned(),
        Some(MigUse { held: 0, devices: None }) => format!("{word}, in MIG mode"),
        Some(MigUse { held, devices: None }) => format!("{word}, {held} MIG devices held"),
        Some(MigUse { held, devices: Some(devices) }) => {
            format!("{word}, {held} of {devices} MIG devices held")
        }
    }
}

fn style(gpu: &GpuUse) -> RowStyle {
    match gpu.state {
        _ if !gpu.taints.is_empty() => RowStyle::Warn,
        GpuState::NodeUnavailable | GpuState::Tainted => RowStyle::Warn,
        GpuState::Free => RowStyle::Good,
        GpuState::Used | GpuState::Shared | GpuState::Partitioned => RowStyle::Plain,
    }
}

fn since(holders: &[Holder], now: Timestamp) -> String {
    holders
        .iter()
        .filter_map(|holder| holder.since)
        .min()
        .map_or_else(String::new, |at| age(at, now))
}
