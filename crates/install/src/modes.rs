//! Nodes leave: they get the mode `none`, in which the agent offers no GPU and keeps nothing, and are waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use octavo_api::names::{LABEL_MODE, MODE_NONE, NODE_MODE_METRIC};
use octavo_view::ViewError;
use octavo_view::connect::Timeout;
use octavo_view::fetch::list;
use octavo_view::shares::metrics_of_nodes;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::progress::report;

/// Interval of looks at the agents.
const INTERVAL: Duration = Duration::from_secs(1);

/// The modes that nodes had before.
#[derive(Clone, Debug, Default)]
pub(crate) struct FormerModes(BTreeMap<String, Option<String>>);

/// Asks nodes to leave. Returns the labels that they had.
///
/// # Errors
///
/// A node cannot be read or changed. Earlier ones have the label.
pub(crate) async fn leave(
    client: &Client,
    nodes: &BTreeSet<String>,
    former: &mut FormerModes,
) -> Result<(), ViewError> {
    let api: Api<Node> = Api::all(client.clone());
    for name in nodes {
        let found = api.get_metadata_opt(name).await.map_err(|e| ViewError::api("nodes", e))?;
        // A node that is gone has left.
        let Some(found) = found else { continue };
        let label = found.metadata.labels.and_then(|mut labels| labels.remove(LABEL_MODE));
        set(&api, name, Some(MODE_NONE)).await?;
        former.0.insert(name.clone(), label);
    }
    Ok(())
}

/// Gives nodes their labels back.
///
/// # Errors
///
/// A node cannot be changed. The others are.
pub(crate) async fn restore(client: &Client, former: &FormerModes) -> Result<(), ViewError> {
    let api: Api<Node> = Api::all(client.clone());
    let mut failed = None;
    for (name, label) in &former.0 {
        // A label `none` is of an earlier try, which did not come to its end.
        let label = label.as_deref().filter(|label| *label != MODE_NONE);
        if let Err(error) = set(&api, name, label).await {
            failed = Some(error);
        }
    }
    failed.map_or(Ok(()), Err)
}

async fn set(api: &Api<Node>, node: &str, mode: Option<&str>) -> Result<(), ViewError> {
    let patch = Patch::Merge(json!({"metadata": {"labels": {LABEL_MODE: mode}}}));
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
    loop {
        let mut unread = BTreeMap::new();
        for (node, answer) in metrics_of_nodes(client, &late).await? {
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
        sleep(INTERVAL).await;
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
