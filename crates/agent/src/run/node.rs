//! The agent of one node: what all its parts use.
//!
//! The driver's thread and the API client start in any state of the agent. Parts that fail to start are retried while the
//! others work, and the readiness report names them.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kube::Client;
use octavo_cdi::Majors;
use octavo_gpu::nvml::{Nvml, find_library};
use octavo_gpu::{CharDevices, Driver, DriverError};
use octavo_kube_io::admin::Check;
use octavo_kube_io::client::{self, ClientOptions};
use tokio::sync::watch;
use tokio::time::sleep;

use super::Shared;
use super::node_settings::{NodeIdentity, NodeSettings};
use super::retry::retry_delays;
use crate::claims::boot_id;
use crate::config::{Mode, NodeConfig};
use crate::health::RecordFile;
use crate::monitor::{
    self, HealthInputs, MonitorRequests, Opener, Rebooter, Reloader, Snapshot, Waker,
};
use crate::node::DraDriver;

/// Time without an answer after which a newcomer reports readiness as standby. Only then does a rolling update end the
/// unresponsive agent.
const STANDBY_AFTER: Duration = Duration::from_secs(20);

/// The agent of one node. Clones share its state.
#[derive(Clone)]
pub(super) struct NodeAgent {
    pub(super) config: Arc<NodeConfig>,
    pub(super) shared: Shared,
    pub(super) snapshots: watch::Receiver<Snapshot>,
    /// The node's settings; `None` until they were read.
    pub(super) settings: watch::Sender<Option<NodeSettings>>,
    /// The node's UID and labels; `None` until they were read.
    pub(super) identity: watch::Sender<Option<NodeIdentity>>,
    /// The mode in which the node is; `None` while it changes, and until that is known.
    pub(super) reached: watch::Sender<Option<Mode>>,
    /// Whether the driver is to be released; `None` until the settings were read.
    pub(super) release: watch::Sender<Option<bool>>,
    /// Wakes the driver's thread.
    pub(super) waker: Waker,
    /// Time without an answer after which it reports readiness as standby.
    pub(super) standby_after: Duration,
}

impl NodeAgent {
    /// Creates an agent and starts its driver's thread.
    pub(super) fn new(config: NodeConfig, shared: Shared, open: Opener) -> anyhow::Result<Self> {
        let node = config.node_name.clone();
        let (metrics, stop) = (Arc::clone(&shared.metrics), shared.stop.clone());
        let (release, released) = watch::channel(None);
        let (requests, waker) = MonitorRequests::new(released);
        let proc_root = config.paths.proc_root.clone();
        // A simulated node has other processes than its host.
        let is_host = proc_root == Path::new("/proc");
        let rebooter =
            Rebooter { proc_root: is_host.then(|| proc_root.clone()), ..Rebooter::default() };
        let reloader = Reloader {
            proc_root: proc_root.clone(),
            note: config.paths.run_root.join("octavo/driver-reload.json"),
            // In a pod with the host's processes.
            host_root: "/proc/1/root".into(),
            enters_roots: is_host,
            tasks: shared.tasks.clone(),
        };
        let modules = Box::new(move || {
            // A file that cannot be read is named where a claim is refused.
            let devices = CharDevices::read(&proc_root).ok()?;
            Majors::of(&devices).err().map(|missing| missing.module)
        });
        // Without a boot's id a reboot shows by other signs.
        let health = HealthInputs {
            record: Some(RecordFile::new(config.health_file())),
            boot_id: boot_id(&config.paths).unwrap_or_default(),
            driver_root: config.paths.driver_root_seen.clone(),
            // Its file may be replaced while it runs.
            test_program: "/proc/self/exe".into(),
            reloader,
            rebooter,
            kernel_log: config.kernel_log.clone(),
            sys_root: Some(config.paths.sys_root.clone()),
        };
        let snapshots = monitor::start(&node, open, modules, requests, health, metrics, stop)
            .with_context(|| format!("cannot start the driver's thread of node {node}"))?;
        let (config, standby_after) = (Arc::new(config), STANDBY_AFTER);
        let (settings, reached) = (watch::channel(None).0, watch::channel(None).0);
        let identity = watch::channel(None).0;
        Ok(Self {
            config,
            shared,
            snapshots,
            settings,
            identity,
            reached,
            release,
            waker,
            standby_after,
        })
    }

    pub(super) async fn connect(&self) -> Client {
        let check = self.check("api", "the client is being made");
        let options = ClientOptions {
            kubeconfig: self.config.kubeconfig.clone(),
            context: None,
            user_agent: concat!("octavo-agent/", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        self.until_ok(&check, || client::connect(&options)).await
    }

    pub(super) fn instance(&self) -> &str {
        self.config.instance_id.as_deref().unwrap_or("unnamed")
    }

    /// Reflects the driver's state in the readiness report.
    pub(super) fn follow_driver(&self) -> impl Future<Output = ()> + use<> {
        let check = self.check("driver", "the GPUs are being read");
        let (mut snapshots, stop) = (self.snapshots.clone(), self.shared.stop.clone());
        async move {
            snapshots.mark_changed();
            while let Some(Ok(())) = stop.run_until_cancelled(snapshots.changed()).await {
                let snapshot = snapshots.borrow_and_update();
                match (&snapshot.error, &snapshot.inventory) {
                    // As an administrator wishes.
                    (Some(_), _) if snapshot.is_driver_released => check.pass(),
                    (Some(error), _) => check.fail(error),
                    (None, Some(_)) => check.pass(),
                    (None, None) => {}
                }
            }
        }
    }

    /// Retries until it succeeds. `check` and the log show the error.
    pub(super) async fn until_ok<T, E, F>(&self, check: &Check, attempt: impl Fn() -> F) -> T
    where
        E: Display,
        F: Future<Output = Result<T, E>>,
    {
        let mut backoff = retry_delays();
        loop {
            match attempt().await {
                Ok(value) => {
                    check.pass();
                    return value;
                }
                Err(error) => {
                    let error = error.to_string();
                    tracing::error!(node = %self.config.node_name, %error, "trying again");
                    check.fail(error);
                    sleep(backoff.next_delay()).await;
                }
            }
        }
    }

    /// A readiness check of one driver.
    pub(super) fn check_of(&self, driver: DraDriver, name: &str, reason: &str) -> Check {
        match driver {
            DraDriver::GPU => self.check(name, reason),
            _ => self.check(&format!("{}-{name}", driver.name()), reason),
        }
    }

    pub(super) fn check(&self, name: &str, reason: &str) -> Check {
        let name = if self.shared.is_many {
            format!("{}/{name}", self.config.node_name)
        } else {
            name.to_owned()
        };
        self.shared.readiness.check(name, reason)
    }
}

/// Opens the node's management library.
pub(super) fn opener(config: &NodeConfig) -> Opener {
    let library = config.driver_library.clone();
    let driver_root = config.paths.driver_root_seen.clone();
    let sys_root = config.paths.sys_root.clone();
    Box::new(move || {
        let library = match &library {
            Some(library) => library.clone(),
            None => find_library(&driver_root)?,
        };
        let driver: Arc<dyn Driver> = Arc::new(Nvml::open(&library, &sys_root)?);
        Ok::<_, DriverError>(driver)
    })
}
