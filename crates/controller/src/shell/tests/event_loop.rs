use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use octavo_api::compute_domain::{ComputeDomainDaemon, Readiness};
use octavo_kube_io::lease;
use octavo_testkit::eventually;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::plan::{Warning, Write};
use crate::shell::event_loop::{EventLoop, Inputs};
use crate::shell::leadership;
use crate::shell::writer::{WriteError, Writer};
use crate::store::{Change, Fact, KINDS, Key, Kind};
use crate::switch::SwitchRefused;
use crate::testing::{Server, claim, config, domain, object, pod};
use crate::view::{ChannelClaim, ClaimPod, Domain, OwnedKind};

const HOUR: Duration = Duration::from_hours(1);

/// What the tests and the writer share.
#[derive(Default)]
struct Shared {
    server: Server,
    writes: Vec<(Instant, Write)>,
    warnings: Vec<Warning>,
    /// Writes that fail from now on.
    failures: usize,
}

#[derive(Clone)]
struct ServerWriter(Arc<Mutex<Shared>>);

impl Writer for ServerWriter {
    async fn write(&self, write: &Write) -> Result<Change, WriteError> {
        let mut shared = self.0.lock().unwrap();
        shared.writes.push((Instant::now(), write.clone()));
        if shared.failures > 0 {
            shared.failures -= 1;
            return Err(WriteError::Timeout(Duration::ZERO));
        }
        shared.server.write(write).map_err(|_| WriteError::NotLeader)
    }

    async fn report(&self, _: Option<&Domain>, warning: &Warning) {
        self.0.lock().unwrap().warnings.push(warning.clone());
    }
}

/// A running loop.
struct Running {
    shared: Arc<Mutex<Shared>>,
    changes: mpsc::Sender<Change>,
    unread: Mutex<mpsc::UnboundedReceiver<ClaimPod>>,
    lease: watch::Sender<lease::Leadership>,
    is_synced: Arc<AtomicBool>,
    stop: CancellationToken,
    task: JoinHandle<Result<(), SwitchRefused>>,
}

impl Running {
    fn new(state: lease::Leadership) -> Self {
        Self::with(config(), state)
    }

    fn with(config: Config, state: lease::Leadership) -> Self {
        let shared: Arc<Mutex<Shared>> = Arc::default();
        let (changes, receiver) = mpsc::channel(64);
        let (lease, state) = watch::channel(state);
        let leadership = leadership::Leadership::of(state.clone());
        let metrics = Metrics::new(&mut Registry::default());
        let writer = ServerWriter(Arc::clone(&shared));
        let event_loop = EventLoop::new(config, writer, leadership, metrics);
        let (is_synced, stop) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
        let flag = Arc::clone(&is_synced);
        let synced: Box<dyn FnOnce() + Send> =
            Box::new(move || flag.store(true, Ordering::Relaxed));
        let synced = Some(synced);
        let (pods, unread) = mpsc::unbounded_channel();
        let (lease_state, changes_in) = (Some(state), receiver);
        let inputs =
            Inputs { changes: changes_in, pods, lease: lease_state, synced, stop: stop.clone() };
        let task = tokio::spawn(event_loop.run(inputs));
        let unread = Mutex::new(unread);
        Self { shared, changes, unread, lease, is_synced, stop, task }
    }

