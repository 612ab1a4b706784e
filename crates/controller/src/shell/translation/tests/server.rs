use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use octavo_migration::Models;
use octavo_testkit::{Request as ApiRequest, ScriptedApi, failure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::metrics;
use crate::shell::translation::identity::Identity;
use crate::shell::translation::server::{self, Webhook};
use crate::shell::translation::templates::Templates;
use crate::translation::authority::{Certificates, Step, step};
use crate::translation::review::{Answer, Request};

fn webhook(api: &ScriptedApi, models: Option<Models>) -> Webhook {
    Webhook {
        templates: Templates { client: api.client(), keep: Duration::from_hours(1) },
        models: watch::channel(models).1,
        scheduler_name: None,
        metrics: metrics(),
    }
}

fn question(annotations: &Value) -> Value {
    let pod = json!({"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": [{"name": "main"}]}});
    json!({"uid": "u", "namespace": "team", "object": pod})
}

fn request(annotations: &Value) -> Request {
    serde_json::from_value(question(annotations)).unwrap()
}

/// There is no template.
fn read(request: &ApiRequest) -> (u16, Value) {
    if request.uri().query().is_some() { (200, json!({"items": []})) } else { failure(404, "none") }
}

fn refusing(code: u16) -> ScriptedApi {
    ScriptedApi::new(move |request: &ApiRequest| {
        if request.method() == "GET" { read(request) } else { failure(code, "not allowed") }
    })
}

fn empty() -> ScriptedApi {
    ScriptedApi::new(|request: &ApiRequest| {
        if request.method() == "GET" {
            return read(request);
        }
        (201, serde_json::from_slice(request.body()).unwrap())
    })
}

#[tokio::test]
async fn a_pod_is_admitted_after_its_template_was_made() {
    let memory = request(&json!({"gpu-memory": "1000"}));
    let api = empty();
    let answer = webhook(&api, Some(Models::default())).answer(&memory).await;
    assert!(matches!(answer, Answer::Changed { .. }), "{answer:?}");
    assert_eq!(api.requests().len(), 3);

    let answer = webhook(&refusing(503), Some(Models::default())).answer(&memory).await;
    let Answer::Failed(message) = answer else { panic!("{answer:?}") };
    assert!(message.contains("not allowed") && message.contains("tried again"), "{message}");
    // A policy says the same the next time.
    let answer = webhook(&refusing(403), Some(Models::default())).answer(&memory).await;
    let Answer::Refused(message) = answer else { panic!("{answer:?}") };
    assert!(message.contains("octavo-gpu-") && message.ends_with("(TemplateRefused)"), "{message}");
}

#[tokio::test]
async fn fractions_wait_for_the_models_and_need_one() {
    let fraction = request(&json!({"gpu-fraction": "0.5"}));
    let answer = webhook(&empty(), None).answer(&fraction).await;
    assert!(matches!(answer, Answer::Failed(_)), "{answer:?}");
    let answer = webhook(&empty(), Some(Models::default())).answer(&fraction).await;
    let Answer::Refused(message) = answer else { panic!("{answer:?}") };
    assert!(
        message.contains("no ResourceSlice has a GPU") && message.ends_with("(NoModel)"),
        "{message}"
    );
}

/// A connection as an API server's, which trusts `authority`.
async fn connect(
    address: std::net::SocketAddr,
    certificates: &Certificates,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let bundle = certificates.bundle(Timestamp::now());
    for authority in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

fn certificates() -> Certificates {
    match step(None, &["127.0.0.1".to_owned()], Timestamp::now()).unwrap() {
        Step::Replace(made) => made,
        Step::Nothing | Step::Renew(_) => panic!("there is none yet"),
    }
}

async fn exchange(stream: &mut TlsStream<TcpStream>, body: &str) -> String {
    let head = format!(
        "POST /translate?timeout=10s HTTP/1.1\r\nhost: w\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // A server that has read enough closes the connection.
    let _ = stream.write_all(body.as_bytes()).await;
    let mut text = String::new();
    // A peer may end without TLS's last words.
    let _ = stream.read_to_string(&mut text).await;
    text
}

#[tokio::test]
async fn it_is_served_over_tls_and_changes_its_certificate_while_it_serves() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (identity, stop) = (Arc::new(Identity::default()), CancellationToken::new());
    let webhook = Arc::new(webhook(&empty(), Some(Models::default())));
    let served =
        tokio::spawn(server::serve(listener, Arc::clone(&identity), webhook, stop.clone()));

    let first = certificates();
    assert!(connect(address, &first).await.is_err(), "there is no certificate yet");
    identity.set(&first.certificate, &first.key).unwrap();
    // A connection without a handshake delays no other.
    let _idle = TcpStream::connect(address).await.unwrap();
    let mut stream = connect(address, &first).await.unwrap();
    let review = json!({"request": question(&json!({"gpu-memory": "1000"}))}).to_string();
    let text = exchange(&mut stream, &review).await;
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("\"allowed\":true"), "{text}");
    let text = exchange(&mut connect(address, &first).await.unwrap(), "{}").await;
    assert!(text.starts_with("HTTP/1.1 400"), "{text}");
    // A namespace becomes a part of a path.
    let elsewhere = review.replace("\"team\"", "\"../x\"");
    let text = exchange(&mut connect(address, &first).await.unwrap(), &elsewhere).await;
    assert!(text.starts_with("HTTP/1.1 400"), "{text}");
    let long = "x".repeat(5 << 20);
    let text = exchange(&mut connect(address, &first).await.unwrap(), &long).await;
    assert!(!text.contains("allowed"), "{text}");

    // Small values take more memory than their text.
    let many = json!({"request": question(&json!(vec![json!({}); 20_000]))}).to_string();
    let text = exchange(&mut connect(address, &first).await.unwrap(), &many).await;
    assert!(text.starts_with("HTTP/1.1 400") && text.contains("JSON values"), "{text}");

    let second = certificates();
    identity.set(&second.certificate, &second.key).unwrap();
    assert!(connect(address, &first).await.is_err());
    connect(address, &second).await.unwrap();
    assert!(identity.set(&second.certificate, &first.key).is_err(), "the key is another's");
    stop.cancel();
    served.await.unwrap();
}

#[tokio::test]
async fn a_question_that_has_begun_is_answered_at_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (identity, stop) = (Arc::new(Identity::default()), CancellationToken::new());
    let certificates = certificates();
    identity.set(&certificates.certificate, &certificates.key).unwrap();
    let webhook = Arc::new(webhook(&empty(), Some(Models::default())));
    let served = tokio::spawn(server::serve(listener, identity, webhook, stop.clone()));

    let mut stream = connect(address, &certificates).await.unwrap();
    let body = json!({"request": question(&json!({"gpu-memory": "1000"}))}).to_string();
    let head = format!(
        "POST /translate HTTP/1.1\r\nhost: w\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server asks for the body once it reads the question.
    let mut begun = [0; 12];
    stream.read_exact(&mut begun).await.unwrap();
    assert_eq!(&begun, b"HTTP/1.1 100");
    stop.cancel();
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text).await;
    assert!(text.contains("HTTP/1.1 200") && text.contains("\"allowed\":true"), "{text}");
    served.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "no other question is taken");
}
