//! Builds Go programs once, into the cache.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::fs::FlockOperation;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use super::source::Project;
use crate::cli::progress::Progress;

/// Lines of a failed build's log that an error message shows.
const LOG_TAIL_LINES: usize = 15;

/// Returns the build result of a project, a binary or a folder of binaries. Builds it if the cache
/// lacks this version.
pub(super) async fn project(
    project: &Project,
    cache: &Path,
    progress: &Progress,
) -> anyhow::Result<PathBuf> {
    let folder = cache.join(project.name).join(project.digest()?);
    let result = folder.join(project.result);
    if result.exists() {
        return Ok(result);
    }
    std::fs::create_dir_all(folder.join("src"))
        .with_context(|| format!("create the cache folder {}", folder.display()))?;
    let _lock = lock(&folder.join("lock"), project, progress).await?;
    if !result.exists() {
        build(project, &folder, &result, progress).await?;
    }
    Ok(result)
}

/// Waits until no other process builds in this folder.
async fn lock(
    path: &Path,
    project: &Project,
    progress: &Progress,
) -> anyhow::Result<std::fs::File> {
    let file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("open {}", path.display()))?;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                progress.step(&format!("waiting for another build of {}", project.title));
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Err(e) => return Err(e).with_context(|| format!("lock {}", path.display())),
        }
    }
}

async fn build(
    project: &Project,
    folder: &Path,
    result: &Path,
    progress: &Progress,
) -> anyhow::Result<()> {
    let title = &project.title;
    let sources = folder.join("src");
    for (name, text) in project.files {
        let path = sources.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)
                .with_context(|| format!("create {}", parent.display()))?;
        }
        std::fs::write(path, text).with_context(|| format!("write {name}"))?;
    }
    let log_path = folder.join("build.log");
    let log = tokio::fs::File::create(&log_path)
        .await
        .with_context(|| format!("create {}", log_path.display()))?;
    let mut build = Build { project, sources: &sources, log, log_path: &log_path, progress };

    progress.step(&format!("building {title}: fetching its modules"));
    let total = build.count_packages().await?;
    progress.step(&format!(
        "building {title} ({total} packages): {} the first time, once",
        project.duration_hint
    ));
    remove_partial_results(project, folder);
    let partial = folder.join(format!("{}.{}", project.result, std::process::id()));
    let outcome = build.compile(&partial, total).await;
    if outcome.is_err() {
        remove_partial_results(project, folder);
    }
    outcome?;
    build.copy_module_files(&partial).await?;
    std::fs::rename(&partial, result).with_context(|| format!("put {title} into the cache"))?;
    progress.line(&format!("built {title} in {}", folder.display()));
    Ok(())
}

struct Build<'a> {
    project: &'a Project,
    sources: &'a Path,
    log: tokio::fs::File,
    log_path: &'a Path,
    progress: &'a Progress,
}

impl Build<'_> {
    /// Fetches the missing modules and returns the number of packages to build.
    async fn count_packages(&mut self) -> anyhow::Result<usize> {
        let progress = self.progress;
        let mut command = self.go();
        command
            .args(["list", "-deps", "-f", "{{.ImportPath}}", self.project.packages])
            .stdout(Stdio::piped());
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

    async fn compile(&mut self, target: &Path, total: usize) -> anyhow::Result<()> {
        let (project, progress) = (self.project, self.progress);
        if project.is_folder() {
            // Go writes binaries into an output folder only if the folder exists.
            std::fs::create_dir(target).with_context(|| format!("create {}", target.display()))?;
        }
        let mut command = self.go();
        command.args(["build", "-v", "-buildvcs=false"]);
        // These decide what Go's build cache holds; the Makefile compiles ahead with the same. The
        // linker drops debug information (`-s -w`), so the compiler need not write it.
        command.args(["-trimpath", "-gcflags=all=-dwarf=false"]).arg("-ldflags");
        command.arg(&project.link_flags).arg("-o").arg(target).arg(project.packages);
        command.stdout(Stdio::null());
        let mut built = 0_usize;
        self.run(command, |_| {
            built += 1;
            progress.figure(&format!("building {}: package {built} of {total}", project.title));
        })
        .await?;
        Ok(())
    }

    /// Puts the files of modules into the folder of the result.
    async fn copy_module_files(&mut self, target: &Path) -> anyhow::Result<()> {
        for (module, path) in self.project.module_files {
            let mut command = self.go();
            command.args(["list", "-m", "-f", "{{.Dir}}", module]).stdout(Stdio::piped());
            let from = Path::new(self.run(command, |_| {}).await?.trim()).join(path);
            let name = from.file_name().with_context(|| format!("{path} names no file"))?;
            tokio::fs::copy(&from, target.join(name))
                .await
                .with_context(|| format!("copy {}", from.display()))?;
        }
        Ok(())
    }

    fn go(&self) -> Command {
        let mut command = Command::new("go");
        command.current_dir(self.sources).env("CGO_ENABLED", "0").env("GOWORK", "off");
        // Cross-compilation settings of the user do not apply: the program runs on this machine.
        command.env_remove("GOOS").env_remove("GOARCH");
        command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Runs a command to its end and returns its standard output. Each line of standard error goes
    /// to the log and to `on_line`.
    async fn run(
        &mut self,
        mut command: Command,
        mut on_line: impl FnMut(&str),
    ) -> anyhow::Result<String> {
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => bail!(
                "{} must be built once and Go is not on PATH: install Go 1.26 or later \
                 (https://go.dev/dl){}",
                self.project.title,
                self.project.alternative
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
        let logging = async {
            let Some(stderr) = stderr else { return Ok(()) };
            let mut lines = BufReader::new(stderr).lines();
            while let Some(line) = lines.next_line().await? {
                log.write_all(line.as_bytes()).await?;
                log.write_all(b"\n").await?;
                on_line(&line);
            }
            log.flush().await
        };
        let (text, logged) = tokio::join!(reading, logging);
        logged.context("read go's messages")?;
        let status = child.wait().await.context("wait for go")?;
        if !status.success() {
            bail!(
                "building {} failed ({status}); the end of {}:\n{}\nWithout internet, the modules \
                 of go.mod must be in Go's module cache or on the proxy that GOPROXY names.",
                self.project.title,
                self.log_path.display(),
                tail(self.log_path)
            );
        }
        text.context("read go's list of packages")
    }
}

/// Removes the partial results of failed and killed builds, 130 MB each. The caller holds the lock.
fn remove_partial_results(project: &Project, folder: &Path) {
    let prefix = format!("{}.", project.result);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()) {
            let path = entry.path();
            let _ = if path.is_dir() {
                std::fs::remove_dir_all(path)
            } else {
                std::fs::remove_file(path)
            };
        }
    }
}

fn tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LOG_TAIL_LINES);
    lines.iter().skip(from).map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
