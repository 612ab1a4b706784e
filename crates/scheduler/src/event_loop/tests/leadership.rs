//! Who leads decides on what the leader before has left, not on what its watches happen to have told.

use std::sync::Mutex;

use octavo_kube_io::objects::{Kind, Node};
use prometheus_client::encoding::text::encode;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::*;
use crate::bind::{Bind, OpKind, TermRemaining};

/// Longer than anything takes that is to happen. The clock stands still while anything is to be done.
const SETTLE_TIME: Duration = Duration::from_secs(10);

/// A mind with a cluster of one node, whose watches tell what the test says.
struct Bench {
    api: FakeApi,
    tell: mpsc::Sender<WatchEvent>,
    relists: Relist,
    orders: mpsc::Receiver<WriteOp>,
    lease: Arc<Mutex<Option<Instant>>>,
    /// As those who write see it.
    writers: Leadership,
    registry: Registry,
    event_loop: JoinHandle<()>,
    stop: CancellationToken,
    outcomes: mpsc::UnboundedSender<OpResult>,
}

impl Bench {
    /// A mind that follows and has read the cluster: a node with four CPUs, and the pod `p` that waits for
    /// three of them.
    async fn new() -> Self {
        let lease = Arc::<Mutex<Option<Instant>>>::default();
        let held = Arc::clone(&lease);
        let leadership = Leadership::new(move || {
            let since = (*held.lock().unwrap())?;
            Some(TermRemaining { time_left: Duration::from_secs(15), since })
        });
        Self::with(leadership, lease).await
    }

