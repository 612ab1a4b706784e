//! The helm that checks the chart: built once from the pinned module, then reused.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use sha2::{Digest, Sha256};

const PACKAGE: &str = "helm.sh/helm/v4/cmd/helm";

/// A helm that neither reads nor writes the settings of the person who runs it.
pub(super) struct Helm {
    /// Path of the binary.
    pub(super) program: PathBuf,
    home: PathBuf,
}

impl Helm {
    /// The helm that the Go module in `module` pins, built where it is not in the cache yet.
    pub(super) fn get(module: &Path) -> anyhow::Result<Self> {
        let folder = cache()?.join("helm").join(fingerprint(module)?);
        let helm = Self { program: folder.join("helm"), home: folder.join("home") };
        if !helm.program.is_file() {
            build(module, &folder, &helm.program)?;
        }
        Ok(helm)
    }

    /// Runs `helm lint --strict`.
    pub(super) fn lint(&self, chart: &Path, values: &Path) -> anyhow::Result<()> {
        let arguments = [OsStr::new("lint"), "--strict".as_ref(), "--values".as_ref()];
        let output = self.run(arguments.into_iter().chain([values.as_ref(), chart.as_ref()]))?;
        ensure!(
            output.status.success(),
            "helm lint finds fault with the chart, values {}:\n{}{}",
            values.display(),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// What the chart renders to with a file of values.
    pub(super) fn template(&self, chart: &Path, values: &Path) -> anyhow::Result<String> {
        let output = self.render(chart, [OsStr::new("--values"), values.as_ref()])?;
        ensure!(
            output.status.success(),
            "helm cannot render the chart with {}:\n{}",
            values.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).context("helm rendered something that is not UTF-8")
    }

    /// Renders as release `octavo` in `octavo-system`, with more arguments.
    pub(super) fn render<'a>(
        &self,
        chart: &'a Path,
        more: impl IntoIterator<Item = &'a OsStr>,
    ) -> anyhow::Result<Output> {
        let arguments = ["template", "octavo", "--namespace", "octavo-system"].map(OsStr::new);
        self.run(arguments.into_iter().chain([chart.as_os_str()]).chain(more))
    }

    fn run<'a>(&self, arguments: impl IntoIterator<Item = &'a OsStr>) -> anyhow::Result<Output> {
        Command::new(&self.program)
            .args(arguments)
            .env_remove("KUBECONFIG")
            .env("HELM_CACHE_HOME", &self.home)
            .env("HELM_CONFIG_HOME", &self.home)
            .env("HELM_DATA_HOME", &self.home)
            .env("KUBECACHEDIR", &self.home)
            .output()
            .with_context(|| format!("cannot run {}", self.program.display()))
    }
}

/// Where things that are built once lie: the same folder as the lab's control plane.
fn cache() -> anyhow::Result<PathBuf> {
    let folder =
        |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder("OCTAVO_CACHE_DIR")
        .or_else(|| Some(folder("XDG_CACHE_HOME")?.join("octavo")))
        .or_else(|| Some(folder("HOME")?.join(".cache/octavo")))
        .context(
            "there is no folder to keep helm in: HOME is not set; \
             set OCTAVO_CACHE_DIR to a folder that may be written",
        )
}

/// What the build depends on, as a short name.
fn fingerprint(module: &Path) -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    for file in ["go.mod", "go.sum"] {
        let path = module.join(file);
        hash.update(fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?);
        hash.update([0]);
    }
    let digest = hash.finalize();
    let head = digest.first_chunk::<8>().context("a SHA-256 has 32 bytes")?;
    Ok(format!("{:016x}", u64::from_be_bytes(*head)))
}

fn build(module: &Path, folder: &Path, program: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    super::tell(&format!(
        "building helm {} (once, 2 to 6 minutes on two cores) into {}",
        version(module)?,
        folder.display()
    ));
    let started = Instant::now();
    // Built under another name and renamed, so that a build cut short is never taken for helm.
    let unfinished = folder.join(format!("helm.{}", std::process::id()));
    let status = Command::new("go")
        .args(["build", "-trimpath", "-ldflags", "-s -w", "-o"])
        .arg(&unfinished)
        .arg(PACKAGE)
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .status();
    let status = match status {
        Ok(status) => status,
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "cannot build helm: there is no `go` on PATH; \
             install Go 1.26 or newer and put its bin folder on PATH"
        ),
        Err(error) => return Err(error).context("cannot start `go build`"),
    };
    if !status.success() {
        bail!(
            "cannot build helm: `go build {PACKAGE}` in {} ended with {status}; its reason stands \
             above (modules not reachable: check `go env GOPROXY`; disk full: set GOCACHE elsewhere)",
            super::shown(module)
        );
    }
    fs::rename(&unfinished, program)
        .with_context(|| format!("cannot move helm to {}", program.display()))?;
    super::tell(&format!("built helm in {} s", started.elapsed().as_secs()));
    Ok(())
}

/// The version that the module's go.mod pins.
fn version(module: &Path) -> anyhow::Result<String> {
    let path = module.join("go.mod");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    text.lines()
        .find_map(|line| line.trim().strip_prefix("helm.sh/helm/v4 "))
        .and_then(|rest| rest.split_whitespace().next())
        .map(str::to_owned)
        .with_context(|| format!("{} requires no helm.sh/helm/v4", path.display()))
}
