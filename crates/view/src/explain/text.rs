//! The text format of [`PodExplanation`].

use std::fmt::Write as _;

use jiff::Timestamp;
use octavo_term::{RowStyle, TextTable, paint};

use super::{ClaimView, Event, NodeWarning, PodExplanation, PodState, devices};
use crate::age::age;
use crate::snapshot::{ClaimSource, GapKind, Request, RequestAlternative};
use crate::usage::{GpuState, GpuUse, holder_names, natural_sort_key};

/// Maximum number of events; JSON has all of them.
const EVENTS_SHOWN: usize = 5;
/// Maximum number of warnings about nodes, unless all are requested.
const WARNINGS_SHOWN: usize = 3;

/// Text options.
#[derive(Clone, Copy, Debug)]
pub struct TextOptions {
    /// A line for each GPU instead of one for each node, and the name of each device.
    pub wide: bool,
    /// Whether tables have a line of headers.
    pub headers: bool,
    /// Whether lines are coloured.
    pub colour: bool,
    /// The moment from which ages are counted.
    pub now: Timestamp,
}

/// Draws an explanation.
pub fn render(explanation: &PodExplanation, options: TextOptions) -> String {
    let mut parts = vec![headline(explanation, options)];
    if explanation.claims.is_empty() {
        parts.push(
            "It asks for no devices: it has no claims, and no limits that a DeviceClass serves.\n"
                .into(),
        );
    } else {
        let claims: String = explanation.claims.iter().map(claim).collect();
        parts.push(section("Claims", claims));
    }
    if let Some(scheduled) = &explanation.scheduled
        && scheduled.status != "True"
    {
        let words = [&*scheduled.reason, &*scheduled.message]
            .into_iter()
            .filter(|words| !words.is_empty())
            .collect::<Vec<_>>()
            .join(": ");
        parts.push(section("The scheduler says", indented(&words, 2)));
    }
    if let Some(says) = &explanation.scheduler_says {
        let known = explanation.scheduled.as_ref().filter(|scheduled| scheduled.status != "True");
        let known = known.map_or("", |scheduled| &scheduled.message);
        let lines = crate::scheduler::explanation_lines(says, known);
        if !lines.is_empty() {
            parts.push(section("How it was decided", lines));
        }
    }
    let events = events(explanation, options);
    if !events.is_empty() {
        parts.push(section("Events", events));
    }
    if !explanation.candidates.is_empty() {
        let heading = format!("GPUs of driver {}, regardless of selectors", crate::usage::driver());
        parts.push(section(&heading, candidates(explanation, options)));
    }
    if !explanation.node_warnings.is_empty() {
        parts.push(section("Warnings of the nodes' agents", node_warnings(explanation, options)));
    }
    let is_partial = explanation
        .gaps
        .iter()
        .any(|gap| matches!(gap.kind, GapKind::ClaimsElsewhere | GapKind::Unreadable));
    let drawn = devices::Options { all: options.wide, is_partial };
    let devices = explanation.devices.as_ref();
    let devices = devices.map(|report| devices::render(report, drawn)).unwrap_or_default();
    if !devices.is_empty() {
        parts.push(section("Devices that an allocator finds", devices));
    }
    if !explanation.advice.is_empty() {
        let lines: String = explanation
            .advice
            .iter()
            .map(|advice| indented(&format!("- {}", advice.message), 2))
            .collect();
        parts.push(section("What this means", lines));
    }
    if !explanation.gaps.is_empty() {
        let lines: String = explanation
            .gaps
            .iter()
            .map(|gap| indented(&format!("{}: {}", gap.kind, gap.message), 2))
            .collect();
        parts.push(section("Not taken into account, because it could not be read", lines));
    }
    parts.join("\n")
}

fn headline(explanation: &PodExplanation, options: TextOptions) -> String {
    let node = explanation.node.as_deref().unwrap_or_default();
    let state = match explanation.state {
        PodState::Gated => "waits for its scheduling gates".to_owned(),
        PodState::Unscheduled => "waits for a node".to_owned(),
        PodState::Starting => format!("is starting on {node}"),
        PodState::Running => format!("runs on {node}"),
        PodState::Finished => format!("has finished ({})", explanation.phase),
        PodState::Deleting => "is being deleted".to_owned(),
        PodState::Unknown => format!("is in phase {}", explanation.phase),
    };
    let since = match (explanation.waits, explanation.created) {
        (true, Some(created)) => format!(", created {} ago", age(created, options.now)),
        _ => String::new(),
    };
    let style = if explanation.waits { RowStyle::Warn } else { RowStyle::Strong };
    let line = format!("Pod {}/{} {state}{since}", explanation.namespace, explanation.name);
    paint(&line, style, options.colour) + "\n"
}

