//! Reads the pods of nodes that lose some: by devices out of service, and by work on the node. Counts and announces them, asks them to save
//! their work, and evicts them in their turn. Pods and claims are read for such nodes alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use octavo_api::checkpoint::CheckpointRequest;
use octavo_api::names::{CHECKPOINT_CONTROLLER, REASON_NODE_LOST};
use octavo_api::{Maintenance, NodeHealth};
use octavo_kube_io::Backoff;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::evict::Evictor;
use super::notices::PodAnnouncer;
use super::round::Finding;
use super::writes::{api, body};
use crate::health::checkpoints::{self, Progress};
use crate::health::departures::Departures;
use crate::health::facts::{HealthFacts, MaintenanceFacts, NodeFacts, SeenHealth, unix};
use crate::health::lost_nodes::{LostMembers, LostNode};
use crate::health::maintenance::Visit;
use crate::health::notices::{Departing, departing};
use crate::health::plan::Urgency;
use crate::health::pods::{self, GangMember, PodWithGpus, Victim};
use crate::shell::leader::LeaderError;
use crate::store::SeenNode;

/// Delays between looks at a node. Pods leave in their grace period, and a disruption budget may hold them.
const FIRST_DELAY: Duration = Duration::from_secs(2);
const MAX_DELAY: Duration = Duration::from_mins(1);
/// Time to the next look at a node that has no pod to leave: one may have been placed before the taint was seen.
const EMPTY_DELAY: Duration = Duration::from_mins(5);
/// The same for the first looks.
const EARLY_LOOKS: u32 = 3;
/// Nodes that are looked at at the same time.
const MAX_NODES: usize = 32;
/// Most time of one look. What is left is done in the next one.
const MAX_LOOK: Duration = Duration::from_mins(2);
/// Most requests of a node.
const MAX_REQUESTS: usize = 256;

/// Reads pods while this process leads.
pub(super) struct Reader {
    evictor: Evictor,
    announcer: PodAnnouncer,
    findings: mpsc::Sender<Finding>,
    /// Nodes whose requests cannot be written, and since when, in seconds since 1970.
    unwritten: Mutex<BTreeMap<String, u64>>,
}

/// When a node is looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Soon.
    Soon,
    /// Soon, and no later than at a time, in seconds since 1970.
    By(u64),
    /// No pod is to leave.
    Later,
}

/// A node that is looked at.
struct Looked {
    departures: Departures,
    backoff: Backoff,
    due: Instant,
}

/// A pod of a node that is to leave.
struct Leaving {
    pod: Pod,
    /// For a device of it, or since the node is lost.
    victims: Vec<Victim>,
    by_work: Option<Victim>,
}

/// The pods of a node.
#[derive(Default)]
struct Found {
    leaving: Vec<Leaving>,
    /// Those that are to leave a device, now or later.
    departing: Vec<Departing>,
    /// Those that work on the node is to end, and that still are there.
    left: usize,
    /// UIDs of all pods.
    uids: BTreeSet<String>,
    /// UIDs of pods whose requests stay: those that are being deleted, and those of which too little could be read.
    kept: BTreeSet<String>,
    /// Candidates with a pod that can save its work.
    hooked: BTreeSet<String>,
    lost: LostMembers,
    /// When the next member of a gang on a lost node is due, in seconds since 1970.
    due: Option<u64>,
    problem: Option<LeaderError>,
}

impl Reader {
    pub(super) fn new(evictor: Evictor, findings: mpsc::Sender<Finding>) -> Self {
        let announcer = PodAnnouncer::default();
        Self { evictor, announcer, findings, unwritten: Mutex::default() }
    }

