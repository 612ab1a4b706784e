//! Objects by which another program reboots nodes, against a server.

use std::collections::BTreeMap;

use octavo_api::health_policy::TemplateSpec;
use octavo_health::remedy::Remedy;
use tokio::sync::mpsc;

use super::*;
use crate::health::remediation::OfPolicy;
use crate::shell::health::remediations::{RemediationError, Remediator};

fn wanted(nodes: &[(&str, u64)]) -> OfPolicy {
    OfPolicy {
        name: "h100".to_owned(),
        uid: "p".to_owned(),
        template: TemplateSpec {
            remedies: vec![Remedy::Reboot],
            api_version: "r.example/v1".to_owned(),
            kind: "RestartTemplate".to_owned(),
            namespace: "ops".to_owned(),
            name: "restart".to_owned(),
        },
        is_in_use: true,
        nodes: nodes.iter().map(|(node, attempt)| ((*node).to_owned(), *attempt)).collect(),
        stays: BTreeMap::new(),
    }
}

/// An object of a node, of the policy with a UID.
fn object(node: &str, attempt: &str, owner: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "r.example/v1", "kind": "Restart",
        "metadata": {
            "name": node, "namespace": "ops", "uid": format!("uid-{node}"),
            "labels": {"octavo.dev/remediation": attempt},
            "ownerReferences": [{"apiVersion": "octavo.dev/v1alpha1", "kind": "HealthPolicy", "name": "h100", "uid": owner}],
        },
        "status": status,
    })
}

/// The writes of one pass over objects that exist, as method, path and body. Reads of the template and creations are answered so.
async fn pass(
    wanted: OfPolicy,
    exist: Vec<Value>,
    template: u16,
    create: u16,
) -> (Vec<(String, String, Value)>, Result<usize, RemediationError>) {
    let api = ScriptedApi::new(move |request: &Request| {
        let path = request.uri().path();
        if path == "/apis/r.example/v1" {
            let resource = |plural: &str, kind: &str| json!({"name": plural, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["get", "list", "create", "delete"]});
            let resources =
                [resource("restarts", "Restart"), resource("restarttemplates", "RestartTemplate")];
            return (
                200,
                json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "r.example/v1", "resources": resources}),
            );
        }
        if path.ends_with("/namespaces/ops/restarttemplates/restart") {
            if template != 200 {
                return failure(template, "no");
            }
            return (
                200,
                json!({
                    "apiVersion": "r.example/v1", "kind": "RestartTemplate",
                    "metadata": {"name": "restart", "namespace": "ops"},
                    "spec": {"template": {"spec": {"strategy": "Automatic"}}},
                }),
            );
        }
        match request.method().as_str() {
            "GET" => {
                assert_eq!(request.uri().query(), Some("&labelSelector=octavo.dev%2Fremediation"));
                (
                    200,
                    json!({"apiVersion": "r.example/v1", "kind": "RestartList", "metadata": {}, "items": exist}),
                )
            }
            "POST" if create != 201 => failure(create, "no"),
            "POST" => (201, serde_json::from_slice(request.body()).unwrap()),
            _ => (200, json!({"apiVersion": "v1", "kind": "Status", "status": "Success"})),
        }
    });
    let (findings, _found) = mpsc::channel(8);
    let mut remediator = Remediator::new(api.client(), leader(true), findings);
    let result = remediator.sync(&wanted).await;
    let requests = api.requests();
    let writes = requests.iter().filter(|request| request.method() != "GET");
    let writes = writes.map(|request| {
        let body = serde_json::from_slice(request.body()).unwrap();
        (request.method().to_string(), request.uri().path().to_owned(), body)
    });
    (writes.collect(), result)
}

