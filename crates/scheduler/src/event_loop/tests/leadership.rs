//! A new leader decides on the writes of the previous leader, not on what its watches have
//! delivered so far.

use std::sync::Mutex;

use octavo_kube_io::objects::{Kind, Node};
use prometheus_client::encoding::text::encode;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::*;
use crate::bind::{Bind, ClaimVersions, OpKind, TermRemaining};

/// Longer than any expected delay. Time is paused while any task has work.
pub(super) const SETTLE_TIME: Duration = Duration::from_secs(10);

/// An event loop with a cluster of one node, whose watch events come from the test.
pub(super) struct Harness {
    api: FakeApi,
    tell: mpsc::Sender<WatchEvent>,
    relists: Relist,
    pub(super) orders: mpsc::Receiver<WriteOp>,
    lease: Arc<Mutex<Option<Instant>>>,
    /// The leadership as writers see it.
    writers: Leadership,
    registry: Registry,
    event_loop: JoinHandle<()>,
    stop: CancellationToken,
    outcomes: mpsc::UnboundedSender<OpResult>,
}

impl Harness {
    /// A follower that has read the cluster: a node with four CPUs, and a pending pod `p` that
    /// requests three.
    async fn new() -> Self {
        let lease = Arc::<Mutex<Option<Instant>>>::default();
        let held = Arc::clone(&lease);
        let leadership = Leadership::new(move || {
            let since = (*held.lock().unwrap())?;
            Some(TermRemaining { time_left: Duration::from_secs(15), since })
        });
        Self::with(leadership, lease).await
    }

