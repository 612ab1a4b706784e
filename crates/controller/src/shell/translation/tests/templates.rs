use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{Timestamp, ToSpan as _};
use octavo_testkit::{Request, ScriptedApi, failure};
use serde_json::{Value, json};

use crate::shell::translation::templates::{TemplateError, Templates};

const PATH: &str = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaimtemplates/octavo-gpu-1";

fn template() -> Value {
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com",
        "capacity": {"requests": {"memory": "2048Mi"}}}});
    json!({
        "metadata": {"name": "octavo-gpu-1", "namespace": "team", "labels": {"octavo.dev/translated": "true"}},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    })
}

/// The template as it is stored, last used before these minutes.
fn stored(minutes: i64) -> Value {
    let mut stored = template();
    let used = Timestamp::now() - minutes.minutes();
    stored["metadata"]["annotations"] = json!({"octavo.dev/last-used": used.to_string()});
    stored["metadata"]["resourceVersion"] = "7".into();
    stored["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] = 1.into();
    stored["spec"]["spec"]["devices"]["requests"][0]["exactly"]["capacity"] =
        json!({"requests": {"memory": "2Gi"}});
    stored
}

/// Answers in order, and the methods with the bodies of the requests.
async fn ensure(
    answers: Vec<(u16, Value)>,
    is_dry_run: bool,
) -> (Result<(), TemplateError>, Vec<(String, Value)>) {
    let answers = Arc::new(Mutex::new(answers.into_iter()));
    let api = ScriptedApi::new(move |_: &Request| answers.lock().unwrap().next().unwrap());
    let templates = Templates { client: api.client(), keep: Duration::from_hours(1) };
    let result = templates.ensure(&template(), is_dry_run).await;
    let requests = api.requests();
    let read = |it: &Request| {
        assert!(it.uri().path().starts_with(PATH.trim_end_matches("/octavo-gpu-1")));
        (it.method().to_string(), serde_json::from_slice(it.body()).unwrap_or_default())
    };
    (result, requests.iter().map(read).collect())
}

/// A namespace without templates.
fn none() -> (u16, Value) {
    (200, json!({"items": []}))
}

fn methods(requests: &[(String, Value)]) -> Vec<&str> {
    requests.iter().map(|(method, _)| method.as_str()).collect()
}

#[tokio::test]
async fn a_template_is_made_once_with_the_time_of_its_use() {
    let answers = vec![failure(404, "none"), none(), (201, stored(0))];
    let (result, requests) = ensure(answers, false).await;
    result.unwrap();
    assert_eq!(methods(&requests), ["GET", "GET", "POST"]);
    let used = requests[2].1["metadata"]["annotations"]["octavo.dev/last-used"].as_str().unwrap();
    used.parse::<Timestamp>().unwrap();

    let (result, requests) = ensure(vec![(200, stored(29))], false).await;
    result.unwrap();
    assert_eq!(methods(&requests), ["GET"]);
}

#[tokio::test]
async fn the_time_of_an_old_template_is_renewed_for_the_version_that_was_seen() {
    let (result, requests) = ensure(vec![(200, stored(31)), (200, stored(0))], false).await;
    result.unwrap();
    assert_eq!(methods(&requests), ["GET", "PATCH"]);
    assert_eq!(requests[1].1["metadata"]["resourceVersion"], "7");

    // The collector deletes it in between: it is made again.
    let answers = vec![
        (200, stored(61)),
        failure(404, "gone"),
        failure(404, "gone"),
        none(),
        (201, stored(0)),
    ];
    let (result, requests) = ensure(answers, false).await;
    result.unwrap();
    assert_eq!(methods(&requests), ["GET", "PATCH", "GET", "GET", "POST"]);
}

#[tokio::test]
async fn another_replica_may_be_faster() {
    let answers = vec![failure(404, "none"), none(), failure(409, "exists"), (200, stored(0))];
    let (result, requests) = ensure(answers, false).await;
    result.unwrap();
    assert_eq!(methods(&requests), ["GET", "GET", "POST", "GET"]);
}

#[tokio::test]
async fn a_template_of_another_owner_or_spec_is_refused_by_name() {
    let mut unlabelled = stored(0);
    unlabelled["metadata"]["labels"] = json!({});
    let mut other = stored(0);
    other["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2.into();
    for (found, why) in [(unlabelled, "is another owner's"), (other, "has another spec")] {
        for is_dry_run in [false, true] {
            let (result, _) = ensure(vec![(200, found.clone())], is_dry_run).await;
            let text = result.unwrap_err().to_string();
            assert!(text.contains("team/octavo-gpu-1") && text.contains(why), "{text}");
        }
    }
}

#[tokio::test]
async fn a_dry_run_writes_nothing() {
    for answer in [failure(404, "none"), (200, stored(61))] {
        let (result, requests) = ensure(vec![answer], true).await;
        result.unwrap();
        assert_eq!(methods(&requests), ["GET"]);
    }
}

#[tokio::test]
async fn what_cannot_be_made_is_named() {
    let (result, _) =
        ensure(vec![failure(404, "none"), none(), failure(403, "the namespace ends")], false).await;
    let text = result.unwrap_err().to_string();
    assert!(text.contains("octavo-gpu-1") && text.contains("the namespace ends"), "{text}");
    for (code, reason) in [
        (400, Some("TemplateRefused")),
        (403, Some("TemplateRefused")),
        (413, Some("TemplateRefused")),
        (422, Some("TemplateRefused")),
        (401, None),
        (429, None),
        (500, None),
        (503, None),
    ] {
        let answers = vec![failure(404, "none"), none(), failure(code, "no")];
        assert_eq!(ensure(answers, false).await.0.unwrap_err().reason(), reason, "{code}");
    }
    let mut ending = stored(0);
    ending["metadata"]["deletionTimestamp"] = "2028-01-01T00:00:00Z".into();
    let (result, _) = ensure(vec![(200, ending)], false).await;
    assert!(matches!(result, Err(TemplateError::Changing(_))), "{result:?}");
}

#[tokio::test]
async fn an_older_api_server_and_a_full_namespace_are_refused() {
    let mut without_amounts = stored(0);
    without_amounts["spec"]["spec"]["devices"]["requests"][0]["exactly"]
        .as_object_mut()
        .unwrap()
        .remove("capacity");
    let answers = vec![failure(404, "none"), none(), (201, without_amounts)];
    let error = ensure(answers, false).await.0.unwrap_err();
    assert!(error.to_string().contains("need Kubernetes 1.36"), "{error}");
    assert_eq!(error.reason(), Some("NotStored"));

    let full = json!({"items": vec![json!({}); 200]});
    let (result, requests) = ensure(vec![failure(404, "none"), (200, full)], false).await;
    assert_eq!(result.unwrap_err().reason(), Some("TooManyTemplates"));
    assert_eq!(methods(&requests), ["GET", "GET"]);
}