#[tokio::test]
async fn an_object_has_the_name_of_the_node_and_the_spec_of_the_template() {
    let (writes, result) = pass(wanted(&[("n", 4)]), vec![], 200, 201).await;
    result.unwrap();
    let [(method, path, made)] = writes.as_slice() else { panic!("{writes:?}") };
    assert_eq!((&**method, &**path), ("POST", "/apis/r.example/v1/namespaces/ops/restarts"));
    assert_eq!(
        (&made["kind"], &made["spec"]),
        (&json!("Restart"), &json!({"strategy": "Automatic"}))
    );
    let metadata = &made["metadata"];
    assert_eq!((&metadata["name"], &metadata["namespace"]), (&json!("n"), &json!("ops")));
    assert_eq!(metadata["labels"]["octavo.dev/remediation"], "4");
    let owner = &metadata["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("HealthPolicy"), &json!("p")));
}

#[tokio::test]
async fn there_never_are_two_and_none_stays() {
    let none = &json!({});
    let known = || vec![object("n", "4", "p", none), object("other", "9", "q", none)];
    let (writes, result) = pass(wanted(&[("n", 4)]), known(), 200, 201).await;
    result.unwrap();
    assert_eq!(writes, [], "it exists, also for a controller that just started");
    for nodes in [&[][..], &[("n", 5)]] {
        let (writes, result) = pass(wanted(nodes), known(), 200, 201).await;
        result.unwrap();
        let [(method, path, body)] = writes.as_slice() else { panic!("{writes:?}") };
        assert_eq!(
            (&**method, &**path),
            ("DELETE", "/apis/r.example/v1/namespaces/ops/restarts/n"),
            "the next attempt waits until it is gone"
        );
        assert_eq!(body["preconditions"]["uid"], "uid-n");
    }
}

#[tokio::test]
async fn an_object_stays_and_is_not_made_while_the_agent_of_a_ready_node_has_not_reported() {
    let ready = || OfPolicy { stays: [("n".to_owned(), 4)].into(), ..wanted(&[]) };
    for known in [vec![object("n", "4", "p", &json!({}))], vec![]] {
        let (writes, result) = pass(ready(), known, 200, 201).await;
        result.unwrap();
        assert_eq!(writes, []);
    }
    let (writes, _) = pass(ready(), vec![object("n", "3", "p", &json!({}))], 200, 201).await;
    assert_eq!(writes[0].0, "DELETE", "that of an attempt before");
}

#[tokio::test]
async fn problems_say_what_to_do() {
    let problem = async |exist, template, create| {
        let (_, result) = pass(wanted(&[("n", 4)]), exist, template, create).await;
        result.unwrap_err().to_string()
    };
    let forbidden = problem(vec![], 403, 201).await;
    assert!(
        forbidden.starts_with("cannot get the template RestartTemplate ops/restart"),
        "{forbidden}"
    );
    assert!(forbidden.contains("`health.remediationRules` of the chart"), "{forbidden}");
    let forbidden = problem(vec![], 200, 403).await;
    assert!(forbidden.contains("`health.remediationRules` of the chart"), "{forbidden}");
    let taken = problem(vec![], 200, 409).await;
    assert!(taken.starts_with("Restart ops/n exists, and is not of this policy"), "{taken}");
    let failed =
        json!({"conditions": [{"type": "Succeeded", "status": "False", "message": "no answer"}]});
    let failed = problem(vec![object("n", "4", "p", &failed)], 200, 201).await;
    assert_eq!(failed, "Restart n reports Succeeded=False: no answer");
}

#[tokio::test(start_paused = true)]
async fn what_became_of_objects_is_reported_until_the_rounds_end() {
    let api = ScriptedApi::new(|_: &Request| failure(404, "no such group"));
    let (findings, mut found) = mpsc::channel(1);
    let remediator = Remediator::new(api.client(), leader(true), findings);
    let (all, wanted_all) = watch::channel(BTreeMap::from([("h100".to_owned(), wanted(&[]))]));
    let task = tokio::spawn(remediator.run(wanted_all));
    for _ in 0..2 {
        let Some(Finding::Template(policy, Some((reason, message)))) = found.recv().await else {
            panic!()
        };
        assert_eq!((&*policy, reason), ("h100", "TemplateProblem"));
        assert!(message.starts_with("the kind Restart of r.example/v1 is not served"), "{message}");
    }
    drop((all, found));
    task.await.unwrap();
}

#[tokio::test]
async fn objects_of_a_former_template_are_deleted_without_reading_it() {
    let former = || OfPolicy { is_in_use: false, ..wanted(&[]) };
    let known = vec![object("n", "4", "p", &json!({})), object("other", "9", "q", &json!({}))];
    let (writes, result) = pass(former(), known, 404, 201).await;
    assert_eq!((writes.len(), result.unwrap()), (1, 1), "it is there until it is gone");
    assert_eq!(writes[0].0, "DELETE");
    let (writes, result) =
        pass(former(), vec![object("other", "9", "q", &json!({}))], 404, 201).await;
    assert_eq!((writes.len(), result.unwrap()), (0, 0));
    // A kind that is not served any more has no objects.
    let api = ScriptedApi::new(|_: &Request| failure(404, "no such group"));
    let (findings, mut found) = mpsc::channel(1);
    let remediator = Remediator::new(api.client(), leader(true), findings);
    let (all, wanted_all) = watch::channel(BTreeMap::from([("h100".to_owned(), former())]));
    let task = tokio::spawn(remediator.run(wanted_all));
    let cleared = Finding::Cleared("h100".to_owned(), former().template);
    assert_eq!(found.recv().await, Some(cleared));
    drop((all, found));
    task.await.unwrap();
}
