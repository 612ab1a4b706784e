//! Members of gangs on a lost node, against a server.

use super::*;
use crate::health::lost_nodes::{LostMembers, LostNode};
use crate::shell::health::departures::Next;

/// A look at a lost node with a member of a gang and another pod. Returns when the next one is, the writes, and what was found.
async fn look(is_evicted: bool, now: i64) -> (Next, Vec<String>, Finding) {
    let lost = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]);
    look_at_node(200, lost, is_evicted, now).await
}

/// The same of a node with these taints, or that cannot be read.
async fn look_at_node(
    code: u16,
    taints: Value,
    is_evicted: bool,
    now: i64,
) -> (Next, Vec<String>, Finding) {
    let api = ScriptedApi::new(move |request: &Request| {
        let path = request.uri().path();
        if path.ends_with("/nodes/n") {
            if code != 200 {
                return failure(code, "no");
            }
            return (200, json!({"metadata": {"name": "n"}, "spec": {"taints": taints}}));
        }
        if path.ends_with("/nodehealths/n") {
            return failure(404, "no agent");
        }
        let pod = |name: &str, labels: Value| {
            json!({
                "metadata": {"name": name, "namespace": "team", "uid": name, "labels": labels},
                "spec": {"containers": [], "schedulerName": "octavo"}, "status": {"phase": "Running"},
            })
        };
        if path.ends_with("/pods") {
            let items = json!([
                pod("member", json!({"octavo.dev/pod-group": "g"})),
                pod("alone", json!({}))
            ]);
            return (200, pod_list(&json!(items)));
        }
        if path.contains("/events") {
            return (201, serde_json::from_slice(request.body()).unwrap());
        }
        if path.ends_with("/status") {
            let patch: Value = serde_json::from_slice(request.body()).unwrap();
            assert_eq!(patch["status"]["conditions"][0]["reason"], "NodeLost");
            return (200, pod("member", json!({})));
        }
        (200, json!({"apiVersion": "v1", "kind": "Status", "status": "Success"}))
    });
    let lost = LostNode {
        since: u64::try_from(NOW).unwrap(),
        after: 60,
        scheduler: "octavo".to_owned(),
        is_evicted,
    };
    let departures = Departures { lost: Some(lost), ..Departures::default() };
    let (reader, mut found) = reader(&api, true);
    let now = Timestamp::from_second(now).unwrap();
    let next = reader.look("n", &departures, now).await.unwrap();
    let found = found.recv().await.unwrap();
    let requests = api.requests();
    let writes = requests.iter().filter(|request| request.method() != "GET");
    let writes = writes.map(|request| format!("{} {}", request.method(), request.uri().path()));
    let writes = writes.filter(|write| !write.contains("/events")).collect();
    (next, writes, found)
}

#[tokio::test]
async fn members_of_a_lost_node_are_counted_and_deleted_in_their_turn() {
    let members = |due| {
        let members = LostMembers { due, leaving_since: None };
        Finding::Lost("n".to_owned(), members)
    };
    let (next, writes, found) = look(true, NOW + 59).await;
    let due = u64::try_from(NOW + 60).unwrap();
    assert_eq!((next, writes.len(), found), (Next::By(due), 0, members(0)), "not yet");
    let (next, writes, found) = look(false, NOW + 60).await;
    assert_eq!((next, writes.len(), found), (Next::Soon, 0, members(1)), "not its turn");
    let (_, writes, _) = look(true, NOW + 60).await;
    let pod = "/api/v1/namespaces/team/pods/member";
    assert_eq!(writes, [format!("PATCH {pod}/status"), format!("DELETE {pod}")]);
}

#[tokio::test]
async fn a_node_that_is_back_or_gone_keeps_its_members() {
    for code in [200, 404] {
        let (_, writes, found) = look_at_node(code, json!([]), true, NOW + 60).await;
        assert_eq!(writes, Vec::<String>::new());
        let members = LostMembers { due: 1, leaving_since: None };
        assert_eq!(found, Finding::Lost("n".to_owned(), members));
    }
}
