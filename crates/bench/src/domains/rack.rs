//! A rack of trays, and the domains and pods on it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use octavo_api::compute_domain::{ComputeDomainNode, Readiness};
use octavo_api::names::LABEL_COMPUTE_DOMAIN;
use octavo_api::{ComputeDomain, ComputeDomainClique};
use octavo_kubelet_api::dra::v1;
use octavo_lab::{Lab, Owner};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::lab_dir::print_progress;

/// Trays of a rack.
pub(super) const TRAYS: usize = 18;
/// Namespace of the daemons.
const SYSTEM: &str = "octavo-system";
/// Timeout of a turn.
const TIMEOUT: Duration = Duration::from_mins(2);
/// Interval between two looks at what is left.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Name of a tray.
pub(super) fn tray(index: usize) -> String {
    format!("gb200-tray-{index}")
}

/// Times of a turn.
pub(super) struct Times {
    /// From the first create to the last pod running.
    pub(super) start: Duration,
    /// From the last pod bound to the last pod running, that is with its channel prepared.
    pub(super) bound_to_running: Duration,
    /// From the first delete until nothing of the domain is left.
    pub(super) end: Duration,
}

/// A rack.
pub(super) struct Rack {
    client: Client,
    scheduler: &'static str,
    trays: usize,
    /// Whether a pod names its tray. Where domains share nodes, the scheduler may put several pods of one on a tray.
    is_pinned: bool,
}

impl Rack {
    pub(super) fn new(client: &Client, owner: Owner, trays: usize) -> Self {
        let scheduler = match owner {
            Owner::Kube => "default-scheduler",
            Owner::Octavo => "octavo",
        };
        Self { client: client.clone(), scheduler, trays, is_pinned: false }
    }

    /// The same, with a tray for each pod by name.
    pub(super) fn pinned(self) -> Self {
        Self { is_pinned: true, ..self }
    }

    fn domains(&self) -> Api<ComputeDomain> {
        Api::default_namespaced(self.client.clone())
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    /// A domain with a pod on each tray, from start to end.
    pub(super) async fn turn(&self, domain: &str) -> anyhow::Result<Times> {
        let (start, bound_to_running) = self.start(domain).await?;
        let end = self.stop(domain).await?;
        Ok(Times { start, bound_to_running, end })
    }

    /// Makes a domain.
    pub(super) async fn create(&self, name: &str) -> anyhow::Result<()> {
        let domain = serde_json::from_value(json!({
            "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain",
            "metadata": {"name": name},
            "spec": {"channel": {"resourceClaimTemplate": {"name": name}}},
        }))?;
        self.domains().create(&PostParams::default(), &domain).await?;
        Ok(())
    }

    /// Deletes a domain, without waiting.
    pub(super) async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.domains().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Makes a domain, waits for its template, and deletes it.
    pub(super) async fn create_and_delete(&self, name: &str) -> anyhow::Result<()> {
        self.create(name).await?;
        self.wait_for_template(name).await?;
        self.delete(name).await
    }

    async fn wait_for_template(&self, name: &str) -> anyhow::Result<()> {
        let templates: Api<ResourceClaimTemplate> = Api::default_namespaced(self.client.clone());
        let found = async {
            while templates.get_opt(name).await?.is_none() {
                sleep(LOOK_INTERVAL).await;
            }
            anyhow::Ok(())
        };
        timeout(TIMEOUT, found).await.context("the template is not made")?
    }

    /// Makes a domain with a pod on each tray, whatever else runs there. Returns the times until all run: from the first create, and from the last
    /// pod bound.
    pub(super) async fn start(&self, domain: &str) -> anyhow::Result<(Duration, Duration)> {
        let of_job = watcher::Config::default().labels(&format!("job={domain}"));
        let pods = watcher::watcher(self.pods(), of_job).default_backoff().applied_objects();
        let mut pods = std::pin::pin!(pods);
        let began = Instant::now();
        let create = async {
            self.create(domain).await?;
            for index in 0..self.trays {
                let pod = self.pod(domain, index)?;
                self.pods().create(&PostParams::default(), &pod).await?;
            }
            Ok(())
        };
        let (mut bound, mut running) = (BTreeMap::new(), BTreeMap::new());
        let follow = async {
            while running.len() < self.trays {
                let pod = match pods.next().await.context("the watch ended")? {
                    Ok(pod) => pod,
                    // It is tried again.
                    Err(error) => {
                        print_progress(&format!("the pods of {domain} cannot be watched: {error}"));
                        continue;
                    }
                };
                if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
                    bound.entry(pod.name_any()).or_insert((Instant::now(), node));
                }
                if pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
                {
                    running.entry(pod.name_any()).or_insert(Instant::now());
                }
            }
            anyhow::Ok(())
        };
        let all = async { tokio::try_join!(create, follow) };
        timeout(TIMEOUT, all)
            .await
            .with_context(|| format!("the pods of {domain} do not run"))??;
        let nodes: std::collections::BTreeSet<_> = bound.values().map(|(_, node)| node).collect();
        ensure!(nodes.len() == self.trays, "{} pods are on {} trays", self.trays, nodes.len());
        let last_bound = bound.values().map(|(at, _)| *at).max().context("no pod is bound")?;
        let last = running.values().copied().max().context("no pod runs")?;
        Ok((last - began, last - last_bound))
    }

