//! The steps, in order, and the way back.

mod commands;

use octavo_api::names::LABEL_MODE;
use serde::Serialize;

use super::components::Component;
use super::nodes::{Mode, NodePlan};
use super::values::{Installed, StepFacts};
use super::webhook::{self, Webhook};
use super::workloads::WorkloadPlan;
use crate::Options;
use commands::{copy, deploy, file_name, named, with_parts};

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// What, and why here.
    pub what: String,
    /// Commands for it.
    pub commands: Vec<String>,
}

/// Parts of which two must never be on a node: they end before Octavo's agent starts.
const BEFORE: [Component; 3] =
    [Component::DraDriver, Component::DraValidator, Component::ComputeDomainController];
/// Parts that Octavo's agent waits for.
const AFTER: [Component; 4] = [
    Component::DevicePlugin,
    Component::MpsControlDaemon,
    Component::FeatureDiscovery,
    Component::MigManager,
];
/// What is not needed any more, once no pod names its scheduler.
const LAST: [Component; 3] =
    [Component::HamiDevicePlugin, Component::HamiScheduler, Component::KaiScheduler];
/// Where the steps install Octavo, and where `octavo uninstall` looks for it.
pub(super) const NAMESPACE: &str = "octavo-system";
/// Node label by which HAMi's chart deploys its device plugin.
const HAMI_LABEL: &str = "gpu";

/// The steps, and the way back. Both are empty for a cluster without a node to move.
pub(super) fn steps(
    facts: &StepFacts,
    nodes: &[NodePlan],
    workloads: &[WorkloadPlan],
    options: &Options,
) -> (Vec<Step>, Vec<Step>) {
    let moved: Vec<&NodePlan> = nodes.iter().filter(|node| node.moves).collect();
    if moved.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let drained: Vec<&NodePlan> =
        moved.iter().copied().filter(|node| node.must_end.count > 0).collect();
    let mut steps = Vec::new();
    let mut add = |what: &str, commands: Vec<String>| {
        steps.push(Step { what: what.to_owned(), commands });
    };
    let saved = facts.saved();
    if !saved.is_empty() {
        add("Save what is installed, for the way back.", saved);
    }
    if !workloads.is_empty() {
        let what = format!(
            "Translate the manifests of the workloads for HAMi and KAI Scheduler, and keep the originals.{}",
            instead(workloads, options)
        );
        add(&what, vec!["octavo migrate manifests --output octavo/ MANIFEST...".to_owned()]);
    }
    if !drained.is_empty() {
        let what = "End the pods that stand in the way. No new pod may start there meanwhile.";
        let drain = named("kubectl drain", &drained, " --ignore-daemonsets --delete-emptydir-data");
        add(what, drain);
    }
    let of_hami = with_parts(&moved, &[Component::HamiDevicePlugin]);
    if !of_hami.is_empty() {
        let what = "Keep HAMi's device plugin off the nodes.";
        add(what, named("kubectl label node", &of_hami, &format!(" {HAMI_LABEL}-")));
    }
    let before = facts.ended(&BEFORE, &moved);
    if !before.is_empty() {
        add("End what would offer the same devices beside Octavo.", before);
    }
    if !facts.copies.is_empty() {
        let mut commands = vec![format!("kubectl create namespace {NAMESPACE}")];
        commands.extend(facts.copies.iter().map(copy));
        add("Copy the configs to Octavo's namespace.", commands);
    }
    let other: Vec<&NodePlan> =
        moved.iter().copied().filter(|node| Some(node.mode) != facts.default_mode).collect();
    if let Some(node) = other.first() {
        let what = "Label the nodes of the other mode, before the agent starts.";
        let label = format!(" {LABEL_MODE}={} --overwrite", node.mode);
        add(what, named("kubectl label node", &other, &label));
    }
    add(
        "Install Octavo. Its agents wait for device plugins that still serve a node's GPUs.",
        vec![facts.install()],
    );
    let after = facts.ended(&AFTER, &moved);
    if !after.is_empty() {
        let what = "End the parts that Octavo replaces. Running pods keep their GPUs; new ones wait until the agent \
                    offers the node.";
        add(what, after);
    }
    add(
        "Check that each node is served. An event ModeWaits names what a node waits for.",
        vec![
            "octavo doctor".to_owned(),
            "kubectl get events -A --field-selector reason=ModeWaits".to_owned(),
        ],
    );
    if !drained.is_empty() {
        add("Let pods on the nodes again.", named("kubectl uncordon", &drained, ""));
    }
    if !workloads.is_empty() {
        let mut what = "Delete the old workloads, and apply the translated ones.".to_owned();
        if facts.default_mode == Some(Mode::DevicePlugin) {
            what.push_str(
                " Their shares need nodes in the mode dra: change the label of a node once its pods have ended.",
            );
        }
        if translated(workloads) > 0 {
            what.push_str(
                " With the webhook, delete only their pods: it translates those that come.",
            );
        }
        add(
            &what,
            vec!["kubectl delete -f MANIFEST".to_owned(), "kubectl apply -f octavo/".to_owned()],
        );
    }
    if let Some(policy) = facts.cluster_policy.as_deref().filter(|_| facts.is_switched()) {
        let what = "Tell the GPU Operator, so that new nodes do not get these parts, and its validator does not wait for \
                    them. Driver, container toolkit and DCGM stay.";
        add(what, vec![facts.patch(policy, false)]);
    }
    let schedulers = facts.ended(&LAST, &moved);
    if !schedulers.is_empty() {
        add("Remove the schedulers that no pod names any more.", schedulers);
    }
    (steps, way_back(facts, &moved, workloads))
}

