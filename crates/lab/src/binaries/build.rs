//! Building the control plane once, into a cache.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::fs::FlockOperation;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use super::source;
use crate::progress::Progress;

/// How many lines of a failed build's log a message shows.
const TAIL: usize = 15;

/// The control plane's binary, built if the cache has none of this version.
pub(super) async fn control_plane(cache: &Path, progress: &Progress) -> anyhow::Result<PathBuf> {
    let folder = cache.join("control-plane").join(source::digest()?);
    let binary = folder.join("control-plane");
    if binary.is_file() {
        return Ok(binary);
    }
    std::fs::create_dir_all(folder.join("src"))
        .with_context(|| format!("create the cache folder {}", folder.display()))?;
    let _lock = lock(&folder.join("lock"), progress).await?;
    if !binary.is_file() {
        build(&folder, &binary, progress).await?;
    }
    Ok(binary)
}

/// Waits until no other process builds here.
async fn lock(path: &Path, progress: &Progress) -> anyhow::Result<std::fs::File> {
    let file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("open {}", path.display()))?;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                progress.step("waiting for another build of the control plane");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Err(e) => return Err(e).with_context(|| format!("lock {}", path.display())),
        }
    }
}

async fn build(folder: &Path, binary: &Path, progress: &Progress) -> anyhow::Result<()> {
    let version = source::kubernetes_version()?;
    let sources = folder.join("src");
    for (name, text) in source::FILES {
        std::fs::write(sources.join(name), text).with_context(|| format!("write {name}"))?;
    }
    let log_path = folder.join("build.log");
    let log = tokio::fs::File::create(&log_path)
        .await
        .with_context(|| format!("create {}", log_path.display()))?;
    let mut build = Build { sources: &sources, log, log_path: &log_path, progress };

    progress.step(&format!("building Kubernetes {version}: fetching its modules"));
    let total = build.count_packages().await?;
    progress.step(&format!(
        "building Kubernetes {version} ({total} packages): 4 to 8 minutes the first time, once"
    ));
    remove_partials(folder);
    let partial = folder.join(format!("control-plane.{}", std::process::id()));
    let outcome = build.compile(&partial, version, total).await;
    if outcome.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    outcome?;
    std::fs::rename(&partial, binary).context("put the control plane into the cache")?;
    progress.line(&format!("built Kubernetes {version} in {}", folder.display()));
    Ok(())
}

struct Build<'a> {
    sources: &'a Path,
    log: tokio::fs::File,
    log_path: &'a Path,
    progress: &'a Progress,
}

impl Build<'_> {
    /// Fetches what is missing of the modules and says how many packages the build has.
    async fn count_packages(&mut self) -> anyhow::Result<usize> {
        let progress = self.progress;
        let mut command = self.go();
        command.args(["list", "-deps", "-f", "{{.ImportPath}}", "."]).stdout(Stdio::piped());
        let mut fetched = 0_usize;
        let output = self
            .run(command, |line| {
                if line.starts_with("go: downloading ") {
                    fetched += 1;
                    progress.figure(&format!("fetching modules: {fetched} so far"));
                }
            })
            .await?;
        Ok(output.lines().count())
    }

    async fn compile(&mut self, target: &Path, version: &str, total: usize) -> anyhow::Result<()> {
        let progress = self.progress;
        let mut command = self.go();
        command.args(["build", "-v", "-trimpath", "-buildvcs=false", "-ldflags"]);
        command.arg(source::link_flags()?).arg("-o").arg(target).arg(".");
        command.stdout(Stdio::null());
        let mut built = 0_usize;
        self.run(command, |_| {
            built += 1;
            progress.figure(&format!("building Kubernetes {version}: package {built} of {total}"));
        })
        .await?;
        Ok(())
    }

    fn go(&self) -> Command {
        let mut command = Command::new("go");
        command.current_dir(self.sources).env("CGO_ENABLED", "0").env("GOWORK", "off");
        // Whatever else the user builds for: this program is to run here.
        command.env_remove("GOOS").env_remove("GOARCH");
        command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Runs a command to its end, its standard error going to the log and to `each`, and
    /// returns its standard output.
    async fn run(
        &mut self,
        mut command: Command,
        mut each: impl FnMut(&str),
    ) -> anyhow::Result<String> {
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => bail!(
                "the lab's Kubernetes must be built once and Go is not on PATH: install Go 1.26 \
                 or later (https://go.dev/dl), or set KUBEBUILDER_ASSETS to a folder that holds \
                 etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl"
            ),
            Err(e) => return Err(e).context("start go"),
        };
        let stdout = child.stdout.take();
        let reading = async {
            let mut text = String::new();
            if let Some(mut stdout) = stdout {
                tokio::io::AsyncReadExt::read_to_string(&mut stdout, &mut text).await?;
            }
            std::io::Result::Ok(text)
        };
        let stderr = child.stderr.take();
        let log = &mut self.log;
        let telling = async {
            let Some(stderr) = stderr else { return Ok(()) };
            let mut lines = BufReader::new(stderr).lines();
            while let Some(line) = lines.next_line().await? {
                log.write_all(line.as_bytes()).await?;
                log.write_all(b"\n").await?;
                each(&line);
            }
            log.flush().await
        };
        let (text, told) = tokio::join!(reading, telling);
        told.context("read what go says")?;
        let status = child.wait().await.context("wait for go")?;
        if !status.success() {
            bail!(
                "building the lab's Kubernetes failed ({status}); the end of {}:\n{}\nWithout \
                 internet, the modules of go.mod must be in Go's module cache or on the proxy \
                 that GOPROXY names.",
                self.log_path.display(),
                tail(self.log_path)
            );
        }
        text.context("read what go lists")
    }
}

/// Takes away what builds that were killed have left, 130 MB each. The caller holds the lock.
fn remove_partials(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b"control-plane.") {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL);
    lines.iter().skip(from).map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