fn claim(claim: &ClaimView) -> String {
    let origin = match &claim.source {
        ClaimSource::ResourceClaim(_) => format!("{}: a ResourceClaim", claim.name),
        ClaimSource::ResourceClaimTemplate(template) => {
            format!("{}: from template {template}", claim.name)
        }
        ClaimSource::ExtendedResource(resource) => format!("from limits {resource}"),
    };
    let state = match (&claim.claim, claim.exists) {
        (Some(name), true) if claim.allocated => format!("claim {name}, allocated"),
        (Some(name), true) => format!("claim {name}, not allocated"),
        (Some(name), false) => format!("claim {name} does not exist"),
        (None, _) => "no claim yet".to_owned(),
    };
    let mut text = format!("  {origin}; {state}\n");
    for request in &claim.requests {
        text.push_str(&request_text(request));
    }
    for device in &claim.devices {
        let place = device.node.as_deref().unwrap_or(&device.pool);
        let facts: Vec<&str> =
            [&device.product, &device.uuid].into_iter().filter_map(Option::as_deref).collect();
        let _ = writeln!(
            text,
            "    {} on {place} for request {}{}",
            device.device,
            device.request,
            if facts.is_empty() { String::new() } else { format!(": {}", facts.join(", ")) },
        );
        if let Some(share) = &device.share {
            let _ = writeln!(text, "      a share: {} of memory, {}", share.memory, share.time());
        }
        for taint in &device.taints {
            let _ = writeln!(text, "      tainted {taint}");
        }
        for condition in &device.conditions {
            let _ = writeln!(
                text,
                "      {} is {}{}{}",
                condition.kind,
                condition.status,
                prefixed(", ", &condition.reason),
                prefixed(": ", &condition.message),
            );
        }
    }
    if claim.allocated && claim.reserved_for.len() > 1 {
        let _ = writeln!(text, "    shared by pods {}", claim.reserved_for.join(", "));
    }
    text
}

fn request_text(request: &Request) -> String {
    let mut text = String::new();
    let alternatives = request.alternatives.len();
    for (index, ask) in request.alternatives.iter().enumerate() {
        let rank = if alternatives > 1 {
            format!(", choice {} of {alternatives}", index + 1)
        } else {
            String::new()
        };
        let _ = writeln!(text, "    request {}{rank}: {}", request.name, ask_text(ask));
        for (name, amount) in &ask.capacity {
            let _ = writeln!(text, "      {name}: {amount}");
        }
        for selector in &ask.selectors {
            text.push_str("      selector as written:\n");
            text.push_str(&indented(selector.trim(), 8));
        }
    }
    text
}

fn ask_text(ask: &RequestAlternative) -> String {
    let count = match ask.count {
        Some(1) => "1 device".to_owned(),
        Some(count) => format!("{count} devices"),
        None => "all devices".to_owned(),
    };
    let looks_on = if ask.admin_access { ", with adminAccess" } else { "" };
    format!("{count} of class {}{looks_on}", ask.class)
}

/// The last events, without those that only repeat the scheduler's condition.
fn events(explanation: &PodExplanation, options: TextOptions) -> String {
    let condition_message = explanation.scheduled.as_ref().map(|scheduled| &*scheduled.message);
    let shown: Vec<&Event> = explanation
        .events
        .iter()
        .filter(|event| condition_message.is_none_or(|message| message != event.message))
        .collect();
    let start = shown.len().saturating_sub(EVENTS_SHOWN);
    let mut table = TextTable::new(&[]);
    for event in shown.get(start..).unwrap_or_default() {
        let style = if event.kind == "Warning" { RowStyle::Warn } else { RowStyle::Plain };
        let times = if event.count > 1 { format!(" (x{})", event.count) } else { String::new() };
        let ago = event.last_seen.map(|at| age(at, options.now)).unwrap_or_default();
        table.row(
            style,
            vec![
                format!("  {ago}"),
                event.reason.clone(),
                event.source.clone(),
                format!("{}{times}", event.message),
            ],
        );
    }
    table.draw(false, options.colour)
}

