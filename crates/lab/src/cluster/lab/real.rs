//! The real nodes of a lab: their part of `up`, and the API of tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::{Lab, UpOptions};
use crate::cli::progress::Progress;
use crate::cluster::binaries::{self, Binaries};
use crate::cluster::component::Component;
use crate::cluster::layout::Layout;
use crate::cluster::process::{self, Process};
use crate::cluster::settings::{Node, RealNodes};
use crate::nodes::driver_libraries::DriverLibraries;
use crate::nodes::nodeset;
use crate::real_node::set::RealNodeSet;
use crate::real_node::{
    self, RealNodeKind, RealProgram, agent_pod, host_network, images, launch, node_contexts,
    requirements,
};

/// The requested real nodes. Fails if this machine cannot run them, or if their names collide with
/// simulated nodes.
pub(super) fn requested(options: &UpOptions, simulated: &[Node]) -> anyhow::Result<Vec<Node>> {
    let nodes = options.real_nodes.as_ref().map(RealNodeSet::nodes).unwrap_or_default();
    if nodes.is_empty() {
        return Ok(nodes);
    }
    requirements::check()?;
    if options.mpi_operator == Some(true) {
        images::mpi::check()?;
    }
    let names: Vec<&str> = simulated.iter().map(|node| node.name.as_str()).collect();
    if let Some(duplicate) = nodes.iter().find(|node| names.contains(&&*node.name)) {
        bail!(
            "a simulated node and the real node {} have the same name: rename the simulated \
             node's machine",
            duplicate.name
        );
    }
    // Files shared by the nodes of one machine are stored under the machine name's stem.
    let mut machines = BTreeMap::new();
    for node in simulated.iter().chain(&nodes) {
        let stem = nodeset::stem(&node.machine);
        let first = machines.entry(stem).or_insert(&node.machine);
        if *first != &node.machine {
            bail!("{first} and {} have the same name: rename one of the files", node.machine);
        }
    }
    Ok(nodes)
}

/// Chooses the programs and the network of the real nodes; `None` without such nodes.
pub(super) async fn plan(
    layout: &Layout,
    options: &UpOptions,
    binaries: &Binaries,
    nodes: Vec<Node>,
) -> anyhow::Result<Option<RealNodes>> {
    if nodes.is_empty() {
        return Ok(None);
    }
    let containerd = Box::pin(binaries::containerd(&options.progress)).await?;
    let kubelet = binaries.tools.get("kubelet").context("the lab's tools have no kubelet")?;
    let programs = [options.octavo.as_path(), &containerd, &kubelet.program];
    requirements::check_visible(layout, programs.into_iter())?;
    let virtual_machines = match options.real_node_kind.unwrap_or_default() {
        RealNodeKind::Namespaces => None,
        RealNodeKind::VirtualMachine => {
            requirements::check_virtual_machine()?;
            Some(binaries::virtual_machine(&options.progress).await?)
        }
    };
    let network = host_network::choose(layout)?;
    Ok(Some(RealNodes { containerd, network, nodes, virtual_machines }))
}

impl Lab {
    /// The real nodes.
    pub fn real_nodes(&self) -> &[Node] {
        self.settings.real.as_ref().map_or(&[], |real| &real.nodes)
    }

    /// Applies the agent of the real nodes again, as it finds the simulated hardware.
    ///
    /// # Errors
    ///
    /// The API server refuses.
    pub async fn apply_real_agent(&self) -> anyhow::Result<()> {
        agent_pod::apply(&self.client().await?).await
    }

    /// The running process of a program of a real node; `None` in a virtual machine.
    pub fn real_process(&self, node: &str, program: RealProgram) -> Option<Process> {
        launch::program(&self.layout, node, program)
    }

    /// The root folder of a real node as seen from this process; `None` if the node does not run,
    /// or is a virtual machine.
    pub fn real_root(&self, node: &str) -> Option<PathBuf> {
        let init = launch::init(&self.layout, node)?;
        Some(Path::new("/proc").join(init.pid.to_string()).join("root"))
    }

