//! A lab for one turn of one contender: a fresh control plane, fake nodes, and only the contender's
//! scheduler.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use octavo_lab::{Component, Lab, UpOptions};
use serde_json::{Value, json};

use super::api::{Api, Kind};
use super::contender::Contender;
use super::device_objects;
use super::mig_slices::{self, MigSlice};
use super::objects::{self, Gpus, PodRequest};
use super::observer::Observer;
use super::workers;
use crate::lab_dir::LabDir;
use crate::process;

/// How long a pod may take that shows that a scheduler works.
const POD_TIMEOUT: Duration = Duration::from_mins(1);

/// The cluster of a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClusterSpec {
    pub(super) nodes: usize,
    pub(super) gpus: Gpus,
    /// Whether gangs are made in it.
    pub(super) gangs: bool,
    /// How many pods may move for one gang.
    pub(super) moves: u32,
    /// Whether Octavo's controller runs, too. As in the chart it then deletes members of gangs on lost
    /// nodes.
    pub(super) controller: bool,
}

/// Events of bound pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Events {
    /// One for each pod from every contender, as kube-scheduler writes them.
    Same,
    /// Octavo with its defaults, which drop them when many wait, and raw without events.
    Shipped,
}

/// A lab in which one contender schedules.
pub(super) struct Testbed {
    pub(super) lab: Lab,
    pub(super) api: Api,
    pub(super) observer: Arc<Observer>,
    pub(super) contender: Contender,
    pub(super) world: ClusterSpec,
    pub(super) events: Events,
    // Removed after the lab has ended.
    _lab_dir: LabDir,
}

impl Testbed {
    /// Brings the cluster up; the contender's scheduler does not run yet.
    pub(super) async fn up(
        octavo: &Path,
        contender: Contender,
        world: ClusterSpec,
        events: Events,
    ) -> anyhow::Result<Self> {
        let slices = match world.gpus {
            Gpus::Mig => Box::pin(mig_slices::of_one_node(octavo, contender)).await?,
            _ => Vec::new(),
        };
        let lab_dir = LabDir::new()?;
        let options = UpOptions {
            scheduler: Some(contender.is_octavo()),
            controller: Some(world.controller),
            scheduler_config: Some(scheduler_config(world, events)),
            more_args: more_args(),
            ..lab_dir.control_plane_only(octavo)
        };
        let lab = Box::pin(Lab::up(options)).await?;
        let made = Box::pin(Self::equip(&lab, contender, world, slices)).await;
        let (api, observer) = match made {
            Ok(made) => made,
            Err(error) => {
                lab.down().await?;
                return Err(error);
            }
        };
        let observer = Arc::new(observer);
        Ok(Self { lab, api, observer, contender, world, events, _lab_dir: lab_dir })
    }

    async fn equip(
        lab: &Lab,
        contender: Contender,
        world: ClusterSpec,
        slices: Vec<MigSlice>,
    ) -> anyhow::Result<(Api, Observer)> {
        for component in
            [Component::KubeScheduler, Component::OctavoScheduler, Component::OctavoController]
        {
            lab.kill(component).await;
        }
        let api = Api::connect(lab).await?;
        for (name, value) in objects::PRIORITIES {
            api.create(Kind::Priorities, &objects::priority(name, value)).await?;
        }
        if world.gpus.is_dra() {
            api.create(Kind::Classes, &device_objects::nic_class()).await?;
            for template in device_objects::templates() {
                api.create(Kind::Templates, &template).await?;
            }
        } else if !contender.has_class() {
            // Where a device plugin has the GPUs, no class answers for them.
            let classes = api.list::<Value>(Kind::Classes).await?;
            for class in classes.items {
                let name = class["metadata"]["name"].as_str().unwrap_or_default();
                api.delete(Kind::Classes, name).await?;
            }
        }
        let (nodes, mig_slices) = (api.clone(), Arc::new(slices));
        workers::in_parallel(world.nodes, move |number| {
            let (api, mig_slices) = (nodes.clone(), Arc::clone(&mig_slices));
            async move {
                let node = objects::node(number, world.gpus, contender);
                api.create(Kind::Nodes, &node).await?;
                for slice in device_objects::slices(number, world.gpus, contender) {
                    api.create(Kind::Slices, &slice).await?;
                }
                for slice in mig_slices.iter() {
                    api.create(Kind::Slices, &slice.on_node(number)?).await?;
                }
                Ok(())
            }
        })
        .await?;
        // A separate connection, so that writes do not delay the watches.
        let watches = Api::connect(lab).await?;
        let observer = Observer::start(&watches, world.gpus.is_dra(), world.gangs).await?;
        Ok((api, observer))
    }

