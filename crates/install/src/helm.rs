//! The helm program.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tokio::process::Command;

use crate::args::{ChartArgs, ReleaseArgs};
use crate::chart::Chart;

/// The oldest helm: its `upgrade` has `--reset-then-reuse-values`.
const OLDEST: (u32, u32) = (3, 14);

/// Variables by which helm would choose another cluster or user than this program.
const KUBE_VARIABLES: [&str; 9] = [
    "HELM_KUBEAPISERVER",
    "HELM_KUBEASGROUPS",
    "HELM_KUBEASUSER",
    "HELM_KUBECAFILE",
    "HELM_KUBECONTEXT",
    "HELM_KUBEINSECURE_SKIP_TLS_VERIFY",
    "HELM_KUBETLS_SERVER_NAME",
    "HELM_KUBETOKEN",
    "HELM_NAMESPACE",
];

/// Helm, for one release of one cluster.
#[derive(Debug)]
pub(crate) struct Helm {
    program: PathBuf,
    cluster: Vec<OsString>,
    release: String,
    namespace: String,
    /// Its major version.
    major: u32,
}

/// What helm has of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseState {
    /// None, or only its history.
    Absent,
    /// A helm writes it, or was interrupted while it did.
    Pending,
    /// It is there. It may have failed.
    There,
}

impl ReleaseState {
    fn of(status: Option<&str>) -> Self {
        match status {
            Some("uninstalled") => Self::Absent,
            Some("pending-install" | "pending-upgrade" | "pending-rollback") => Self::Pending,
            _ => Self::There,
        }
    }
}

/// What helm is to do with a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A new release.
    Install,
    /// A release that is there.
    Upgrade {
        /// Whether its values are forgotten.
        resets_values: bool,
    },
}

impl Helm {
    /// Finds the program.
    ///
    /// # Errors
    ///
    /// It does not run, or is too old.
    pub(crate) async fn find(args: &ReleaseArgs) -> anyhow::Result<Self> {
        let mut cluster: Vec<OsString> = Vec::new();
        if let Some(file) = &args.connect.kubeconfig {
            cluster.extend(["--kubeconfig".into(), file.into()]);
        }
        if let Some(context) = &args.connect.context {
            cluster.extend(["--kube-context".into(), context.into()]);
        }
        let (release, namespace) = (args.release.clone(), args.namespace.clone());
        let mut helm = Self { program: args.helm.clone(), cluster, release, namespace, major: 0 };
        let text = helm.text(&["version", "--template", "{{.Version}}"]).await?;
        let (major, minor) = version(&text)
            .with_context(|| format!("`helm version` says {text:?}, which is no version"))?;
        ensure!(
            (major, minor) >= OLDEST,
            "helm {major}.{minor} is too old: 3.14 or later is needed; see https://helm.sh/docs/intro/install, or --helm PATH"
        );
        helm.major = major;
        Ok(helm)
    }

    /// Renders the chart as an action would, for a cluster of this version.
    ///
    /// # Errors
    ///
    /// Helm fails, such as for a value that the chart refuses.
    pub(crate) async fn render(
        &self,
        action: Action,
        chart: &Chart,
        args: &ChartArgs,
        version: &str,
    ) -> anyhow::Result<String> {
        let mut words = vec!["template".to_owned(), self.release.clone(), chart.argument()];
        words.extend(self.of_namespace().map(str::to_owned));
        words.extend(["--kube-version".to_owned(), version.to_owned()]);
        let mut kept = None;
        if action == (Action::Upgrade { resets_values: false }) {
            let values = self
                .text(
                    &[&["get", "values", &self.release, "-o", "json"][..], &self.of_namespace()]
                        .concat(),
                )
                .await?;
            let file =
                tempfile::NamedTempFile::new().context("no file for the release's values")?;
            std::fs::write(file.path(), values)
                .context("the release's values cannot be written")?;
            words.extend(["--values".to_owned(), file.path().display().to_string()]);
            kept = Some(file);
        }
        words.extend(values(args));
        let text = self.text(&words).await;
        drop(kept);
        text
    }

    /// Writes the release.
    ///
    /// # Errors
    ///
    /// Helm fails. What it has written until then stays.
    pub(crate) async fn write(
        &self,
        action: Action,
        chart: &Chart,
        args: &ChartArgs,
    ) -> anyhow::Result<()> {
        let mut words = self.words(action, chart, args);
        if args.force_conflicts && self.major >= 4 {
            words.push("--force-conflicts".to_owned());
        }
        self.text(&words).await.map(drop)
    }

