//! One daemon: kept as its spec says, and its status told.

use std::path::PathBuf;
use std::time::Duration;

use octavo_node::mps::{MpsDaemonFolder, MpsEnd, MpsSpec, MpsStatus};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::process::{Process, Programs};
use crate::shm;

/// Delays before a daemon is started again: at first, and at most.
const RESTART: Duration = Duration::from_secs(1);
const MAX_RESTART: Duration = Duration::from_secs(10);
/// A daemon that lived this long has not failed at its start.
const LONG_LIFE: Duration = Duration::from_mins(1);
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
    spec: MpsSpec,
    began: Instant,
}

impl Daemon {
    /// Keeps the daemon until its folder is gone, or nothing wants anything any more.
    pub(crate) async fn run(mut self) {
        let mut life: Option<Life> = None;
        let mut restart = RESTART;
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            let Some(spec) = wanted else {
                self.end(life.take()).await;
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
            let running = life.as_ref().map(|life| life.spec.clone());
            self.tell(&MpsStatus { running, problem, has_ended });
            tokio::select! {
                changed = self.wanted.changed() => if changed.is_err() {
                    self.end(life.take()).await;
                    return;
                },
                status = ended(&mut life) => {
                    if life.take().is_some_and(|life| life.began.elapsed() >= LONG_LIFE) {
                        restart = RESTART;
                    }
                    let problem = format!("the MPS daemon has ended ({status}), and its clients have failed");
                    tracing::error!(daemon = self.name, "{problem}");
                    self.tell(&MpsStatus { problem: Some(problem), ..MpsStatus::default() });
                }
                () = wait(pause) => {}
            }
        }
    }

    /// Does what can be done now.
    async fn step(&self, life: &mut Option<Life>, spec: &MpsSpec) -> Result<Step, String> {
        let ends = spec.ends;
        let spec = &MpsSpec { ends: MpsEnd::Never, ..spec.clone() };
        let Some(running) = life else {
            if ends == MpsEnd::Never {
                let process =
                    Process::start(&self.programs, &self.name, &self.folder, spec).await?;
                let (devices, pid) = (spec.devices.join(", "), process.pid());
                tracing::info!(daemon = self.name, devices, pid, "the MPS daemon is started");
                *life = Some(Life { process, spec: spec.clone(), began: Instant::now() });
            } else {
                self.release();
            }
            return Ok(Step::Done);
        };
        if ends == MpsEnd::Never && running.spec == *spec {
            return Ok(Step::Done);
        }
        let is_same = running.spec.devices == spec.devices
            && running.spec.multi_user == spec.multi_user
            // A limit cannot be taken away.
            && running.spec.memory_limits_mib.keys().eq(spec.memory_limits_mib.keys());
        if ends == MpsEnd::Never && is_same {
            running.process.control().set_limits(spec).await.map_err(|error| error.to_string())?;
            tracing::info!(daemon = self.name, "the MPS daemon has other limits for new clients");
            running.spec = spec.clone();
            return Ok(Step::Done);
        }
        if ends != MpsEnd::Now {
            let clients = running.process.control().clients().await.map_err(|it| it.to_string())?;
            if clients > 0 {
                return Ok(Step::Waits(clients));
            }
        }
        self.end(life.take()).await;
        if ends == MpsEnd::Never {
            return Box::pin(self.step(life, spec)).await;
        }
        Ok(Step::Done)
    }

    /// Ends a life.
    async fn end(&self, life: Option<Life>) {
        if let Some(life) = life {
            life.process.stop().await;
            tracing::info!(daemon = self.name, "the MPS daemon is ended");
        }
        self.release();
    }

    /// Lets go of what is mounted.
    fn release(&self) {
        if let Err(error) = shm::release(&self.folder.shm()) {
            tracing::warn!(daemon = self.name, %error, "the daemon's shared memory stays mounted");
        }
    }

    fn tell(&self, status: &MpsStatus) {
        // A folder that is gone has no reader.
        if !self.folder.path().exists() {
            return;
        }
        if let Err(error) = self.folder.set_status(status) {
            tracing::error!(daemon = self.name, %error, "the agent cannot be told what the daemon is");
        }
    }
}

/// What a step has done.
enum Step {
    /// The daemon is as it should be.
    Done,
    /// It is not, as long as it has clients.
    Waits(usize),
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

/// The path of this program, which a daemon is started by.
pub(crate) fn own_path() -> Option<PathBuf> {
    std::env::current_exe().ok()
}
