//! A running service.

use std::collections::BTreeMap;
use std::net::IpAddr;
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
use crate::status::{Connection, ConnectionStatus, Node, NodeStatus};
use crate::stream::Transport;
use crate::{command, peers};

pub use crate::driver::machine;

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
    /// Held until all tasks have ended.
    _driver: Option<DriverSession>,
}

/// What the tasks of a service have in common.
pub(crate) struct Shared {
    config: Config,
    nodes: Vec<String>,
    own: u32,
    names: Names,
    version: String,
    transport: Transport,
    log: Log,
    /// State and connections; the sender tells of each change.
    state: watch::Sender<State>,
    reload: watch::Sender<u64>,
    faults: watch::Receiver<ImexState>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// What changes while a service runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    status: NodeStatus,
    links: Vec<ConnectionStatus>,
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
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            own,
            state: watch::Sender::new(State {
                status: NodeStatus::Initializing,
                links: vec![ConnectionStatus::NeverConnected; nodes.len()],
            }),
            nodes,
            names,
            version,
            transport,
            log,
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
            shared.spawn(peers::keep(Arc::clone(&shared), peer));
        }
        for listener in commands {
            shared.spawn(command::serve(Arc::clone(&shared), listener));
        }
        shared.spawn(become_ready(Arc::clone(&shared)));
        Ok(Self {
            shared,
            reloaded_at: Mutex::new(None),
            _stop: stop.drop_guard(),
            _driver: driver,
        })
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

impl Shared {
    /// Runs a task until the service ends.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(task).await });
    }

    pub(crate) fn own(&self) -> u32 {
        self.own
    }

    pub(crate) fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// A node's name in the list.
    pub(crate) fn node(&self, index: u32) -> &str {
        self.nodes.get(index as usize).map_or("", String::as_str)
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn port(&self) -> u16 {
        self.config.port
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    pub(crate) fn grace_time(&self) -> Option<Duration> {
        self.config.grace_time
    }

    pub(crate) fn reloads(&self) -> watch::Receiver<u64> {
        self.reload.subscribe()
    }

    /// Changes of the state.
    pub(crate) fn changes(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// A peer's address, as its name leads to now.
    pub(crate) fn address(&self, peer: u32) -> Option<IpAddr> {
        self.names.address(self.node(peer))
    }

    /// Whether a fault separates this node from a peer.
    pub(crate) fn is_cut(&self, peer: u32) -> bool {
        self.faults.borrow().cut_peers.contains(&peer)
    }

    pub(crate) fn link(&self, peer: u32) -> ConnectionStatus {
        let links = &self.state.borrow().links;
        links.get(peer as usize).copied().unwrap_or(ConnectionStatus::Invalid)
    }

    pub(crate) fn set_link(&self, peer: u32, status: ConnectionStatus) {
        let is_changed = self.state.send_if_modified(|state| {
            let Some(link) = state.links.get_mut(peer as usize) else { return false };
            std::mem::replace(link, status) != status
        });
        if is_changed {
            self.log.line(&format!("node {peer} ({}): {status:?}", self.node(peer)));
        }
    }

    /// The service as it reports itself.
    pub(crate) fn report(&self) -> Node {
        let state = self.state.borrow().clone();
        let links = (0..).zip(&state.links).map(|(peer, status)| {
            let host = self.node(peer).to_owned();
            (peer, Connection { host, status: *status, changed: false })
        });
        Node {
            status: state.status,
            host: self.node(self.own).to_owned(),
            connections: links.collect::<BTreeMap<_, _>>(),
            changed: false,
            version: self.version.clone(),
            host_name: String::new(),
        }
    }

    /// Writes a line to the log.
    pub(crate) fn log(&self, text: &str) {
        self.log.line(text);
    }

    fn set_status(&self, status: NodeStatus) {
        self.state.send_modify(|state| state.status = status);
        self.log.line(status.name());
    }

    /// Enters a state, and stays in it as long as a fault says so.
    async fn pass(&self, status: NodeStatus) {
        self.set_status(status);
        let mut faults = self.faults.clone();
        let is_over = |faults: &ImexState| faults.stuck_in.as_deref() != Some(status.name());
        // Without a driver there are no faults.
        let _ = faults.wait_for(is_over).await;
    }
}
