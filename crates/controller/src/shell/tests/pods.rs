//! Reads of pods, and the watch of gangs.

use octavo_testkit::{FakeApi, Request, ScriptedApi, failure};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::gangs::PodGang;
use crate::shell::{pod_reader, watches};
use crate::store::{Change, Fact, Kind};
use crate::testing::config;
use crate::view::ClaimPod;

fn pod(uid: &str) -> ClaimPod {
    ClaimPod { uid: uid.to_owned(), namespace: "team".to_owned(), name: "p".to_owned() }
}

/// The gang that a read of the pod finds, if the server has this answer.
async fn read(uid: &str, code: u16) -> Option<PodGang> {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "team", "name": "p", "uid": "u", "resourceVersion": "1",
            "labels": {"octavo.dev/pod-group": "train"},
        },
        "spec": {"containers": []},
    });
    let api = ScriptedApi::new(move |request: &Request| {
        assert_eq!(request.uri().path(), "/api/v1/namespaces/team/pods/p");
        if code == 200 { (200, object.clone()) } else { failure(code, "no") }
    });
    let (changes, mut answers) = mpsc::channel(1);
    let stop = CancellationToken::new();
    pod_reader::start(api.client(), changes, stop.clone()).send(pod(uid)).unwrap();
    let Some(Change::PodRead { uid: answered, gang }) = answers.recv().await else { panic!() };
    assert_eq!(answered, uid);
    stop.cancel();
    gang
}

#[tokio::test(start_paused = true)]
async fn every_read_is_answered_and_only_the_pod_itself_has_a_gang() {
    assert_eq!(read("u", 200).await.unwrap().name.to_string(), "PodGroup team/train");
    for (uid, code) in [("another", 200), ("u", 404), ("u", 403), ("u", 500)] {
        assert_eq!(read(uid, code).await, None, "{uid} {code}");
    }
}

#[tokio::test]
async fn gangs_are_watched_where_they_are_served() {
    const GROUPS: &str = "/apis/octavo.dev/v1alpha1/podgroups";
    let (api, stop) = (FakeApi::default(), CancellationToken::new());
    api.serve("octavo.dev", "v1alpha1", &[("PodGroup", "podgroups")]);
    api.put(
        GROUPS,
        json!({
            "apiVersion": "octavo.dev/v1alpha1", "kind": "PodGroup",
            "metadata": {"name": "train", "namespace": "team", "uid": "u"}, "spec": {"minMember": 8},
        }),
    );
    let (_, mut changes) = watches::watch(&api.client(), &config(), &stop);
    let mut minimum = None;
    loop {
        let change = tokio::time::timeout(Duration::from_mins(1), changes.recv()).await;
        match change.unwrap().unwrap() {
            Change::Put(observed) if observed.key.kind == Kind::Gang => minimum = observed.fact,
            Change::End(Kind::Gang) => break,
            _ => {}
        }
    }
    assert_eq!(minimum, Some(Fact::Gang(8)));
    stop.cancel();
}
