use octavo_kube_io::events::{EventType, Events};
use octavo_node::ClaimRef;
use octavo_testkit::{Request, ScriptedApi};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Message, Worker};

/// A server with a claim that echoes events.
fn server(claim_uid: &'static str) -> ScriptedApi {
    ScriptedApi::new(move |request| {
        if request.method() == "POST" {
            return (200, event(request));
        }
        assert!(request.uri().path().ends_with("/resourceclaims/train"), "{request:?}");
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"namespace": "team", "name": "train", "uid": claim_uid}, "spec": {},
            "status": {"reservedFor": [
                {"resource": "pods", "name": "pod-1", "uid": "p-1"},
                {"resource": "jobs", "apiGroup": "batch", "name": "job", "uid": "j-1"},
                {"resource": "pods", "name": "pod-2", "uid": "p-2"},
            ]},
        });
        (200, claim)
    })
}

fn event(request: &Request) -> Value {
    serde_json::from_slice(request.body()).unwrap()
}

/// Kind, name and UID of an event's object, reason and type.
fn words(event: &Value) -> String {
    let about = &event["regarding"];
    let words = [&about["kind"], &about["name"], &about["uid"], &event["reason"], &event["type"]];
    words.map(|word| word.as_str().unwrap_or("?")).join(" ")
}

async fn tell(claim_uid: &'static str, messages: Vec<Message>) -> Vec<String> {
    let api = server(claim_uid);
    let client = api.client();
    let (sender, queue) = mpsc::channel(8);
    for message in messages {
        sender.send(message).await.unwrap();
    }
    drop(sender);
    let events = Events::new(client.clone(), "octavo.dev/agent", "node");
    Worker { client, node: "node-1".to_owned(), events, queue }.run().await;
    let requests = api.requests();
    let events = requests.iter().filter(|request| request.method() == "POST");
    events.map(|request| words(&event(request))).collect()
}

fn overflow() -> Message {
    let (namespace, name, uid) = ("team".to_owned(), "train".to_owned(), "u-1".to_owned());
    Message::Pods {
        claim: ClaimRef { namespace, name, uid },
        reason: "MemoryOverflow",
        tone: EventType::Warning,
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
    let foreign = Message::Node { reason, tone: EventType::Warning, note: "who is it".to_owned() };
    let made = tell("u-2", vec![overflow(), foreign]).await;
    assert_eq!(made, ["Node node-1 node-1 ForeignProcess Warning"]);
}
