//! Makes a Job, waits for its results, and removes it.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use octavo_view::ViewError;
use octavo_view::fetch::list;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::manifest::{self, JobSettings, MANAGER, Step};
use super::pod_state::PodState;
use super::progress::report_progress;
use crate::report::Findings;

/// Interval between looks at a pod, or at a Job that goes.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time after which a Job without a pod is asked for its events.
const POD_TIME: Duration = Duration::from_secs(5);
/// Longest wait for the end of a removed Job.
const REMOVAL_TIME: Duration = Duration::from_secs(30);
/// Label of a Job's pods with its name.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";
/// What to do if a pod is not made, has no node, or has no image.
const OTHER_NAMESPACE: &str =
    "name a namespace that admits privileged pods, and whose quota has room for one: --namespace";
const NO_PLACE: &str =
    "see that the scheduler and the job controller run, and that no queue or gate holds the pod";
const OTHER_IMAGE: &str = "name an image with octavo that the node can pull: --image";
const NOT_FOUND: u16 = 404;
const CONFLICT: u16 = 409;

/// The Jobs of a node.
pub(super) struct Jobs<'a> {
    pub(super) client: Client,
    pub(super) settings: &'a JobSettings,
    pub(super) node: &'a str,
    /// End of the names of this node's Jobs in this run.
    pub(super) suffix: String,
    /// Whether the command is to end.
    pub(super) stopped: watch::Receiver<bool>,
}

/// What a Job has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It has results.
    Ended(Findings),
    /// Its pod found no place, in the scheduler's words.
    Unschedulable(String),
    /// Its pod was not made, got no node, or has no image: why, and what to do. Nothing is known of the node.
    Refused(String, &'static str),
    /// Its pod did not start, or did not end in time.
    NotStarted(String),
    /// The command is to end.
    Stopped,
}

