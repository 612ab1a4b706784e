//! A lab from start to end: the implementation of `up` and `down`, and the API of tests and
//! benchmarks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use octavo_api::imex::ImexSettings;

use crate::cli::progress::Progress;
use crate::cluster::component::{self, Component};
use crate::cluster::kubeconfig;
use crate::cluster::layout::Layout;
use crate::cluster::lock::Lock;
use crate::cluster::ports::Ports;
use crate::cluster::process::Process;
use crate::cluster::ready::{self, Wanted};
use crate::cluster::settings::{Node, Settings};
use crate::cluster::stop;
use crate::cluster::{
    binaries, manifests, octavo_controller, octavo_scheduler, parent_watch, pki, start,
};
use crate::nodes::driver_libraries;
use crate::nodes::dynamic_mig::DynamicMig;
use crate::nodes::nodeset::NodeSet;
use crate::nodes::owner::Owners;
use crate::nodes::provision::{self, NodeKind};
use crate::real_node::RealNodeKind;
use crate::real_node::set::RealNodeSet;

mod real;
mod same;

/// Options of `up`.
#[derive(Debug)]
pub struct UpOptions {
    /// State folder; created if missing.
    pub state_dir: PathBuf,
    /// The simulated nodes. `None`: the default, or the nodes of a running lab.
    pub nodes: Option<NodeSet>,
    /// The real nodes. `None`: none, or the real nodes of a running lab.
    pub real_nodes: Option<RealNodeSet>,
    /// What the real nodes are. `None`: the default, or what those of a running lab are.
    pub real_node_kind: Option<RealNodeKind>,
    /// GPUs opted in to dynamic MIG. `None`: the default, or those of a running lab.
    pub dynamic_mig: Option<DynamicMig>,
    /// Owners of the nodes. `None`: the default, or those of a running lab.
    pub owners: Option<Owners>,
    /// Whether to run Octavo's scheduler. `None`: if the binary has one.
    pub scheduler: Option<bool>,
    /// Keys of the scheduler's config file; they override the lab's.
    pub scheduler_config: Option<serde_json::Value>,
    /// Whether to run Octavo's controller, with agents that are drivers of `ComputeDomains`. `None`: if the binary has one
    /// and a node has a fabric of several nodes.
    pub controller: Option<bool>,
    /// Who runs the IMEX services of simulated nodes, what keeps domains apart, and whether they encrypt. `None`: the default,
    /// or as in a running lab.
    pub imex: Option<ImexSettings>,
    /// Additional process arguments, which override the lab's own.
    pub more_args: BTreeMap<Component, Vec<String>>,
    /// The `octavo` binary for agents and kubelets.
    pub octavo: PathBuf,
    /// The simulated driver library. `None`: search beside `octavo`.
    pub fake_driver: Option<PathBuf>,
    /// Whether to run the agents; without them no slices are published.
    pub agents: bool,
    /// Whether to run the simulated kubelets; without them no node becomes Ready.
    pub kubelets: bool,
    /// Whether the lab ends with this process, however the process ends. Tests and benchmarks set
    /// it; otherwise the lab stays up until `down`. Ignored if the lab is already up.
    pub stops_with_parent: bool,
    /// Longest wait for the nodes.
    pub ready_timeout: Duration,
    /// Destination of progress messages.
    pub progress: Progress,
}

impl UpOptions {
    /// A whole lab with the default nodes and silent progress.
    pub fn new(state_dir: impl Into<PathBuf>, octavo: impl Into<PathBuf>) -> Self {
        Self {
            state_dir: state_dir.into(),
            nodes: None,
            real_nodes: None,
            real_node_kind: None,
            dynamic_mig: None,
            owners: None,
            scheduler: None,
            scheduler_config: None,
            controller: None,
            imex: None,
            more_args: BTreeMap::new(),
            octavo: octavo.into(),
            fake_driver: None,
            agents: true,
            kubelets: true,
            stops_with_parent: false,
            ready_timeout: Duration::from_mins(3),
            progress: Progress::silent(),
        }
    }

    /// The control plane and Octavo's objects alone: no simulated nodes, agents or kubelets.
    /// Kubernetes' own scheduler is the only one.
    pub fn control_plane_only(state_dir: impl Into<PathBuf>, octavo: impl Into<PathBuf>) -> Self {
        Self {
            nodes: Some(NodeSet::none()),
            scheduler: Some(false),
            controller: Some(false),
            agents: false,
            kubelets: false,
            ..Self::new(state_dir, octavo)
        }
    }