    /// A pod of a job in a domain.
    fn pod(&self, domain: &str, index: usize) -> anyhow::Result<Pod> {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{domain}-{index}"), "labels": {"job": domain}},
            "spec": {
                "schedulerName": self.scheduler,
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "main", "image": "example",
                    "resources": {"claims": [{"name": "channel"}]},
                }],
                "resourceClaims": [{"name": "channel", "resourceClaimTemplateName": domain}],
            },
        });
        if self.is_pinned {
            pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": tray(index)});
        }
        Ok(serde_json::from_value(pod)?)
    }

    /// Deletes a domain and its pods. Returns the time until nothing is left.
    pub(super) async fn stop(&self, domain: &str) -> anyhow::Result<Duration> {
        let began = Instant::now();
        self.delete(domain).await?;
        let selected = ListParams::default().labels(&format!("job={domain}"));
        self.pods().delete_collection(&DeleteParams::default(), &selected).await?;
        self.wait_until_nothing_is_left().await?;
        Ok(began.elapsed())
    }

    /// All domains.
    pub(super) async fn all(&self) -> anyhow::Result<Vec<ComputeDomain>> {
        Ok(self.domains().list(&ListParams::default()).await?.items)
    }

    /// Deletes all domains and pods, and waits until they are gone. Daemons that domains share stay.
    pub(super) async fn delete_all(&self) -> anyhow::Result<()> {
        let (all, params) = (ListParams::default(), DeleteParams::default());
        self.domains().delete_collection(&params, &all).await?;
        self.pods().delete_collection(&params, &all).await?;
        let claims: Api<ResourceClaim> = Api::default_namespaced(self.client.clone());
        let gone = async {
            while !(self.domains().list(&all).await?.items.is_empty()
                && self.pods().list(&all).await?.items.is_empty()
                && claims.list(&all).await?.items.is_empty())
            {
                sleep(LOOK_INTERVAL).await;
            }
            anyhow::Ok(())
        };
        timeout(TIMEOUT, gone).await.context("something of a domain is left")?
    }

    /// Waits until all nodes of a domain's status are ready.
    pub(super) async fn wait_until_ready(&self, domain: &str) -> anyhow::Result<()> {
        let found = async {
            loop {
                let status = self.domains().get(domain).await?.status.unwrap_or_default();
                let is_ready = |node: &ComputeDomainNode| node.status == Readiness::Ready;
                if status.nodes.len() == self.trays && status.nodes.iter().all(is_ready) {
                    return anyhow::Ok(());
                }
                sleep(LOOK_INTERVAL).await;
            }
        };
        timeout(TIMEOUT, found).await.with_context(|| format!("{domain} does not become ready"))?
    }

    /// Waits until no object and no label of any domain is left.
    pub(super) async fn wait_until_nothing_is_left(&self) -> anyhow::Result<()> {
        let labelled = ListParams::default().labels(LABEL_COMPUTE_DOMAIN);
        let nodes: Api<Node> = Api::all(self.client.clone());
        let sets: Api<DaemonSet> = Api::all(self.client.clone());
        let pods: Api<Pod> = Api::all(self.client.clone());
        let templates: Api<ResourceClaimTemplate> = Api::all(self.client.clone());
        let claims: Api<ResourceClaim> = Api::all(self.client.clone());
        let cliques: Api<ComputeDomainClique> = Api::all(self.client.clone());
        let domains = self.domains();
        let everything = ListParams::default();
        let gone = async {
            while !(domains.list(&everything).await?.items.is_empty()
                && pods.list(&everything).await?.items.is_empty()
                && claims.list(&everything).await?.items.is_empty()
                && cliques.list(&everything).await?.items.is_empty()
                && sets.list(&labelled).await?.items.is_empty()
                && templates.list(&everything).await?.items.is_empty()
                && nodes.list(&labelled).await?.items.is_empty())
            {
                sleep(LOOK_INTERVAL).await;
            }
            anyhow::Ok(())
        };
        timeout(TIMEOUT, gone).await.context("something of a domain is left")?
    }

    /// Waits until a node of a domain's status has a readiness.
    pub(super) async fn wait_for(
        &self,
        domain: &str,
        node: &str,
        wanted: Readiness,
    ) -> anyhow::Result<()> {
        let found = async {
            loop {
                let status = self.domains().get(domain).await?.status.unwrap_or_default();
                if status.nodes.iter().any(|it| it.name == node && it.status == wanted) {
                    return anyhow::Ok(());
                }
                sleep(LOOK_INTERVAL).await;
            }
        };
        timeout(TIMEOUT, found)
            .await
            .with_context(|| format!("{node} does not become {wanted:?}"))?
    }

    /// Kills the daemon of a node.
    pub(super) async fn kill_daemon(&self, lab: &Lab, node: &str) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), SYSTEM);
        let selected = ListParams::default()
            .labels(LABEL_COMPUTE_DOMAIN)
            .fields(&format!("spec.nodeName={node}"));
        let pod = pods.list(&selected).await?.items.into_iter().next();
        let pod = pod.with_context(|| format!("no daemon on {node}"))?;
        let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        let container = container.context("a pod without containers")?;
        let folder =
            lab.layout().node(node).join("kubelet/pods").join(pod.uid().unwrap_or_default());
        let file = folder.join(format!("{}.pid", container.name));
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let pid = text.split(' ').next().unwrap_or_default().to_owned();
        let killed = tokio::process::Command::new("kill").args(["-9", &pid]).status().await?;
        ensure!(killed.success(), "kill -9 {pid}");
        Ok(())
    }

    /// Node and claim of a pod of a domain, as the kubelet names the claim.
    pub(super) async fn claim_of(
        &self,
        domain: &str,
        index: usize,
    ) -> anyhow::Result<(String, v1::Claim)> {
        let pod = self.pods().get(&format!("{domain}-{index}")).await?;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let statuses =
            pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
        let name = statuses.and_then(|all| all.first()?.resource_claim_name.clone());
        let name = name.context("the pod has no claim")?;
        let claims: Api<ResourceClaim> = Api::default_namespaced(self.client.clone());
        let uid = claims.get(&name).await?.uid().unwrap_or_default();
        let claim = v1::Claim { namespace: "default".to_owned(), uid, name };
        Ok((node.context("the pod has no node")?, claim))
    }
}