    /// Kills a program of a real node and waits for its end. The node restarts it.
    pub async fn kill_real(&self, node: &str, program: RealProgram) {
        if let Some(process) = self.real_process(node, program) {
            process::stop(&[process], Duration::ZERO).await;
        }
    }

    /// Ends a real node like a power failure, and waits for its end. [`Lab::up`] restarts it.
    pub async fn kill_real_node(&self, node: &str) {
        launch::stop(&self.layout, node).await;
    }

    /// Kills a real node and starts it again. Its programs start asynchronously.
    pub(crate) async fn reboot_real_node(&self, node: &str) -> anyhow::Result<()> {
        self.kill_real_node(node).await;
        match node_contexts(&self.layout, &self.settings).find(|context| context.node.name == node)
        {
            Some(context) => launch::start(&context).await,
            None => bail!("the lab has no real node {node}"),
        }
    }

    pub(super) fn ensure_bridge(&self) -> anyhow::Result<()> {
        let real = self.settings.real.as_ref();
        real.map_or(Ok(()), |real| host_network::ensure_bridge(&self.layout, real))
    }

    /// Writes the files of the real nodes other than their hardware.
    pub(super) async fn write_real_node_files(
        &self,
        libraries: &DriverLibraries,
    ) -> anyhow::Result<()> {
        if self.real_nodes().is_empty() {
            return Ok(());
        }
        let (layout, libraries) = (self.layout.clone(), libraries.clone());
        let octavo = self.settings.octavo.clone();
        let has_mpi = self.settings.components.contains(&Component::MpiOperator);
        tokio::task::spawn_blocking(move || images::pack(&layout, &libraries, &octavo, has_mpi))
            .await
            .context("pack the images of the real nodes")?
            .context("pack the images of the real nodes")?;
        node_contexts(&self.layout, &self.settings)
            .try_for_each(|context| real_node::config::write(&context))
    }

    /// Applies the chart's agent, whose pods run on the real nodes.
    pub(super) async fn apply_agent_of_real_nodes(
        &self,
        client: &kube::Client,
    ) -> anyhow::Result<()> {
        if self.real_nodes().is_empty() {
            return Ok(());
        }
        agent_pod::apply(client).await
    }

    /// Sets the Ready condition of dead real nodes to Unknown. Otherwise a wait could mistake their
    /// last Ready status for a new one.
    pub(super) async fn mark_dead_real_nodes(&self, client: &kube::Client) -> anyhow::Result<()> {
        let nodes: Api<NodeObject> = Api::all(client.clone());
        let unknown = json!({ "status": { "conditions": [{
            "type": "Ready",
            "status": "Unknown",
            "reason": "LabNodeEnded",
            "message": "the lab's real node is not running",
        }]}});
        for name in self.dead_real_nodes() {
            nodes
                .patch_status(name, &PatchParams::default(), &Patch::Strategic(&unknown))
                .await
                .with_context(|| format!("mark {name} as not ready"))?;
        }
        Ok(())
    }

    pub(super) async fn start_real_nodes(&self, progress: &Progress) -> anyhow::Result<()> {
        let contexts: Vec<_> = node_contexts(&self.layout, &self.settings).collect();
        if contexts.is_empty() {
            return Ok(());
        }
        progress.next("starting real nodes");
        try_join_all(contexts.iter().map(|context| launch::start(context))).await.map(drop)
    }

    /// Names of real nodes that are not running.
    pub(super) fn dead_real_nodes(&self) -> impl Iterator<Item = &str> {
        let names = self.real_nodes().iter().map(|node| node.name.as_str());
        names.filter(|name| launch::check_alive(&self.layout, name).is_err())
    }

    pub(super) fn check_real_nodes(&self) -> anyhow::Result<()> {
        let mut nodes = self.real_nodes().iter();
        nodes.try_for_each(|node| launch::check_alive(&self.layout, &node.name))
    }
}
