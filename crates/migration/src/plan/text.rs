//! The plan for people.

use std::fmt::Write as _;

use super::configs::ConfigPlan;
use super::fields::{FieldPlan, Served};
use super::nodes::{NodePlan, Offer};
use super::steps::Step;
use super::webhook::Webhook;
use super::workloads::WorkloadPlan;
use super::{ConfigForm, MigrationPlan};

/// Nodes that a line names.
const MAX_NAMED: usize = 5;

/// The plan as text. Equal nodes are listed once.
pub fn plan_text(plan: &MigrationPlan) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(plan, &mut text);
    text
}

fn write(plan: &MigrationPlan, text: &mut String) -> std::fmt::Result {
    writeln!(text, "FOUND")?;
    if plan.found.is_empty() {
        writeln!(text, "  nothing of NVIDIA's stack, HAMi or KAI Scheduler")?;
    }
    for found in &plan.found {
        writeln!(
            text,
            "  {}: {}, owner: {}; {}",
            found.what, found.object, found.owner, found.fate
        )?;
    }
    writeln!(text, "\nNODES")?;
    if plan.nodes.is_empty() {
        writeln!(text, "  no node has NVIDIA GPUs")?;
    }
    for (names, node) in grouped(&plan.nodes) {
        write_node(&names, node, text)?;
    }
    if !plan.configs.is_empty() {
        writeln!(text, "\nCONFIGS")?;
        for config in &plan.configs {
            write_config(config, text)?;
        }
    }
    if !plan.claims.is_empty() {
        writeln!(text, "\nCLAIMS")?;
    }
    for claim in &plan.claims {
        writeln!(text, "  {}", claim.object)?;
        write_fields(claim.configs.iter(), text)?;
    }
    if !plan.workloads.is_empty() {
        writeln!(text, "\nWORKLOADS")?;
        for workload in &plan.workloads {
            write_workload(workload, text)?;
        }
    }
    if !plan.unread.is_empty() {
        writeln!(text, "\nNOT READ, SO THAT THE PLAN SAYS NOTHING OF IT")?;
        for unread in &plan.unread {
            writeln!(text, "  {}: {}", unread.what, unread.why)?;
        }
    }
    writeln!(text, "\nFIRST")?;
    if plan.obstacles.is_empty() {
        writeln!(text, "  nothing stands in the way")?;
    }
    for obstacle in &plan.obstacles {
        writeln!(text, "  {obstacle}")?;
    }
    write_steps("STEPS", &plan.steps, text)?;
    write_steps("THE WAY BACK", &plan.way_back, text)
}

/// Nodes that differ by their names, and those of pods on them, alone.
fn grouped(nodes: &[NodePlan]) -> Vec<(Vec<&str>, &NodePlan)> {
    let key = |node: &NodePlan| {
        let mut key = node.clone();
        key.name = String::new();
        for offer in &mut key.offers {
            offer.pod = None;
        }
        key
    };
    let mut groups: Vec<(NodePlan, Vec<&str>, &NodePlan)> = Vec::new();
    for node in nodes {
        let of_node = key(node);
        match groups.iter_mut().find(|(key, ..)| *key == of_node) {
            Some((_, names, _)) => names.push(&node.name),
            None => groups.push((of_node, vec![&node.name], node)),
        }
    }
    groups.into_iter().map(|(_, names, node)| (names, node)).collect()
}

fn list(names: &[impl AsRef<str>]) -> String {
    let named: Vec<&str> = names.iter().take(MAX_NAMED).map(AsRef::as_ref).collect();
    match names.len() - named.len() {
        0 => named.join(", "),
        rest => format!("{} and {rest} more", named.join(", ")),
    }
}

