//! Pods that are asked: real processes, a server on the loopback, folders of volumes.

mod fixtures;

use std::time::Duration;

use octavo_api::checkpoint::CheckpointOutcome::{Failed, Running, Saved, TimedOut};
use octavo_api::checkpoint::{Checkpoint, Hook};
use serde_json::{Value, json};

use fixtures::{Node, Server, Trainer, report, request};

/// A UID as pods have it, which their cgroups name.
const POD: &str = "11111111-2222-3333-4444-555555555555";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_gets_its_signal_once_and_its_end_is_the_answer() {
    let node = Node::new();
    let mut trainer = Trainer::start(&node, POD, "abc");
    let mut hooks = node.hooks();
    let asked = request(POD, 60, &json!({"signal": {"containerID": "abc", "signal": "SIGUSR1"}}));
    hooks.set_requests(std::slice::from_ref(&asked));
    trainer.has_signals(1);
    // The controller writes its object for other reasons, too.
    hooks.set_requests(std::slice::from_ref(&asked));
    assert_eq!(report(&hooks, POD).unwrap().outcome, Running);
    // Another agent waits on.
    node.leave(hooks).await;
    let mut hooks = node.hooks();
    hooks.set_requests(std::slice::from_ref(&asked));
    trainer.end();
    let report = node.end(&hooks, POD).await;
    assert_eq!((report.outcome, &report.message), (Saved, &None));
    trainer.has_signals(1);
    // The outcome outlives the agent, too.
    node.leave(hooks).await;
    let mut hooks = node.hooks();
    hooks.set_requests(&[asked]);
    assert_eq!(node.end(&hooks, POD).await, report);
    let metrics = node.metrics();
    let count = r#"octavo_agent_checkpoint_seconds_count{hook="signal",outcome="Saved"} 1"#;
    assert!(metrics.contains(count), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_ended_while_no_agent_was_there_has_saved() {
    let node = Node::new();
    let mut trainer = Trainer::start(&node, POD, "abc");
    let asked = request(POD, 60, &json!({"signal": {"containerID": "abc", "signal": "SIGUSR1"}}));
    let mut hooks = node.hooks();
    hooks.set_requests(std::slice::from_ref(&asked));
    trainer.has_signals(1);
    node.leave(hooks).await;
    trainer.end();
    trainer.reap();
    let mut hooks = node.hooks();
    hooks.set_requests(std::slice::from_ref(&asked));
    assert_eq!(node.end(&hooks, POD).await.outcome, Saved);
    // In another boot the process may be any.
    let mut node = Node::new();
    let _trainer = Trainer::start(&node, POD, "abc");
    let mut hooks = node.hooks();
    hooks.set_requests(std::slice::from_ref(&asked));
    node.is_recorded(POD).await;
    node.leave(hooks).await;
    node.boot_id = "another".to_owned();
    let mut hooks = node.hooks();
    hooks.set_requests(&[asked]);
    let report = node.end(&hooks, POD).await;
    assert_eq!(report.outcome, Failed);
    assert!(report.message.unwrap().contains("the node started again"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_of_a_post_is_the_answer() {
    let node = Node::new();
    let mut hooks = node.hooks();
    let answers = [
        ("u-200", "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\nendless", Saved, ""),
        ("u-302", "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\r\n", Failed, "302"),
        ("u-500", "HTTP/1.1 500 Oops\r\n\r\n", Failed, "500"),
        ("u-not", "220 mail.example ESMTP\r\n", Failed, "has no answer"),
        ("u-end", "", Failed, "has no answer"),
    ];
    let mut requests = Vec::new();
    let mut servers = Vec::new();
    for (uid, answer, ..) in &answers {
        node.pod(uid);
        let server = Server::start(Some(answer)).await;
        requests.push(request(uid, 60, &json!({"url": server.url()})));
        servers.push(server);
    }
    requests.push(request("u-gone", 60, &json!({"url": servers[0].url()})));
    node.pod("u-closed");
    requests.push(request("u-closed", 60, &json!({"url": "http://127.0.0.1:1/"})));
    hooks.set_requests(&requests);
    for (uid, _, outcome, message) in answers {
        let report = node.end(&hooks, uid).await;
        assert_eq!(report.outcome, outcome, "{uid}: {:?}", report.message);
        assert!(report.message.unwrap_or_default().contains(message), "{uid}");
    }
    let gone = node.end(&hooks, "u-gone").await;
    assert!(gone.message.unwrap().contains("the pod is not on this node"));
    let closed = node.end(&hooks, "u-closed").await;
    assert!(closed.message.unwrap().contains("does not accept a connection"));
    for server in &servers {
        assert_eq!(server.posts(), ["POST /save?all=1 HTTP/1.1"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_post_whose_answer_was_lost_with_the_agent_is_not_repeated() {
    let node = Node::new();
    node.pod("u-1");
    let server = Server::start(None).await;
    let asked = request("u-1", 60, &json!({"url": server.url()}));
    let mut hooks = node.hooks();
    hooks.set_requests(std::slice::from_ref(&asked));
    server.has_posts(1).await;
    node.leave(hooks).await;
    let mut hooks = node.hooks();
    hooks.set_requests(&[asked]);
    let report = node.end(&hooks, "u-1").await;
    assert_eq!(report.outcome, Failed);
    assert!(report.message.unwrap().contains("the outcome is not known"));
    assert_eq!(server.posts().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_the_pod_removes_is_the_answer_and_one_that_is_left_is_removed() {
    let node = Node::new();
    let (fast, slow) = (node.volume("u-fast", "control"), node.volume("u-slow", "control"));
    std::fs::write(node.volume("u-there", "control").join("save"), "of the pod").unwrap();
    let asked = |uid, seconds| {
        request(uid, seconds, &json!({"file": {"volume": "control", "path": "save"}}))
    };
    let mut hooks = node.hooks();
    let requests = [asked("u-fast", 60), asked("u-slow", 1), asked("u-there", 60)];
    hooks.set_requests(&requests);
    node.appears(&fast.join("save")).await;
    // Another agent waits on, though the program was faster.
    node.leave(hooks).await;
    std::fs::remove_file(fast.join("save")).unwrap();
    let mut hooks = node.hooks();
    hooks.set_requests(&requests);
    assert_eq!(node.end(&hooks, "u-fast").await.outcome, Saved);
    let report = node.end(&hooks, "u-slow").await;
    assert_eq!((report.outcome, slow.join("save").exists()), (TimedOut, false));
    assert!(report.milliseconds >= 1_000);
    assert!(report.message.unwrap().contains("within 1 s"));
    let report = node.end(&hooks, "u-there").await;
    assert!(report.message.unwrap().contains("is there already"));
    // It is the pod's: another agent must not remove it.
    node.is_forgotten("u-there").await;
    hooks.set_requests(&[]);
    node.is_forgotten("u-fast").await;
    assert!(node.volume("u-there", "control").join("save").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_leaves_ends_the_wait_and_the_report() {
    let node = Node::new();
    let file = node.volume("u-1", "control").join("save");
    let asked = request("u-1", 60, &json!({"file": {"volume": "control", "path": "save"}}));
    let mut hooks = node.hooks();
    for _ in 0..2 {
        hooks.set_requests(std::slice::from_ref(&asked));
        node.appears(&file).await;
        hooks.set_requests(&[]);
        assert_eq!(report(&hooks, "u-1"), None);
        node.is_forgotten("u-1").await;
        assert!(!file.exists());
    }
    // One that left while no agent was there.
    hooks.set_requests(std::slice::from_ref(&asked));
    node.appears(&file).await;
    node.is_recorded("u-1").await;
    node.leave(hooks).await;
    let mut hooks = node.hooks();
    hooks.set_requests(&[]);
    node.is_forgotten("u-1").await;
    assert!(!file.exists());
    // One that is back at once is asked again, after the former wait has ended.
    hooks.set_requests(std::slice::from_ref(&asked));
    node.appears(&file).await;
    hooks.set_requests(&[]);
    hooks.set_requests(&[asked]);
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(file.exists());
    assert_eq!(report(&hooks, "u-1").unwrap().outcome, Running);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_request_for_the_same_pod_asks_it_again() {
    let node = Node::new();
    let file = node.volume("u-1", "control").join("save");
    let mut asked = request("u-1", 60, &json!({"file": {"volume": "control", "path": "save"}}));
    let mut hooks = node.hooks();
    // The agent saw no time without a request, with and without another agent between the two.
    for (since, is_another) in [("1", false), ("2", false), ("3", true)] {
        asked["since"] = json!(since);
        if is_another {
            node.leave(hooks).await;
            hooks = node.hooks();
        }
        hooks.set_requests(std::slice::from_ref(&asked));
        node.appears(&file).await;
        let running = report(&hooks, "u-1").unwrap();
        assert_eq!((&*running.since, running.outcome), (since, Running));
        std::fs::remove_file(&file).unwrap();
        let saved = node.end(&hooks, "u-1").await;
        assert_eq!((&*saved.since, saved.outcome), (since, Saved));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_do_not_answer_are_in_nothing_s_way() {
    let node = Node::new();
    let server = Server::start(None).await;
    let mut requests = Vec::new();
    for number in 0..100 {
        let (posts, files) = (format!("u-post-{number}"), format!("u-file-{number}"));
        node.pod(&posts);
        requests.push(request(&posts, 60, &json!({"url": server.url()})));
        node.volume(&files, "control");
        let file = json!({"file": {"volume": "control", "path": "save"}});
        requests.push(request(&files, 60, &file));
    }
    let mut hooks = node.hooks();
    hooks.set_requests(&requests);
    server.has_posts(100).await;
    let last = node.volume("u-last", "control").join("save");
    requests.push(request("u-last", 60, &json!({"file": {"volume": "control", "path": "save"}})));
    hooks.set_requests(&requests);
    node.appears(&last).await;
    std::fs::remove_file(last).unwrap();
    assert_eq!(node.end(&hooks, "u-last").await.outcome, Saved);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_carried_out_fails_with_the_reason() {
    let node = Node::new();
    node.pod("u-volume");
    let mut hooks = node.hooks();
    let no_container = json!({"signal": {"containerID": "abc", "signal": "SIGUSR1"}});
    hooks.set_requests(&[
        request("u-exec", 60, &json!({"exec": {}})),
        request("u-signal", 60, &no_container),
        request("u-volume", 60, &json!({"file": {"volume": "none", "path": "save"}})),
        request("../../etc", 60, &json!({"file": {"volume": "none", "path": "save"}})),
        json!(["not", "one"]),
    ]);
    for (uid, why) in [
        ("u-exec", "exec: this agent does not know it"),
        ("u-signal", "container abc has no process"),
        ("u-volume", "the pod has no volume none"),
        ("../../etc", "uid: "),
    ] {
        let report = node.end(&hooks, uid).await;
        assert_eq!(report.outcome, Failed);
        let message = report.message.unwrap();
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn the_example_asks_by_a_file() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/health/checkpoint.yaml");
    let job: Value = serde_saphyr::from_str(&std::fs::read_to_string(example).unwrap()).unwrap();
    let annotations = &job["spec"]["template"]["metadata"]["annotations"];
    let asked = Checkpoint::of(&serde_json::from_value(annotations.clone()).unwrap());
    let hook = Hook::File { volume: "control".to_owned(), path: "checkpoint".to_owned() };
    assert_eq!(asked, Ok(Some(Checkpoint { hook, deadline_seconds: 120 })));
}