/// How many workloads the webhook would translate.
fn translated(workloads: &[WorkloadPlan]) -> usize {
    workloads.iter().filter(|found| found.webhook == Some(Webhook::Translates)).count()
}

/// What the webhook would do instead of new manifests.
fn instead(workloads: &[WorkloadPlan], options: &Options) -> String {
    let whose = match (translated(workloads), workloads.len()) {
        (0, _) => return String::new(),
        (1, 1) => "the pods of this workload".to_owned(),
        (count, all) if count == all => format!("the pods of all {all} workloads"),
        (count, all) => format!("the pods of {count} of {all} workloads"),
    };
    format!(
        " Or leave manifests as they are: the webhook translates {whose} as they come. It needs {} in the command that \
         installs Octavo, and docs/migration.md has its limits.",
        webhook::values(options)
    )
}

fn way_back(facts: &StepFacts, moved: &[&NodePlan], workloads: &[WorkloadPlan]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |what: &str, commands: Vec<String>| {
        steps.push(Step { what: what.to_owned(), commands });
    };
    add(
        "End the pods that have GPUs of Octavo's nodes, and delete the ComputeDomains. The command names them.",
        vec!["octavo uninstall --dry-run".to_owned()],
    );
    add(
        "Uninstall Octavo. While something of the above is left, nothing is removed. The nodes lose their labels of Octavo, \
         and their modes.",
        vec!["octavo uninstall".to_owned()],
    );
    let mut commands = Vec::new();
    if let Some(policy) = facts.cluster_policy.as_deref().filter(|_| facts.is_switched()) {
        commands.push(facts.patch(policy, true));
    }
    let of_hami = with_parts(moved, &[Component::HamiDevicePlugin]);
    if !of_hami.is_empty() {
        commands.extend(named("kubectl label node", &of_hami, &format!(" {HAMI_LABEL}=on")));
    }
    let labels = facts.deploy_labels(&BEFORE).into_iter().chain(facts.deploy_labels(&AFTER));
    let labels = deploy(labels, true);
    let parts = [&BEFORE[..], &AFTER[..]].concat();
    let labelled = with_parts(moved, &parts);
    if !labels.is_empty() && !labelled.is_empty() {
        commands.extend(named("kubectl label node", &labelled, &format!("{labels} --overwrite")));
    }
    for installed in facts.parts(&BEFORE).chain(facts.parts(&AFTER)).chain(facts.parts(&LAST)) {
        let command = match installed {
            Installed::Operator => continue,
            Installed::Helm { release, namespace } => {
                format!(
                    "helm install {release} CHART --namespace {namespace} --values {release}-values.yaml"
                )
            }
            Installed::Manifest { object, .. } => {
                format!("kubectl apply -f {}", file_name(object))
            }
        };
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    if !commands.is_empty() {
        add("Let the parts that were replaced run again, as they were saved.", commands);
    }
    if !workloads.is_empty() {
        add("Apply the original manifests.", vec!["kubectl apply -f MANIFEST".to_owned()]);
    }
    steps
}
