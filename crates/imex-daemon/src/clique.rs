//! Follows the one object of this node's clique.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::Api;
use kube::runtime::watcher::watch_object;
use octavo_api::compute_domain::ComputeDomainClique;
use octavo_kube_io::Backoff;
use tokio::sync::watch;
use tokio::time::sleep;

/// Delay between attempts to watch: at first, and at most.
const RETRY: Duration = Duration::from_millis(500);
const MAX_RETRY: Duration = Duration::from_secs(10);

/// The clique's object as it was last seen; `None` before it is seen, and while there is none.
pub(crate) type Seen = Option<Arc<ComputeDomainClique>>;

/// Follows the object forever. It may be made, deleted and made again.
pub(crate) async fn follow(api: Api<ComputeDomainClique>, name: String, seen: watch::Sender<Seen>) {
    let mut states = pin!(watch_object(api, &name));
    let mut backoff = Backoff::new(RETRY, MAX_RETRY);
    let mut was_absent = false;
    while let Some(state) = states.next().await {
        match state {
            Ok(clique) => {
                backoff.reset();
                if clique.is_none() && !was_absent {
                    tracing::info!(clique = %name, "there is no ComputeDomainClique yet: the controller makes it");
                }
                was_absent = clique.is_none();
                seen.send_replace(clique.map(Arc::new));
            }
            Err(error) => {
                tracing::warn!(clique = %name, %error, "cannot watch the ComputeDomainClique; trying again");
                sleep(backoff.next_delay()).await;
            }
        }
    }
}