impl Jobs<'_> {
    /// Runs the Job of a step. It is removed in any case.
    pub(super) async fn run(
        &self,
        step: &Step,
        until: Option<Instant>,
        gpu_limit: Option<Duration>,
    ) -> Result<Outcome, ViewError> {
        if *self.stopped.borrow() {
            return Ok(Outcome::Stopped);
        }
        let name = format!("{MANAGER}-{}-{}", step.name(), self.suffix);
        let outcome = self.outcome(step, &name, until, gpu_limit).await;
        // What was found stays so, whether or not the Job can be removed.
        let left = match self.remove(step, &name).await {
            Ok(true) => return outcome,
            Ok(false) => "it does not end".to_owned(),
            Err(error) => error.to_string(),
        };
        let namespace = &self.settings.namespace;
        report_progress(&format!("{}: Job {namespace}/{name} is not removed: {left}", self.node));
        outcome
    }

    async fn outcome(
        &self,
        step: &Step,
        name: &str,
        until: Option<Instant>,
        gpu_limit: Option<Duration>,
    ) -> Result<Outcome, ViewError> {
        let job: Job =
            self.create("jobs", manifest::job(step, name, self.node, self.settings)).await?;
        if let Some(claim) = manifest::claim(step, name, &job.uid().unwrap_or_default()) {
            self.create::<ResourceClaim>("resourceclaims", claim).await?;
        }
        self.wait(step, name, until, gpu_limit).await
    }

    async fn wait(
        &self,
        step: &Step,
        name: &str,
        until: Option<Instant>,
        gpu_limit: Option<Duration>,
    ) -> Result<Outcome, ViewError> {
        let begun = Instant::now();
        let is_late = |until: Option<Instant>| until.is_some_and(|until| Instant::now() >= until);
        let (mut refused_since, mut last) = (None, "");
        let mut stopped = self.stopped.clone();
        loop {
            let pod = self.pod(name).await?;
            let state = pod.as_ref().map_or(PodState::Waits("its pod is made"), PodState::of);
            match state {
                PodState::Ended(findings) => return Ok(Outcome::Ended(findings)),
                PodState::NoImage(words) => return Ok(Outcome::Refused(words, OTHER_IMAGE)),
                PodState::NotStarted(words) => return Ok(Outcome::NotStarted(words)),
                PodState::Unschedulable(words) => {
                    let since = *refused_since.get_or_insert_with(Instant::now);
                    if is_late(until) || is_late(gpu_limit.map(|limit| since + limit)) {
                        return Ok(Outcome::Unschedulable(words));
                    }
                    self.progress(step, "the scheduler has no place for its pod", &mut last);
                }
                PodState::Waits(what) => {
                    refused_since = None;
                    // A Job whose pods are refused has events that say so.
                    let has_no_pod = pod.is_none() && begun.elapsed() > POD_TIME;
                    let is_late = is_late(until);
                    if has_no_pod || is_late {
                        let subject = pod.as_ref().map_or_else(|| name.to_owned(), Pod::name_any);
                        let warning = self.last_warning(&subject).await?;
                        if is_late {
                            let warning =
                                warning.unwrap_or_else(|| "its events say nothing".to_owned());
                            let words = format!("not in time: {what}: {warning}");
                            let spec = pod.as_ref().and_then(|pod| pod.spec.as_ref());
                            return Ok(match spec.and_then(|spec| spec.node_name.as_ref()) {
                                Some(_) => Outcome::NotStarted(words),
                                None => Outcome::Refused(words, NO_PLACE),
                            });
                        }
                        if let Some(warning) = warning {
                            return Ok(Outcome::Refused(warning, OTHER_NAMESPACE));
                        }
                    }
                    self.progress(step, what, &mut last);
                }
            }
            tokio::select! {
                () = sleep(POLL_INTERVAL) => {}
                _ = stopped.wait_for(|stopped| *stopped) => return Ok(Outcome::Stopped),
            }
        }
    }

    /// Says what the Job waits for, if that is new.
    fn progress(&self, step: &Step, what: &'static str, last: &mut &'static str) {
        if *last != what {
            *last = what;
            report_progress(&format!("{}: {}: {what}", self.node, step.name()));
        }
    }

    async fn pod(&self, job: &str) -> Result<Option<Pod>, ViewError> {
        let params = ListParams::default().labels(&format!("{JOB_NAME}={job}"));
        Ok(list("pods", &self.api::<Pod>(), params).await?.into_iter().next())
    }

    /// The last warning about an object.
    async fn last_warning(&self, name: &str) -> Result<Option<String>, ViewError> {
        let selector = format!("involvedObject.name={name},type=Warning");
        let events =
            list("events", &self.api::<Event>(), ListParams::default().fields(&selector)).await?;
        let time = |event: &Event| {
            let last = event.last_timestamp.as_ref().map(|time| time.0);
            last.or(event.event_time.as_ref().map(|time| time.0))
        };
        Ok(events.into_iter().max_by_key(time).and_then(|event| event.message))
    }

    /// Removes a Job with its pod and claim, and waits until its GPU is free again. What is not there is removed. Returns whether
    /// it has ended.
    async fn remove(&self, step: &Step, name: &str) -> Result<bool, ViewError> {
        let jobs = self.api::<Job>();
        removed("jobs", jobs.delete(name, &DeleteParams::foreground()).await)?;
        let until = Instant::now() + REMOVAL_TIME;
        let is_there = async || {
            let job = jobs.get_opt(name).await.map_err(|error| ViewError::api("jobs", error))?;
            Ok::<bool, ViewError>(job.is_some())
        };
        let mut is_left = is_there().await?;
        while is_left && Instant::now() < until {
            sleep(POLL_INTERVAL).await;
            is_left = is_there().await?;
        }
        if manifest::has_claim(step) {
            let claims = self.api::<ResourceClaim>();
            removed("resourceclaims", claims.delete(name, &DeleteParams::default()).await)?;
        }
        Ok(!is_left)
    }

    async fn create<K>(&self, kind: &'static str, object: Value) -> Result<K, ViewError>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize,
        K::DynamicType: Default,
    {
        let object: K = serde_json::from_value(object)
            .map_err(|error| ViewError::Encode { format: "JSON", message: error.to_string() })?;
        let api = self.api::<K>();
        let made = match api.create(&PostParams::default(), &object).await {
            // The client repeats a request without an answer, and the name is of this run alone.
            Err(kube::Error::Api(status)) if status.code == CONFLICT => {
                api.get(object.meta().name.as_deref().unwrap_or_default()).await
            }
            made => made,
        };
        made.map_err(|error| ViewError::api(kind, error))
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.settings.namespace)
    }
}

/// The result of a removal, for which a missing object is none.
fn removed<T>(kind: &'static str, result: Result<T, kube::Error>) -> Result<(), ViewError> {
    match result {
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Ok(()),
        Err(error) => Err(ViewError::api(kind, error)),
        Ok(_) => Ok(()),
    }
}
