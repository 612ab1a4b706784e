//! Keeps the service running, with the addresses that the clique says.

use std::path::PathBuf;
use std::time::Duration;

use octavo_api::compute_domain::Readiness;
use octavo_kube_io::Backoff;
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::clique::Seen;
use crate::ctl::{Answer, Ctl};
use crate::entry::OwnEntry;
use crate::hosts::HostsFile;
use crate::polling::Polling;
use crate::reload::ReloadWindow;
use crate::service::Service;
use crate::service_config::{self, ServiceConfig};
use crate::slots::{self, Slots};
use crate::tls;

/// Delay before the service is started again: at first, and at most.
const RESTART: Duration = Duration::from_secs(1);
const MAX_RESTART: Duration = Duration::from_secs(10);
/// A service that lived this long has not failed at its start.
const LONG_LIFE: Duration = Duration::from_mins(1);
/// Delay before a hosts file that could not be written is tried again.
const HOSTS_RETRY: Duration = Duration::from_secs(1);

/// The service, its files, and what is known of the clique.
pub(crate) struct Supervisor {
    pub(crate) own: OwnEntry,
    pub(crate) imex_program: PathBuf,
    pub(crate) ctl: Ctl,
    pub(crate) config: ServiceConfig,
    pub(crate) hosts: HostsFile,
    pub(crate) slots: Slots,
    /// This node's slot, once the controller has given one.
    pub(crate) slot: Option<usize>,
    pub(crate) seen: watch::Receiver<Seen>,
    pub(crate) readiness: watch::Sender<Readiness>,
}

/// How a life of the service ended.
enum End {
    /// This process ends.
    Stopped,
    /// The node has another slot.
    Moved,
    /// It ended itself, or did not start.
    Failed(String),
}

/// What a new state of the clique changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    Addresses,
    OwnSlot,
}

impl Supervisor {
    /// Runs the service until `stop` is cancelled. The service has ended then.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut backoff = Backoff::new(RESTART, MAX_RESTART);
        loop {
            if stop.run_until_cancelled(self.wait_for_slot()).await.is_none() {
                return;
            }
            let start = Instant::now();
            let end = self.live(&stop).await;
            self.set_readiness(Readiness::NotReady);
            if start.elapsed() >= LONG_LIFE {
                backoff.reset();
            }
            match end {
                End::Stopped => return,
                End::Moved => {}
                End::Failed(reason) => {
                    let delay = backoff.next_delay();
                    tracing::error!(?delay, "{reason}; starting it again");
                    if stop.run_until_cancelled(sleep(delay)).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// Waits until the controller has given this node a slot.
    async fn wait_for_slot(&mut self) {
        self.read_clique();
        if self.slot.is_none() {
            tracing::info!("waiting for an index: the controller gives this node one");
        }
        while self.slot.is_none() {
            if self.seen.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            self.read_clique();
        }
    }

    /// One life of the service.
    async fn live(&mut self, stop: &CancellationToken) -> End {
        self.read_clique();
        if let Err(reason) = self.write_files() {
            return End::Failed(reason);
        }
        if let Some(folder) = &self.config.tls_folder
            && let Err(reason) = tls::verify(folder, &slots::name(self.slot.unwrap_or_default()))
        {
            return End::Failed(reason);
        }
        let mut service = match Service::start(&self.imex_program, &self.ctl.config_file) {
            Ok(service) => service,
            Err(reason) => return End::Failed(reason),
        };
        tracing::info!(pid = service.pid(), slot = self.slot, "nvidia-imex is started");
        let mut polling = Polling::start(self.ctl.clone());
        let mut reload = ReloadWindow::new(service.started());
        let mut last = None;
        // When the hosts file is to be written.
        let mut rewrite: Option<Instant> = None;
        loop {
            let due = reload.due();
            tokio::select! {
                () = stop.cancelled() => {
                    service.stop().await;
                    return End::Stopped;
                }
                ended = service.ended() => {
                    return End::Failed(match ended {
                        Ok(status) => format!("nvidia-imex has ended: {status}"),
                        Err(error) => format!("cannot wait for nvidia-imex: {error}"),
                    });
                }
                answer = polling.next() => {
                    if !matches!(answer, Answer::Unavailable(_)) {
                        reload.answered(Instant::now());
                    }
                    self.note(&answer, &mut last);
                }
                Ok(()) = self.seen.changed() => match self.read_clique() {
                    Change::Nothing => {}
                    Change::Addresses => rewrite = Some(Instant::now()),
                    Change::OwnSlot => {
                        tracing::warn!(slot = self.slot, "this node has another index: nvidia-imex is restarted");
                        service.stop().await;
                        return End::Moved;
                    }
                },
                () = at(rewrite) => match self.hosts.update(&self.slots) {
                    Ok(_) => {
                        rewrite = None;
                        reload.want();
                    }
                    Err(error) => {
                        tracing::error!("{error}; trying again");
                        rewrite = Some(Instant::now() + HOSTS_RETRY);
                    }
                },
                () = at(due) => {
                    tracing::info!("addresses changed: nvidia-imex looks them up");
                    service.signal(Signal::USR1);
                    reload.sent(Instant::now());
                }
            }
        }
    }

    /// Takes slot and addresses from the clique as it was last seen.
    fn read_clique(&mut self) -> Change {
        let Some(clique) = self.seen.borrow_and_update().clone() else { return Change::Nothing };
        let before = self.slot;
        if let Some(index) = self.own.find(&clique).and_then(|entry| entry.index) {
            self.slot = self.slots.slot(index).or(before);
            if self.slots.slot(index).is_none() {
                tracing::error!(
                    "the index {index} of this node is not below {}, the number of slots: waiting for \
                     another; controller and daemons need the same MAX_NODES_PER_IMEX_DOMAIN",
                    self.slots.count()
                );
            }
        }
        let own = self.slot.map(|slot| (slot, self.own.address));
        let is_changed = self.slots.enter(self.own.peers(&clique), own);
        match (self.slot == before, is_changed) {
            (false, _) => Change::OwnSlot,
            (true, true) => Change::Addresses,
            (true, false) => Change::Nothing,
        }
    }

    /// Writes what the service reads at its start.
    fn write_files(&self) -> Result<(), String> {
        let nodes = service_config::nodes(self.slots.count());
        for (path, text) in
            [(&self.config.nodes_file, nodes), (&self.ctl.config_file, self.config.render())]
        {
            service_config::write(path, &text)
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
        self.hosts.update(&self.slots).map(drop).map_err(|error| error.to_string())
    }

    /// Takes an answer of the service, and logs it if it differs from the last one.
    fn note(&self, answer: &Answer, last: &mut Option<Answer>) {
        self.set_readiness(match answer {
            Answer::Ready => Readiness::Ready,
            _ => Readiness::NotReady,
        });
        if last.as_ref() == Some(answer) {
            return;
        }
        match answer {
            Answer::Ready => tracing::info!("nvidia-imex is ready"),
            Answer::State(state) => tracing::info!(%state, "nvidia-imex is not ready yet"),
            Answer::Unavailable(reason) => tracing::warn!(%reason, "nvidia-imex does not answer"),
        }
        *last = Some(answer.clone());
    }

    fn set_readiness(&self, now: Readiness) {
        self.readiness.send_if_modified(|readiness| std::mem::replace(readiness, now) != now);
    }
}

/// Waits for a time; forever without one.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
