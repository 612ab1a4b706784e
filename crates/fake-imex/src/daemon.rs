//! A running service.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use octavo_fake_gpu::locate::MachineLocation;
use octavo_machine::{ImexState, StateFile};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::config::{Config, Quorum};
use crate::driver::DriverSession;
use crate::log::Log;
use crate::names::{self, Names};
use crate::status::{ConnectionStatus, NodeStatus};
use crate::stream::Transport;
use crate::{command, peers};

pub use octavo_fake_gpu::locate::machine_of_program as machine;
pub(crate) use shared::{Shared, State};

mod shared;

/// Time in which a second SIGUSR1 is ignored.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// Interval in which the file with the faults is looked at.
const FAULT_INTERVAL: Duration = Duration::from_millis(100);

/// Time in which subscribers receive the last state.
const NOTICE: Duration = Duration::from_millis(50);

/// Version of a service without a driver.
const NO_DRIVER: &str = "0.0";

/// What is around a service.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The hosts file.
    pub hosts: PathBuf,
    /// The machine; `None`: without a driver (`--nogpu`).
    pub machine: Option<MachineLocation>,
}

/// A running service. It ends when dropped, and has ended after [`Daemon::shut_down`].
pub struct Daemon {
    shared: Arc<Shared>,
    reloaded_at: Mutex<Option<Instant>>,
    _stop: DropGuard,
}

impl Daemon {
    /// Starts a service. It is ready later.
    ///
    /// # Errors
    ///
    /// A list without this node, keys that cannot be read, ports in use, a driver of another version or one that has a
    /// session already.
    pub async fn start(config: Config, environment: &Environment) -> anyhow::Result<Self> {
        let log = Log::open(config.log_file.as_deref(), config.is_log_kept);
        let location = environment.machine.as_ref();
        let state = location.map(|it| StateFile::open(it.folder.join("state.json")));
        let machine = state.as_ref().map(|file| file.state().clone()).unwrap_or_default();
        let driver = location.map(|it| DriverSession::open(it, &machine)).transpose()?;
        let version = driver.as_ref().map_or(NO_DRIVER, |driver| &driver.version).to_owned();
        if let Some(own) = machine.imex.version.as_ref().filter(|own| **own != version) {
            bail!("this service is of version {own}, and the driver of {version}");
        }
        let nodes = names::read(&config.nodes_file)?;
        let names = Names::new(&environment.hosts);
        let (own, address) = names::own(&nodes, &names, config.address).with_context(|| {
            let file = config.nodes_file.display();
            format!("no node of {file} has an address of this host")
        })?;
        let transport = Transport::new(config.tls.as_ref())?;
        let listener = TcpListener::bind((address, config.port)).await;
        let listener =
            listener.with_context(|| format!("listening on {address} port {}", config.port))?;
        let mut commands = Vec::new();
        for address in &config.commands {
            commands.push(command::listen(address).await?);
        }
        let (faults, seen_faults) = watch::channel(machine.imex);
        let node = driver.as_ref().and_then(|driver| driver.node);
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            own,
            state: watch::Sender::new(State {
                status: NodeStatus::Initializing,
                links: vec![ConnectionStatus::NeverConnected; nodes.len()],
                peers: node.into_iter().map(|node| (own, node)).collect(),
            }),
            nodes,
            names,
            version,
            transport,
            log,
            driver,
            reload: watch::Sender::new(0),
            faults: seen_faults,
            stop: stop.clone(),
            tasks: TaskTracker::new(),
            config,
        });
        shared.log.line(&format!(
            "node {own} of {}, version {}",
            shared.nodes.len(),
            shared.version
        ));
        if let Some(file) = state {
            shared.spawn(follow_faults(file, faults));
        }
        shared.spawn(peers::serve(Arc::clone(&shared), listener));
        for peer in (0..).take(shared.nodes.len()).filter(|peer| *peer != own) {
            let address = shared.address(peer);
            shared.spawn(peers::keep(Arc::clone(&shared), peer, address));
        }
        for listener in commands {
            shared.spawn(command::serve(Arc::clone(&shared), listener));
        }
        shared.spawn(become_ready(Arc::clone(&shared)));
        Ok(Self { shared, reloaded_at: Mutex::new(None), _stop: stop.drop_guard() })
    }

    /// Looks the names of peers up again, as on SIGUSR1. A second call within five seconds is ignored; returns whether it
    /// was not.
    pub fn reload(&self) -> bool {
        let mut last = self.reloaded_at.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| last.elapsed() < RELOAD_INTERVAL) {
            self.shared.log.line("SIGUSR1 is ignored: the last one is less than five seconds ago");
            return false;
        }
        *last = Some(Instant::now());
        self.shared.log.line("the names of peers are looked up again");
        self.shared.reload.send_modify(|count| *count += 1);
        true
    }

    /// State of the service now.
    pub fn status(&self) -> NodeStatus {
        self.shared.state.borrow().status
    }

    /// Ends the service. Subscribers receive the last state; ports and driver are free afterwards.
    pub async fn shut_down(self) {
        self.shared.set_status(NodeStatus::ShuttingDown);
        sleep(NOTICE).await;
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

/// Reads the faults again where their file changes.
async fn follow_faults(mut file: StateFile, faults: watch::Sender<ImexState>) {
    loop {
        let now = file.refresh().imex.clone();
        faults.send_if_modified(|faults| {
            let is_changed = *faults != now;
            *faults = now;
            is_changed
        });
        sleep(FAULT_INTERVAL).await;
    }
}

/// Takes a service from its start to readiness.
async fn become_ready(shared: Arc<Shared>) {
    shared.pass(NodeStatus::Initializing).await;
    let start = Duration::from_millis(shared.faults.borrow().start_millis);
    sleep(start).await;
    if shared.config.tls.is_some() {
        shared.pass(NodeStatus::StartingAuthServer).await;
    }
    match shared.config.quorum {
        Quorum::None => {}
        // There is no earlier session whose memory could be recovered.
        Quorum::Recovery => shared.pass(NodeStatus::WaitingForRecovery).await,
        Quorum::Full => {
            shared.pass(NodeStatus::WaitingForPeers).await;
            let mut state = shared.state.subscribe();
            let own = shared.own as usize;
            let is_whole = |state: &State| {
                let mut links = state.links.iter().enumerate();
                links.all(|(peer, it)| peer == own || *it == ConnectionStatus::Connected)
            };
            // The sender lives as long as this task.
            let _ = state.wait_for(is_whole).await;
        }
    }
    shared.pass(NodeStatus::InitGpu).await;
    // A node is connected to itself.
    shared.set_link(shared.own, ConnectionStatus::Connected);
    shared.set_status(NodeStatus::Ready);
}
