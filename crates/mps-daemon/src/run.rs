//! The process: its tasks from the start to a signal.

use std::collections::BTreeMap;
use std::fs::File;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use octavo_node::mps::{MpsEnd, MpsFolder, MpsStatus};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::args::{CheckArgs, MpsDaemonArgs, MpsDaemonCommand};
use crate::daemon::{Daemon, Wanted};
use crate::enter::enter;
use crate::process::Programs;
use crate::watch::Watch;

/// Time in which an earlier program may end, or an agent look at the lock.
const LOCK_TIME: Duration = Duration::from_secs(30);
const LOCK_LOOK: Duration = Duration::from_millis(50);
/// A look at all files for which nothing asks, in case that an event was lost.
const RESCAN: Duration = Duration::from_mins(1);

/// Runs a command of `octavo mps-daemon`: `run` until a signal, the others at once.
///
/// # Errors
///
/// Of `run`: another program runs the daemons, or the folder cannot be watched. Of `check`: something is not as it should be.
pub async fn run(args: MpsDaemonArgs) -> anyhow::Result<()> {
    match args.command {
        MpsDaemonCommand::Enter(args) => enter(&args),
        MpsDaemonCommand::Check(args) => check(&args),
        MpsDaemonCommand::Run(args) => {
            let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
            let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
            let stop = CancellationToken::new();
            let signalled = stop.clone();
            tokio::spawn(async move {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                tracing::info!("a signal: all MPS daemons end");
                signalled.cancel();
            });
            let own = std::env::current_exe().context("find the path of this program")?;
            let programs = Programs { driver_root: args.driver_root, enter: Some(own) };
            serve(MpsFolder::at(args.folder.folder), programs, stop).await
        }
    }
}

/// Runs the daemons of a folder until `stop`.
pub(crate) async fn serve(
    folder: MpsFolder,
    programs: Programs,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let path = folder.path().display().to_string();
    let Some(lock) = stop.run_until_cancelled(lock(&folder)).await else { return Ok(()) };
    let _lock = lock?;
    let watch = Watch::new(folder.path()).with_context(|| format!("watch {path}"))?;
    tracing::info!(folder = path, "running the MPS daemons of this node");
    // What an earlier program said is not so.
    for name in folder.names().with_context(|| format!("read {path}"))? {
        let _ = folder.daemon(&name).set_status(&MpsStatus::default());
    }
    let mut daemons = Daemons { programs, senders: BTreeMap::new(), tasks: JoinSet::new() };
    loop {
        match folder.names() {
            Ok(names) => {
                watch.extend(&folder, &names);
                daemons.follow(&folder, &names);
            }
            // The daemons that run are not to blame.
            Err(error) => tracing::error!(folder = path, %error, "cannot be read; trying again"),
        }
        tokio::select! {
            () = stop.cancelled() => break,
            changed = watch.changed() => changed.with_context(|| format!("watch {path}"))?,
            Some(ended) = daemons.tasks.join_next() => daemons.forget(ended),
            () = sleep(RESCAN) => {}
        }
    }
    daemons.senders.clear();
    while let Some(ended) = daemons.tasks.join_next().await {
        ended.context("an MPS daemon was not ended")?;
    }
    for name in folder.names().unwrap_or_default() {
        let _ = folder.daemon(&name).set_status(&MpsStatus::default());
    }
    Ok(())
}

/// The daemons that are kept, each by a task.
struct Daemons {
    programs: Programs,
    /// What each task is to do, by the daemon's name.
    senders: BTreeMap<String, watch::Sender<Wanted>>,
    /// Each ends with its daemon's name.
    tasks: JoinSet<String>,
}

impl Daemons {
    /// Passes on what the files say.
    fn follow(&mut self, folder: &MpsFolder, names: &[String]) {
        for name in names {
            let spec = match folder.daemon(name).spec() {
                Ok(Some(spec)) => spec,
                Ok(None) => continue,
                Err(error) => {
                    // The agent replaces it, or says that the daemon should end.
                    tracing::error!(daemon = name, %error, "its spec cannot be read");
                    continue;
                }
            };
            if let Some(sender) = self.senders.get(name) {
                sender.send_if_modified(|known| {
                    // A task that ends is begun again after its end.
                    known.is_some() && known.replace(spec.clone()) != Some(spec)
                });
                continue;
            }
            let (sender, wanted) = watch::channel(Some(spec));
            self.senders.insert(name.clone(), sender);
            let (folder, programs) = (folder.daemon(name), self.programs.clone());
            let daemon = Daemon { name: name.clone(), folder, programs, wanted };
            let name = name.clone();
            self.tasks.spawn(async move {
                daemon.run().await;
                name
            });
        }
        for (_, sender) in self.senders.iter().filter(|(name, _)| !names.contains(name)) {
            sender.send_if_modified(|known| known.take().is_some());
        }
    }

    /// Forgets a task that has ended. Its folder may be there again: the next look starts another.
    fn forget(&mut self, ended: Result<String, JoinError>) {
        match ended {
            Ok(name) => drop(self.senders.remove(&name)),
            Err(error) => {
                tracing::error!(%error, "the task of an MPS daemon has ended");
                self.senders.retain(|_, sender| !sender.is_closed());
            }
        }
    }
}

/// Takes the lock. An earlier program may still have it for a moment.
async fn lock(folder: &MpsFolder) -> anyhow::Result<File> {
    let end = Instant::now() + LOCK_TIME;
    loop {
        let path = folder.path().display();
        if let Some(lock) = folder.lock().with_context(|| format!("lock {path}"))? {
            return Ok(lock);
        }
        if Instant::now() >= end {
            bail!(
                "another `octavo mps-daemon` runs the daemons of {path}; end it, or give this one another folder"
            );
        }
        sleep(LOCK_LOOK).await;
    }
}

/// Whether all is as it should be.
fn check(args: &CheckArgs) -> anyhow::Result<()> {
    let folder = MpsFolder::at(args.folder.folder.clone());
    let path = folder.path().display();
    let is_served = folder.is_served().with_context(|| format!("read {path}"))?;
    ensure!(is_served, "no `octavo mps-daemon run` has {path}");
    if args.served {
        return Ok(());
    }
    for name in folder.names().with_context(|| format!("read {path}"))? {
        let daemon = folder.daemon(&name);
        let Some(spec) = daemon.spec().with_context(|| format!("read the spec of {name}"))? else {
            continue;
        };
        let status = daemon.status().with_context(|| format!("read the status of {name}"))?;
        let is_well = match spec.ends {
            MpsEnd::Never => status.running.is_some_and(|it| it.serves(&spec.settings)),
            MpsEnd::WithoutClients | MpsEnd::Now => true,
        };
        let why = status.problem.as_deref().unwrap_or("it is being started");
        ensure!(is_well, "the MPS daemon {name} is not as it should be: {why}");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
