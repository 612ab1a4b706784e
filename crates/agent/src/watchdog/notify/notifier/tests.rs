use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use kube::Client;
use kube::client::Body;
use octavo_kube_io::events::{Events, Tone};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tonic::codegen::http::{Request, Response};

use super::{Message, Worker};
use crate::node::ClaimRef;

/// Created events: name and kind of the object, reason and type.
type Made = Arc<Mutex<Vec<String>>>;

fn server(claim_uid: &'static str) -> (Client, Made) {
    let made = Made::default();
    let log = Arc::clone(&made);
    let service = tower::service_fn(move |request: Request<Body>| {
        let log = Arc::clone(&log);
        async move {
            let (head, body) = request.into_parts();
            let path = head.uri.path().to_owned();
            let answer = if path.ends_with("/resourceclaims/train") {
                json!({
                    "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                    "metadata": {"namespace": "team", "name": "train", "uid": claim_uid}, "spec": {},
                    "status": {"reservedFor": [
                        {"resource": "pods", "name": "pod-1", "uid": "p-1"},
                        {"resource": "jobs", "apiGroup": "batch", "name": "job", "uid": "j-1"},
                        {"resource": "pods", "name": "pod-2", "uid": "p-2"},
                    ]},
                })
            } else {
                let event: Value =
                    serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
                let about = &event["regarding"];
                let words = [
                    &about["kind"],
                    &about["name"],
                    &about["uid"],
                    &event["reason"],
                    &event["type"],
                ];
                let words: Vec<_> = words.iter().map(|word| word.as_str().unwrap_or("?")).collect();
                log.lock().unwrap().push(words.join(" "));
                event
            };
            let body = Body::from(answer.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(200).body(body).unwrap())
        }
    });
    (Client::new(service, "default"), made)
}

async fn tell(claim_uid: &'static str, messages: Vec<Message>) -> Vec<String> {
    let (client, made) = server(claim_uid);
    let (sender, queue) = mpsc::channel(8);
    for message in messages {
        sender.send(message).await.unwrap();
    }
    drop(sender);
    let events = Events::new(client.clone(), "octavo.dev/agent", "node");
    Worker { client, node: "node-1".to_owned(), events, queue }.run().await;
    made.lock().unwrap().clone()
}

fn overflow() -> Message {
    let (namespace, name, uid) = ("team".to_owned(), "train".to_owned(), "u-1".to_owned());
    Message::Pods {
        claim: ClaimRef { namespace, name, uid },
        reason: "MemoryOverflow",
        tone: Tone::Warning,
        note: "too much".to_owned(),
    }
}

#[tokio::test]
async fn events_go_to_every_pod_of_the_claim_only() {
    let made = tell("u-1", vec![overflow()]).await;
    assert_eq!(
        made,
        ["Pod pod-1 p-1 MemoryOverflow Warning", "Pod pod-2 p-2 MemoryOverflow Warning"]
    );
}

#[tokio::test]
async fn pods_of_a_same_named_claim_get_no_events() {
    let reason = "ForeignProcess";
    let foreign = Message::Node { reason, tone: Tone::Warning, note: "who is it".to_owned() };
    let made = tell("u-2", vec![overflow(), foreign]).await;
    assert_eq!(made, ["Node node-1 node-1 ForeignProcess Warning"]);
}