    /// Starts the contender's scheduler, and the controller if there is one. Waits until the scheduler
    /// has bound a pod, and all is quiet.
    pub(super) async fn start(&self) -> anyhow::Result<()> {
        if self.world.controller {
            self.lab.start(Component::OctavoController).await?;
        }
        if let Some(component) = self.contender.component() {
            self.lab.start(component).await?;
            self.api
                .create(Kind::Pods, &objects::pod("probe-0", PodRequest::Plain, self.contender))
                .await?;
            let bound = self.observer.all_bound("probe", 1, POD_TIMEOUT).await;
            bound.with_context(|| format!("{} does not schedule", self.contender.name()))?;
            self.api.delete(Kind::Pods, "probe-0").await?;
        }
        self.quiet().await
    }

    /// Waits until the API server has little to do.
    pub(super) async fn quiet(&self) -> anyhow::Result<()> {
        let pid = self.pid(Component::KubeApiserver)?;
        let deadline = Instant::now() + Duration::from_secs(20);
        let window = Duration::from_millis(500);
        loop {
            let before = process::cpu_time(pid)?;
            tokio::time::sleep(window).await;
            let used = process::cpu_time(pid)?.saturating_sub(before);
            if used < window / 8 || Instant::now() > deadline {
                return Ok(());
            }
        }
    }

    /// The id of a process of the lab.
    pub(super) fn pid(&self, component: Component) -> anyhow::Result<u32> {
        let process = self.lab.process(component);
        let process = process.with_context(|| format!("{} has ended", component.name()))?;
        Ok(process.pid.cast_unsigned())
    }

    /// Deletes pods by name in parallel, and waits until they are gone.
    pub(super) async fn delete_pods(&self, names: &[String]) -> anyhow::Result<()> {
        let (api, list) = (self.api.clone(), names.to_vec());
        workers::in_parallel(names.len(), move |number| {
            let (api, name) = (api.clone(), list.get(number).cloned());
            async move {
                match name {
                    Some(name) => api.delete(Kind::Pods, &name).await,
                    None => Ok(()),
                }
            }
        })
        .await?;
        let are_gone = |seen: &super::observer::ObservedState| {
            (!names.iter().any(|name| seen.pods.contains_key(name))).then_some(())
        };
        self.observer.until("deleted pods are gone", POD_TIMEOUT, are_gone).await
    }

    /// Ends the lab. Fails if the contender's scheduler or the controller had ended before the turn had.
    pub(super) async fn down(self) -> anyhow::Result<()> {
        let controller = self.world.controller.then_some(Component::OctavoController);
        let mut programs = self.contender.component().into_iter().chain(controller);
        let alive = programs.try_for_each(|program| self.lab.check_alive(program));
        drop(self.observer);
        self.lab.down().await?;
        alive
    }
}

/// Octavo's scheduler moves pods, and writes an event for each pod, only if its configuration says so.
fn scheduler_config(world: ClusterSpec, events: Events) -> Value {
    let mut config = json!({});
    if world.moves > 0 {
        config["defragmentation"] = json!({"enabled": true, "moves": world.moves});
    }
    if events == Events::Same {
        config["scheduledEvents"] = "all".into();
    }
    config
}

/// Fake nodes have no kubelet that renews leases, so the controllers that check them are off.
fn more_args() -> BTreeMap<Component, Vec<String>> {
    let without = "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller";
    BTreeMap::from([
        (Component::KubeControllerManager, vec![without.to_owned()]),
        (
            Component::KubeApiserver,
            vec!["--disable-admission-plugins=TaintNodesByCondition".to_owned()],
        ),
    ])
}
