//! Reads the pods of claims, each once, for their gangs. A watch of all pods would be far more.

use std::time::Duration;

use futures::StreamExt as _;
use http::Request;
use kube::Client;
use octavo_kube_io::objects::Pod;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::gangs::gang_of;
use crate::store::Change;
use crate::view::ClaimPod;

/// Pods that are read at the same time.
const MAX_READS: usize = 16;
/// Time for one answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Tries, and the delay between two. A pod that cannot be read counts as one without a gang.
const TRIES: usize = 3;
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Starts the reader, until `stop`. Pods that are sent are answered by changes.
pub(super) fn start(
    client: Client,
    changes: mpsc::Sender<Change>,
    stop: CancellationToken,
) -> mpsc::UnboundedSender<ClaimPod> {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let answers =
            UnboundedReceiverStream::new(receiver).for_each_concurrent(MAX_READS, |pod| {
                let (client, changes) = (client.clone(), changes.clone());
                async move {
                    let found = read(&client, &pod).await;
                    let gang = found.as_ref().and_then(gang_of);
                    // The loop ends with the process.
                    let _ = changes.send(Change::PodRead { uid: pod.uid, gang }).await;
                }
            });
        stop.run_until_cancelled(answers).await;
    });
    sender
}

/// The pod, if it is still there and can be read.
async fn read(client: &Client, pod: &ClaimPod) -> Option<Pod> {
    let ClaimPod { uid, namespace, name } = pod;
    for attempt in 0..TRIES {
        if attempt > 0 {
            tokio::time::sleep(RETRY_DELAY).await;
        }
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let request = Request::get(path).body(Vec::new()).ok()?;
        let problem = match tokio::time::timeout(TIMEOUT, client.request::<Value>(request)).await {
            Ok(Ok(object)) => {
                let found = Pod::from_value(object).ok()?;
                return (*found.meta.uid == **uid).then_some(found);
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return None,
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                tracing::warn!(
                    pod = %format!("{namespace}/{name}"), reason = %status.message,
                    "pods may not be read: the minimums of gangs are not waited for; the controller's role needs `get` on pods"
                );
                return None;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", TIMEOUT.as_secs()),
        };
        tracing::debug!(%namespace, %name, %problem, "a pod cannot be read");
    }
    tracing::warn!(%namespace, %name, "a pod cannot be read: the minimum of its gang is not waited for");
    None
}
