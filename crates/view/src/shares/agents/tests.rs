use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use octavo_testkit::ScriptedApi;
use serde_json::{Value, json};

use super::{AgentAddress, read};

const PODS: &str = "/api/v1/pods";

/// A server that responds to a path with a status and a text.
fn server(answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> ScriptedApi {
    ScriptedApi::new(move |request| answer(request.uri().path()))
}

fn pod(name: &str, node: &str, port: &str) -> Value {
    json!({
        "metadata": {"namespace": "octavo", "name": name},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "agent", "ports": [{"name": port, "containerPort": 9178}]}],
        },
    })
}

fn metrics(node: &str, claim: &str) -> String {
    format!(
        "octavo_agent_share_memory_limit_bytes{{node=\"{node}\",namespace=\"a\",claim=\"{claim}\",share=\"s\"}} 5\n"
    )
}

fn nodes(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn agents_are_read_through_the_proxy_on_nodes_with_shares() {
    let api = server(|path| match path {
        PODS => {
            let items = [
                pod("new", "n-1", "admin"),
                pod("old", "n-1", "admin"),
                pod("sick", "n-2", "admin"),
                pod("other", "n-4", "admin"),
                pod("portless", "n-3", "web"),
            ];
            (200, json!({"metadata": {}, "items": items}).to_string())
        }
        path if path.contains("/new:") => (200, String::new()),
        path if path.contains("/old:") => (200, metrics("n-1", "train")),
        _ => (503, "no".to_owned()),
    });
    let readings = read(&api.client(), &nodes(&["n-1", "n-2", "n-3"]), &[]).await.unwrap();
    assert_eq!(
        readings.figures.keys().map(|key| key.claim.as_str()).collect::<Vec<_>>(),
        ["train"]
    );
    let unread: Vec<_> = readings.unread.iter().map(|unread| unread.node.as_str()).collect();
    assert_eq!(unread, ["n-2", "n-3"]);
    assert!(readings.unread[0].message.contains("octavo/sick"), "{}", readings.unread[0].message);
    assert!(readings.unread[1].message.contains("--agent"), "{}", readings.unread[1].message);
    let asked = api.uris();
    assert!(asked[0].contains("labelSelector"), "{asked:?}");
    assert!(asked.contains(&"/api/v1/namespaces/octavo/pods/old:9178/proxy/metrics".to_owned()));
    assert!(!asked.iter().any(|path| path.contains("/other:")), "{asked:?}");
}

#[tokio::test]
async fn a_cluster_without_shares_needs_no_agent() {
    let api = server(|_| (500, String::new()));
    let readings = read(&api.client(), &nodes(&[]), &[]).await.unwrap();
    assert!(readings.figures.is_empty() && readings.unread.is_empty());
    assert!(api.uris().is_empty());
}

#[tokio::test]
async fn an_agent_that_is_no_pod_is_read_directly() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0; 4096];
        let length = stream.read(&mut asked).unwrap();
        let body = metrics("n-1", "train");
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        String::from_utf8_lossy(&asked[..length]).into_owned()
    });
    let api = server(|_| (500, String::new()));
    let agent: AgentAddress = address.to_string().parse().unwrap();
    let gone: AgentAddress = "http://127.0.0.1:1".parse().unwrap();
    let readings = read(&api.client(), &nodes(&["n-1"]), &[agent, gone]).await.unwrap();
    assert_eq!(readings.figures.len(), 1);
    assert_eq!(readings.unread.len(), 1);
    assert!(readings.unread[0].message.contains("127.0.0.1:1"), "{}", readings.unread[0].message);
    assert!(serving.join().unwrap().starts_with("GET /metrics HTTP/1.1"));
    assert!(api.uris().is_empty(), "the API server is not asked");
}

#[test]
fn an_address_has_a_port() {
    for text in ["localhost:9178", "http://10.0.0.1:80", "[::1]:9178"] {
        assert!(text.parse::<AgentAddress>().is_ok(), "{text}");
    }
    for text in ["", "localhost", "https://a:1", ":9178", "a b:1", "http://a"] {
        assert!(text.parse::<AgentAddress>().is_err(), "{text}");
    }
}
