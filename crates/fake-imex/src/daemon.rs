//! A running service.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use octavo_machine::ImexState;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::config::{Config, Quorum};
use crate::driver::DriverSession;
use crate::log::Log;
use crate::names::{self, Names};
use crate::status::{Connection, ConnectionStatus, Node, NodeStatus};
use crate::stream::Transport;
use crate::{command, peers};

pub use crate::driver::folder as driver_folder;

/// Time in which a second SIGUSR1 is ignored.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// Interval in which a starting service looks at what it waits for.
const START_INTERVAL: Duration = Duration::from_millis(20);

/// Version of a service without a driver.
const NO_DRIVER: &str = "0.0";

/// What is around a service.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The hosts file.
    pub hosts: PathBuf,
    /// Folder of the machine; `None`: without a driver (`--nogpu`).
    pub driver: Option<PathBuf>,
}

/// A running service. It ends when dropped, and has ended after [`Daemon::shut_down`].
pub struct Daemon {
    shared: Arc<Shared>,
    reloaded_at: Mutex<Option<Instant>>,
    /// Its tasks; only the one that makes it ready ends by itself.
    tasks: JoinSet<()>,
}

/// What the tasks of a service have in common.
pub(crate) struct Shared {
    config: Config,
    nodes: Vec<String>,
    own: u32,
    names: Names,
    driver: Option<DriverSession>,
    version: String,
    transport: Transport,
    log: Log,
    /// State and connections; the sender tells of each change.
    state: watch::Sender<State>,
    reload: watch::Sender<u64>,
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
        let log = Log::open(config.log_file.as_deref())?;
        let driver = environment.driver.as_deref().map(DriverSession::open).transpose()?;
        let version = driver.as_ref().map_or(NO_DRIVER, |driver| &driver.version).to_owned();
        let faults = driver.as_ref().map(DriverSession::faults).unwrap_or_default();
        if let Some(own) = faults.version.filter(|own| *own != version) {
            bail!("this service is of version {own}, and the driver of {version}");
        }
        let nodes = names::read(&config.nodes_file)?;
        let names = Names::new(&environment.hosts);
        let own = names::own_index(&nodes, &names, config.address).with_context(|| {
            format!("no node of {} has an address of this host", config.nodes_file.display())
        })?;
        let transport = Transport::new(config.tls.as_ref())?;
        let address = config.address.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        let listener = TcpListener::bind((address, config.port)).await;
        let listener =
            listener.with_context(|| format!("listening on {address} port {}", config.port))?;
        let commands = match &config.command {
            Some(address) => Some(command::listen(address).await?),
            None => None,
        };
        let state = State {
            status: NodeStatus::Initializing,
            links: vec![ConnectionStatus::NeverConnected; nodes.len()],
        };
        let shared = Arc::new(Shared {
            own: u32::try_from(own).context("the list of nodes is too long")?,
            nodes,
            names,
            driver,
            version,
            transport,
            log,
            state: watch::Sender::new(state),
            reload: watch::Sender::new(0),
            config,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(peers::serve(Arc::clone(&shared), listener));
        for peer in (0..).take(shared.nodes.len()) {
            tasks.spawn(peers::keep(Arc::clone(&shared), peer));
        }
        if let Some(listener) = commands {
            tasks.spawn(command::serve(Arc::clone(&shared), listener));
        }
        tasks.spawn(become_ready(Arc::clone(&shared)));
        shared.log.line(&format!(
            "node {own} of {}, version {}",
            shared.nodes.len(),
            shared.version
        ));
        Ok(Self { shared, reloaded_at: Mutex::new(None), tasks })
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

    /// Ends the service. Ports and driver are free afterwards.
    pub async fn shut_down(mut self) {
        self.shared.set_status(NodeStatus::ShuttingDown);
        self.tasks.shutdown().await;
    }
}

/// Takes a service from its start to readiness.
async fn become_ready(shared: Arc<Shared>) {
    shared.pass(NodeStatus::Initializing).await;
    sleep(Duration::from_millis(shared.faults().start_millis)).await;
    if shared.config.tls.is_some() {
        shared.pass(NodeStatus::StartingAuthServer).await;
    }
    if shared.driver.is_some() {
        shared.pass(NodeStatus::InitGpu).await;
    }
    match shared.config.quorum {
        Quorum::None => {}
        // There is no earlier session whose memory could be recovered.
        Quorum::Recovery => shared.pass(NodeStatus::WaitingForRecovery).await,
        Quorum::Full => {
            shared.pass(NodeStatus::WaitingForPeers).await;
            let is_connected = |link: &ConnectionStatus| *link == ConnectionStatus::Connected;
            let mut state = shared.state.subscribe();
            // The sender lives as long as this task.
            let _ = state.wait_for(|state| state.links.iter().all(is_connected)).await;
        }
    }
    shared.set_status(NodeStatus::Ready);
}

impl Shared {
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
        self.faults().cut_peers.contains(&peer)
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

    fn set_status(&self, status: NodeStatus) {
        self.state.send_modify(|state| state.status = status);
        self.log.line(status.name());
    }

    /// Enters a state, and stays in it as long as a fault says so.
    async fn pass(&self, status: NodeStatus) {
        self.set_status(status);
        while self.faults().stuck_in.as_deref() == Some(status.name()) {
            sleep(START_INTERVAL).await;
        }
    }

    fn faults(&self) -> ImexState {
        self.driver.as_ref().map(DriverSession::faults).unwrap_or_default()
    }
}
