mod backlog;
mod leadership;
mod overload;
mod pause;
mod whole;

use std::sync::Arc;

use octavo_kube_io::objects::{Change, Delta, Pod};
use prometheus_client::registry::Registry;
use serde_json::json;

use super::*;
use crate::admin;
use crate::bind::Load;
use crate::bind::tests::fake_api::{FakeApi, InjectedFault};
use crate::metrics::Subject;
use crate::state::SchedulerConfig;
use crate::status::{StatusOptions, StatusWriter};

const POD: &str = "/api/v1/namespaces/team/pods/p";

#[tokio::test(start_paused = true)]
async fn a_report_dropped_during_a_short_lease_loss_is_sent_afterwards() {
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
    // The writer notices the lost lease; the decision thread only looked before and after.
    api.inject_from(0, InjectedFault::NotLeader);
    let (tell, news) = mpsc::channel(8);
    let (orders, _orders) = mpsc::channel(8);
    let (_outcomes, outcomes) = mpsc::unbounded_channel();
    let (_asks, questions) = admin::questions();
    let channels = Channels {
        watch_events: news,
        relists: Relist::default(),
        op_results: outcomes,
        write_ops: orders,
        reports: status.sender.clone(),
        questions,
        leadership: Leadership::always(),
        gate: FencingGate::default(),
        metrics,
        synced: Box::new(|| {}),
        stop: stop.clone(),
    };
    let event_loop = tokio::spawn(run(Scheduler::new(SchedulerConfig::default()), channels));
    let pod = Arc::new(Pod::from_value(object).unwrap());
    tell.send(WatchEvent::Change(Change::Pod(Delta::Upsert(pod)))).await.unwrap();
    tell.send(WatchEvent::FreshAsOf(Instant::now())).await.unwrap();
    tell.send(WatchEvent::Synced).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(api.writes().len(), 0);
    api.clear_faults();
    // Time is paused, so this costs none.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let conditions = api.object(POD).unwrap()["status"]["conditions"].clone();
    assert_eq!(conditions[0]["reason"], "Unschedulable", "{conditions}");
    stop.cancel();
    event_loop.await.unwrap();
}

#[test]
fn events_of_a_cycle_reach_the_metrics() {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let decided = MetricEvent::Decided { subject: Subject::Pod, result: "placed", reason: "" };
    let events = [
        decided,
        decided,
        MetricEvent::PodBound { after_ms: 1500 },
        MetricEvent::Preempted(Subject::Gang),
    ];
    record_events(&events, Duration::from_millis(4), &metrics);
    let mut page = String::new();
    prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
    for line in [
        r#"octavo_scheduler_decisions_total{subject="pod",result="placed",reason=""} 2"#,
        r#"octavo_scheduler_decision_seconds_sum{subject="pod"} 0.004"#,
        "octavo_scheduler_pod_binding_seconds_sum 1.5",
        r#"octavo_scheduler_preemptions_total{subject="gang"} 1"#,
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
    }
}
