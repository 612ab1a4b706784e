use octavo_testkit::eventually;

use super::*;
use crate::clique;
use crate::fake_cliques::{CLIQUE, FakeCliques};

fn own() -> OwnEntry {
    OwnEntry {
        node: "node-a".to_owned(),
        address: "10.0.0.1".parse().unwrap(),
        clique_id: CLIQUE.to_owned(),
    }
}

/// A running writer.
struct Writer {
    cliques: FakeCliques,
    readiness: watch::Sender<Readiness>,
}

impl Writer {
    fn start(cliques: &FakeCliques) -> Self {
        let (sender, seen) = watch::channel(None);
        let (readiness, ready) = watch::channel(Readiness::NotReady);
        tokio::spawn(clique::follow(cliques.api(), FakeCliques::name(), sender));
        tokio::spawn(own().publish(cliques.api(), seen, ready));
        Self { cliques: cliques.clone(), readiness }
    }

    async fn wait_for(&self, status: &str) {
        eventually(&format!("the entry is {status}"), || {
            self.cliques.entry("node-a")["status"] == status
        })
        .await;
    }
}

#[test]
fn the_applied_fields_are_those_of_the_daemon() {
    let mut clique = ComputeDomainClique::new("uid-1", CLIQUE);
    clique.metadata.uid = Some("uid-of-the-clique".to_owned());
    let fields = own().fields(&clique, Readiness::Ready);
    assert_eq!(
        fields,
        json!({
            "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomainClique",
            "metadata": {"name": "uid-1.cluster.7", "uid": "uid-of-the-clique"},
            "daemons": [{
                "nodeName": "node-a", "ipAddress": "10.0.0.1", "cliqueID": "cluster.7", "status": "Ready"
            }],
        })
    );
}

#[test]
fn the_newer_state_of_one_object_counts() {
    let clique = |uid: &str, version: &str| {
        let mut clique = ComputeDomainClique::new("uid-1", CLIQUE);
        clique.metadata.uid = Some(uid.to_owned());
        clique.metadata.resource_version = Some(version.to_owned());
        Some(Arc::new(clique))
    };
    let (nine, ten) = (clique("a", "9"), clique("a", "10"));
    assert_eq!(newer(ten.clone(), nine.clone()), ten, "versions are numbers");
    assert_eq!(newer(nine.clone(), ten.clone()), ten);
    assert_eq!(newer(ten.clone(), clique("b", "1")), clique("b", "1"), "another object");
    assert_eq!(newer(ten.clone(), None), None);
    assert_eq!(newer(ten, clique("a", "opaque")), clique("a", "opaque"));
}

#[tokio::test(start_paused = true)]
async fn an_entry_is_written_once_for_each_change() {
    let cliques = FakeCliques::new();
    let writer = Writer::start(&cliques);
    eventually("the clique is watched", || {
        cliques.server.watchers(crate::fake_cliques::COLLECTION) == 1
    })
    .await;
    assert!(cliques.writes().is_empty(), "there is no clique");
    cliques.put("first", &json!([]));
    writer.wait_for("NotReady").await;
    assert_eq!(cliques.entry("node-a")["index"], 0);
    // Changes of others are no reason to write.
    for address in ["10.0.0.2", "10.0.0.3"] {
        cliques.put(
            "first",
            &json!([{"nodeName": "node-b", "ipAddress": address, "cliqueID": CLIQUE}]),
        );
    }
    writer.readiness.send_replace(Readiness::Ready);
    writer.wait_for("Ready").await;
    writer.readiness.send_replace(Readiness::NotReady);
    writer.wait_for("NotReady").await;
    let writes = cliques.writes();
    assert_eq!(writes.len(), 3, "{writes:?}");
    let manager = daemon_manager("node-a");
    assert!(writes.iter().all(|query| query.contains(&format!("fieldManager={manager}"))));
    assert!(writes.iter().all(|query| query.contains("force=true")), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn an_entry_of_an_earlier_pod_is_replaced_and_keeps_its_index() {
    let cliques = FakeCliques::new();
    cliques.put(
        "first",
        &json!([{"nodeName": "node-a", "ipAddress": "10.0.0.99", "cliqueID": CLIQUE, "status": "Ready", "index": 5}]),
    );
    let writer = Writer::start(&cliques);
    writer.wait_for("NotReady").await;
    let entry = cliques.entry("node-a");
    assert_eq!((&entry["ipAddress"], &entry["index"]), (&json!("10.0.0.1"), &json!(5)));
}

#[tokio::test(start_paused = true)]
async fn a_clique_that_is_made_again_gets_the_entry() {
    let cliques = FakeCliques::new();
    cliques.put("first", &json!([]));
    let writer = Writer::start(&cliques);
    writer.wait_for("NotReady").await;
    cliques.delete();
    cliques.put("second", &json!([]));
    writer.wait_for("NotReady").await;
    assert_eq!(cliques.history("node-a"), ["NotReady", "NotReady"]);
}

#[tokio::test(start_paused = true)]
async fn failed_writes_are_tried_again() {
    let cliques = FakeCliques::new();
    cliques.server.fail(&http::Method::PATCH, &[409, 500, 403]);
    cliques.put("first", &json!([]));
    let writer = Writer::start(&cliques);
    writer.wait_for("NotReady").await;
    assert_eq!(cliques.writes().len(), 4);
}