    /// Delivers the events of all watches, and waits until nothing more happens.
    async fn settle(&self) {
        loop {
            if !self.deliver().await {
                return;
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    }

    /// Delivers the events of all watches, if there are any.
    async fn deliver(&self) -> bool {
        let events = std::mem::take(&mut self.shared.lock().unwrap().server.events);
        let is_any = !events.is_empty();
        for change in events.into_values().flatten() {
            self.changes.send(change).await.unwrap();
        }
        is_any
    }

    /// Delivers the events until the loop has ended.
    async fn settle_until_end(&self) {
        let events = std::mem::take(&mut self.shared.lock().unwrap().server.events);
        for change in events.into_values().flatten() {
            // The loop may end before all have come.
            let _ = self.changes.send(change).await;
        }
        eventually("the loop ends", || self.task.is_finished()).await;
    }

    fn edit(&self, edit: impl FnOnce(&mut Server)) {
        edit(&mut self.shared.lock().unwrap().server);
    }

    fn writes(&self) -> usize {
        self.shared.lock().unwrap().writes.len()
    }

    fn relist(&self) {
        self.edit(|server| KINDS.iter().for_each(|kind| server.relist(*kind)));
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

fn one_domain(server: &mut Server) {
    server.put_domain(domain("a"));
    server.put_node("n", Some("c"), None);
    server.put_claim(claim("a", "n"));
}

fn enter(server: &mut Server, status: Readiness) {
    let mut clique = server.clique("a.c").unwrap();
    clique.daemons = vec![ComputeDomainDaemon {
        node_name: "n".to_owned(),
        ip_address: "1".to_owned(),
        clique_id: "c".to_owned(),
        index: clique.daemons.first().and_then(|daemon| daemon.index),
        status,
    }];
    server.put(clique_key(), Fact::Clique(clique));
}

fn clique_key() -> Key {
    Key { kind: Kind::Clique, namespace: "octavo".to_owned(), name: "a.c".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_domain_becomes_ready_and_then_nothing_is_written() {
    let running = Running::new(leading(HOUR * 100));
    running.edit(one_domain);
    running.relist();
    running.settle().await;
    assert!(running.is_synced.load(Ordering::Relaxed));
    running.edit(|server| {
        server.put_pod(pod("a", "n", "1"));
        enter(server, Readiness::NotReady);
    });
    running.settle().await;
    running.edit(|server| enter(server, Readiness::Ready));
    running.settle().await;
    running.edit(|server| {
        let status = server.domain("domain-a").unwrap().status.unwrap();
        assert_eq!((status.status, status.nodes[0].index), (Readiness::Ready, Some(0)));
        assert_eq!(server.node_label("n").as_deref(), Some("a"));
    });
    let before = running.writes();
    tokio::time::sleep(HOUR).await;
    assert_eq!(running.writes(), before);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_planned_before_all_lists_are_complete() {
    let running = Running::new(leading(HOUR * 100));
    running.edit(one_domain);
    running.relist();
    let claims = running.shared.lock().unwrap().server.events.remove(&Kind::Claim).unwrap();
    running.settle().await;
    assert_eq!(running.writes(), 0);
    running.edit(|server| drop(server.events.insert(Kind::Claim, claims)));
    running.settle().await;
    assert!(running.writes() > 0);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_follower_watches_and_writes_only_once_it_leads() {
    let running = Running::new(following());
    running.edit(one_domain);
    running.relist();
    running.settle().await;
    tokio::time::sleep(HOUR).await;
    assert_eq!(running.writes(), 0);
    running.lease.send_replace(leading(HOUR));
    eventually("it writes", || running.writes() > 0).await;
    running.settle().await;
    // The lease ends, and a change comes after.
    tokio::time::sleep(HOUR).await;
    let before = running.writes();
    running.edit(|server| {
        server.remove(&Key {
            kind: Kind::Claim,
            namespace: "team".to_owned(),
            name: "claim-a-n".to_owned(),
        });
    });
    running.settle().await;
    assert_eq!(running.writes(), before);
    running.lease.send_replace(leading(HOUR));
    eventually("the label is removed", || {
        running.shared.lock().unwrap().server.node_label("n").is_none()
    })
    .await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_status_is_written_at_once_and_then_at_most_once_a_second() {
    let running = Running::new(leading(HOUR * 100));
    running.edit(one_domain);
    running.relist();
    running.settle().await;
    running.edit(|server| {
        server.put_pod(pod("a", "n", "1"));
        enter(server, Readiness::NotReady);
    });
    running.settle().await;
    running.shared.lock().unwrap().writes.clear();
    let begin = Instant::now();
    for round in 0..30 {
        let status = if round % 2 == 0 { Readiness::Ready } else { Readiness::NotReady };
        running.edit(|server| enter(server, status));
        running.deliver().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    running.edit(|server| enter(server, Readiness::Ready));
    running.settle().await;
    let writes = std::mem::take(&mut running.shared.lock().unwrap().writes);
    let is_status = |write: &Write| matches!(write, Write::SetStatus { .. });
    let times: Vec<Instant> =
        writes.iter().filter(|(_, write)| is_status(write)).map(|(at, _)| *at).collect();
    assert!(times[0] - begin < Duration::from_millis(100), "{:?}", times[0] - begin);
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(1)));
    assert!((2..=5).contains(&times.len()), "{}", times.len());
    running.edit(|server| {
        let status = server.domain("domain-a").unwrap().status.unwrap();
        assert_eq!(status.status, Readiness::Ready);
    });
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn daemons_that_start_together_get_their_indices_together() {
    let running = Running::new(leading(HOUR * 100));
    running.edit(|server| {
        server.put_domain(domain("a"));
        for node in ["n0", "n1", "n2", "n3"] {
            server.put_node(node, Some("c"), None);
            server.put_claim(claim("a", node));
        }
    });
    running.relist();
    running.settle().await;
    let begin = Instant::now();
    running.shared.lock().unwrap().writes.clear();
    for node in ["n0", "n1", "n2", "n3"] {
        running.edit(|server| {
            server.put_pod(pod("a", node, node));
            let mut clique = server.clique("a.c").unwrap();
            clique.daemons.push(ComputeDomainDaemon {
                node_name: node.to_owned(),
                ip_address: node.to_owned(),
                clique_id: "c".to_owned(),
                index: None,
                status: Readiness::NotReady,
            });
            server.put(clique_key(), Fact::Clique(clique));
        });
        running.deliver().await;
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let writes = std::mem::take(&mut running.shared.lock().unwrap().writes);
    let assignments: Vec<(u128, usize)> = writes
        .iter()
        .filter_map(|(at, write)| match write {
            Write::AssignIndices { changes, .. } => {
                Some(((*at - begin).as_millis(), changes.len()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(assignments, [(0, 1), (200, 3)]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn failed_writes_are_tried_again() {
    let running = Running::new(leading(HOUR * 100));
    running.edit(one_domain);
    running.shared.lock().unwrap().failures = 50;
    running.relist();
    running.settle().await;
    eventually("the label is set", || {
        running.shared.lock().unwrap().server.node_label("n").is_some()
    })
    .await;
    running.settle().await;
    assert!(running.writes() > 50);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn writes_with_a_limited_rate_are_tried_again_with_growing_delays() {
    let running = Running::new(leading(HOUR * 100));
    running.edit(one_domain);
    running.relist();
    running.settle().await;
    running.edit(|server| {
        server.put_pod(pod("a", "n", "1"));
        enter(server, Readiness::NotReady);
    });
    running.shared.lock().unwrap().writes.clear();
    running.shared.lock().unwrap().failures = usize::MAX;
    running.deliver().await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    let writes = std::mem::take(&mut running.shared.lock().unwrap().writes);
    let is_index = |write: &Write| matches!(write, Write::AssignIndices { .. });
    let tries = writes.iter().filter(|(_, write)| is_index(write)).count();
    // 0.1, 0.2, 0.4 and so on up to 30 s, of which each delay is at least half.
    assert!((8..=20).contains(&tries), "{tries}");
    running.shared.lock().unwrap().failures = 0;
    eventually("the index is given", || {
        running.shared.lock().unwrap().server.clique("a.c").unwrap().daemons[0].index.is_some()
    })
    .await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_warning_is_reported_once_while_it_holds() {
    let running = Running::new(leading(HOUR * 100));
    running.edit(|server| {
        one_domain(server);
        server.put_template(object(OwnedKind::Template, "team", "template-a", None));
    });
    running.relist();
    running.settle().await;
    running.edit(|server| server.put_claim(claim("a", "m")));
    running.settle().await;
    assert_eq!(running.shared.lock().unwrap().warnings.len(), 1);
    running.end().await;
}

/// A domain whose pods started with a host's service.
fn started_on_host(server: &mut Server) {
    one_domain(server);
    let mut of_host = config();
    of_host.imex.mode = octavo_api::imex::ImexMode::HostManaged;
    let store = crate::testing::read(server.objects.values().cloned().map(Change::Put));
    let status = crate::plan::plan(&store.view("a"), &of_host).status.unwrap();
    server.write(&status).unwrap();
}

#[tokio::test(start_paused = true)]
async fn other_settings_than_those_of_running_pods_end_the_loop_before_it_leads() {
    let running = Running::new(following());
    running.edit(started_on_host);
    running.relist();
    running.settle_until_end().await;
    assert!(!running.is_synced.load(Ordering::Relaxed), "the lease would be asked for");
    assert_eq!(running.writes(), 0);
    let refused = running.task.await.unwrap().unwrap_err();
    assert_eq!(refused.domains, ["team/domain-a"]);
}

#[tokio::test(start_paused = true)]
async fn pods_that_start_under_the_last_leaders_settings_end_the_loop_when_it_leads() {
    let running = Running::new(following());
    running.edit(one_domain);
    running.relist();
    running.settle().await;
    assert!(running.is_synced.load(Ordering::Relaxed));
    running.edit(started_on_host);
    running.settle().await;
    running.lease.send_replace(leading(HOUR));
    running.settle_until_end().await;
    assert_eq!(running.writes(), 0);
    running.task.await.unwrap().unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_status_waits_until_the_pods_of_new_claims_are_read() {
    let running = Running::new(leading(HOUR * 100));
    running.edit(|server| {
        server.put_domain(domain("a"));
        let (uid, namespace, name) = ("p".to_owned(), "team".to_owned(), "pod".to_owned());
        let pods = vec![ClaimPod { uid, namespace, name }];
        server.put_claim(ChannelClaim { pods, ..claim("a", "n") });
    });
    running.relist();
    running.settle().await;
    let pod = running.unread.lock().unwrap().try_recv().unwrap();
    assert_eq!(pod.name, "pod");
    let status = |server: &mut Server| server.domain("domain-a").unwrap().status;
    running.edit(|server| assert_eq!(status(server), None));
    running.changes.send(Change::PodRead { uid: pod.uid, gang: None }).await.unwrap();
    eventually("the status is written", || {
        running.shared.lock().unwrap().server.domain("domain-a").unwrap().status.is_some()
    })
    .await;
    assert!(running.unread.lock().unwrap().try_recv().is_err(), "it is read once");
    running.end().await;
}
