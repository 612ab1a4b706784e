use std::collections::BTreeMap;

use clap::Parser;
use octavo_testkit::{ScriptedApi, failure};
use serde_json::{Value, json};

use super::*;
use crate::offer::Offer;
use facts::AgentFacts;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: ValidateArgs,
}

fn args(line: &str) -> ValidateArgs {
    Line::parse_from(["octavo"].into_iter().chain(line.split_whitespace())).args
}

fn node(has_gpu: bool) -> NodeFacts {
    let offer =
        has_gpu.then(|| Offer::Resources { resource: "nvidia.com/gpu".to_owned(), amount: 8 });
    NodeFacts { has_gpu, is_ready: true, offer }
}

fn facts() -> Facts {
    let agent = AgentFacts {
        namespace: "octavo-system".to_owned(),
        image: "octavo:1".to_owned(),
        pull_policy: Some("Always".to_owned()),
        pull_secrets: vec!["registry".to_owned()],
        service_account: Some("octavo-agent".to_owned()),
        driver_root: Some("/run/nvidia/driver".to_owned()),
    };
    let nodes = [("cpu-1", false), ("gpu-1", true)];
    let nodes = nodes.map(|(name, has_gpu)| (name.to_owned(), node(has_gpu)));
    Facts { nodes: BTreeMap::from(nodes), agent: Some(agent) }
}

#[test]
fn all_nodes_with_gpus_are_checked_or_those_that_are_named() {
    let names = |line: &str| -> Result<Vec<String>, String> {
        let facts = facts();
        let chosen = chosen(&args(line).nodes, &facts).map_err(|error| error.to_string())?;
        Ok(chosen.into_keys().map(str::to_owned).collect())
    };
    assert_eq!(names(""), Ok(vec!["gpu-1".to_owned()]));
    assert_eq!(names("cpu-1"), Ok(vec!["cpu-1".to_owned()]));
    assert!(names("gpu-2").unwrap_err().contains("\"gpu-2\""));
    let none = Facts { nodes: BTreeMap::from([("cpu-1".to_owned(), node(false))]), agent: None };
    assert!(chosen(&[], &none).unwrap_err().to_string().contains("no node has a GPU"));
}

#[test]
fn jobs_are_as_the_agents_are_unless_the_user_says_otherwise() {
    let by_agents = settings(&args(""), &facts(), "default").unwrap();
    assert_eq!(by_agents.namespace, "octavo-system");
    assert_eq!(
        (by_agents.image.as_str(), by_agents.driver_root.as_str()),
        ("octavo:1", "/run/nvidia/driver")
    );
    assert_eq!(by_agents.service_account.as_deref(), Some("octavo-agent"));
    assert_eq!(by_agents.status_dir.as_deref(), Some("/run/nvidia/validations"));
    let line = "-n team --image other:2 --driver-root / --no-status-files --timeout 0";
    let by_user = settings(&args(line), &facts(), "default").unwrap();
    assert_eq!((by_user.namespace.as_str(), by_user.image.as_str()), ("team", "other:2"));
    assert_eq!((by_user.service_account, by_user.pull_policy), (None, None));
    assert_eq!(
        (by_user.driver_root.as_str(), by_user.status_dir, by_user.limit),
        ("/", None, None)
    );
    let alone = Facts { agent: None, ..facts() };
    assert!(settings(&args(""), &alone, "default").is_err(), "no image");
    assert_eq!(settings(&args("--image x"), &alone, "default").unwrap().namespace, "default");
}

#[test]
fn a_place_that_lacks_something_else_than_a_gpu_is_no_lack_of_gpus() {
    let words = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.";
    let text = no_place(words);
    assert!(text.starts_with("no free GPU (the scheduler says: 0/1 nodes"), "{text}");
    assert!(
        no_place("0/1 nodes are available: 1 cannot allocate all claims.")
            .starts_with("no free GPU")
    );
    assert!(
        no_place("0/1 nodes are available: 1 Too many pods.").starts_with("no place for a pod")
    );
}

fn runner<'a>(
    api: &ScriptedApi,
    settings: &'a JobSettings,
    stopped: watch::Receiver<bool>,
) -> NodeRunner<'a> {
    let (client, suffix) = (api.client(), "a-0".to_owned());
    let jobs = Jobs { client, settings, node: "gpu-1", suffix, stopped };
    NodeRunner { jobs, name: "gpu-1", until: None, gpu_limit: None }
}

