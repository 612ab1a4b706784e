//! One of the commands that run serves the shares of all: it gives leases of GPU time, and divides memory that shares lend.
//!
//! Each command waits for the lock of the file below. Its holder reads what the shares ask for, listens on their sockets, and
//! gives leases. When its command ends, the next one has the lock, and the guards connect to its sockets, as they do to those
//! of an agent that was updated.
//!
//! From the first share on that may have more memory than it asks for, the holder monitors all shares as an agent does, and
//! moves their processes ([`crate::watchdog`]). Processes that an earlier holder left on the host are in the shares' records.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use octavo_gpu::nvml::{Nvml, find_library};
use octavo_gpu::{Driver, DriverHandle};
use octavo_guard_abi::SOCKET_FILE;
use tokio::sync::watch;

use super::RunArgs;
use super::in_use::FolderLock;
use super::request::ShareRequest;
use super::share::FOLDER;
use crate::gpu_time::{GpuTime, TimedShare};
use crate::process::proc::Proc;
use crate::share::ActiveShare;
use crate::swap::{HostBudget, SwapSettings};
use crate::watchdog::guards::connection_quota::ConnectionQuota;
use crate::watchdog::guards::listener::GuardListener;
use crate::watchdog::{WatchedNode, watch_alone};

/// The file whose lock decides who serves the shares.
const LOCK: &str = ".leases";

/// Interval at which new shares are looked for.
const INTERVAL: Duration = Duration::from_millis(100);

/// How often the driver's counts are read. That of an agent.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);

/// How long a command that begins waits for the one that serves the shares, and how often it looks.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(30);
const LISTEN_INTERVAL: Duration = Duration::from_millis(10);

/// What all shares of this machine ask for, by their run roots.
type Requests = BTreeMap<PathBuf, ShareRequest>;

/// What the holder of the lock needs.
struct Leader {
    driver_root: PathBuf,
    sys_root: PathBuf,
}

/// Starts a thread that serves all shares once no other command does, until the process ends. The thread, and the programs that it
/// starts, see the host's files: those of a share have the guard in place of the driver.
pub(super) fn start(args: &RunArgs) -> io::Result<()> {
    let lock = File::create(Path::new(FOLDER).join(LOCK))?;
    let leader = Leader { driver_root: args.driver_root.clone(), sys_root: args.sys_root.clone() };
    let work = move || {
        if let Err(error) = lock.lock().map_err(Into::into).and_then(|()| leader.serve()) {
            tracing::warn!("the shares of this machine have no leases of GPU time: {error:#}");
        }
        drop(lock);
    };
    std::thread::Builder::new().name("leases".to_owned()).spawn(work).map(drop)
}

/// Waits until a command listens for the guards of a share. Of a share that lends memory even the request is granted by it.
pub(super) fn wait_for(folder: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + LISTEN_TIMEOUT;
    while UnixStream::connect(folder.join(SOCKET_FILE)).is_err() {
        ensure!(
            Instant::now() < deadline,
            "no command divides the memory of the shares: the log of those that run says why"
        );
        std::thread::sleep(LISTEN_INTERVAL);
    }
    Ok(())
}

impl Leader {
    fn serve(&self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let gpu_time = GpuTime::start()?;
        runtime.block_on(async {
            give_leases(&gpu_time).await?;
            self.divide_memory(gpu_time).await
        })
    }

    /// Monitors all shares, gives them leases, and moves their processes.
    async fn divide_memory(&self, gpu_time: Arc<GpuTime>) -> anyhow::Result<()> {
        let library = find_library(&self.driver_root)?;
        let driver: Arc<dyn Driver> = Arc::new(Nvml::open(&library, &self.sys_root)?);
        let handle = DriverHandle::of(&driver);
        let (sender, shares) = watch::channel(Arc::default());
        let (budget, host) = HostBudget::changing(None);
        let watched = WatchedNode {
            name: String::new(),
            cgroup_root: "/sys/fs/cgroup".into(),
            interval: WATCH_INTERVAL,
            has_time_leases: true,
            swap: Some(SwapSettings { host, driver_root: self.driver_root.clone() }),
            shares,
            driver: Box::new(move || handle.clone()),
        };
        tokio::select! {
            () = watch_alone(watched, gpu_time) => Ok(()),
            failed = publish(&sender, &budget) => Ok(failed?),
        }
    }
}

/// Gives leases to all shares, until one of them lends memory.
async fn give_leases(gpu_time: &Arc<GpuTime>) -> io::Result<()> {
    let quota = ConnectionQuota::for_process();
    let (mut shares, mut listeners) = (BTreeMap::new(), BTreeMap::new());
    loop {
        let Some(now) = requests()? else {
            tokio::time::sleep(INTERVAL).await;
            continue;
        };
        if now.values().any(ShareRequest::is_elastic) {
            return Ok(());
        }
        if now != shares {
            let timed = now.values().map(|share| TimedShare::of(&share.active()));
            gpu_time.set_shares(timed.collect());
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
                    Some(Arc::clone(gpu_time)),
                )
                .map(|listener| listeners.insert(root.clone(), listener));
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Sends the shares that there are, and the least memory of the host that any of them leaves to all, whenever that changes.
async fn publish(
    sender: &watch::Sender<Arc<[ActiveShare]>>,
    budget: &watch::Sender<Option<u64>>,
) -> io::Result<()> {
    loop {
        if let Some(now) = requests()? {
            let least = now.values().filter_map(|share| share.swap_host_memory).min();
            budget.send_if_modified(|budget| std::mem::replace(budget, least) != least);
            let now: Arc<[_]> = now.values().map(ShareRequest::active).collect();
            sender.send_if_modified(|shares| {
                let is_new = *shares != now;
                *shares = Arc::clone(&now);
                is_new
            });
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// What the shares in use ask for; `None` while a command makes or removes a share: it would take a look for a use.
fn requests() -> io::Result<Option<Requests>> {
    FolderLock::try_take(Path::new(FOLDER))?.map(|lock| lock.requests()).transpose()
}
