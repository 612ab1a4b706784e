//! The text form of a [`DeviceReport`]: devices with the same fate share a line, and so do nodes.

use std::fmt::Write as _;

use super::{DeviceReport, DeviceView, NodeVerdict, RequestVerdict};

/// Nodes that are shown with their devices, unless all are asked for.
const NODES_SHOWN: usize = 3;
/// Names of devices in a line; the others are in the JSON form.
const NAMES_SHOWN: usize = 6;

/// Draws a report; empty where it has nothing to say.
pub(in crate::explain) fn render(report: &DeviceReport, all: bool) -> String {
    let mut text = String::new();
    if let Some(defect) = &report.defect {
        let _ = writeln!(text, "  {defect}");
    }
    if !report.fits.is_empty() {
        let _ = writeln!(text, "  Devices would serve it on {}.", listed(&report.fits));
    }
    let mut shown = 0;
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for verdict in &report.nodes {
        let body = node(verdict);
        match groups.iter_mut().find(|(known, _)| *known == body) {
            Some((_, nodes)) => nodes.push(&verdict.node),
            None => groups.push((body, vec![&verdict.node])),
        }
    }
    for (body, nodes) in &groups {
        if shown == NODES_SHOWN && !all {
            break;
        }
        shown += 1;
        let names: Vec<String> = nodes.iter().map(|name| (*name).to_owned()).collect();
        let _ = writeln!(text, "  {}", listed(&names));
        text.push_str(body);
    }
    let hidden: usize = groups.iter().skip(shown).map(|(_, nodes)| nodes.len()).sum();
    let hidden = hidden + report.more;
    if hidden > 0 {
        let _ = writeln!(text, "  and {hidden} more nodes (-o wide, -o json)");
    }
    text
}

fn node(verdict: &NodeVerdict) -> String {
    let mut text = String::new();
    for request in &verdict.requests {
        text.push_str(&request_text(request, ""));
    }
    if let Some(clash) = &verdict.clash {
        let placed: Vec<String> =
            clash.placed.iter().map(|(request, device)| format!("{request} on {device}")).collect();
        let beside = format!(" beside {}", listed(&placed));
        text.push_str(&request_text(&clash.request, &beside));
    }
    if text.is_empty() {
        let _ = writeln!(text, "    {}", verdict.refusal);
    }
    text
}

fn request_text(request: &RequestVerdict, beside: &str) -> String {
    let usable = request.devices.iter().filter(|device| device.ruled_out.is_none()).count();
    let wanted = match request.wanted {
        Some(count) => format!("wants {count}"),
        None => "wants all that match".to_owned(),
    };
    let mut text = format!(
        "    request {} of {}{beside} {wanted}; {usable} of {} devices could serve\n",
        request.request,
        request.claim,
        request.devices.len()
    );
    let mut rest = request.devices.as_slice();
    let mut fates: Vec<(&str, Vec<&DeviceView>)> = Vec::new();
    while let [device, tail @ ..] = rest {
        if let Some(reason) = &device.ruled_out {
            match fates.iter_mut().find(|(known, _)| known == reason) {
                Some((_, devices)) => devices.push(device),
                None => fates.push((reason, vec![device])),
            }
        }
        rest = tail;
    }
    for (reason, devices) in fates {
        let _ = writeln!(text, "      {}: {reason}", names(&devices));
    }
    text
}

/// Names of devices, or their number where they are too many to read.
fn names(devices: &[&DeviceView]) -> String {
    if devices.len() > NAMES_SHOWN {
        let first = devices.first().map(|device| device.device.as_str()).unwrap_or_default();
        return format!("{first} and {} more", devices.len() - 1);
    }
    let names: Vec<&str> = devices.iter().map(|device| device.device.as_str()).collect();
    names.join(", ")
}

fn listed(names: &[String]) -> String {
    match names.get(NAMES_SHOWN..) {
        Some(rest) if !rest.is_empty() => {
            let shown: Vec<&str> = names.iter().take(NAMES_SHOWN).map(String::as_str).collect();
            format!("{} and {} more", shown.join(", "), rest.len())
        }
        _ => names.join(", "),
    }
}