/// An API server with the pod of a Job, and what was asked of it, one line for each change.
async fn outcome(pod: Value, stops: bool) -> (Vec<Finding>, Vec<String>) {
    let api = ScriptedApi::new(move |request| {
        let path = request.uri().path().to_owned();
        match (request.method().as_str(), path.rsplit('/').next()) {
            ("POST", _) => {
                let mut object: Value = serde_json::from_slice(request.body()).unwrap();
                object["metadata"]["uid"] = json!("uid-1");
                (201, object)
            }
            ("GET", Some("pods")) => (200, json!({"metadata": {}, "items": [pod]})),
            ("GET", Some("events")) => (200, json!({"metadata": {}, "items": []})),
            ("GET", _) => failure(404, "gone"),
            _ => (200, json!({"metadata": {"name": "x"}})),
        }
    });
    let (stop, stopped) = watch::channel(stops);
    let settings = settings(&args(""), &facts(), "default").unwrap();
    let runner = NodeRunner { gpu_limit: Some(Duration::ZERO), ..runner(&api, &settings, stopped) };
    let offer = Offer::Claims { class: "gpu.nvidia.com", devices: 8, scheduler: None };
    let found = runner.step(Step::Gpu(offer), &Component::OF_GPU, runner.gpu_limit).await;
    drop(stop);
    let requests = api.requests();
    let changes = requests.iter().filter(|request| request.method() != "GET");
    let changes = changes.map(|request| {
        format!(
            "{} {}",
            request.method(),
            request.uri().path().rsplit('/').next().unwrap_or_default()
        )
    });
    (found, changes.collect())
}

const CHANGES: [&str; 4] = [
    "POST jobs",
    "POST resourceclaims",
    "DELETE octavo-validate-gpu-a-0",
    "DELETE octavo-validate-gpu-a-0",
];

#[tokio::test]
async fn what_was_made_is_removed_after_results_and_without_them() {
    let findings =
        Findings { components: Component::OF_GPU.map(|it| Finding::ready(it, "works")).to_vec() };
    let message = serde_json::to_string(&findings).unwrap();
    let ended = json!({"metadata": {"name": "p"}, "status": {"phase": "Succeeded", "containerStatuses": [{
        "name": "validate", "ready": false, "restartCount": 0, "image": "", "imageID": "",
        "state": {"terminated": {"exitCode": 0, "message": message}}}]}});
    assert_eq!(
        outcome(ended, false).await,
        (findings.components, CHANGES.map(str::to_owned).to_vec())
    );

    let refused = json!({"metadata": {"name": "p"}, "status": {"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "1 cannot allocate all claims."}]}});
    let (found, changes) = outcome(refused, false).await;
    let wanted = "no free GPU (the scheduler says: 1 cannot allocate all claims)";
    assert_eq!(found, Component::OF_GPU.map(|it| Finding::not_tried(it, wanted)));
    assert_eq!(changes, CHANGES);
}

#[tokio::test]
async fn a_command_that_is_to_end_makes_no_further_job() {
    let (found, changes) = outcome(json!({"metadata": {"name": "p"}}), true).await;
    assert_eq!(found, Component::OF_GPU.map(|it| Finding::not_tried(it, "interrupted")));
    assert_eq!(changes, Vec::<String>::new());
}

#[tokio::test]
async fn a_node_of_which_nothing_is_known_has_not_failed() {
    let api = ScriptedApi::new(|request| match request.method().as_str() {
        "POST" => failure(403, "jobs.batch is forbidden"),
        _ => failure(404, "there is none"),
    });
    let settings = settings(&args(""), &facts(), "default").unwrap();
    let (_stop, stopped) = watch::channel(false);
    let runner = runner(&api, &settings, stopped);
    let report = runner.check(&node(true)).await;
    assert_eq!(report.findings.status(), ValidateStatus::NotTried);
    let first = &report.findings.components[0];
    assert!(first.message.contains("jobs.batch is forbidden"), "{first:?}");
    assert!(first.remedy.as_ref().unwrap().contains("rights"), "{first:?}");
    assert_eq!(report.findings.components[1].message, "driver is not ready");
}

#[tokio::test]
async fn a_node_that_is_not_ready_is_a_failure_and_nothing_is_made() {
    let api = ScriptedApi::new(|_| (500, "{}"));
    let settings = settings(&args(""), &facts(), "default").unwrap();
    let (_stop, stopped) = watch::channel(false);
    let runner = runner(&api, &settings, stopped);
    let report = runner.check(&NodeFacts { is_ready: false, ..node(true) }).await;
    assert_eq!(report.findings.status(), ValidateStatus::Failed);
    assert_eq!(report.findings.components.len(), 4);
    assert_eq!(api.uris(), Vec::<String>::new());
}
