mod leading;

use std::sync::Arc;

use octavo_kube_io::objects::{Change, Delta, Pod};
use prometheus_client::registry::Registry;
use serde_json::json;

use super::*;
use crate::admin;
use crate::bind::Load;
use crate::bind::tests::fake_api::{FakeApi, Trouble};
use crate::core::CoreConfig;
use crate::status::{StatusOptions, StatusWriter};

const POD: &str = "/api/v1/namespaces/team/pods/p";

#[tokio::test(start_paused = true)]
async fn what_was_not_told_while_the_lease_was_lost_for_a_moment_is_told_afterwards() {
    let api = FakeApi::default();
    let object = json!({"metadata": {"name": "p", "namespace": "team", "uid": "uid-p"},
        "spec": {"schedulerName": "octavo", "containers": []}});
    api.put(POD, object.clone());
    let metrics = Metrics::new(&mut Registry::default());
    let (stop, lease) = (CancellationToken::new(), api.clone());
    let status = StatusWriter::start(
        api.client(),
        StatusOptions::new("octavo", "octavo-0"),
        Leadership::new(move || lease.lease()),
        Load::default(),
        metrics.clone(),
        stop.clone(),
    );
    // Who writes notices that the lease is lost; who decides has looked before and after.
    api.trouble_from(0, Trouble::NotLeader);
    let (tell, news) = mpsc::channel(8);
    let (orders, _orders) = mpsc::channel(8);
    let (_outcomes, outcomes) = mpsc::unbounded_channel();
    let (_asks, questions) = admin::questions();
    let ends = Ends {
        news,
        anew: Relist::default(),
        outcomes,
        orders,
        reports: status.reports.clone(),
        questions,
        leadership: Leadership::unquestioned(),
        gate: Gate::default(),
        metrics,
        synced: Box::new(|| {}),
        stop: stop.clone(),
    };
    let mind = tokio::spawn(run(Core::new(CoreConfig::default()), ends));
    let pod = Arc::new(Pod::from_value(object).unwrap());
    tell.send(WatchEvent::Change(Change::Pod(Delta::Upsert(pod)))).await.unwrap();
    tell.send(WatchEvent::FreshAsOf(Instant::now())).await.unwrap();
    tell.send(WatchEvent::Synced).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(api.writes().len(), 0);
    api.calm();
    // Time is paused, so this costs none.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let conditions = api.object(POD).unwrap()["status"]["conditions"].clone();
    assert_eq!(conditions[0]["reason"], "Unschedulable", "{conditions}");
    stop.cancel();
    mind.await.unwrap();
}
