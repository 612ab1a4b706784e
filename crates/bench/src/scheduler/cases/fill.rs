//! Pods that run before a case begins, and how a pod is named when it has a node from the start.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::scheduler::api::Kind;
use crate::scheduler::objects;
use crate::scheduler::testbed::Testbed;
use crate::scheduler::workers;

/// How long creation may take.
const TIMEOUT: Duration = Duration::from_mins(10);

/// Creates `count` running pods `set-NUMBER`. `pod` makes each with the number of its node.
pub(super) async fn run_on_nodes(
    testbed: &Testbed,
    set: &'static str,
    count: usize,
    pod: impl Fn(&str, usize) -> (Value, usize) + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let (api, pod) = (testbed.api.clone(), Arc::new(pod));
    workers::in_parallel(count, move |number| {
        let (api, pod) = (api.clone(), Arc::clone(&pod));
        async move {
            let name = format!("{set}-{number}");
            let (mut pod, node) = pod(&name, number);
            pod["spec"]["nodeName"] = objects::node_name(node).into();
            api.create(Kind::Pods, &pod).await?;
            api.merge(Kind::Pods, &format!("{name}/status"), &objects::running()).await.map(drop)
        }
    })
    .await?;
    testbed.observer.all_bound(set, count, TIMEOUT).await.map(drop)
}
