//! Status of a lab: its processes and its nodes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::api::{Api, ListParams};
use octavo_machine::Machine;
use serde::Serialize;

use crate::cli::gpu;
use crate::cluster::component::Component;
use crate::cluster::kubeconfig;
use crate::cluster::layout::Layout;
use crate::cluster::process::Process;
use crate::cluster::ready;
use crate::cluster::settings::{Node, Settings};
use crate::real_node::{NodeContext, RealProgram, launch, node_contexts};

/// Longest wait for the API server.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The state of a lab.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    /// `up`: all processes run and all nodes are ready; `degraded`: some do not; `down`: no lab.
    pub(crate) state: &'static str,
    pub(crate) state_dir: PathBuf,
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) kubernetes: Option<String>,
    pub(crate) started: Option<String>,
    pub(crate) components: Vec<ComponentStatus>,
    pub(crate) nodes: Vec<NodeStatus>,
    /// The problem and its remedy, for people.
    pub(crate) problem: Option<String>,
}

/// One process.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ComponentStatus {
    pub(crate) name: String,
    pub(crate) pid: Option<i32>,
    /// `running` or `ended`.
    pub(crate) state: &'static str,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) log: PathBuf,
}

/// One node; unknown values are `None`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeStatus {
    pub(crate) name: String,
    pub(crate) machine: String,
    pub(crate) gpus: Option<usize>,
    pub(crate) ready: Option<bool>,
    pub(crate) slices: Option<usize>,
}

/// Reads the status of the lab in a state folder.
pub(crate) async fn gather(layout: &Layout) -> anyhow::Result<Status> {
    let Some(settings) = Settings::read(layout)? else {
        return Ok(Status {
            state: "down",
            state_dir: layout.root().to_owned(),
            kubeconfig: None,
            kubernetes: None,
            started: None,
            components: Vec::new(),
            nodes: Vec::new(),
            problem: None,
        });
    };
    let real = node_contexts(layout, &settings).flat_map(|context| real_programs(&context));
    let components: Vec<ComponentStatus> = settings
        .components
        .iter()
        .map(|&component| status_of(component, layout))
        .chain(real)
        .collect();
    let view = match tokio::time::timeout(RESPONSE_TIMEOUT, Box::pin(read_cluster(layout))).await {
        Ok(Ok(view)) => Some(view),
        _ => None,
    };
    let nodes = nodes(layout, settings.all_nodes(), view.as_ref());
    let problem = problem(&settings, &components, &nodes, view.is_some());
    Ok(Status {
        state: if problem.is_none() { "up" } else { "degraded" },
        state_dir: layout.root().to_owned(),
        kubeconfig: Some(layout.kubeconfig()),
        kubernetes: settings.kubernetes,
        started: Some(settings.started),
        components,
        nodes,
        problem,
    })
}

/// The processes of a real node. All have ended if the node has. Of a virtual machine only QEMU's
/// process is seen.
fn real_programs(context: &NodeContext<'_>) -> Vec<ComponentStatus> {
    let (layout, node) = (context.layout, context.node.name.as_str());
    let status = |program: &str, process, log: &str| {
        component_status(format!("{node}/{program}"), process, layout.real_log(node, log))
    };
    if context.is_virtual_machine() {
        return vec![status("node", launch::main_process(layout, node), "node")];
    }
    let programs = RealProgram::ALL.into_iter();
    programs
        .map(|program| {
            status(program.name(), launch::program(layout, node, program), program.name())
        })
        .collect()
}

fn status_of(component: Component, layout: &Layout) -> ComponentStatus {
    let process = Process::read(&layout.pid_file(component)).filter(|process| process.is_alive());
    component_status(component.name().to_owned(), process, layout.log(component))
}

fn component_status(name: String, process: Option<Process>, log: PathBuf) -> ComponentStatus {
    ComponentStatus {
        name,
        pid: process.map(|process| process.pid),
        state: if process.is_some() { "running" } else { "ended" },
        resident_bytes: process.and_then(Process::resident_bytes),
        log,
    }
}

/// The API server's view of the nodes.
struct ClusterView {
    ready: BTreeMap<String, bool>,
    slices: BTreeMap<String, usize>,
}

async fn read_cluster(layout: &Layout) -> anyhow::Result<ClusterView> {
    let client = kubeconfig::client(&layout.kubeconfig()).await?;
    let api: Api<NodeObject> = Api::all(client.clone());
    let listed = api.list(&ListParams::default()).await.context("list the nodes")?;
    let ready = listed
        .items
        .iter()
        .filter_map(|node| Some((node.metadata.name.clone()?, ready::is_ready(node))))
        .collect();
    let mut slices = BTreeMap::new();
    for slice in ready::list_slices(&client).await? {
        if let Some(node) = slice.spec.node_name {
            *slices.entry(node).or_default() += 1;
        }
    }
    Ok(ClusterView { ready, slices })
}

fn nodes<'a>(
    layout: &Layout,
    nodes: impl Iterator<Item = &'a Node>,
    view: Option<&ClusterView>,
) -> Vec<NodeStatus> {
    // Machines of one name have the same number of GPUs.
    let mut gpus: BTreeMap<&str, Option<usize>> = BTreeMap::new();
    nodes
        .map(|node| NodeStatus {
            name: node.name.clone(),
            machine: node.machine.clone(),
            gpus: *gpus.entry(&node.machine).or_insert_with(|| {
                let path = gpu::machine_file(&layout.node(&node.name));
                Some(Machine::read(&path).ok()?.gpus.len())
            }),
            ready: view.map(|view| view.ready.get(&node.name).copied().unwrap_or(false)),
            slices: view.map(|view| view.slices.get(&node.name).copied().unwrap_or(0)),
        })
        .collect()
}

fn problem(
    settings: &Settings,
    components: &[ComponentStatus],
    nodes: &[NodeStatus],
    is_answering: bool,
) -> Option<String> {
    let ended: Vec<&str> = components
        .iter()
        .filter(|component| component.state == "ended")
        .map(|component| component.name.as_str())
        .collect();
    if !settings.complete {
        return Some(
            "`octavo lab up` is running here or was interrupted: wait, or run it again".into(),
        );
    }
    if !ended.is_empty() {
        return Some(format!(
            "{} ended: `octavo lab up` starts ended programs again",
            ended.join(", ")
        ));
    }
    if !is_answering {
        return Some("the API server does not answer: see `octavo lab logs kube-apiserver`".into());
    }
    let runs = |component| settings.components.contains(&component);
    let is_real = |node: &NodeStatus| {
        settings.real.iter().flat_map(|real| &real.nodes).any(|real| real.name == node.name)
    };
    let waiting = nodes
        .iter()
        .filter(|node| {
            let real = is_real(node);
            ((real || runs(Component::Kubelets)) && node.ready != Some(true))
                || ((real || runs(Component::Agents)) && node.slices == Some(0))
        })
        .count();
    (waiting > 0).then(|| {
        format!("{waiting} nodes are not ready or have no slices: see `octavo lab logs agents`")
    })
}
