//! The end of a run that is interrupted (SIGINT, SIGTERM).

use std::time::Duration;

use anyhow::Context;
use octavo_lab::Lab;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::lab_dir::{self, print_progress};

/// Timeout for the run to drop its work. A benchmark without a lab may compute all the time and
/// never notice the request.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);
/// The timeout with a lab: while the run starts the lab, only the run may end it.
const LAB_RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// A run that can be interrupted.
pub(crate) struct InterruptibleRun {
    requested: oneshot::Receiver<()>,
    released: oneshot::Sender<()>,
}

impl InterruptibleRun {
    /// Starts a thread that listens for signals: not every benchmark yields to the runtime.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let (request, requested) = oneshot::channel();
        let (released, was_released) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("make a runtime for signals")?;
        let signals = {
            let _guard = runtime.enter();
            [(SignalKind::interrupt(), 130), (SignalKind::terminate(), 143)]
                .map(|(kind, code)| anyhow::Ok((signal(kind).context("listen for signals")?, code)))
        };
        let [interrupt, terminate] = signals;
        let ((mut interrupt, interrupted), (mut terminate, terminated)) = (interrupt?, terminate?);
        let listen = async move {
            let code = tokio::select! {
                _ = interrupt.recv() => interrupted,
                _ = terminate.recv() => terminated,
            };
            let repeated = async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            };
            tokio::select! {
                () = Box::pin(end_labs(request, was_released)) => {}
                () = repeated => print_progress("interrupted again: running labs are left to their watching processes"),
            }
            std::process::exit(code)
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || runtime.block_on(listen))
            .context("start the thread that listens for signals")?;
        Ok(Self { requested, released })
    }

    /// Runs the work. After an interrupt, drops the work and waits until the process ends.
    pub(crate) async fn run<T>(self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            done = work => return done,
            _ = self.requested => {}
        }
        // The receiver lives as long as the process.
        let _ = self.released.send(());
        std::future::pending().await
    }
}

/// Ends the labs that the run has started, after the run has dropped its work.
async fn end_labs(request: oneshot::Sender<()>, was_released: oneshot::Receiver<()>) {
    let folders = lab_dir::take_over();
    let _ = request.send(());
    let timeout = if folders.is_empty() { RELEASE_TIMEOUT } else { LAB_RELEASE_TIMEOUT };
    let _ = tokio::time::timeout(timeout, was_released).await;
    for folder in folders {
        print_progress(&format!("interrupted: ending the lab in {}", folder.display()));
        match Box::pin(Lab::end(&folder)).await {
            Ok(_) => {
                let _ = std::fs::remove_dir_all(&folder);
            }
            Err(error) => print_progress(&format!("error: {error:#}")),
        }
    }
}
