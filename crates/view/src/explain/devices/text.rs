//! The text format of a [`DeviceReport`]. Devices with the same reason share a line, and so do
//! equal nodes.

use std::fmt::Write as _;

use super::{ClashVerdict, DeviceReport, DeviceView, NodeVerdict, RequestVerdict};

/// Maximum number of nodes with their devices, unless all are requested.
const NODES_SHOWN: usize = 3;
/// Maximum number of names in a line, unless all are requested.
const NAMES_SHOWN: usize = 6;

/// Text options of a report.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::explain) struct Options {
    /// Whether every name is shown.
    pub(in crate::explain) all: bool,
    /// Whether claims could not be read that may hold devices.
    pub(in crate::explain) is_partial: bool,
}

/// Draws a report; empty if the report has no content.
pub(in crate::explain) fn render(report: &DeviceReport, options: Options) -> String {
    let mut text = String::new();
    if let Some(problem) = report.defect.as_ref().or(report.not_evaluated.as_ref()) {
        let _ = writeln!(text, "  {problem}");
    }
    let all = options.all;
    if !report.fits.is_empty() {
        let devices =
            if options.is_partial { "As far as could be read, devices" } else { "Devices" };
        let _ = writeln!(text, "  {devices} would serve it on {}.", listed(&report.fits, all));
    }
    if !report.undecided.is_empty() {
        let _ = writeln!(text, "  Not decided here: {}.", listed(&report.undecided, all));
    }
    if report.by_plugins > 0 {
        let nodes = nodes(report.by_plugins, "");
        let _ = writeln!(
            text,
            "  Device plugins serve it on {nodes}; whether any are free is not known here."
        );
    }
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for verdict in &report.nodes {
        let body = node(verdict, all);
        match groups.iter_mut().find(|(known, _)| *known == body) {
            Some((_, nodes)) => nodes.push(verdict.node.clone()),
            None => groups.push((body, vec![verdict.node.clone()])),
        }
    }
    let shown = if all { groups.len() } else { NODES_SHOWN };
    for (body, nodes) in groups.iter().take(shown) {
        let _ = writeln!(text, "  {}", listed(nodes, all));
        text.push_str(body);
    }
    let hidden: usize = groups.iter().skip(shown).map(|(_, nodes)| nodes.len()).sum();
    if hidden > 0 {
        let _ = writeln!(text, "  and {} (-o wide, -o json)", nodes(hidden, "more "));
    }
    if report.more > 0 {
        let nodes = nodes(report.more, "more ");
        let _ = writeln!(text, "  and {nodes} further away, not listed in any format");
    }
    text
}

fn node(verdict: &NodeVerdict, all: bool) -> String {
    let mut text = String::new();
    for request in &verdict.requests {
        text.push_str(&request_text(request, None, all));
    }
    if let Some(clash) = &verdict.clash {
        text.push_str(&request_text(&clash.request, Some(clash), all));
    }
    // Neither a request nor a clash gives the reason.
    if verdict.lacking().is_empty() {
        let _ = writeln!(text, "    {}", verdict.refusal);
    }
    text
}

fn request_text(request: &RequestVerdict, clash: Option<&ClashVerdict>, all: bool) -> String {
    let usable = request.devices.iter().filter(|device| device.ruled_out.is_none()).count();
    let mut beside = String::new();
    let mut wanted = match request.wanted {
        Some(count) => format!("wants {count}"),
        None => "wants all that match".to_owned(),
    };
    if let Some(clash) = clash {
        let mut others = Vec::new();
        let mut own = 0;
        for placed in &clash.placed {
            if (&placed.claim, &placed.request) == (&request.claim, &request.request) {
                own += 1;
            } else {
                let (request, claim, device) = (&placed.request, &placed.claim, &placed.device);
                others.push(format!("{request} of {claim} on {device}"));
            }
        }
        if !others.is_empty() {
            beside = format!(" beside {}", listed(&others, all));
        }
        if own > 0 {
            let _ = write!(wanted, " and has {own}");
        }
    }
    let mut text = format!(
        "    request {} of {}{beside} {wanted}; {usable} of {} devices could serve\n",
        request.request,
        request.claim,
        request.devices.len()
    );
    let mut fates: Vec<(&str, Vec<&DeviceView>)> = Vec::new();
    for device in &request.devices {
        let Some(reason) = &device.ruled_out else { continue };
        match fates.iter_mut().find(|(known, _)| known == reason) {
            Some((_, devices)) => devices.push(device),
            None => fates.push((reason, vec![device])),
        }
    }
    for (reason, devices) in fates {
        let _ = writeln!(text, "      {}: {reason}", names(&devices, all));
    }
    text
}

/// Names of devices, or their number where they are too many to read.
fn names(devices: &[&DeviceView], all: bool) -> String {
    match devices {
        [first, rest @ ..] if !all && devices.len() > NAMES_SHOWN => {
            format!("{} and {} more", first.device, rest.len())
        }
        _ => devices.iter().map(|device| &*device.device).collect::<Vec<_>>().join(", "),
    }
}

fn listed(names: &[String], all: bool) -> String {
    match names.split_at_checked(NAMES_SHOWN) {
        Some((shown, rest)) if !all && !rest.is_empty() => {
            format!("{} and {} more", shown.join(", "), rest.len())
        }
        _ => names.join(", "),
    }
}

/// `1 node`, `2 more nodes`.
fn nodes(count: usize, which: &str) -> String {
    format!("{count} {which}node{}", if count == 1 { "" } else { "s" })
}
