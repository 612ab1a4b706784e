//! Plays what is behind pods: kubelets that run what is bound and end what is deleted, and a controller
//! that makes pods anew which went.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinHandle;

use super::api::{Api, Kind, status_of};
use super::objects;
use super::observer::{Observer, Seen, set_of};
use super::work;

/// How often it looks.
const PERIOD: Duration = Duration::from_millis(20);

/// Plays until it is dropped.
pub(super) struct Player {
    task: JoinHandle<()>,
}

/// Pods that are made anew when they go: their set, and how.
pub(super) struct Controller {
    pub(super) set: &'static str,
    pub(super) make: Box<dyn Fn(&str) -> Value + Send + Sync>,
}

/// One thing to do.
#[derive(Clone)]
enum Deed {
    Run(String),
    End(String),
    Make(String),
}

impl Player {
    pub(super) fn start(
        api: &Api,
        observer: &Arc<Observer>,
        controller: Option<Controller>,
    ) -> Self {
        let (api, observer) = (api.clone(), Arc::clone(observer));
        let controller = controller.map(Arc::new);
        let task = tokio::spawn(async move {
            let mut told = observer.seen().gone.len();
            // What was asked for already and is not seen yet.
            let mut asked = HashSet::new();
            loop {
                let set = controller.as_ref().map(|controller| controller.set);
                let deeds = deeds(&observer.seen(), set, &mut told, &mut asked);
                let (api, controller) = (api.clone(), controller.clone());
                let done = work::in_parallel(deeds.len(), move |number| {
                    let deed = deeds.get(number).cloned();
                    let (api, controller) = (api.clone(), controller.clone());
                    async move {
                        match deed {
                            Some(deed) => act(&api, controller.as_deref(), deed).await,
                            None => Ok(()),
                        }
                    }
                })
                .await;
                if let Err(error) = done {
                    super::tell(&format!("playing kubelet and controller: {error:#}"));
                }
                tokio::time::sleep(PERIOD).await;
            }
        });
        Self { task }
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn deeds(
    seen: &Seen,
    set: Option<&str>,
    told: &mut usize,
    asked: &mut HashSet<(String, bool)>,
) -> Vec<Deed> {
    let mut deeds = Vec::new();
    for (name, pod) in seen.pods.iter().filter(|(_, pod)| pod.bound.is_some()) {
        if pod.is_ending {
            if asked.insert((pod.uid.clone(), true)) {
                deeds.push(Deed::End(name.clone()));
            }
        } else if !pod.is_running && asked.insert((pod.uid.clone(), false)) {
            deeds.push(Deed::Run(name.clone()));
        }
    }
    let gone = seen.gone.get(*told..).unwrap_or_default();
    *told = seen.gone.len();
    let is_ours = |name: &&(String, _)| set.is_some_and(|set| set_of(&name.0) == set);
    deeds.extend(gone.iter().filter(is_ours).map(|(name, _)| Deed::Make(name.clone())));
    deeds
}

async fn act(api: &Api, controller: Option<&Controller>, deed: Deed) -> anyhow::Result<()> {
    match deed {
        Deed::End(pod) => api.delete(Kind::Pods, &pod).await,
        Deed::Run(pod) => {
            let ran = api.merge(Kind::Pods, &format!("{pod}/status"), &objects::running()).await;
            match ran {
                // It went meanwhile.
                Err(error) if status_of(&error) == Some(404) => Ok(()),
                ran => ran.map(drop),
            }
        }
        Deed::Make(pod) => {
            let Some(controller) = controller else { return Ok(()) };
            api.create(Kind::Pods, &(controller.make)(&pod)).await.map(drop)
        }
    }
}