    /// The processes to start. Agents are included only if there are simulated nodes.
    fn components(
        &self,
        has_nodes: bool,
        has_real: bool,
        (scheduler, controller): (bool, bool),
    ) -> Vec<Component> {
        let wanted = |component: &Component| match component {
            Component::Registry => has_real,
            Component::OctavoScheduler => scheduler,
            Component::OctavoController => controller,
            Component::Kubelets => self.kubelets,
            Component::Agents => self.agents && has_nodes,
            _ => true,
        };
        Component::ALL.into_iter().filter(wanted).collect()
    }
}

/// A running lab. Dropping it leaves the lab up. [`Lab::down`] ends it, and so does the end of this
/// process if [`UpOptions::stops_with_parent`] is set.
#[derive(Debug)]
pub struct Lab {
    layout: Layout,
    settings: Settings,
}

impl Lab {
    /// Starts a lab, or resumes a running one and restarts its dead processes.
    ///
    /// On an error all started processes are stopped; the logs stay.
    pub async fn up(options: UpOptions) -> anyhow::Result<Self> {
        let layout = Layout::new(&options.state_dir)?;
        layout.check_owned()?;
        let lock = Lock::take(&layout)?;
        if let Some(settings) = Settings::read(&layout)?
            && settings.complete
        {
            return Box::pin(Self { layout, settings }.resume(&options)).await;
        }
        // Left over from a killed `up`.
        stop::stop_processes(&layout).await?;
        if layout.has_lab() {
            layout.remove(false).context("remove the remains of an earlier lab")?;
        }
        let outcome = Box::pin(Self::start_fresh(&options, &layout)).await;
        if outcome.is_ok() {
            options.progress.end_steps();
        }
        options.progress.finish();
        match outcome {
            Ok(lab) => Ok(lab),
            Err(error) => match clean_up(&layout, lock).await {
                Ok(()) => Err(error),
                Err(more) => Err(error.context(format!(
                    "the lab did not start, and its remains could not be removed ({more:#}): \
                     run `octavo lab down`"
                ))),
            },
        }
    }

    /// The lab in this state folder, if one is up.
    pub fn open(state_dir: &Path) -> anyhow::Result<Option<Self>> {
        let layout = Layout::new(state_dir)?;
        let settings = Settings::read(&layout)?;
        Ok(settings.map(|settings| Self { layout, settings }))
    }

    /// Ends the lab: stops every process and removes every file.
    pub async fn down(self) -> anyhow::Result<()> {
        stop::down(&self.layout, false).await.map(drop)
    }

    /// Ends any lab in this folder, including the remains of an interrupted `up`. Returns whether
    /// there was one.
    pub async fn end(state_dir: &Path) -> anyhow::Result<bool> {
        let layout = Layout::new(state_dir)?;
        Ok(stop::down(&layout, false).await?.is_some())
    }

    /// Every lab of this user on this machine with running processes, and their number.
    pub fn all_up() -> BTreeMap<PathBuf, usize> {
        let mut labs = BTreeMap::new();
        for (state_dir, _) in crate::cluster::process::processes_of_all_labs() {
            *labs.entry(state_dir).or_default() += 1;
        }
        labs
    }

