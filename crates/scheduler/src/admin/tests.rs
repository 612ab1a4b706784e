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
async fn questions_reach_who_decides_and_answers_come_back() {
    let (questions, mut receiver) = questions();
    let deciding = tokio::spawn(async move {
        while let Some(question) = receiver.recv().await {
            match question {
                AdminQuestion::Explain { subject, name, answer } if *name.name == *"p" => {
                    answer.give(Ok(
                        json!({"subject": format!("{subject:?}"), "of": name.to_string()}),
                    ));
                }
                AdminQuestion::Explain { name, answer, .. } => {
                    answer.give(Err(Unknown(format!("there is no pod {name}"))));
                }
                AdminQuestion::Record { subject, name, answer } => {
                    answer.give(Ok(json!({"record": format!("{subject:?} {name}")})));
                }
                AdminQuestion::Snapshot { answer } => answer.give(Ok(json!({"nodes": []}))),
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
async fn a_question_that_is_none_says_how_to_ask() {
    let (questions, _receiver) = questions();
    for query in ["", "?", "?pod", "?pod=", "?pod=name", "?pod=/name", "?pod=a/", "?node=a/b"] {
        let (status, body) = ask(&questions, &format!("/explain{query}")).await;
        assert_eq!(status, 400, "{query}");
        assert!(body.contains("NAMESPACE/NAME"), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_ever() {
    let (questions, receiver) = questions();
    assert_eq!(ask(&questions, "/snapshot").await.0, 504);
    // Those who gave up are still in the queue.
    for _ in 1..QUESTIONS {
        let questions = questions.clone();
        tokio::spawn(async move { ask(&questions, "/snapshot").await });
    }
    tokio::task::yield_now().await;
    assert_eq!(ask(&questions, "/snapshot").await.0, 503);
    drop(receiver);
    assert_eq!(ask(&questions, "/snapshot").await.0, 503);
}
