use std::sync::Mutex;

use octavo_testkit::{Request, ScriptedApi, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::config::NodeFile;
use crate::testing;

/// A follower, and what it sent to the API server: method, path and body.
struct Fixture {
    folder: TempDir,
    snapshots: watch::Sender<Snapshot>,
    configs: watch::Sender<Option<PluginConfig>>,
    problems: watch::Receiver<Problems>,
    requests: Arc<Mutex<Vec<(String, String, Value)>>>,
    reached: watch::Sender<Option<Mode>>,
    _input: watch::Sender<PluginInput>,
}

impl Fixture {
    /// Starts a follower whose API server answers patches with this status.
    fn start(feature_labels: FeatureLabels, status: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = NodeFile {
            node_name: Some("node".to_owned()),
            sys_root: Some(folder.path().join("sys")),
            feature_labels: Some(feature_labels),
            ..NodeFile::default()
        };
        let requests: Arc<Mutex<Vec<(String, String, Value)>>> = Arc::default();
        let sent = Arc::clone(&requests);
        let api = ScriptedApi::new(move |request: &Request| {
            let path = request.uri().path().to_owned();
            let body = serde_json::from_slice(request.body()).unwrap_or_default();
            sent.lock().unwrap().push((request.method().to_string(), path, body));
            let object = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node", "uid": "u-1"},
            });
            let failure =
                json!({"kind": "Status", "code": status, "message": "of another manager"});
            match request.method().as_str() {
                "PATCH" if status >= 400 => (status, failure),
                _ => (200, object),
            }
        });
        let (snapshots, snapshot) = watch::channel(Snapshot::default());
        let (configs, config) = watch::channel(None);
        let known = PluginInput { is_known: true, ..PluginInput::default() };
        let (input, inputs) = watch::channel(known);
        let (problem, problems) = watch::channel(Problems::default());
        let reached = watch::channel(None).0;
        let follower = LabelFollower {
            config: Arc::new(file.complete().unwrap()),
            snapshots: snapshot,
            configs: config,
            input: inputs,
            reached: reached.subscribe(),
            writer: LabelWriter::new(api.client(), "node".to_owned()),
            problems: problem,
        };
        tokio::spawn(follower.run());
        Self { folder, snapshots, configs, problems, requests, reached, _input: input }
    }

    fn set_gpus(&self, count: u32) {
        let inventory = Some(Arc::new(testing::inventory(count)));
        self.snapshots.send_replace(Snapshot { inventory, ..Snapshot::default() });
    }

    /// Sets a config with this output file, or with a `NodeFeature` object.
    fn set_config(&self, output_file: Option<&str>) {
        let mut config = PluginConfig::default();
        config.labels.use_node_feature_api = output_file.is_none();
        if let Some(name) = output_file {
            config.labels.output_file = self.path(name).display().to_string();
        }
        self.configs.send_replace(Some(config));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn count(&self, method: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|request| request.0 == method).count()
    }
}

#[tokio::test]
async fn a_node_has_its_labels_once_its_gpus_are_read_and_when_they_change() {
    let node = Fixture::start(FeatureLabels::Node, 200);
    node.configs.send_replace(Some(PluginConfig::default()));
    node.set_gpus(2);
    eventually("the labels are written", || node.count("PATCH") == 1).await;
    let (_, path, body) = node.requests.lock().unwrap()[0].clone();
    assert_eq!(path, "/api/v1/nodes/node");
    assert_eq!(body["metadata"]["labels"]["nvidia.com/gpu.count"], "2");
    assert_eq!(body["metadata"]["labels"]["nvidia.com/gpu.clique"], Value::Null, "of another task");
    // The same GPUs, read again.
    node.set_gpus(2);
    node.set_gpus(1);
    eventually("the labels are written again", || node.count("PATCH") == 2).await;
    assert_eq!(*node.problems.borrow(), Problems::default());
}

#[tokio::test]
async fn values_of_another_program_stay_and_are_a_problem() {
    let node = Fixture::start(FeatureLabels::Node, 409);
    node.configs.send_replace(Some(PluginConfig::default()));
    node.set_gpus(1);
    let note = || node.problems.borrow().get("FeatureLabelsNotWritten");
    eventually("the problem is known", || note().is_some()).await;
    assert!(note().unwrap().contains("another program writes labels"), "{:?}", note());
    assert_eq!(node.count("PATCH"), 1, "it is not tried again and again");
}

#[tokio::test]
async fn a_file_has_the_labels_until_the_config_names_another_place() {
    let node = Fixture::start(FeatureLabels::Config, 200);
    node.set_config(Some("gfd"));
    node.set_gpus(1);
    let text = |name: &str| std::fs::read_to_string(node.path(name)).unwrap_or_default();
    eventually("the file is there", || text("gfd").contains("nvidia.com/gpu.count=1\n")).await;
    node.set_config(Some("other"));
    eventually("the other file is there", || !text("other").is_empty()).await;
    eventually("the first one is gone", || !node.path("gfd").exists()).await;
    assert_eq!(node.count("PATCH"), 0);
    node.set_config(None);
    eventually("the object is written", || node.count("PATCH") == 1).await;
    let requests = node.requests.lock().unwrap().clone();
    let (_, path, body) = requests.iter().find(|request| request.0 == "PATCH").unwrap();
    let wanted =
        "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/default/nodefeatures/nvidia-features-for-node";
    assert_eq!(path, wanted);
    assert_eq!(body["spec"]["labels"]["nvidia.com/gpu.count"], "1");
    assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "u-1");
    eventually("the file is gone", || !node.path("other").exists()).await;
}

#[tokio::test]
async fn a_file_that_a_person_removes_comes_back() {
    let node = Fixture::start(FeatureLabels::Config, 200);
    let mut config = PluginConfig::default();
    config.labels.use_node_feature_api = false;
    config.labels.output_file = node.path("gfd").display().to_string();
    config.labels.rewrite = RewriteInterval::Every(Duration::from_millis(20));
    node.configs.send_replace(Some(config));
    node.set_gpus(1);
    for _ in 0..2 {
        eventually("the file is there", || node.path("gfd").exists()).await;
        std::fs::remove_file(node.path("gfd")).unwrap();
    }
}

#[tokio::test]
async fn a_node_that_offers_nothing_has_no_labels_until_it_offers_again() {
    let node = Fixture::start(FeatureLabels::Config, 200);
    node.set_config(Some("gfd"));
    node.set_gpus(1);
    eventually("the file is there", || node.path("gfd").exists()).await;
    node.reached.send_replace(Some(Mode::None));
    eventually("the file is gone", || !node.path("gfd").exists()).await;
    node.reached.send_replace(Some(Mode::Dra));
    eventually("the file is there again", || node.path("gfd").exists()).await;
}
