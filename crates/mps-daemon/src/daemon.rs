//! One daemon: kept as its spec says, and its status written.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use octavo_node::mps::{MpsDaemonFolder, MpsEnd, MpsSettings, MpsSpec, MpsStatus};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::process::{Process, Programs};
use crate::shm;

/// Delays before a daemon is started again: at first, and at most.
const RESTART: Duration = Duration::from_secs(1);
const MAX_RESTART: Duration = Duration::from_secs(10);
/// A daemon that lived this long is started again at once.
const LONG_LIFE: Duration = Duration::from_secs(10);
/// Interval of looks whether clients are left, while something waits for that.
const CLIENT_LOOK: Duration = Duration::from_millis(500);

/// What the agent wants of a daemon; `None`: its folder is gone.
pub(crate) type Wanted = Option<MpsSpec>;

/// Keeps one daemon.
pub(crate) struct Daemon {
    pub(crate) name: String,
    pub(crate) folder: MpsDaemonFolder,
    pub(crate) programs: Programs,
    pub(crate) wanted: watch::Receiver<Wanted>,
}

/// A life of the daemon, with what it runs with.
struct Life {
    process: Process,
    settings: MpsSettings,
    began: Instant,
    /// The inode of its folder.
    inode: u64,
}

/// What a step has done.
enum Step {
    /// The daemon is as it should be.
    Done,
    /// It is not, as long as it has clients.
    Waits(usize),
}

impl Daemon {
    /// Keeps the daemon until its folder is gone, or this program ends.
    pub(crate) async fn run(mut self) {
        let mut life: Option<Life> = None;
        let mut restart = RESTART;
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            let Some(spec) = wanted else {
                self.end(life.take()).await;
                self.release();
                return;
            };
            let mut pause = None;
            let mut problem = None;
            match self.step(&mut life, &spec).await {
                Ok(Step::Done) => {}
                Ok(Step::Waits(clients)) => {
                    problem = Some(format!(
                        "{clients} programs use it; what changes waits for their end"
                    ));
                    pause = Some(CLIENT_LOOK);
                }
                Err(error) => {
                    tracing::error!(daemon = self.name, "{error}; trying again");
                    problem = Some(error);
                    pause = Some(restart);
                    restart = (restart * 2).min(MAX_RESTART);
                }
            }
            let has_ended = life.is_none() && spec.ends != MpsEnd::Never;
            let running = life.as_ref().map(|life| life.settings.clone());
            self.write(&MpsStatus { running, problem, has_ended });
            tokio::select! {
                changed = self.wanted.changed() => if changed.is_err() {
                    // Containers keep the shared memory for the next program.
                    self.end(life.take()).await;
                    return;
                },
                status = ended(&mut life) => {
                    let problem = format!("the MPS daemon has ended ({status}), and its clients have failed");
                    tracing::error!(daemon = self.name, "{problem}");
                    self.write(&MpsStatus { problem: Some(problem), ..MpsStatus::default() });
                    if life.take().is_some_and(|life| life.began.elapsed() >= LONG_LIFE) {
                        restart = RESTART;
                    } else {
                        sleep(restart).await;
                        restart = (restart * 2).min(MAX_RESTART);
                    }
                }
                () = wait(pause) => {}
            }
        }
    }

    /// Does what can be done now.
    async fn step(&self, life: &mut Option<Life>, spec: &MpsSpec) -> Result<Step, String> {
        let (settings, ends) = (&spec.settings, spec.ends);
        if life.as_ref().is_some_and(|life| self.inode() != Some(life.inode)) {
            tracing::warn!(daemon = self.name, "the daemon's folder was replaced: it starts again");
            self.end(life.take()).await;
        }
        let Some(running) = life else {
            if ends != MpsEnd::Never {
                self.release();
                return Ok(Step::Done);
            }
            let process =
                Process::start(&self.programs, &self.name, &self.folder, settings).await?;
            let (devices, pid) = (settings.devices.join(", "), process.pid());
            tracing::info!(daemon = self.name, devices, pid, "the MPS daemon is started");
            let (settings, began) = (settings.clone(), Instant::now());
            *life = self.inode().map(|inode| Life { process, settings, began, inode });
            return Ok(Step::Done);
        };
        if ends == MpsEnd::Never && running.settings == *settings {
            return Ok(Step::Done);
        }
        let is_same = running.settings.devices == settings.devices
            && running.settings.multi_user == settings.multi_user
            // A limit cannot be taken away.
            && running.settings.memory_limits_mib.keys().eq(settings.memory_limits_mib.keys());
        if ends == MpsEnd::Never && is_same {
            let control = running.process.control();
            control.set_limits(settings).await.map_err(|error| error.to_string())?;
            tracing::info!(daemon = self.name, "the MPS daemon has other limits for new clients");
            running.settings = settings.clone();
            return Ok(Step::Done);
        }
        if ends != MpsEnd::Now {
            let clients = running.process.control().clients().await.map_err(|it| it.to_string())?;
            if clients > 0 {
                return Ok(Step::Waits(clients));
            }
        }
        self.end(life.take()).await;
        Box::pin(self.step(life, spec)).await
    }

    /// The inode of the folder in which the daemon runs; `None`: it is gone.
    fn inode(&self) -> Option<u64> {
        Some(std::fs::metadata(self.folder.private()).ok()?.ino())
    }

    /// Ends a life. First of all the agent is to know: it may want the daemon again meanwhile.
    async fn end(&self, life: Option<Life>) {
        let Some(life) = life else { return };
        self.write(&MpsStatus::default());
        life.process.stop().await;
        tracing::info!(daemon = self.name, "the MPS daemon is ended");
    }

    /// Lets go of what is mounted.
    fn release(&self) {
        if let Err(error) = shm::release(&self.folder.shm()) {
            tracing::warn!(daemon = self.name, %error, "the daemon's shared memory stays mounted");
        }
    }

    fn write(&self, status: &MpsStatus) {
        if let Err(error) = self.folder.set_status(status) {
            tracing::error!(daemon = self.name, %error, "the agent cannot know what the daemon is");
        }
    }
}

/// Waits for the end of a life; forever without one.
async fn ended(life: &mut Option<Life>) -> String {
    match life {
        Some(life) => match life.process.ended().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        },
        None => std::future::pending().await,
    }
}

/// Waits; forever without a time.
async fn wait(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}
