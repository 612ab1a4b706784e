//! `octavo discover`: marks nodes with NVIDIA GPUs, for clusters without Node Feature Discovery.
//!
//! It is part of this crate because it joins the kernel's list of PCI devices with one label, and nothing else. It runs on every
//! node, most of which have no agent.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use octavo_api::names::{DISCOVER_MANAGER, LABEL_GPU_PRESENT};
use octavo_gpu::gpus_on_bus;
use octavo_kube_io::client::{self, ClientOptions};
use octavo_view::connect::parse_timeout;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

/// Time after which the label is written again, in case that it was removed, or its node made again.
const REWRITE_INTERVAL: Duration = Duration::from_mins(10);
/// Pause after a write that failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Looks in a row without a GPU before the label goes. A device that is scanned again is away for a moment, and the agent would go
/// with the label.
const ABSENT_LOOKS: u32 = 3;
/// The API server's answer if another program has another value.
const CONFLICT: u16 = 409;

/// Arguments of `octavo discover`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DiscoverArgs {
    /// Name of this node in the API
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node_name: String,
    /// Kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the pod's own service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The sys file system
    #[arg(long, value_name = "FOLDER", default_value = "/sys")]
    sys_root: PathBuf,
    /// Interval between looks at the PCI bus
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_interval)]
    interval: Duration,
}

/// Keeps the label until a signal.
pub(crate) async fn run_discover(args: &DiscoverArgs) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let options = ClientOptions {
        kubeconfig: args.kubeconfig.clone(),
        context: None,
        user_agent: concat!("octavo-discover/", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    let client = client::connect(&options).await?;
    let mut seen = Seen::default();
    loop {
        let pause = look(args, &client, &mut seen).await;
        tokio::select! {
            () = sleep(pause) => {}
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        }
    }
}

/// What earlier looks found.
#[derive(Debug, Default)]
struct Seen {
    /// What was written last, and when.
    written: Option<(bool, Instant)>,
    /// Looks in a row that found no GPU.
    absent_looks: u32,
}

/// Looks at the bus, and writes what is new. Returns the pause until the next look.
async fn look(args: &DiscoverArgs, client: &Client, seen: &mut Seen) -> Duration {
    let node = args.node_name.as_str();
    let has_gpu = match has_gpu(&args.sys_root) {
        Ok(has_gpu) => has_gpu,
        Err(error) => {
            tracing::error!(node, error = format!("{error:#}"), "trying again");
            return RETRY_INTERVAL;
        }
    };
    let interval = args.interval;
    seen.absent_looks = if has_gpu { 0 } else { seen.absent_looks.saturating_add(1) };
    let is_brief = !has_gpu && seen.absent_looks < ABSENT_LOOKS;
    let is_known =
        seen.written.is_some_and(|(known, at)| known == has_gpu && at.elapsed() < REWRITE_INTERVAL);
    if is_known || is_brief {
        return interval;
    }
    match apply(client, node, has_gpu).await {
        Ok(()) => {
            if seen.written.is_none_or(|(known, _)| known != has_gpu) {
                tracing::info!(node, has_gpu, "the node's label is as the PCI bus says");
            }
        }
        Err(kube::Error::Api(status)) if status.code == CONFLICT => {
            let message = status.message;
            tracing::warn!(
                node,
                message,
                "another program, or a person, gave the label another value: it stays"
            );
        }
        Err(error) => {
            tracing::error!(node, error = error.to_string(), "trying again");
            return RETRY_INTERVAL;
        }
    }
    seen.written = Some((has_gpu, Instant::now()));
    interval
}

/// Reads an interval, which is not 0.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_timeout(text)?.0;
    interval.ok_or_else(|| "0 is no interval: give a time such as 30s".to_owned())
}

fn has_gpu(sys_root: &Path) -> anyhow::Result<bool> {
    let gpus = gpus_on_bus(sys_root);
    let gpus =
        gpus.with_context(|| format!("list the PCI devices below {}", sys_root.display()))?;
    Ok(!gpus.is_empty())
}

/// Sets the label, or gives it up: the API server then removes it, unless another program has set it, too.
async fn apply(client: &Client, node: &str, has_gpu: bool) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    // To apply what is not there would create a Node.
    nodes.get_metadata(node).await?;
    let object = labelled(node, has_gpu);
    nodes.patch(node, &PatchParams::apply(DISCOVER_MANAGER), &Patch::Apply(&object)).await.map(drop)
}

/// All that this program says of a node.
fn labelled(node: &str, has_gpu: bool) -> Value {
    let labels = if has_gpu { json!({LABEL_GPU_PRESENT: "true"}) } else { json!({}) };
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}})
}

#[cfg(test)]
mod tests;
