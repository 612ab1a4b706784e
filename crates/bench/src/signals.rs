//! How a run ends when it is told to (SIGINT, SIGTERM).

use std::time::Duration;

use anyhow::Context;
use octavo_lab::Lab;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::lab_dir::{self, print_progress};

/// How long the run may take to let go of what it does. A benchmark without a lab may compute all the time
/// and never hear of it.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);
/// The same where there is a lab: as long as the run brings it up, nobody else may end it.
const LAB_RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// A run that can be told to end.
pub(crate) struct InterruptibleRun {
    requested: oneshot::Receiver<()>,
    released: oneshot::Sender<()>,
}

impl InterruptibleRun {
    /// Listens for signals from now on, on a thread of its own: not every benchmark gives way.
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
                () = repeated => print_progress("told again: what is up is left to its keepers"),
            }
            std::process::exit(code)
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || runtime.block_on(listen))
            .context("start the thread that listens for signals")?;
        Ok(Self { requested, released })
    }

    /// Does the work. Told to end, drops it, and the process ends before this does.
    pub(crate) async fn run<T>(self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            done = work => return done,
            _ = self.requested => {}
        }
        // Whoever listened is there as long as the process is.
        let _ = self.released.send(());
        std::future::pending().await
    }
}

/// Ends what the run has brought up, after the run has let go of it.
async fn end_labs(request: oneshot::Sender<()>, was_released: oneshot::Receiver<()>) {
    let folders = lab_dir::take_over();
    let _ = request.send(());
    let timeout = if folders.is_empty() { RELEASE_TIMEOUT } else { LAB_RELEASE_TIMEOUT };
    let _ = tokio::time::timeout(timeout, was_released).await;
    for folder in folders {
        print_progress(&format!("told to end: ending the lab in {}", folder.display()));
        match Box::pin(Lab::end(&folder)).await {
            Ok(_) => {
                let _ = std::fs::remove_dir_all(&folder);
            }
            Err(error) => print_progress(&format!("error: {error:#}")),
        }
    }
}
