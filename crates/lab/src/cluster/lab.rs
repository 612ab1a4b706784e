//! A lab from start to end: the implementation of `up` and `down`, and the API of tests and
//! benchmarks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use crate::cli::progress::Progress;
use crate::cluster::add_ons::{self, AddOns};
use crate::cluster::component::{self, Component};
use crate::cluster::kubeconfig;
use crate::cluster::layout::Layout;
use crate::cluster::lock::Lock;
use crate::cluster::ports::Ports;
use crate::cluster::process::Process;
use crate::cluster::ready::{self, Wanted};
use crate::cluster::repair::ControllerRepair;
use crate::cluster::settings::{Node, Settings};
use crate::cluster::stop;
use crate::cluster::{
    binaries, manifests, octavo_controller, octavo_scheduler, parent_watch, pki, start,
};
use crate::nodes::driver_libraries;
use crate::nodes::provision::{self, NodeKind};

mod options;
mod real;
mod same;

pub use options::UpOptions;

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
        ControllerRepair::check(options.scheduler_config.as_ref(), has_controller)?;
        octavo_controller::check_imex(options.imex, has_controller, !real_nodes.is_empty())?;
        let add_ons = AddOns::requested(options.dns, options.mpi_operator, !real_nodes.is_empty())?;
        let components = options.components(
            !nodes.is_empty(),
            !real_nodes.is_empty(),
            (has_scheduler, has_controller),
            add_ons,
        );
        let total = step_count(&components, libraries.is_some(), !real_nodes.is_empty());
        progress.plan(total, binaries::step_times());
        progress.next("finding Kubernetes' programs");
        let binaries = Box::pin(binaries::find(!real_nodes.is_empty(), add_ons, progress)).await?;
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

        if add_ons.name_server
            && let Some(real) = &settings.real
        {
            add_ons::write_name_server(layout, real)?;
        }

        let mut lab = Self { layout: layout.clone(), settings };
        lab.start_control_plane(progress).await?;
        let client = lab.client().await?;
        progress.next("applying Octavo's objects");
        let translation = options.translation.as_ref();
        let webhook_port = lab.settings.ports.octavo_webhook;
        manifests::apply(&client, translation.map(|_| webhook_port)).await?;
        let (more, settings) = (options.scheduler_config.as_ref(), &lab.settings);
        let repair = ControllerRepair::of(more).filter(|_| has_scheduler && has_controller);
        let repair = repair.as_ref();
        if has_scheduler {
            octavo_scheduler::write_files(&client, layout, settings, more, repair).await?;
        }
        if has_controller {
            octavo_controller::write_files(&client, layout, settings, translation, repair).await?;
        }
        if add_ons.mpi_operator {
            add_ons::apply_mpi_jobs(&client, &lab.settings).await?;
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
            Component::Coredns,
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
            Component::MpiOperator,
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
        matches!(
            component,
            Component::OctavoScheduler
                | Component::OctavoController
                | Component::MpiOperator
                | Component::Kubelets
                | Component::Agents
        )
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
            AddOns::default(),
        );
        assert_eq!(step_count(&alone, false, false), 5);
        let whole = UpOptions::new("/lab", "/octavo").components(
            true,
            false,
            (true, true),
            AddOns::default(),
        );
        assert_eq!(step_count(&whole, true, false), 7);
        assert_eq!(step_count(&whole, true, true), 8);
    }
}
