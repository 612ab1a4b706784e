//! Where a benchmark's lab lies, and how it goes when the run is told to end.
//!
//! A lab is a control plane, and its processes outlive who started them. Told to end (SIGINT, SIGTERM), the run
//! lets go of what it does, ends every lab and removes its folder. Killed, it can do nothing: each lab has
//! a keeper then, which does the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use octavo_lab::{Lab, UpOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// How long the run may take to let go of what it does. A benchmark without a lab may compute all the time
/// and never hear of it.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same where there is a lab: as long as the run brings it up, nobody else may end it.
const PATIENCE_WITH_LAB: Duration = Duration::from_secs(10);

static HELD: Mutex<Held> = Mutex::new(Held { folders: BTreeSet::new(), is_ending: false });

struct Held {
    folders: BTreeSet<PathBuf>,
    is_ending: bool,
}

/// A folder for a lab. It goes when this is dropped: end the lab before.
pub(crate) struct Ground {
    folder: PathBuf,
}

impl Ground {
    /// A new folder.
    pub(crate) fn new() -> anyhow::Result<Self> {
        // Paths of sockets are short: the folder's name has to be, too.
        let folder = tempfile::Builder::new()
            .prefix("ob")
            .disable_cleanup(true)
            .tempdir()
            .context("make a folder for a lab")?;
        let folder = folder.path().to_owned();
        held().folders.insert(folder.clone());
        Ok(Self { folder })
    }

    /// The state folder of its lab.
    pub(crate) fn lab(&self) -> &Path {
        &self.folder
    }

    /// A whole lab here, that ends with this run.
    pub(crate) fn whole(&self, octavo: &Path) -> UpOptions {
        UpOptions { stops_with_parent: true, ..UpOptions::new(&self.folder, octavo) }
    }

    /// A control plane alone, that ends with this run.
    pub(crate) fn control_plane_only(&self, octavo: &Path) -> UpOptions {
        UpOptions { stops_with_parent: true, ..UpOptions::control_plane_only(&self.folder, octavo) }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let mut held = held();
        // Whoever ends the run ends the lab first, and finds it by its folder.
        if !held.is_ending && held.folders.remove(&self.folder) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// A run that can be told to end.
pub(crate) struct Run {
    asked: oneshot::Receiver<()>,
    let_go: oneshot::Sender<()>,
}

impl Run {
    /// Listens for signals from now on, on a thread of its own: not every benchmark gives way.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let (ask, asked) = oneshot::channel();
        let (let_go, has_let_go) = oneshot::channel();
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
            let again = async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            };
            tokio::select! {
                () = Box::pin(end(ask, has_let_go)) => {}
                () = again => tell("told again: what is up is left to its keepers"),
            }
            std::process::exit(code)
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || runtime.block_on(listen))
            .context("start the thread that listens for signals")?;
        Ok(Self { asked, let_go })
    }

    /// Does the work. Told to end, drops it, and the process ends before this does.
    pub(crate) async fn of<T>(self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            done = work => return done,
            _ = self.asked => {}
        }
        // Whoever listened is there as long as the process is.
        let _ = self.let_go.send(());
        std::future::pending().await
    }
}

/// Ends what the run has brought up, after the run has let go of it.
async fn end(ask: oneshot::Sender<()>, has_let_go: oneshot::Receiver<()>) {
    let folders = {
        let mut held = held();
        held.is_ending = true;
        held.folders.clone()
    };
    let _ = ask.send(());
    let patience = if folders.is_empty() { PATIENCE } else { PATIENCE_WITH_LAB };
    let _ = tokio::time::timeout(patience, has_let_go).await;
    for folder in folders {
        tell(&format!("told to end: ending the lab in {}", folder.display()));
        match Box::pin(Lab::end(&folder)).await {
            Ok(_) => {
                let _ = std::fs::remove_dir_all(&folder);
            }
            Err(error) => tell(&format!("error: {error:#}")),
        }
    }
}

/// Names the labs that are up beside this run: they take time from what is measured.
pub(crate) fn tell_others(octavo: &Path) {
    for (state_dir, processes) in Lab::all_up() {
        tell(&format!(
            "warning: a lab is up in {} ({processes} processes) and falsifies the figures; unless another run \
             has it, end it with `{} lab --state-dir {} down`",
            state_dir.display(),
            octavo.display(),
            state_dir.display()
        ));
    }
}

fn held() -> MutexGuard<'static, Held> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::print_stderr, reason = "a benchmark talks to the person who started it")]
fn tell(text: &str) {
    eprintln!("{text}");
}
