use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use tower::ServiceExt as _;

use super::*;

async fn ask(questions: &Questions, path: &str) -> (u16, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let answer = routes(questions.clone()).oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn questions_reach_the_decision_thread_and_are_answered() {
    let (questions, mut receiver) = questions();
    let deciding = tokio::spawn(async move {
        while let Some(question) = receiver.recv().await {
            match question {
                AdminQuestion::Explain { subject, name, answer } if *name.name == *"p" => {
                    let report = json!({"subject": format!("{subject:?}"), "of": name.to_string()});
                    answer.send(Ok((report, false)));
                }
                AdminQuestion::Explain { name, answer, .. } => {
                    answer.send(Err(NotFound(format!("there is no pod {name}"))));
                }
                AdminQuestion::Record { subject, name, answer } => {
                    answer.send(Ok(json!({"record": format!("{subject:?} {name}")})));
                }
                AdminQuestion::Snapshot { answer } => answer.send(Ok(json!({"nodes": []}))),
                AdminQuestion::Search { .. } | AdminQuestion::Found { .. } => {
                    panic!("nothing is open")
                }
            }
        }
    });
    let expected = json!({"subject": "Pod", "of": "team/p"}).to_string();
    assert_eq!(ask(&questions, "/explain?pod=team/p").await, (200, expected.clone()));
    assert_eq!(ask(&questions, "/explain?pod=team%2Fp").await, (200, expected));
    let (status, body) = ask(&questions, "/explain?podgroup=team/p").await;
    assert!(status == 200 && body.contains("PodGroup"), "{body}");
    let (status, body) = ask(&questions, "/explain?pod=team/other").await;
    assert_eq!((status, body.as_str()), (404, "there is no pod team/other\n"));
    assert_eq!(ask(&questions, "/snapshot").await, (200, "{\"nodes\":[]}".to_owned()));
    let recorded = ask(&questions, "/snapshot?podgroup=team/g").await;
    assert_eq!(recorded, (200, "{\"record\":\"PodGroup team/g\"}".to_owned()));
    let recorded = ask(&questions, "/snapshot?pod=team/p").await;
    assert_eq!(recorded, (200, "{\"record\":\"Pod team/p\"}".to_owned()));
    assert_eq!(ask(&questions, "/snapshot?node=a/b").await.0, 400);
    drop(questions);
    deciding.await.unwrap();
}

#[tokio::test]
async fn malformed_queries_get_a_usage_message() {
    let (questions, _receiver) = questions();
    for query in ["", "?", "?pod", "?pod=", "?pod=name", "?pod=/name", "?pod=a/", "?node=a/b"] {
        let (status, body) = ask(&questions, &format!("/explain{query}")).await;
        assert_eq!(status, 400, "{query}");
        assert!(body.contains("NAMESPACE/NAME"), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn queries_time_out() {
    let (questions, receiver) = questions();
    assert_eq!(ask(&questions, "/snapshot").await.0, 504);
    // Queries that timed out are still queued.
    for _ in 1..MAX_QUEUED_QUESTIONS {
        let questions = questions.clone();
        tokio::spawn(async move { ask(&questions, "/snapshot").await });
    }
    tokio::task::yield_now().await;
    assert_eq!(ask(&questions, "/snapshot").await.0, 503);
    drop(receiver);
    assert_eq!(ask(&questions, "/snapshot").await.0, 503);
}

/// Answers the next query, which must be an explanation, with this report.
async fn answer_one(receiver: &mut mpsc::Receiver<AdminQuestion>, report: (Value, bool)) {
    match receiver.recv().await.unwrap() {
        AdminQuestion::Explain { answer, .. } => answer.send(Ok(report)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn searches_run_one_at_a_time_and_late_clients_get_a_partial_answer() {
    let (questions, mut receiver) = questions();
    let asker = |questions: &Questions| {
        let questions = questions.clone();
        tokio::spawn(async move { ask(&questions, "/explain?pod=team/p").await })
    };
    let first = asker(&questions);
    answer_one(&mut receiver, (json!({"n": 1}), true)).await;
    let Some(AdminQuestion::Search { answer: searching, .. }) = receiver.recv().await else {
        panic!("the result is unknown, so a search is needed");
    };
    let second = asker(&questions);
    answer_one(&mut receiver, (json!({"n": 2}), true)).await;
    // Only the second client's wait passes time. It asks for no search meanwhile.
    let (status, body) = second.await.unwrap();
    assert!(receiver.try_recv().is_err());
    assert!(status == 200 && body.contains("no search for victims was started"), "{body}");
    // A result that others found meanwhile needs no further search.
    searching.send(Ok(None));
    answer_one(&mut receiver, (json!({"n": 3}), false)).await;
    assert_eq!(first.await.unwrap(), (200, "{\"n\":3}".to_owned()));
    // After the interval the next client may search.
    let begin = tokio::time::Instant::now();
    let third = asker(&questions);
    answer_one(&mut receiver, (json!({"n": 4}), true)).await;
    let Some(AdminQuestion::Search { answer, .. }) = receiver.recv().await else {
        panic!("the result is unknown, so a search is needed");
    };
    assert!(begin.elapsed() >= SEARCH_INTERVAL);
    answer.send(Ok(None));
    answer_one(&mut receiver, (json!({"n": 5}), false)).await;
    assert_eq!(third.await.unwrap().0, 200);
}

fn asker(questions: &Questions) -> tokio::task::JoinHandle<(u16, String)> {
    let questions = questions.clone();
    tokio::spawn(async move { ask(&questions, "/explain?pod=team/p").await })
}

/// Takes the next query, which must ask for a search.
async fn next_search(receiver: &mut mpsc::Receiver<AdminQuestion>) -> Reply<Option<HintSearch>> {
    match receiver.recv().await.unwrap() {
        AdminQuestion::Search { answer, .. } => answer,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn answer_says_when_no_search_was_possible() {
    let (questions, mut receiver) = questions();
    let asked = asker(&questions);
    answer_one(&mut receiver, (json!({"n": 1}), true)).await;
    next_search(&mut receiver).await.send(Ok(None));
    answer_one(&mut receiver, (json!({"n": 2}), true)).await;
    let (status, body) = asked.await.unwrap();
    assert!(status == 200 && body.contains("\"n\":2"), "{body}");
    assert!(body.contains("no search for victims was possible"), "{body}");
}

#[tokio::test(start_paused = true)]
async fn first_answer_is_used_when_none_follows_the_search() {
    let (questions, mut receiver) = questions();
    let asked = asker(&questions);
    answer_one(&mut receiver, (json!({"n": 1}), true)).await;
    next_search(&mut receiver).await.send(Ok(None));
    // The decision thread takes too long to answer.
    let _kept = receiver.recv().await.unwrap();
    let (status, body) = asked.await.unwrap();
    assert!(status == 200 && body.contains("\"n\":1"), "{body}");
    assert!(body.contains("disturbanceNote"), "{body}");
    // A pod that is gone meanwhile is not found.
    let asked = asker(&questions);
    answer_one(&mut receiver, (json!({"n": 1}), true)).await;
    next_search(&mut receiver).await.send(Ok(None));
    match receiver.recv().await.unwrap() {
        AdminQuestion::Explain { answer, .. } => answer.send(Err(NotFound("gone".to_owned()))),
        other => panic!("{other:?}"),
    }
    assert_eq!(asked.await.unwrap().0, 404);
}

#[tokio::test(start_paused = true)]
async fn search_interval_holds_after_disconnects_and_errors() {
    let (questions, mut receiver) = questions();
    for hangs_up in [true, false] {
        let asked = asker(&questions);
        answer_one(&mut receiver, (json!({"n": 1}), true)).await;
        let answer = next_search(&mut receiver).await;
        if hangs_up {
            asked.abort();
        } else {
            answer.send(Err(NotFound("gone".to_owned())));
        }
        let _ = asked.await;
        let begin = tokio::time::Instant::now();
        let next = asker(&questions);
        answer_one(&mut receiver, (json!({"n": 2}), true)).await;
        let answer = next_search(&mut receiver).await;
        assert!(begin.elapsed() >= SEARCH_INTERVAL, "hangs up: {hangs_up}");
        answer.send(Ok(None));
        answer_one(&mut receiver, (json!({"n": 3}), false)).await;
        assert_eq!(next.await.unwrap().0, 200);
    }
}

#[tokio::test]
async fn search_result_is_in_the_answer() {
    use crate::state::{Scheduler, SchedulerConfig};
    use octavo_kube_io::objects::{Change, Delta, Node, Pod};
    let (questions, mut receiver) = questions();
    let mut scheduler = Scheduler::new(SchedulerConfig::default());
    let node = json!({"metadata": {"name": "a", "uid": "a"}, "status": {
        "allocatable": {"cpu": "4", "memory": "1Gi", "pods": "9"},
        "conditions": [{"type": "Ready", "status": "True"}]}});
    scheduler.apply(&Change::Node(Delta::Upsert(Arc::new(Node::from_value(node).unwrap()))));
    for (name, on) in [("old", Some("a")), ("p", None)] {
        let pod = json!({"metadata": {"name": name, "namespace": "team", "uid": name},
            "spec": {"schedulerName": "octavo", "nodeName": on,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}});
        scheduler.apply(&Change::Pod(Delta::Upsert(Arc::new(Pod::from_value(pod).unwrap()))));
    }
    while scheduler.decide() {}
    let deciding = tokio::spawn(async move {
        let mut found_on = Vec::new();
        while let Some(question) = receiver.recv().await {
            if let AdminQuestion::Found { found, .. } = &question {
                found_on.push(format!("{found:?}"));
            }
            crate::event_loop::answer(&mut scheduler, question);
        }
        found_on.len()
    });
    let (status, body) = ask(&questions, "/explain?pod=team/p").await;
    assert_eq!(status, 200);
    let report: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(report["disturbance"]["evictions"][0]["name"], "pod team/old", "{body}");
    assert_eq!(ask(&questions, "/explain?pod=team/p").await, (200, body), "it is kept");
    drop(questions);
    assert_eq!(deciding.await.unwrap(), 1, "one search");
}