fn write_node(names: &[&str], node: &NodePlan, text: &mut String) -> std::fmt::Result {
    match &node.not_served {
        Some(why) => writeln!(text, "  {}: not served, because {why}", list(names))?,
        None => {
            writeln!(text, "  {}: mode {}, because {}", list(names), node.mode, node.reason)?;
        }
    }
    for Offer { by, pod, resources, devices } in &node.offers {
        let pod = pod.as_ref().filter(|_| names.len() == 1);
        let pod = pod.map_or_else(String::new, |pod| format!(" (pod {pod})"));
        let mut what: Vec<String> =
            resources.iter().map(|(name, amount)| format!("{name}: {amount}")).collect();
        what.extend(devices.map(|devices| format!("{devices} devices in slices")));
        writeln!(text, "    offered by {by}{pod}: {}", what.join(", "))?;
    }
    let mut line = |what: &str, value: &str| {
        if value.is_empty() { Ok(()) } else { writeln!(text, "    {what}: {value}") }
    };
    let labels = node.labels.iter().map(|(key, value)| format!("{key}={value}"));
    line("labels", &labels.collect::<Vec<_>>().join(", "))?;
    line("pods with its devices", &node.plugin_pods.to_string())?;
    line("pods with claims", &node.claim_pods.to_string())?;
    line("must end first", &node.must_end.to_string())?;
    line("because", &node.why_end)?;
    let ends: Vec<&str> = node.ends.iter().map(|component| component.name()).collect();
    line("ends", &ends.join(", "))?;
    line("stays", &node.stays.join("; "))?;
    line("taken over as it is", &node.taken_over.join("; "))?;
    line("changes", &node.changes.join("; "))
}

fn write_config(config: &ConfigPlan, text: &mut String) -> std::fmt::Result {
    let users = if config.is_used() { list(&config.used_by) } else { "no node".to_owned() };
    writeln!(text, "  {}, for {users}", config.source)?;
    let count = config.fields.iter().filter(|field| field.served != Served::NotServed).count();
    if config.form == ConfigForm::MigManager {
        writeln!(text, "    layouts that are served: {count}")?;
    }
    let is_layout = config.form == ConfigForm::MigManager;
    let is_named = |field: &&FieldPlan| !is_layout || field.served == Served::NotServed;
    write_fields(config.fields.iter().filter(is_named), text)
}

fn write_fields<'a>(
    fields: impl Iterator<Item = &'a FieldPlan>,
    text: &mut String,
) -> std::fmt::Result {
    for FieldPlan { field, served, reason } in fields {
        let word = match served {
            Served::Same => "same",
            Served::Better => "better",
            Served::NoEffect => "no effect",
            Served::NotServed => "not served",
        };
        writeln!(text, "    {word}: {field}: {reason}")?;
    }
    Ok(())
}

fn write_workload(workload: &WorkloadPlan, text: &mut String) -> std::fmt::Result {
    let pods = match workload.pods {
        0 => String::new(),
        pods => format!(", by its {pods} pods"),
    };
    let outcome = if workload.refusals.is_empty() { "is translated" } else { "is refused" };
    writeln!(text, "  {}{pods} {outcome}", workload.object)?;
    for line in workload.refusals.iter().chain(&workload.changes) {
        writeln!(text, "    {line}")?;
    }
    let line = match workload.webhook {
        None => return Ok(()),
        Some(Webhook::NotNeeded) => {
            "its pods need no translation, and pass the webhook as they are"
        }
        Some(Webhook::Translates) => {
            "the webhook would translate its pods, without a change of the workload (translation.enabled)"
        }
        Some(Webhook::LeavesOut) => "the webhook would leave its pods out, as the chart has it",
        Some(Webhook::Refuses) => "the webhook would refuse its pods",
    };
    writeln!(text, "    {line}")
}

fn write_steps(title: &str, steps: &[Step], text: &mut String) -> std::fmt::Result {
    if steps.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n{title}")?;
    for (number, step) in steps.iter().enumerate() {
        writeln!(text, "  {}. {}", number + 1, step.what)?;
        for command in &step.commands {
            writeln!(text, "       {command}")?;
        }
    }
    Ok(())
}
