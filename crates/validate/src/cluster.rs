//! `octavo validate`: checks nodes of a cluster by Jobs that run on them.
//!
//! A node has two Jobs, one after the other. The first has the host's driver and no GPU. The second has a GPU, as a pod of a user
//! has it: by a claim or as a counted resource. So a GPU that cannot be had hides nothing of the driver.

mod facts;
mod job;
mod manifest;
mod pod_state;
mod progress;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use jiff::Timestamp;
use octavo_view::ViewError;
use octavo_view::command::{colour, write};
use octavo_view::output::{self, Format};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::args::ValidateArgs;
use crate::node::{NO_OFFER, NO_OFFER_REMEDY};
use crate::report::{
    Component, Finding, Findings, NodeReport, ValidateStatus, Validation, validation_text,
};
use facts::{Facts, NodeFacts};
use job::{Jobs, Outcome};
use manifest::{JobSettings, Step};
use progress::report_progress;

/// Nodes that are checked at a time.
const MAX_CONCURRENT_NODES: usize = 16;
/// What a Job needs.
const RIGHTS: &str = "see the message; a validation needs the rights to make and delete Jobs and claims, and to read pods and \
    events, in its namespace";
/// What keeps a pod from its start: without a GPU, and with one.
const NOT_STARTED: &str =
    "see the message, and `kubectl describe node`; `octavo doctor` looks at agents and nodes";
const NOT_STARTED_WITH_GPU: &str = "see the message: the runtime must read CDI specs from the agent's cdiRoot, and the host must \
    execute the programs of agent.hookDir; `octavo doctor` looks at agents and nodes";

/// Runs the command.
pub(crate) async fn run(args: &ValidateArgs) -> anyhow::Result<ValidateStatus> {
    let connection = args.connect.connect().await?;
    let facts = connection.within(facts::read(&connection.client)).await?;
    let nodes = chosen(&args.nodes, &facts)?;
    let settings = settings(args, &facts, &connection.namespace)?;
    let (stop, stopped) = watch::channel(false);
    let begun = Timestamp::now().as_millisecond();
    let checks = nodes.iter().enumerate().map(|(number, (name, node))| {
        let runner = NodeRunner {
            jobs: Jobs {
                client: connection.client.clone(),
                settings: &settings,
                node: name,
                suffix: format!("{begun:x}-{number}"),
                stopped: stopped.clone(),
            },
            name,
            until: args.timeout.0.map(|limit| Instant::now() + limit),
            gpu_limit: args.gpu_timeout.0,
        };
        runner.check(node)
    });
    let checked = futures::stream::iter(checks).buffer_unordered(MAX_CONCURRENT_NODES);
    let checked = checked.collect::<Vec<NodeReport>>();
    tokio::pin!(checked);
    let reports = tokio::select! {
        reports = &mut checked => reports,
        signalled = interrupted() => {
            signalled?;
            report_progress("interrupted: removing the Jobs");
            stop.send_replace(true);
            // Each Job is removed by the code that made it.
            checked.await;
            bail!("interrupted before all nodes were checked");
        }
    };
    let mut validation = Validation { nodes: reports };
    validation.nodes.sort_by(|one, other| one.node.cmp(&other.node));
    let text = match args.output {
        Format::Json => output::json("Validation", &validation)?,
        Format::Yaml => output::yaml("Validation", &validation)?,
        Format::Table => validation_text(&validation, false, colour()),
        Format::Wide => validation_text(&validation, true, colour()),
    };
    write(&text).map_err(ViewError::from)?;
    Ok(validation.status())
}

/// Waits for a signal to end.
async fn interrupted() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let mut hangup = signal(SignalKind::hangup()).context("listen for SIGHUP")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}

/// The nodes that are named, or all with GPUs.
fn chosen<'a>(
    names: &[String],
    facts: &'a Facts,
) -> anyhow::Result<BTreeMap<&'a str, &'a NodeFacts>> {
    if let Some(unknown) = names.iter().find(|name| !facts.nodes.contains_key(*name)) {
        return Err(ViewError::UnknownNode { node: unknown.clone() }.into());
    }
    let names: BTreeSet<&String> = names.iter().collect();
    let is_chosen = |(name, node): &(&'a String, &'a NodeFacts)| {
        if names.is_empty() { node.has_gpu } else { names.contains(name) }
    };
    let nodes: BTreeMap<&str, &NodeFacts> =
        facts.nodes.iter().filter(is_chosen).map(|(name, node)| (name.as_str(), node)).collect();
    if nodes.is_empty() {
        bail!(
            "no node has a GPU: none has a label of one, ResourceSlices or a resource of NVIDIA's; name nodes, or let Node \
             Feature Discovery or `octavo discover` label them"
        );
    }
    Ok(nodes)
}

