//! Fake kubelets and a fake controller. The kubelets run bound pods and end deleted ones, at once or
//! after a while. The controller recreates pods that are gone.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinHandle;

use super::api::{Api, Kind, status_of};
use super::objects;
use super::observer::{ObservedState, Observer, set_of};
use super::workers;

/// Interval between polls of the observer.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs until it is dropped.
pub(super) struct FakeControllers {
    task: JoinHandle<()>,
}

/// How pods end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Endings {
    /// From the deletion timestamp until the pod is gone.
    pub(super) after: Duration,
    /// The set whose pods end at once, except for the first of them, which never ends.
    pub(super) stuck: Option<&'static str>,
}

/// Pods to recreate: their set, and a constructor.
pub(super) struct ReplacementController {
    pub(super) set: &'static str,
    pub(super) make: Box<dyn Fn(&str) -> Value + Send + Sync>,
}

/// One thing to do.
#[derive(Clone)]
enum Action {
    Run(String),
    End(String),
    Make(String),
}

impl FakeControllers {
    pub(super) fn start(
        api: &Api,
        observer: &Arc<Observer>,
        endings: Endings,
        controller: Option<ReplacementController>,
    ) -> Self {
        let (api, observer) = (api.clone(), Arc::clone(observer));
        let controller = controller.map(Arc::new);
        let task = tokio::spawn(async move {
            let mut gone_handled = observer.seen().gone.len();
            // Requests whose result is not observed yet.
            let mut requested = HashSet::new();
            loop {
                let set = controller.as_ref().map(|controller| controller.set);
                let actions =
                    actions(&observer.seen(), endings, set, &mut gone_handled, &mut requested);
                let (api, controller) = (api.clone(), controller.clone());
                let done = workers::in_parallel(actions.len(), move |number| {
                    let action = actions.get(number).cloned();
                    let (api, controller) = (api.clone(), controller.clone());
                    async move {
                        match action {
                            Some(action) => act(&api, controller.as_deref(), action).await,
                            None => Ok(()),
                        }
                    }
                })
                .await;
                if let Err(error) = done {
                    super::print_progress(&format!("fake kubelet and controller: {error:#}"));
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        Self { task }
    }
}

impl Drop for FakeControllers {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn actions(
    seen: &ObservedState,
    endings: Endings,
    set: Option<&str>,
    gone_handled: &mut usize,
    requested: &mut HashSet<(String, bool)>,
) -> Vec<Action> {
    let mut actions = Vec::new();
    let (now, is_of_stuck_set) = (Instant::now(), |name: &str| Some(set_of(name)) == endings.stuck);
    let stuck = seen.ending.iter().map(|(name, _)| name).find(|name| is_of_stuck_set(name));
    for (name, pod) in seen.pods.iter().filter(|(_, pod)| pod.bound.is_some()) {
        if let Some(began) = pod.ending {
            let is_over = is_of_stuck_set(name) || now.duration_since(began) >= endings.after;
            if is_over && Some(name) != stuck && requested.insert((pod.uid.clone(), true)) {
                actions.push(Action::End(name.clone()));
            }
        } else if !pod.is_running && requested.insert((pod.uid.clone(), false)) {
            actions.push(Action::Run(name.clone()));
        }
    }
    let gone = seen.gone.get(*gone_handled..).unwrap_or_default();
    *gone_handled = seen.gone.len();
    let is_ours = |name: &&(String, _)| set.is_some_and(|set| set_of(&name.0) == set);
    actions.extend(gone.iter().filter(is_ours).map(|(name, _)| Action::Make(name.clone())));
    actions
}

async fn act(
    api: &Api,
    controller: Option<&ReplacementController>,
    action: Action,
) -> anyhow::Result<()> {
    match action {
        Action::End(pod) => api.delete(Kind::Pods, &pod).await,
        Action::Run(pod) => {
            let ran = api.merge(Kind::Pods, &format!("{pod}/status"), &objects::running()).await;
            match ran {
                // It went meanwhile.
                Err(error) if status_of(&error) == Some(404) => Ok(()),
                ran => ran.map(drop),
            }
        }
        Action::Make(pod) => {
            let Some(controller) = controller else { return Ok(()) };
            api.create(Kind::Pods, &(controller.make)(&pod)).await.map(drop)
        }
    }
}