    /// Kubeconfig of the cluster administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig()
    }

    /// The state folder.
    pub fn state_dir(&self) -> &Path {
        self.layout.root()
    }

    /// Paths of the lab's files.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Composition of the lab.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A client with the administrator's rights.
    pub async fn client(&self) -> anyhow::Result<kube::Client> {
        kubeconfig::client(&self.kubeconfig()).await
    }

    /// The running process of a component.
    pub fn process(&self, component: Component) -> Option<Process> {
        Process::read(&self.layout.pid_file(component)).filter(|process| process.is_alive())
    }

    /// Terminates one component gracefully and waits for its end.
    pub async fn stop(&self, component: Component) {
        if let Some(process) = self.process(component) {
            crate::cluster::process::stop(&[process], Duration::from_secs(10)).await;
        }
    }

    /// Kills one component and waits for its end.
    pub async fn kill(&self, component: Component) {
        if let Some(process) = self.process(component) {
            crate::cluster::process::stop(&[process], Duration::ZERO).await;
        }
    }

    /// Starts a component if it does not run; waits until etcd or the API server serves.
    pub async fn start(&self, component: Component) -> anyhow::Result<()> {
        start::component(component, &self.layout, &self.settings).await
    }

    /// Fails with the end of the component's log if the component has ended.
    pub fn check_alive(&self, component: Component) -> anyhow::Result<()> {
        start::check_alive(component, &self.layout)
    }

    async fn start_fresh(options: &UpOptions, layout: &Layout) -> anyhow::Result<Self> {
        let progress = &options.progress;
        let mut nodes = options.nodes.clone().unwrap_or_default().nodes();
        let mut real_nodes = real::requested(options, &nodes)?;
        let dynamic_mig = options.dynamic_mig.clone().unwrap_or_default();
        let owners = options.owners.clone().unwrap_or_default();
        let all = [&nodes[..], &real_nodes].concat();
        dynamic_mig.check(&all)?;
        owners.check(&all)?;
        let has_scheduler = octavo_scheduler::should_run(options.scheduler, &options.octavo)?;
        for node in nodes.iter_mut().chain(&mut real_nodes) {
            node.dynamic_mig = dynamic_mig.of(&node.name);
            node.owner = owners.of(node);
        }
        layout.check_sockets(nodes.iter().map(|node| node.name.as_str()))?;
        let machines = provision::load_machines(nodes.iter().chain(&real_nodes))?;
        let libraries = if machines.is_empty() {
            None
        } else {
            Some(driver_libraries::find(options.fake_driver.as_deref(), &options.octavo)?)
        };
        let has_fabric = machines.values().any(octavo_machine::Machine::has_multi_node_fabric);
        let has_controller =
            octavo_controller::should_run(options.controller, has_fabric, &options.octavo)?;
        octavo_controller::check_imex(options.imex, has_controller, !real_nodes.is_empty())?;
        let components = options.components(
            !nodes.is_empty(),
            !real_nodes.is_empty(),
            (has_scheduler, has_controller),
        );
        let total = step_count(&components, libraries.is_some(), !real_nodes.is_empty());
        progress.plan(total, binaries::step_times());
        progress.next("finding Kubernetes' programs");
        let binaries = Box::pin(binaries::find(!real_nodes.is_empty(), progress)).await?;
        let real = Box::pin(real::plan(layout, options, &binaries, real_nodes)).await?;

        progress.next("making keys and certificates");
        for folder in [layout.logs(), layout.pids(), layout.nodes(), layout.etcd()] {
            std::fs::create_dir_all(&folder)
                .with_context(|| format!("create {}", folder.display()))?;
        }
        // etcd requires mode 0700 for its data folder.
        std::fs::set_permissions(
            layout.etcd(),
            std::os::unix::fs::PermissionsExt::from_mode(0o700),
        )
        .context("close etcd's folder to others")?;
        if options.stops_with_parent {
            parent_watch::start(layout, &options.octavo)?;
        }
        pki::create(&layout.pki(), real.as_ref())?;
        let settings = Settings {
            complete: false,
            started: jiff::Timestamp::now().to_string(),
            kubernetes: binaries.version,
            ports: Ports::pick()?,
            control_plane: binaries.tools,
            octavo: options.octavo.clone(),
            components,
            more_args: options.more_args.clone(),
            imex: options.imex.unwrap_or_default(),
            nodes,
            real,
        };
        settings.write(layout)?;
        kubeconfig::write_all(layout, settings.apiserver())?;
        let scheduler = serde_saphyr::to_string(&component::scheduler_config(layout))
            .context("write the scheduler's configuration as YAML")?;
        std::fs::write(layout.scheduler_config(), scheduler)
            .context("write the scheduler's configuration")?;

        let mut lab = Self { layout: layout.clone(), settings };
        lab.start_control_plane(progress).await?;
        let client = lab.client().await?;
        progress.next("applying Octavo's objects");
        manifests::apply(&client).await?;
        if has_scheduler {
            let more = options.scheduler_config.as_ref();
            octavo_scheduler::write_files(&client, layout, &lab.settings, more).await?;
        }
        if has_controller {
            octavo_controller::write_files(&client, layout, &lab.settings).await?;
        }
        if let Some(libraries) = libraries {
            progress.next(&format!("making nodes ({})", lab.settings.all_nodes().count()));
            let settings = &lab.settings;
            let real = settings.real.as_ref().map_or(&[][..], |real| &real.nodes);
            for group in [(&settings.nodes[..], NodeKind::Simulated), (real, NodeKind::Real)] {
                let made = provision::create(
                    &client, layout, settings, group, &machines, &libraries, progress,
                );
                Box::pin(made).await?;
            }
            lab.write_real_node_files(&libraries).await?;
            lab.apply_agent_of_real_nodes(&client).await?;
        }
        lab.start_node_programs(progress).await?;
        Box::pin(lab.wait(&client, options)).await?;
        lab.settings.complete = true;
        lab.settings.write(layout)?;
        Ok(lab)
    }

    async fn resume(self, options: &UpOptions) -> anyhow::Result<Self> {
        self.check_same(options)?;
        let progress = &options.progress;
        let dead = |component: &&Component| self.process(**component).is_none();
        let dead: Vec<&str> = self
            .settings
            .components
            .iter()
            .filter(dead)
            .map(|component| component.name())
            .chain(self.dead_real_nodes())
            .collect();
        if !dead.is_empty() {
            progress.line(&format!("starting ended programs again: {}", dead.join(", ")));
            self.start_control_plane(progress).await?;
            self.mark_dead_real_nodes(&self.client().await?).await?;
            self.start_node_programs(progress).await?;
        }
        let client = self.client().await?;
        Box::pin(self.wait(&client, options)).await?;
        progress.finish();
        Ok(self)
    }

    async fn start_control_plane(&self, progress: &Progress) -> anyhow::Result<()> {
        // The API server listens on the bridge.
        self.ensure_bridge()?;
        progress.next("starting etcd and the API server");
        for component in [
            Component::Etcd,
            Component::KubeApiserver,
            Component::Registry,
            Component::KubeControllerManager,
            Component::KubeScheduler,
        ] {
            if self.settings.components.contains(&component) {
                self.start(component).await?;
            }
        }
        Ok(())
    }

    async fn start_node_programs(&self, progress: &Progress) -> anyhow::Result<()> {
        for component in [
            Component::OctavoScheduler,
            Component::OctavoController,
            Component::Kubelets,
            Component::Agents,
        ] {
            if self.settings.components.contains(&component) {
                progress.next("starting scheduler, kubelets and agents");
                self.start(component).await?;
            }
        }
        self.start_real_nodes(progress).await
    }

    async fn wait(&self, client: &kube::Client, options: &UpOptions) -> anyhow::Result<()> {
        options.progress.next("waiting until the lab is ready");
        let runs = |component: Component| self.settings.components.contains(&component);
        let names = |nodes: &[Node]| -> Vec<String> {
            nodes.iter().map(|node| node.name.clone()).collect()
        };
        let simulated = if runs(Component::Kubelets) { &self.settings.nodes[..] } else { &[] };
        let agentless = runs(Component::Kubelets) && !runs(Component::Agents);
        let wanted = Wanted {
            nodes: names(simulated).into_iter().chain(names(self.real_nodes())).collect(),
            slices: runs(Component::Agents) || (!agentless && !self.real_nodes().is_empty()),
            timeout: options.ready_timeout,
        };
        ready::wait(client, &wanted, &options.progress, || {
            self.settings
                .components
                .iter()
                .try_for_each(|&component| self.check_alive(component))?;
            self.check_real_nodes()
        })
        .await
    }
}

/// Number of steps of a fresh start.
fn step_count(components: &[Component], nodes: bool, real_nodes: bool) -> usize {
    let node_program = |component: &Component| {
        matches!(component, Component::OctavoScheduler | Component::Kubelets | Component::Agents)
    };
    // Programs, keys, etcd and API server, objects, readiness.
    let always = 5;
    let node_programs = components.iter().any(node_program);
    always + usize::from(nodes) + usize::from(node_programs) + usize::from(real_nodes)
}

/// Removes the remains of a failed `up`, except the logs.
async fn clean_up(layout: &Layout, lock: Lock) -> anyhow::Result<()> {
    stop::stop_processes(layout).await?;
    layout.remove(true).context("remove the remains of the lab")?;
    lock.remove()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_by_the_parts_of_the_lab() {
        let alone = UpOptions::control_plane_only("/lab", "/octavo").components(
            false,
            false,
            (false, false),
        );
        assert_eq!(step_count(&alone, false, false), 5);
        let whole = UpOptions::new("/lab", "/octavo").components(true, false, (true, true));
        assert_eq!(step_count(&whole, true, false), 7);
        assert_eq!(step_count(&whole, true, true), 8);
    }
}