/// The agents' warnings about the nearest nodes.
fn node_warnings(explanation: &PodExplanation, options: TextOptions) -> String {
    let warnings = &explanation.node_warnings;
    let shown = if options.wide { warnings.len() } else { WARNINGS_SHOWN };
    let mut text = String::new();
    for NodeWarning { node, event } in warnings.iter().take(shown) {
        let ago = event.last_seen.map(|at| format!(", {} ago", age(at, options.now)));
        let _ = writeln!(text, "  {node}: {}{}", event.reason, ago.unwrap_or_default());
        text.push_str(&indented(&event.message, 4));
    }
    let hidden = warnings.len().saturating_sub(shown);
    if hidden > 0 {
        let _ = writeln!(text, "  and {hidden} more (-o wide, -o json)");
    }
    text
}

fn candidates(explanation: &PodExplanation, options: TextOptions) -> String {
    let scheduler = &explanation.scheduler;
    let is_free = |gpu: &GpuUse| gpu.state == GpuState::Free && gpu.is_for(scheduler);
    if options.wide {
        let mut table = TextTable::new(&["  NODE", "GPU", "STATE", "MEMORY", "PRODUCT", "HELD BY"]);
        for gpu in &explanation.candidates {
            let style = if is_free(gpu) { RowStyle::Good } else { RowStyle::Plain };
            table.row(
                style,
                vec![
                    format!("  {}", gpu.node),
                    gpu.device.clone(),
                    state(gpu, &explanation.scheduler),
                    gpu.memory.clone().unwrap_or_default(),
                    gpu.product.clone().unwrap_or_default(),
                    holder_names(&gpu.holders),
                ],
            );
        }
        return table.draw(options.headers, options.colour);
    }
    let mut gpus: Vec<&GpuUse> = explanation.candidates.iter().filter(|gpu| gpu.whole).collect();
    gpus.sort_by_cached_key(|gpu| natural_sort_key(&gpu.node));
    let mut table =
        TextTable::new(&["  NODE", "PRODUCT", "MEMORY", "GPUS", "FREE", "HELD", "OTHER"]);
    for node in gpus.chunk_by(|left, right| left.node == right.node) {
        let Some(first) = node.first() else { continue };
        let free = node.iter().filter(|gpu| is_free(gpu)).count();
        let held = node.iter().filter(|gpu| gpu.state.is_held()).count();
        let style = if free > 0 { RowStyle::Good } else { RowStyle::Plain };
        let mut cells = vec![
            format!("  {}", first.node),
            first.product.clone().unwrap_or_default(),
            first.memory.clone().unwrap_or_default(),
        ];
        cells.extend([node.len(), free, held].map(|count| count.to_string()));
        cells.push(others(node, scheduler));
        table.row(style, cells);
    }
    table.draw(options.headers, options.colour)
}

/// Why unallocated GPUs are not free.
fn others(node: &[&GpuUse], scheduler: &str) -> String {
    let mut words = Vec::new();
    for state in [GpuState::Tainted, GpuState::NodeUnavailable] {
        let count = node.iter().filter(|gpu| gpu.state == state).count();
        if count > 0 {
            words.push(format!("{count} {}", state.word()));
        }
    }
    let not_ours = |gpu: &&&GpuUse| gpu.state == GpuState::Free && !gpu.is_for(scheduler);
    let count = node.iter().filter(not_ours).count();
    if let Some(owner) = node.iter().find(not_ours).and_then(|gpu| gpu.scheduler.as_ref()) {
        words.push(format!("{count} for scheduler {owner}"));
    }
    words.join(", ")
}

/// The state of a GPU for pods of a scheduler.
fn state(gpu: &GpuUse, scheduler: &str) -> String {
    match &gpu.scheduler {
        Some(owner) if gpu.state == GpuState::Free && !gpu.is_for(scheduler) => {
            format!("free, for scheduler {owner}")
        }
        _ => [gpu.state.word(), &gpu.taints.join(", ")].join(" ").trim().to_owned(),
    }
}

fn section(heading: &str, body: impl AsRef<str>) -> String {
    format!("{heading}\n{}", body.as_ref())
}

fn indented(text: &str, blanks: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let _ = writeln!(out, "{:blanks$}{line}", "");
    }
    out
}

fn prefixed(prefix: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{prefix}{text}") }
}