    pub(super) async fn with(leadership: Leadership, lease: Arc<Mutex<Option<Instant>>>) -> Self {
        let api = FakeApi::default();
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let stop = CancellationToken::new();
        let (writers, gate) = leadership.gated();
        let status = StatusWriter::start(
            api.client(),
            StatusOptions::new("octavo", "octavo-0"),
            writers.clone(),
            Load::default(),
            metrics.clone(),
            stop.clone(),
        );
        let (tell, news) = mpsc::channel(64);
        let (orders, ordered) = mpsc::channel(64);
        let (ended, outcomes) = mpsc::unbounded_channel();
        let (_asks, questions) = admin::questions();
        let relists = Relist::default();
        let channels = Channels {
            watch_events: news,
            relists: relists.clone(),
            op_results: outcomes,
            write_ops: orders,
            reports: status.sender.clone(),
            questions,
            leadership,
            gate,
            metrics,
            synced: Box::new(|| {}),
            stop: stop.clone(),
        };
        let event_loop = tokio::spawn(run(Scheduler::new(SchedulerConfig::default()), channels));
        let harness = Self {
            api,
            tell,
            relists,
            orders: ordered,
            lease,
            writers,
            registry,
            event_loop,
            stop,
            outcomes: ended,
        };
        let node = json!({"metadata": {"name": "a", "uid": "uid-a",
                "labels": {"octavo.dev/scheduler": "octavo"}},
            "status": {"allocatable": {"cpu": "4", "memory": "64Gi", "pods": "110"},
                "capacity": {"cpu": "4", "memory": "64Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}]}});
        let node = Arc::new(Node::from_value(node).unwrap());
        harness.tell(Change::Node(Delta::Upsert(node))).await;
        harness.list(&[pod("p", "3")]).await;
        harness.tell.send(WatchEvent::Synced).await.unwrap();
        sleep(SETTLE_TIME).await;
        harness
    }

    pub(super) async fn tell(&self, change: Change) {
        self.tell.send(WatchEvent::Change(change)).await.unwrap();
    }

    /// Delivers a list that is as new as possible.
    async fn list(&self, pods: &[Value]) {
        let at = Instant::now();
        let pods = pods.iter().map(|pod| Arc::new(Pod::from_value(pod.clone()).unwrap()));
        let all = Delta::Replace(Kind::new("v1", "Pod"), pods.collect());
        self.tell(Change::Pod(all)).await;
        self.tell.send(WatchEvent::FreshAsOf(at)).await.unwrap();
    }

    /// Acquires or loses the lease. Returns the time.
    fn lead(&self, leads: bool) -> Instant {
        let now = Instant::now();
        *self.lease.lock().unwrap() = leads.then_some(now);
        now
    }

    /// Asserts that nothing is decided, submitted or reported for a while, and that writers are
    /// blocked.
    async fn assert_quiet(&mut self) {
        let requests = self.api.count();
        sleep(SETTLE_TIME).await;
        assert_eq!(self.orders.try_recv().ok(), None);
        assert_eq!(self.writers.remaining(), None);
        assert!(self.has_metric("octavo_scheduler_leader 0"));
        assert_eq!(self.api.count(), requests);
    }

    pub(super) async fn next_op(&mut self) -> WriteOp {
        let order = timeout(SETTLE_TIME, self.orders.recv()).await.expect("an operation").unwrap();
        assert!(self.has_metric("octavo_scheduler_leader 1"));
        assert!(self.writers.remaining().is_some());
        order
    }

    /// The next pod to be bound.
    async fn bound(&mut self) -> String {
        let order = self.next_op().await;
        let OpKind::Bind(Bind { pod, .. }) = order.kind else { panic!("{order:?}") };
        pod.name.name.to_string()
    }

    /// Delivers the result of an operation.
    pub(super) fn complete(&self, order: &WriteOp, result: Result<(), Failure>) {
        let result = result.map(|()| ClaimVersions::new());
        self.outcomes.send(OpResult { id: order.id, result }).unwrap();
    }

    fn has_metric(&self, line: &str) -> bool {
        let mut page = String::new();
        encode(&mut page, &self.registry).unwrap();
        page.lines().any(|one| one == line)
    }

    pub(super) async fn end(self) {
        self.stop.cancel();
        self.event_loop.await.unwrap();
        drop(self.outcomes);
    }
}

fn pod(name: &str, cpu: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}")},
        "spec": {"schedulerName": "octavo",
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Pending"}})
}

/// A pod that a leader has bound to the node.
fn placed(name: &str, cpu: &str) -> Value {
    let mut pod = pod(name, cpu);
    pod["spec"]["nodeName"] = "a".into();
    pod
}

#[tokio::test(start_paused = true)]
async fn a_leader_with_a_stale_watch_decides_after_the_relist() {
    let mut harness = Harness::new().await;
    // The previous leader has just bound `q` to the node, and the watch has not delivered it.
    let since = harness.lead(true);
    harness.assert_quiet().await;
    assert_eq!(harness.relists.requested(), Some(since));
    // A list that began before the term may lack `q` as well.
    harness
        .tell
        .send(WatchEvent::FreshAsOf(since.checked_sub(Duration::from_millis(1)).unwrap()))
        .await
        .unwrap();
    harness.assert_quiet().await;
    harness.list(&[pod("p", "3"), placed("q", "3"), pod("r", "1")]).await;
    assert_eq!(harness.bound().await, "r");
    sleep(SETTLE_TIME).await;
    assert_eq!(harness.orders.try_recv().ok(), None, "there is no room for p");
    assert_eq!(harness.relists.requested(), Some(since));
    harness.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_with_fresh_lists_decides_without_a_relist() {
    let mut harness = Harness::with(Leadership::always(), Arc::default()).await;
    assert_eq!(harness.bound().await, "p");
    assert_eq!(harness.relists.requested(), None);
    harness.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_lost_during_the_relist_leaves_no_state() {
    let mut harness = Harness::new().await;
    harness.lead(true);
    harness.assert_quiet().await;
    harness.lead(false);
    harness.assert_quiet().await;
    harness.list(&[pod("p", "3")]).await;
    harness.assert_quiet().await;
    let since = harness.lead(true);
    harness.assert_quiet().await;
    assert_eq!(
        harness.relists.requested(),
        Some(since),
        "the earlier list is older than the new term"
    );
    harness.list(&[pod("p", "3")]).await;
    assert_eq!(harness.bound().await, "p");
    harness.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_relists_after_an_unobserved_gap() {
    let mut harness = Harness::new().await;
    harness.lead(true);
    sleep(SETTLE_TIME).await;
    harness.list(&[placed("q", "3")]).await;
    sleep(SETTLE_TIME).await;
    assert!(harness.has_metric("octavo_scheduler_leader 1"));
    // The process was suspended, and its watch buffer is delivered when it resumes.
    let since = harness.lead(true);
    let late = Arc::new(Pod::from_value(pod("r", "1")).unwrap());
    harness.tell(Change::Pod(Delta::Upsert(late))).await;
    harness.assert_quiet().await;
    assert_eq!(harness.relists.requested(), Some(since));
    harness.list(&[placed("q", "3"), pod("r", "1")]).await;
    assert_eq!(harness.bound().await, "r");
    harness.end().await;
}

#[tokio::test(start_paused = true)]
async fn operations_from_before_the_gap_end_before_the_next_decision() {
    let mut harness = Harness::new().await;
    harness.lead(true);
    harness.list(&[pod("p", "3")]).await;
    let old = harness.next_op().await;
    sleep(SETTLE_TIME).await;
    harness.lead(true);
    assert_eq!(harness.writers.remaining(), None, "the gate closes before the event loop notices");
    harness.list(&[pod("p", "3"), pod("r", "1")]).await;
    harness.assert_quiet().await;
    harness.complete(&old, not_sent(old.id).result.map(drop));
    let names = [harness.bound().await, harness.bound().await];
    assert_eq!(names, ["r", "p"]);
    harness.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_nomination_from_before_the_gap_is_not_completed_by_stale_events() {
    let mut harness = Harness::new().await;
    harness.lead(true);
    let mut first = pod("first", "4");
    first["spec"]["priority"] = 1000.into();
    harness.list(&[placed("q", "3"), first.clone()]).await;
    let eviction = harness.next_op().await;
    assert!(matches!(eviction.kind, OpKind::Evict(_)), "{eviction:?}");
    harness.complete(&eviction, Ok(()));
    while let Ok(Some(order)) = timeout(SETTLE_TIME, harness.orders.recv()).await {
        harness.complete(&order, Ok(()));
    }
    // While the process was suspended another scheduler led, and gave the place of `q` to `s`. The
    // watch buffer ends with the deletion of `q`.
    harness.lead(true);
    let gone = Pod::from_value(placed("q", "3")).unwrap();
    harness.tell(Change::Pod(Delta::Delete(Arc::new(gone)))).await;
    harness.assert_quiet().await;
    let mut other = placed("s", "4");
    other["spec"]["priority"] = 1000.into();
    harness.list(&[first, other]).await;
    sleep(SETTLE_TIME).await;
    assert_eq!(harness.orders.try_recv().ok(), None, "there is no room");
    assert!(harness.has_metric("octavo_scheduler_leader 1"));
    harness.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_indeterminate_bind_from_before_the_gap_ends_with_the_relist() {
    let mut harness = Harness::new().await;
    harness.lead(true);
    harness.list(&[pod("p", "3")]).await;
    let old = harness.next_op().await;
    sleep(SETTLE_TIME).await;
    let since = harness.lead(true);
    harness.list(&[pod("p", "3"), pod("r", "1")]).await;
    harness.assert_quiet().await;
    let failure = Failure {
        step: "binding the pod",
        message: "no answer".to_owned(),
        kind: FailureKind::Indeterminate,
        unreleased: Vec::new(),
    };
    harness.complete(&old, Err(failure));
    assert_eq!(harness.bound().await, "r");
    sleep(SETTLE_TIME).await;
    assert_eq!(
        harness.orders.try_recv().ok(),
        None,
        "its place stays assumed, and it is not resubmitted"
    );
    assert!(
        harness.relists.requested() > Some(since),
        "the earlier list is older than the end of the bind"
    );
    harness.list(&[pod("p", "3"), placed("r", "1")]).await;
    assert_eq!(harness.bound().await, "p");
    harness.end().await;
}
