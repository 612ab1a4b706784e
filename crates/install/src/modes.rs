//! Nodes leave: they get the mode `none`, in which the agent offers no GPU and keeps nothing, and are waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use octavo_api::names::{ANNOTATION_LEAVING, LABEL_MODE, MODE_NONE, NODE_MODE_METRIC};
use octavo_view::ViewError;
use octavo_view::connect::Timeout;
use octavo_view::fetch::list;
use octavo_view::shares::metrics_of_nodes;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout_at};

use crate::owner::Release;
use crate::progress::report;

/// Interval of looks at the agents: at first, and at most.
const INTERVAL: Duration = Duration::from_millis(500);
const MAX_INTERVAL: Duration = Duration::from_secs(10);
/// Nodes that are changed at a time.
const MAX_CONCURRENT_WRITES: usize = 16;

/// Asks nodes to leave with a release. Their annotation remembers how they offered their GPUs before. A node that a person has given
/// the mode `none` stays as it is.
///
/// # Errors
///
/// A node cannot be read or changed. Others may have the label.
pub(crate) async fn leave(
    client: &Client,
    nodes: &BTreeSet<String>,
    release: &Release,
) -> Result<(), ViewError> {
    let api: Api<Node> = Api::all(client.clone());
    let asked = nodes.iter().map(|name| leave_one(&api, name, release));
    futures::stream::iter(asked).buffer_unordered(MAX_CONCURRENT_WRITES).try_collect().await
}

async fn leave_one(api: &Api<Node>, name: &str, release: &Release) -> Result<(), ViewError> {
    let found = api.get_metadata_opt(name).await.map_err(|e| ViewError::api("nodes", e))?;
    // A node that is gone has left.
    let Some(found) = found else { return Ok(()) };
    let label = found.metadata.labels.and_then(|mut labels| labels.remove(LABEL_MODE));
    if label.as_deref() == Some(MODE_NONE) {
        return Ok(());
    }
    let former = format!("{release}={}", label.unwrap_or_default());
    set(api, name, Some(MODE_NONE), Some(&former)).await
}

/// Gives nodes that were to leave with a release their labels back.
///
/// # Errors
///
/// A node cannot be changed. The others are.
pub(crate) async fn restore(client: &Client, release: &Release) -> Result<(), ViewError> {
    let api: Api<Node> = Api::all(client.clone());
    let mut failed = None;
    for (name, former) in leaving(client, release).await? {
        let label = Some(former.as_str()).filter(|label| !label.is_empty());
        if let Err(error) = set(&api, &name, label, None).await {
            failed = Some(error);
        }
    }
    failed.map_or(Ok(()), Err)
}

/// The nodes that are to leave with a release, with their former label; empty if they had none.
///
/// # Errors
///
/// The nodes cannot be read.
pub(crate) async fn leaving(
    client: &Client,
    release: &Release,
) -> Result<BTreeMap<String, String>, ViewError> {
    let api: Api<Node> = Api::all(client.clone());
    let labelled = ListParams::default().labels(&format!("{LABEL_MODE}={MODE_NONE}"));
    let found = list("nodes", &api, labelled).await?.into_iter().filter_map(|node| {
        let annotation = node.metadata.annotations?.remove(ANNOTATION_LEAVING)?;
        let (theirs, former) = annotation.split_once('=')?;
        (theirs == release.to_string())
            .then(|| (node.metadata.name.unwrap_or_default(), former.to_owned()))
    });
    Ok(found.collect())
}

async fn set(
    api: &Api<Node>,
    node: &str,
    mode: Option<&str>,
    former: Option<&str>,
) -> Result<(), ViewError> {
    let patch = Patch::Merge(json!({"metadata": {
        "labels": {LABEL_MODE: mode}, "annotations": {ANNOTATION_LEAVING: former},
    }}));
    let patched = api.patch_metadata(node, &PatchParams::default(), &patch).await;
    patched.map(drop).map_err(|error| ViewError::api("nodes", error))
}

/// Waits until the agents of nodes have let go. Returns those that have not, each with what is known of it.
///
/// # Errors
///
/// The cluster cannot be read.
pub(crate) async fn wait(
    client: &Client,
    nodes: &BTreeSet<String>,
    limit: Timeout,
) -> Result<BTreeMap<String, String>, ViewError> {
    let deadline = limit.0.map(|limit| Instant::now() + limit);
    let mut late: BTreeSet<String> = nodes.clone();
    let mut unread = BTreeMap::new();
    let mut backoff = INTERVAL;
    loop {
        let answers = metrics_of_nodes(client, &late);
        let answers = match deadline {
            // A round over many nodes that do not answer is long.
            Some(deadline) => {
                timeout_at(deadline, answers).await.unwrap_or_else(|_| Ok(BTreeMap::new()))?
            }
            None => answers.await?,
        };
        for (node, answer) in answers {
            match answer {
                Ok(texts) if texts.iter().any(|text| has_left(text, &node)) => {
                    report(&format!("{node}: offers no GPU any more"));
                    late.remove(&node);
                }
                Ok(_) => {}
                Err(why) => {
                    unread.insert(node, why);
                }
            }
        }
        unread.retain(|node, _| late.contains(node));
        if late.is_empty() {
            return Ok(BTreeMap::new());
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let mut answer = BTreeMap::new();
            for node in late {
                let why = match unread.remove(&node) {
                    Some(why) => why,
                    None => waits(client, &node).await?,
                };
                answer.insert(node, why);
            }
            return Ok(answer);
        }
        sleep(backoff).await;
        backoff = (backoff * 2).min(MAX_INTERVAL);
    }
}

/// Whether an agent's metrics say that a node is in the mode `none`.
fn has_left(metrics: &str, node: &str) -> bool {
    let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(NODE_MODE_METRIC));
    lines.any(|line| {
        line.contains(&format!("node=\"{node}\""))
            && line.contains(&format!("mode=\"{MODE_NONE}\""))
            && line.ends_with(" 1")
    })
}

/// What an agent waits for, by its newest event.
async fn waits(client: &Client, node: &str) -> Result<String, ViewError> {
    let events: Api<Event> = Api::all(client.clone());
    let fields = format!("involvedObject.kind=Node,involvedObject.name={node},reason=ModeWaits");
    let found = list("events", &events, ListParams::default().fields(&fields)).await?;
    let newest = found.into_iter().max_by_key(|event| event.metadata.creation_timestamp.clone());
    Ok(newest
        .and_then(|event| event.message)
        .unwrap_or_else(|| "its agent has not let go yet, and does not say why".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_left_once_its_agent_says_so() {
        let line = |mode: &str, value: u8| {
            format!(
                "# HELP octavo_agent_node_mode ...\noctavo_agent_node_mode{{node=\"a\",mode=\"{mode}\"}} {value}\n"
            )
        };
        assert!(has_left(&line("none", 1), "a"));
        assert!(!has_left(&line("none", 0), "a"));
        assert!(!has_left(&line("dra", 1), "a"));
        assert!(!has_left(&line("none", 1), "b"));
        assert!(!has_left("", "a"));
    }
}