/// What the Jobs have in common: as the user says, or else as the agents have it.
fn settings(args: &ValidateArgs, facts: &Facts, namespace: &str) -> anyhow::Result<JobSettings> {
    let agent = facts.agent.as_ref();
    let image = args.image.clone().or_else(|| agent.map(|agent| agent.image.clone()));
    let own_namespace = args.namespace.clone();
    // Accounts and Secrets are of the agents' namespace.
    let shared =
        agent.filter(|agent| own_namespace.as_ref().is_none_or(|it| *it == agent.namespace));
    let driver_root = args.driver_root.as_ref().map(|root| root.display().to_string());
    let driver_root = driver_root.or_else(|| agent.and_then(|agent| agent.driver_root.clone()));
    Ok(JobSettings {
        namespace: own_namespace
            .or_else(|| agent.map(|agent| agent.namespace.clone()))
            .unwrap_or_else(|| namespace.to_owned()),
        image: image.ok_or(ViewError::NoImage)?,
        pull_policy: agent.filter(|_| args.image.is_none()).and_then(|it| it.pull_policy.clone()),
        pull_secrets: shared.map(|agent| agent.pull_secrets.clone()).unwrap_or_default(),
        service_account: shared.and_then(|agent| agent.service_account.clone()),
        driver_root: driver_root.unwrap_or_else(|| "/".to_owned()),
        status_dir: args.files.folder().map(|folder| folder.display().to_string()),
        runtime_class: args.runtime_class.clone(),
        limit: args.timeout.0,
    })
}

/// Checks one node.
struct NodeRunner<'a> {
    jobs: Jobs<'a>,
    name: &'a str,
    /// When the Jobs have to be done.
    until: Option<Instant>,
    /// How long a pod may wait for a GPU.
    gpu_limit: Option<Duration>,
}

impl NodeRunner<'_> {
    /// Runs the node's Jobs. What cannot be made is a result, too.
    async fn check(self, node: &NodeFacts) -> NodeReport {
        let mut findings = Findings { components: Vec::new() };
        if node.is_ready {
            self.check_ready(node, &mut findings).await;
        } else {
            let remedy = "`kubectl describe node` says what it lacks";
            let message = "the node is not Ready, so that no pod starts there";
            findings.components.push(Finding::failed(Component::Driver, message, remedy));
        }
        if let Some(earlier) = findings.first_not_ready() {
            let missing: Vec<Component> = Component::ALL
                .into_iter()
                .filter(|it| findings.components.iter().all(|found| found.component != *it))
                .collect();
            findings.skip(&missing, earlier);
        }
        for finding in &findings.components {
            report_progress(&format!(
                "{}: {}: {}",
                self.name,
                finding.component,
                finding.state.word()
            ));
        }
        NodeReport { node: self.name.to_owned(), offer: node.offer.clone(), findings }
    }

    async fn check_ready(&self, node: &NodeFacts, findings: &mut Findings) {
        findings.components.extend(self.step(Step::Driver, &[Component::Driver], None).await);
        if findings.status() != ValidateStatus::Ready {
            return;
        }
        let Some(offer) = &node.offer else {
            let without = [Component::Toolkit, Component::Cuda];
            findings
                .components
                .extend(without.map(|it| Finding::not_tried(it, "the node offers no GPU")));
            findings.components.push(Finding::failed(Component::Plugin, NO_OFFER, NO_OFFER_REMEDY));
            return;
        };
        let step = Step::Gpu(offer.clone());
        findings.components.extend(self.step(step, &Component::OF_GPU, self.gpu_limit).await);
    }

    /// The results of one Job.
    async fn step(
        &self,
        step: Step,
        components: &[Component],
        gpu_limit: Option<Duration>,
    ) -> Vec<Finding> {
        let [first, rest @ ..] = components else { return Vec::new() };
        let failed = |message: String, remedy: &str| {
            let mut findings =
                Findings { components: vec![Finding::failed(*first, message, remedy)] };
            findings.skip(rest, *first);
            findings.components
        };
        let not_tried = |message: &str, remedy: Option<&str>| {
            let findings = components.iter().map(|it| Finding::not_tried(*it, message));
            let remedy = remedy.map(str::to_owned);
            findings.map(|finding| Finding { remedy: remedy.clone(), ..finding }).collect()
        };
        let not_started = if step == Step::Driver { NOT_STARTED } else { NOT_STARTED_WITH_GPU };
        match self.jobs.run(&step, self.until, gpu_limit).await {
            Ok(Outcome::Ended(findings)) => findings.components,
            Ok(Outcome::Unschedulable(words)) => not_tried(&no_place(&words), None),
            Ok(Outcome::Refused(words, remedy)) => not_tried(&words, Some(remedy)),
            Ok(Outcome::NotStarted(words)) => failed(words, not_started),
            Ok(Outcome::Stopped) => not_tried("interrupted", None),
            Err(error) => not_tried(&format!("no Job could be run: {error}"), Some(RIGHTS)),
        }
    }
}

/// Why a pod has no place on its node, with the scheduler's words.
fn no_place(words: &str) -> String {
    // Kubernetes' own scheduler names the claims or the resource; Octavo's the GPUs.
    let is_gpu = ["claim", "nvidia.com/", "GPU"].iter().any(|word| words.contains(word));
    let problem = if is_gpu { "no free GPU" } else { "no place for a pod" };
    format!("{problem} (the scheduler says: {})", words.trim_end_matches('.'))
}

#[cfg(test)]
mod tests;
