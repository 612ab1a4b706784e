//! GPU time of standalone shares: one of the commands that run gives the leases for all of them.
//!
//! Each command waits for the lock of the file below. Its holder reads what the shares ask for, listens on their sockets, and
//! gives leases. When its command ends, the next one has the lock, and the guards connect to its sockets, as they do to those
//! of an agent that was updated.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use octavo_api::config::{ComputePart, ShareClass};
use octavo_arbiter::Terms;
use octavo_node::files::write_atomically;
use serde::{Deserialize, Serialize};

use super::share::{FOLDER, USE_LOCK};
use crate::gpu_time::{GpuTime, TimedShare};
use crate::process::proc::Proc;
use crate::watchdog::guards::connection_quota::ConnectionQuota;
use crate::watchdog::guards::listener::GuardListener;

/// The file whose lock decides who gives the leases.
const LOCK: &str = ".leases";

/// What a share asks for, in its run root.
const FILE: &str = "time.json";

/// Interval at which new shares are looked for.
const INTERVAL: Duration = Duration::from_millis(100);

/// Reads a class by its name on the command line.
pub(crate) fn class(text: &str) -> Result<ShareClass, String> {
    match text {
        "latency-critical" => Ok(ShareClass::LatencyCritical),
        "normal" => Ok(ShareClass::Normal),
        "best-effort" => Ok(ShareClass::BestEffort),
        _ => Err(format!("{text:?} is not one of latency-critical, normal, best-effort")),
    }
}

/// What a share asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShareTimeRequest {
    /// The share's folder on the host.
    pub(super) folder: PathBuf,
    /// UUID of the GPU.
    pub(super) gpu: String,
    /// Thousandths of a percent.
    request: u32,
    limit: Option<u32>,
    class: ShareClass,
}

impl ShareTimeRequest {
    pub(super) fn new(
        folder: PathBuf,
        gpu: &str,
        (request, limit): (Option<ComputePart>, Option<ComputePart>),
        class: ShareClass,
    ) -> Self {
        let request = request.map_or(0, |part| part.0);
        let limit = limit.map(|part| part.0);
        Self { folder, gpu: gpu.to_owned(), request, limit, class }
    }

    /// Thousandths of a percent that the share asks for.
    pub(super) fn milli_percent(&self) -> u32 {
        self.request
    }

    /// Writes it to a share's run root. A command that joins a share and asks for nothing leaves what the first one asked for.
    pub(super) fn write(&self, root: &Path) -> anyhow::Result<()> {
        let asks = (self.request, self.limit, self.class) != (0, None, ShareClass::default());
        if asks || Self::read(root).is_none() {
            write_atomically(&root.join(FILE), &serde_json::to_vec(self)?, false)?;
        }
        Ok(())
    }

    /// That of a share's run root; `None` while its command makes it.
    fn read(root: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(root.join(FILE)).ok()?).ok()
    }

    fn timed(&self) -> TimedShare {
        let (request, limit) = (ComputePart(self.request), self.limit.map(ComputePart));
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let terms = Terms { request, limit, class: self.class, quantum: None };
        // A command has a share of one GPU.
        TimedShare { name, gpu: self.gpu.clone(), terms, claim: None }
    }
}

/// Starts a thread that gives leases once no other command does, until the process ends.
pub(super) fn give_leases() -> io::Result<()> {
    let lock = File::create(Path::new(FOLDER).join(LOCK))?;
    let work = move || {
        if let Err(error) = lock.lock().and_then(|()| serve()) {
            tracing::warn!(%error, "the shares of this machine have no leases of GPU time");
        }
        drop(lock);
    };
    std::thread::Builder::new().name("leases".to_owned()).spawn(work).map(drop)
}

fn serve() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let gpu_time = GpuTime::start()?;
    let quota = ConnectionQuota::for_process();
    runtime.block_on(async {
        let (mut shares, mut listeners) = (BTreeMap::new(), BTreeMap::new());
        loop {
            let now = requests()?;
            if now != shares {
                gpu_time.set_shares(now.values().map(ShareTimeRequest::timed).collect());
                shares = now;
            }
            listeners.retain(|root: &PathBuf, listener: &mut GuardListener| {
                shares.contains_key(root) && listener.is_in_place()
            });
            for (root, share) in &shares {
                if !listeners.contains_key(root) {
                    let name = share.folder.file_name().unwrap_or_default().to_string_lossy();
                    // A share that is being made or removed is looked at again.
                    let _ = GuardListener::open(
                        &share.folder,
                        Arc::default(),
                        Proc::new("/proc".into()),
                        quota.for_share(&name),
                        Some(Arc::clone(&gpu_time)),
                    )
                    .map(|listener| listeners.insert(root.clone(), listener));
                }
            }
            tokio::time::sleep(INTERVAL).await;
        }
    })
}

/// What all shares of this machine ask for, by their run roots.
fn requests() -> io::Result<BTreeMap<PathBuf, ShareTimeRequest>> {
    let roots = fs::read_dir(FOLDER)?.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    // That of a killed command stays until the next boot.
    let used = roots.filter(|root| is_used(root));
    Ok(used.filter_map(|root| ShareTimeRequest::read(&root).map(|share| (root, share))).collect())
}

/// Whether a command uses a share: it locks a file of the run root.
fn is_used(root: &Path) -> bool {
    File::open(root.join(USE_LOCK)).is_ok_and(|lock| lock.try_lock().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_share_asks_for_is_read_as_it_was_written() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(ShareTimeRequest::read(root.path()), None);
        let percent = |text: &str| Some(text.parse().unwrap());
        let times = (percent("30"), percent("50"));
        let share =
            ShareTimeRequest::new("/a/b".into(), "GPU-1", times, class("best-effort").unwrap());
        share.write(root.path()).unwrap();
        let read = ShareTimeRequest::read(root.path()).unwrap();
        assert_eq!(read, share);
        let terms = read.timed().terms;
        assert_eq!((terms.request, terms.limit), (ComputePart(30_000), Some(ComputePart(50_000))));
        assert_eq!((read.timed().name.as_str(), terms.class), ("b", ShareClass::BestEffort));
        assert!(class("fast").is_err());
    }
}