    /// Goes on until the rounds end. A node that answers slowly delays no other, and is looked at once at a time.
    pub(super) async fn run(self, mut wanted: watch::Receiver<BTreeMap<String, Departures>>) {
        let mut nodes: BTreeMap<String, Looked> = BTreeMap::new();
        let mut looks = FuturesUnordered::new();
        let mut looked_at: BTreeSet<String> = BTreeSet::new();
        loop {
            let waiting = nodes.iter().filter(|(name, _)| !looked_at.contains(*name));
            let mut waiting: Vec<_> = waiting.collect();
            waiting.sort_unstable_by_key(|(name, node)| (node.due, *name));
            let due = waiting.first().map(|(_, node)| node.due);
            let due = due.filter(|_| looks.len() < MAX_NODES);
            tokio::select! {
                changed = wanted.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    renew(&mut nodes, &wanted.borrow_and_update());
                    self.unwritten().retain(|name, _| nodes.contains_key(name));
                    self.announcer.retain(|name| nodes.contains_key(name));
                }
                Some((name, departures, next)) = looks.next() => {
                    looked_at.remove(&name);
                    // What changed meanwhile is due already.
                    if let Some(node) = nodes.get_mut(&name).filter(|it| it.departures == departures) {
                        node.due = Instant::now() + node.delay(next);
                    }
                }
                () = at(due) => {
                    let (now, free) = (Instant::now(), MAX_NODES - looks.len());
                    for (name, node) in waiting.into_iter().take(free).filter(|it| it.1.due <= now) {
                        looked_at.insert(name.clone());
                        looks.push(self.timed_look(name.clone(), node.departures.clone()));
                    }
                }
            }
        }
    }

    /// Looks at the pods of a node for a while at most.
    async fn timed_look(
        &self,
        name: String,
        wanted: Departures,
    ) -> (String, Departures, Option<Next>) {
        let look = self.look(&name, &wanted, Timestamp::now());
        let next = match tokio::time::timeout(MAX_LOOK, look).await {
            Ok(next) => next,
            Err(_) => Err(LeaderError::Timeout),
        };
        if let Err(error) = &next {
            tracing::debug!(node = %name, %error, "pods that are to leave a node are left; it is tried again");
        }
        (name, wanted, next.ok())
    }

    /// Looks at the pods of a node. A pod that cannot be evicted delays no other; the last problem is returned.
    pub(super) async fn look(
        &self,
        node: &str,
        wanted: &Departures,
        now: Timestamp,
    ) -> Result<Next, LeaderError> {
        let Evictor { client, leader, .. } = &self.evictor;
        if !leader.is_leading() {
            return Err(LeaderError::NotLeader);
        }
        let healths: Api<SeenHealth> = Api::all(client.clone());
        let health = healths.get_opt(node).await?.map(HealthFacts::of);
        let wanted = &wanted.in_force(health.as_ref());
        let is_asked = health.as_ref().is_some_and(|health| !health.requests.is_empty());
        let Departures { evictions, candidates, visit, lost, .. } = wanted;
        if !wanted.reads_claims() && !is_asked && lost.is_none() {
            self.announcer.forget(node);
            return Ok(Next::Later);
        }
        let mut found = self.read(node, wanted, health.as_ref(), unix(now)).await?;
        // The rounds may have ended.
        if visit.is_some() {
            let _ = self.findings.send(Finding::Pods(node.to_owned(), found.left)).await;
        }
        if !candidates.is_empty() {
            let hooked = std::mem::take(&mut found.hooked);
            let _ = self.findings.send(Finding::Hooked(node.to_owned(), hooked)).await;
        }
        if lost.is_some() {
            let _ = self.findings.send(Finding::Lost(node.to_owned(), found.lost)).await;
        }
        let is_turn = match visit.as_ref().filter(|visit| visit.is_drained) {
            Some(visit) if found.leaving.iter().any(|it| it.by_work.is_some()) => {
                self.is_in_force(visit, now).await?
            }
            _ => false,
        };
        let has_members = found.lost != LostMembers::default();
        let is_idle = found.left == 0 && evictions.is_empty() && !has_members;
        let due = found.due;
        let departing = std::mem::take(&mut found.departing);
        // Side by side: no event delays an eviction.
        let kept = found.kept.clone();
        let announced = Box::pin(self.announcer.announce(&self.evictor, node, departing, &kept));
        let ended = Box::pin(self.end(node, found, health.as_ref(), is_turn, now));
        let ((), next) = futures::future::join(announced, ended).await;
        let next = next?;
        let next = if is_idle && next == Next::Soon { Next::Later } else { next };
        Ok(due.map_or(next, |due| next.by(due)))
    }

    /// Reads the pods of a node and their claims.
    async fn read(
        &self,
        node: &str,
        wanted: &Departures,
        health: Option<&HealthFacts>,
        now: u64,
    ) -> Result<Found, LeaderError> {
        let pods: Api<Pod> = Api::all(self.evictor.client.clone());
        let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let mut found = Found::default();
        for pod in pods.list(&of_node).await? {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            found.uids.insert(uid.clone());
            let names = if wanted.reads_claims() { pods::held_by(&pod) } else { Vec::new() };
            let claims = match self.evictor.claims(&pod, names).await {
                Ok(claims) => claims,
                Err(error) => {
                    // It may have a GPU.
                    found.left += 1;
                    found.kept.insert(uid);
                    found.problem = Some(error.into());
                    continue;
                }
            };
            let is_leaving = pod.metadata.deletion_timestamp.is_some();
            if is_leaving {
                found.kept.insert(uid);
            } else if matches!(checkpoints::hook(&pod), Ok(Some(_))) {
                let devices = pods::devices(&claims, node).into_iter();
                let candidates = devices.filter(|device| wanted.candidates.contains(*device));
                found.hooked.extend(candidates.map(str::to_owned));
            }
            found.departing.extend(departing(&pod, &claims, wanted, health, now));
            let mut victims = Vec::from_iter(pods::victim(&pod, &claims, &wanted.evictions, now));
            if let Some(lost) = &wanted.lost {
                victims.extend(found.member(&pod, node, lost, now));
            }
            let visit = wanted.visit.as_ref();
            let occupant = visit.and_then(|visit| pods::pod_with_gpus(&pod, &claims, &visit.note));
            found.left += usize::from(occupant.is_some());
            let by_work = match occupant {
                Some(PodWithGpus::ToEvict(victim)) => Some(victim),
                Some(PodWithGpus::Terminating) | None => None,
            };
            if !victims.is_empty() || by_work.is_some() {
                found.leaving.push(Leaving { pod, victims, by_work });
            }
        }
        Ok(found)
    }

    /// Asks pods to save their work, and ends those that have or cannot.
    async fn end(
        &self,
        node: &str,
        found: Found,
        health: Option<&HealthFacts>,
        is_turn: bool,
        now: Timestamp,
    ) -> Result<Next, LeaderError> {
        let Found { leaving, uids, mut kept, mut problem, .. } = found;
        let mut next = Next::Soon;
        let (mut victims, mut asked) = (Vec::new(), Vec::new());
        for Leaving { pod, victims: reasons, by_work } in leaving {
            let by_work = by_work.filter(|_| is_turn);
            let reasons = reasons.into_iter().chain(by_work);
            let Some(victim) = reasons.rev().max_by_key(|victim| victim.urgency) else { continue };
            if victim.urgency == Urgency::Deleted {
                victims.push(victim);
                continue;
            }
            kept.insert(victim.uid.clone());
            match checkpoints::progress(&pod, health, unix(now)) {
                Ok(Progress::NotAsked(request)) => asked.push((victim, *request)),
                Ok(Progress::Asked(until)) => next = next.by(until),
                Ok(progress) => victims.extend(victim.after(&progress)),
                Err(error) => {
                    if victim.urgency != Urgency::AtCheckpoint {
                        self.evictor.refuse_checkpoint(&victim, &error).await;
                        victims.push(victim);
                    }
                }
            }
        }
        let old = health.map(|health| health.requests.as_slice()).unwrap_or_default();
        // A pod that was asked and stays, since its device returned, is not asked again if the device fails at once.
        let is_open = |uid: &String| {
            uids.contains(uid) && health.is_some_and(|it| checkpoints::is_open(it, uid, unix(now)))
        };
        let requests = old.iter().filter(|it| kept.contains(&it.uid) || is_open(&it.uid)).cloned();
        let requests = requests.chain(asked.iter().map(|(_, request)| request.clone()));
        let requests: Vec<_> = requests.take(MAX_REQUESTS).collect();
        if let Some(health) = health.filter(|_| requests != old) {
            match self.ask(node, health, &requests).await {
                Ok(Some(stored)) => {
                    for (victim, request) in asked {
                        if stored.contains(&request.uid) {
                            next = next.by(checkpoints::ends_at(&request, unix(now)));
                        } else if requests.contains(&request) {
                            let why = "the API server does not store the request; upgrade the CRDs";
                            victims.extend(victim.after(&Progress::NotSaved(why.to_owned())));
                        }
                    }
                }
                Ok(None) => {}
                Err(LeaderError::NotLeader) => return Err(LeaderError::NotLeader),
                Err(error) => {
                    let since = *self.unwritten().entry(node.to_owned()).or_insert(unix(now));
                    for (victim, request) in asked {
                        let why =
                            checkpoints::not_asked(&request, refusal(&error), since, unix(now));
                        victims.extend(why.and_then(|why| victim.after(&Progress::NotSaved(why))));
                    }
                    problem = Some(error);
                }
            }
        }
        let is_of_loss = |victim: &Victim| victim.reason == REASON_NODE_LOST;
        if victims.iter().any(is_of_loss) {
            // The watch may be late: a node that is back keeps its pods.
            let is_lost =
                self.node(node).await.map(|found| found.is_some_and(|it| it.loss.is_some()));
            if !matches!(is_lost, Ok(true)) {
                victims.retain(|victim| !is_of_loss(victim));
            }
            problem = is_lost.err().map(LeaderError::from).or(problem);
        }
        for victim in &victims {
            match self.evictor.end(victim, now).await {
                Ok(()) => {}
                Err(LeaderError::NotLeader) => return Err(LeaderError::NotLeader),
                Err(error) => problem = Some(error),
            }
        }
        problem.map_or(Ok(next), Err)
    }

    /// Writes the requests of a node, all of them. Returns the UIDs of those that are stored; `None` if the object has changed since it
    /// was read.
    async fn ask(
        &self,
        node: &str,
        health: &HealthFacts,
        requests: &[CheckpointRequest],
    ) -> Result<Option<BTreeSet<String>>, LeaderError> {
        // Permits and evictions have another manager: an apply drops what its manager leaves out.
        let params = PatchParams::apply(CHECKPOINT_CONTROLLER).force();
        let spec = json!({"checkpoints": requests});
        let patch = Patch::Apply(body::<NodeHealth>(node, &health.version, "spec", &spec));
        let api: Api<SeenHealth> = Api::all(self.evictor.client.clone());
        let write = api.patch(node, &params, &patch);
        let written = self.evictor.leader.write("checkpoint-requests", write).await?;
        self.unwritten().remove(node);
        Ok(written.map(|object| {
            let stored = HealthFacts::of(object).requests;
            stored.into_iter().map(|request| request.uid).collect()
        }))
    }

    /// Whether the work still drains the node, by the objects of both. The watches may be late.
    async fn is_in_force(&self, visit: &Visit, now: Timestamp) -> kube::Result<bool> {
        let client = &self.evictor.client;
        let work = api::<Maintenance>(client).get_opt(&visit.maintenance).await?;
        let node = self.node(&visit.node).await?;
        let drains =
            |(work, node)| MaintenanceFacts::of(&work).drains(&visit.node, &node, unix(now));
        Ok(work.zip(node).is_some_and(drains))
    }

    /// A node as the API server has it now.
    async fn node(&self, name: &str) -> kube::Result<Option<NodeFacts>> {
        let nodes: Api<SeenNode> = Api::all(self.evictor.client.clone());
        Ok(nodes.get_opt(name).await?.map(|node| NodeFacts::of(&node)))
    }

    fn unwritten(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Found {
    /// Counts a pod of a lost node. Returns it if it leaves now.
    fn member(&mut self, pod: &Pod, node: &str, lost: &LostNode, now: u64) -> Option<Victim> {
        match pods::member(pod, node, lost, now)? {
            GangMember::Due(victim) => {
                self.lost.due += 1;
                return Some(victim).filter(|_| lost.is_evicted);
            }
            GangMember::Waits(until) => self.due = Some(self.due.unwrap_or(until).min(until)),
            GangMember::Leaves(since) => {
                self.lost.leaving_since = self.lost.leaving_since.max(Some(since));
            }
        }
        None
    }
}

impl Looked {
    /// Time to the next look, after one that said when that is, or failed.
    fn delay(&mut self, next: Option<Next>) -> Duration {
        let delay = self.backoff.next_delay();
        let is_early = self.backoff.failures() <= EARLY_LOOKS;
        match next {
            Some(Next::Later) if !is_early => EMPTY_DELAY,
            Some(Next::By(until)) => {
                delay.min(Duration::from_secs(until.saturating_sub(unix(Timestamp::now()))))
            }
            _ => delay,
        }
    }
}

impl Next {
    /// No later than at a time.
    fn by(self, until: u64) -> Self {
        match self {
            Self::By(earlier) => Self::By(earlier.min(until)),
            Self::Soon | Self::Later => Self::By(until),
        }
    }
}

/// Takes over what is wanted. A node for which that changed is looked at at once.
fn renew(nodes: &mut BTreeMap<String, Looked>, wanted: &BTreeMap<String, Departures>) {
    nodes.retain(|name, _| wanted.contains_key(name));
    for (name, departures) in wanted {
        if nodes.get(name).is_none_or(|node| node.departures != *departures) {
            let backoff = Backoff::new(FIRST_DELAY, MAX_DELAY);
            let departures = departures.clone();
            let node = Looked { departures, backoff, due: Instant::now() };
            nodes.insert(name.to_owned(), node);
        }
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Why the API server will refuse a write again, if it will.
fn refusal(error: &LeaderError) -> Option<&str> {
    let LeaderError::Api(kube::Error::Api(status)) = error else { return None };
    // The answer of server-side apply to a field that the CRD does not have comes as an internal error.
    let is_unknown_field = status.message.contains("not declared in schema");
    let is_refused = matches!(status.code, 400 | 403 | 405 | 413 | 415 | 422);
    (is_unknown_field || is_refused).then_some(&status.message)
}