    async fn with(leadership: Leadership, lease: Arc<Mutex<Option<Instant>>>) -> Self {
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
        let bench = Self {
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
        bench.tell(Change::Node(Delta::Upsert(node))).await;
        bench.list(&[pod("p", "3")]).await;
        bench.tell.send(WatchEvent::Synced).await.unwrap();
        sleep(SETTLE_TIME).await;
        bench
    }

    async fn tell(&self, change: Change) {
        self.tell.send(WatchEvent::Change(change)).await.unwrap();
    }

    /// A list that is as new as can be.
    async fn list(&self, pods: &[Value]) {
        let at = Instant::now();
        let pods = pods.iter().map(|pod| Arc::new(Pod::from_value(pod.clone()).unwrap()));
        let all = Delta::Replace(Kind::new("v1", "Pod"), pods.collect());
        self.tell(Change::Pod(all)).await;
        self.tell.send(WatchEvent::FreshAsOf(at)).await.unwrap();
    }

    /// Gives the lease, or takes it away; says when.
    fn lead(&self, leads: bool) -> Instant {
        let now = Instant::now();
        *self.lease.lock().unwrap() = leads.then_some(now);
        now
    }

    /// Nothing is decided, ordered or told for a while, and nothing may be written.
    async fn assert_quiet(&mut self) {
        let requests = self.api.count();
        sleep(SETTLE_TIME).await;
        assert_eq!(self.orders.try_recv().ok(), None);
        assert_eq!(self.writers.remaining(), None);
        assert!(self.has_metric("octavo_scheduler_leader 0"));
        assert_eq!(self.api.count(), requests);
    }

    async fn next_op(&mut self) -> WriteOp {
        let order = timeout(SETTLE_TIME, self.orders.recv()).await.expect("an order").unwrap();
        assert!(self.has_metric("octavo_scheduler_leader 1"));
        assert!(self.writers.remaining().is_some());
        order
    }

    /// Who is bound next.
    async fn bound(&mut self) -> String {
        let order = self.next_op().await;
        let OpKind::Bind(Bind { pod, .. }) = order.kind else { panic!("{order:?}") };
        pod.name.name.to_string()
    }

    /// Tells what became of an order.
    fn complete(&self, order: &WriteOp, result: Result<(), Failure>) {
        self.outcomes.send(OpResult { id: order.id, result }).unwrap();
    }

    fn has_metric(&self, line: &str) -> bool {
        let mut page = String::new();
        encode(&mut page, &self.registry).unwrap();
        page.lines().any(|one| one == line)
    }

    async fn end(self) {
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

/// A pod that a leader has put on the node.
fn placed(name: &str, cpu: &str) -> Value {
    let mut pod = pod(name, cpu);
    pod["spec"]["nodeName"] = "a".into();
    pod
}

#[tokio::test(start_paused = true)]
async fn a_leader_with_a_stale_watch_decides_after_the_relist() {
    let mut bench = Bench::new().await;
    // The leader before has just put `q` on the node, and the watch has not told it.
    let since = bench.lead(true);
    bench.assert_quiet().await;
    assert_eq!(bench.relists.requested(), Some(since));
    // A list that began before it led may lack `q` as well.
    bench.tell.send(WatchEvent::FreshAsOf(since.checked_sub(MILLISECOND).unwrap())).await.unwrap();
    bench.assert_quiet().await;
    bench.list(&[pod("p", "3"), placed("q", "3"), pod("r", "1")]).await;
    assert_eq!(bench.bound().await, "r");
    sleep(SETTLE_TIME).await;
    assert_eq!(bench.orders.try_recv().ok(), None, "there is no room for p");
    assert_eq!(bench.relists.requested(), Some(since));
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_with_fresh_lists_decides_without_a_relist() {
    let mut bench = Bench::with(Leadership::always(), Arc::default()).await;
    assert_eq!(bench.bound().await, "p");
    assert_eq!(bench.relists.requested(), None);
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_lost_during_the_relist_leaves_no_state() {
    let mut bench = Bench::new().await;
    bench.lead(true);
    bench.assert_quiet().await;
    bench.lead(false);
    bench.assert_quiet().await;
    bench.list(&[pod("p", "3")]).await;
    bench.assert_quiet().await;
    let since = bench.lead(true);
    bench.assert_quiet().await;
    assert_eq!(bench.relists.requested(), Some(since), "what was read before is old again");
    bench.list(&[pod("p", "3")]).await;
    assert_eq!(bench.bound().await, "p");
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_relists_after_an_unobserved_gap() {
    let mut bench = Bench::new().await;
    bench.lead(true);
    sleep(SETTLE_TIME).await;
    bench.list(&[placed("q", "3")]).await;
    sleep(SETTLE_TIME).await;
    assert!(bench.has_metric("octavo_scheduler_leader 1"));
    // The program was stopped meanwhile, and what its watch held is told when it goes on.
    let since = bench.lead(true);
    let late = Arc::new(Pod::from_value(pod("r", "1")).unwrap());
    bench.tell(Change::Pod(Delta::Upsert(late))).await;
    bench.assert_quiet().await;
    assert_eq!(bench.relists.requested(), Some(since));
    bench.list(&[placed("q", "3"), pod("r", "1")]).await;
    assert_eq!(bench.bound().await, "r");
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn operations_from_before_the_gap_end_before_the_next_decision() {
    let mut bench = Bench::new().await;
    bench.lead(true);
    bench.list(&[pod("p", "3")]).await;
    let old = bench.next_op().await;
    sleep(SETTLE_TIME).await;
    bench.lead(true);
    assert_eq!(bench.writers.remaining(), None, "the mind need not have noticed");
    bench.list(&[pod("p", "3"), pod("r", "1")]).await;
    bench.assert_quiet().await;
    bench.complete(&old, not_sent(old.id).result);
    let names = [bench.bound().await, bench.bound().await];
    assert_eq!(names, ["r", "p"]);
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_nomination_from_before_the_gap_is_not_completed_by_stale_events() {
    let mut bench = Bench::new().await;
    bench.lead(true);
    let mut first = pod("first", "4");
    first["spec"]["priority"] = 1000.into();
    bench.list(&[placed("q", "3"), first.clone()]).await;
    let eviction = bench.next_op().await;
    assert!(matches!(eviction.kind, OpKind::Evict(_)), "{eviction:?}");
    bench.complete(&eviction, Ok(()));
    while let Ok(Some(order)) = timeout(SETTLE_TIME, bench.orders.recv()).await {
        bench.complete(&order, Ok(()));
    }
    // While the program was stopped another has led, and given the place that `q` left to `s`. What the
    // watch held of that ends with `q`.
    bench.lead(true);
    let gone = Pod::from_value(placed("q", "3")).unwrap();
    bench.tell(Change::Pod(Delta::Delete(Arc::new(gone)))).await;
    bench.assert_quiet().await;
    let mut other = placed("s", "4");
    other["spec"]["priority"] = 1000.into();
    bench.list(&[first, other]).await;
    sleep(SETTLE_TIME).await;
    assert_eq!(bench.orders.try_recv().ok(), None, "there is no room");
    assert!(bench.has_metric("octavo_scheduler_leader 1"));
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_indeterminate_bind_from_before_the_gap_ends_with_the_relist() {
    let mut bench = Bench::new().await;
    bench.lead(true);
    bench.list(&[pod("p", "3")]).await;
    let old = bench.next_op().await;
    sleep(SETTLE_TIME).await;
    let since = bench.lead(true);
    bench.list(&[pod("p", "3"), pod("r", "1")]).await;
    bench.assert_quiet().await;
    let failure = Failure {
        step: "binding the pod",
        message: "no answer".to_owned(),
        kind: FailureKind::Indeterminate,
        unreleased: Vec::new(),
    };
    bench.complete(&old, Err(failure));
    assert_eq!(bench.bound().await, "r");
    sleep(SETTLE_TIME).await;
    assert_eq!(bench.orders.try_recv().ok(), None, "its place is kept, and it is not sent again");
    assert!(
        bench.relists.requested() > Some(since),
        "what was read before its end says nothing of it"
    );
    bench.list(&[pod("p", "3"), placed("r", "1")]).await;
    assert_eq!(bench.bound().await, "p");
    bench.end().await;
}