    /// Removes the release, and waits until its objects are gone.
    ///
    /// # Errors
    ///
    /// Helm fails.
    pub(crate) async fn uninstall(&self, seconds: u64) -> anyhow::Result<()> {
        let timeout = format!("{seconds}s");
        let words = ["uninstall", &self.release, "--wait", "--timeout", &timeout];
        self.text(&[&words[..], &self.of_namespace()].concat()).await.map(drop)
    }

    /// What helm has of the release.
    ///
    /// # Errors
    ///
    /// Helm fails for another reason.
    pub(crate) async fn state(&self) -> anyhow::Result<ReleaseState> {
        let words = ["status", &self.release, "-o", "json"];
        let output = self.run(&[&words[..], &self.of_namespace()].concat()).await?;
        let error = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            if error.contains("release: not found") {
                return Ok(ReleaseState::Absent);
            }
            bail!("helm status fails: {}", error.trim());
        }
        let answer: Value = serde_json::from_slice(&output.stdout).context("read helm's answer")?;
        Ok(ReleaseState::of(answer.pointer("/info/status").and_then(Value::as_str)))
    }

    fn words(&self, action: Action, chart: &Chart, args: &ChartArgs) -> Vec<String> {
        let mut words: Vec<String> = match action {
            Action::Install => vec!["install".into()],
            Action::Upgrade { resets_values: false } => {
                vec!["upgrade".into(), "--reset-then-reuse-values".into()]
            }
            Action::Upgrade { resets_values: true } => {
                vec!["upgrade".into(), "--reset-values".into()]
            }
        };
        words.extend([self.release.clone(), chart.argument()]);
        words.extend(self.of_namespace().map(str::to_owned));
        if action == Action::Install {
            words.push("--create-namespace".into());
        }
        words.extend(values(args));
        words
    }

    fn of_namespace(&self) -> [&str; 2] {
        ["--namespace", &self.namespace]
    }

    async fn text<S: AsRef<str>>(&self, words: &[S]) -> anyhow::Result<String> {
        let output = self.run(words).await?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            let verb = words.first().map_or("", AsRef::as_ref);
            bail!("helm {verb} fails: {}", error.trim().trim_start_matches("Error: "));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    async fn run<S: AsRef<str>>(&self, words: &[S]) -> anyhow::Result<Output> {
        let mut command = Command::new(&self.program);
        command.args(words.iter().map(AsRef::as_ref)).args(&self.cluster);
        command.stdin(Stdio::null()).kill_on_drop(true);
        // The cluster that was read is the one that is written.
        for variable in KUBE_VARIABLES {
            command.env_remove(variable);
        }
        match command.output().await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
                "there is no program {}: install helm 3.14 or later (https://helm.sh/docs/intro/install), or name it with \
                 --helm PATH",
                self.program.display()
            ),
            output => output.with_context(|| format!("{} does not run", self.program.display())),
        }
    }
}

/// The user's values, as helm takes them.
fn values(args: &ChartArgs) -> Vec<String> {
    let mut words = Vec::new();
    for file in &args.values {
        words.extend(["--values".into(), file.display().to_string()]);
    }
    for (flag, values) in
        [("--set", &args.set), ("--set-string", &args.set_string), ("--set-json", &args.set_json)]
    {
        for value in values {
            words.extend([flag.into(), value.clone()]);
        }
    }
    words
}

/// Major and minor version of `v3.19.2`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().trim_start_matches('v').split(['.', '-', '+']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_helm_has_of_a_release_is_read() {
        assert_eq!(ReleaseState::of(Some("uninstalled")), ReleaseState::Absent);
        assert_eq!(ReleaseState::of(Some("pending-upgrade")), ReleaseState::Pending);
        assert_eq!(ReleaseState::of(Some("deployed")), ReleaseState::There);
        assert_eq!(ReleaseState::of(Some("failed")), ReleaseState::There);
    }

    #[test]
    fn versions_of_helm_are_read() {
        assert_eq!(version("v3.19.2\n"), Some((3, 19)));
        assert_eq!(version("v4.3"), Some((4, 3)));
        assert_eq!(version("v4.0.0-rc.1"), Some((4, 0)));
        assert_eq!(version("helm"), None);
    }
}
