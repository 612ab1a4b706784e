//! The container's state and config, as in the OCI runtime specification.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;

/// State that a runtime passes to its hooks.
#[derive(Deserialize)]
struct State {
    bundle: PathBuf,
    /// The container's first process in the runtime's pid namespace, if the hook runs there.
    #[serde(default)]
    pid: Option<u32>,
}

/// A bundle's `config.json`, as far as hooks need it.
#[derive(Deserialize)]
struct Config {
    root: Root,
    #[serde(default)]
    process: Option<Process>,
    #[serde(default)]
    hooks: Option<Hooks>,
}

/// Root of a container.
#[derive(Deserialize)]
struct Root {
    path: PathBuf,
}

/// The process of a container.
#[derive(Default, Deserialize)]
struct Process {
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    cwd: PathBuf,
}

/// A container's hooks.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hooks {
    #[serde(default)]
    create_container: Vec<Hook>,
    #[serde(default)]
    create_runtime: Vec<Hook>,
}

/// One hook.
#[derive(Deserialize)]
struct Hook {
    #[serde(default)]
    args: Vec<String>,
}

/// A container that is being made.
pub(super) struct Container {
    /// Its root on the host.
    pub(super) root: PathBuf,
    /// Its first process.
    pub(super) pid: Option<u32>,
    /// Its environment, `NAME=value`.
    pub(super) env: Vec<String>,
    /// Where its first process begins, in the container.
    pub(super) cwd: PathBuf,
    /// Arguments of all its hooks, the program's name first.
    pub(super) hooks: Vec<Vec<String>>,
}

/// Reads the container from the state that the runtime passes.
pub(super) fn container(state: &str) -> anyhow::Result<Container> {
    let state: State = serde_json::from_str(state)
        .context("the container's state on standard input is not JSON with a bundle")?;
    let path = state.bundle.join("config.json");
    let config = std::fs::read_to_string(&path)
        .with_context(|| format!("reading the container's config {}", path.display()))?;
    let config: Config = serde_json::from_str(&config)
        .with_context(|| format!("the container's config {} has no root", path.display()))?;
    // A relative root is relative to the bundle. Joining an absolute path yields that path.
    let root = state.bundle.join(config.root.path);
    anyhow::ensure!(
        root != Path::new("/"),
        "the container's root is the node's own: nothing is changed there"
    );
    let hooks = config.hooks.unwrap_or_default();
    let hooks = hooks.create_container.into_iter().chain(hooks.create_runtime);
    let process = config.process.unwrap_or_default();
    Ok(Container {
        root,
        pid: state.pid.filter(|pid| *pid != 0),
        env: process.env,
        // Runtimes default to the root.
        cwd: Path::new("/").join(process.cwd),
        hooks: hooks.map(|hook| hook.args).collect(),
    })
}

impl Container {
    /// Arguments of Octavo's hooks with an action, without the action.
    pub(super) fn octavo_hooks<'a>(&'a self, action: &str) -> impl Iterator<Item = &'a [String]> {
        self.hooks.iter().filter_map(move |args| match args.as_slice() {
            [own, group, name, rest @ ..]
                if own == "octavo" && group == "cdi-hook" && name == action =>
            {
                Some(rest)
            }
            _ => None,
        })
    }
}

/// Values of an option in a hook's arguments.
pub(super) fn values<'a>(args: &'a [String], option: &str) -> impl Iterator<Item = &'a str> {
    let pairs = args.iter().zip(args.iter().skip(1));
    pairs.filter(move |(name, _)| *name == option).map(|(_, value)| value.as_str())
}
