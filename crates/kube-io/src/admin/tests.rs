use std::net::Ipv4Addr;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

/// Sends a request over a plain socket; returns status and body.
async fn ask(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn health_readiness_and_metrics_are_served_until_stop() {
    let readiness = Arc::new(Readiness::default());
    let mut registry = Registry::default();
    let requests: Counter = Counter::default();
    registry.register("octavo_requests", "Requests", requests.clone());
    requests.inc();
    let server = AdminServer::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = server.address();
    assert_ne!(address.port(), 0);
    let stop = CancellationToken::new();
    let serving =
        tokio::spawn(server.serve(Arc::clone(&readiness), Arc::new(registry), stop.clone()));

    assert_eq!(ask(address, "/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(ask(address, "/readyz").await, (503, "not ready: starting\n".to_owned()));
    let driver = readiness.check("driver", "the library is being loaded");
    let slices = readiness.check("slices", "not published");
    slices.pass();
    let report = "not ready: driver: the library is being loaded\nready: slices\n";
    assert_eq!(ask(address, "/readyz").await, (503, report.to_owned()));
    driver.pass();
    assert_eq!(ask(address, "/readyz").await.0, 200);
    driver.fail("gone");
    assert_eq!(ask(address, "/readyz").await.0, 503);
    drop(driver);
    assert_eq!(ask(address, "/readyz").await, (200, "ready: slices\n".to_owned()));
    let (status, metrics) = ask(address, "/metrics").await;
    assert_eq!(status, 200);
    assert!(metrics.contains("octavo_requests_total 1"), "{metrics}");
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");

    stop.cancel();
    tokio::time::timeout(Duration::from_secs(5), serving).await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_connection_that_says_nothing_does_not_hold_up_the_end() {
    let server = AdminServer::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = server.address();
    let stop = CancellationToken::new();
    let serving =
        tokio::spawn(server.serve(Arc::default(), Arc::new(Registry::default()), stop.clone()));
    let mut half = TcpStream::connect(address).await.unwrap();
    half.write_all(b"GET /hea").await.unwrap();
    // After this response on another connection the first one has been accepted, too.
    assert_eq!(ask(address, "/healthz").await.0, 200);
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(5), serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn all_addresses_include_those_of_ipv4() {
    let AdminAddress::Listen(all) = ":0".parse().unwrap() else { panic!("an address") };
    let server = AdminServer::bind(all).await.unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.address().port()));
    let stop = CancellationToken::new();
    let serving =
        tokio::spawn(server.serve(Arc::default(), Arc::new(Registry::default()), stop.clone()));
    assert_eq!(ask(address, "/healthz").await.0, 200);
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(5), serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_address_in_use_is_named_with_its_remedy() {
    let first = AdminServer::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let error = AdminServer::bind(first.address()).await.unwrap_err().to_string();
    assert!(error.contains(&first.address().to_string()), "{error}");
    assert!(error.contains("--admin-address"), "{error}");
}

#[test]
fn addresses_are_read_in_their_short_forms() {
    let parse = |text: &str| text.parse::<AdminAddress>();
    assert_eq!(parse("none"), Ok(AdminAddress::None));
    assert_eq!(parse(":8080").unwrap().to_string(), "[::]:8080");
    assert_eq!(parse("127.0.0.1:0").unwrap().to_string(), "127.0.0.1:0");
    assert_eq!(parse("[::1]:80").unwrap().to_string(), "[::1]:80");
    for wrong in ["", "8080", "localhost:80", ":x", "127.0.0.1"] {
        assert!(parse(wrong).unwrap_err().to_string().contains("none"), "{wrong}");
    }
}

#[tokio::test]
async fn a_thousand_idle_connections_keep_no_probe_out() {
    let server = AdminServer::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = server.address();
    let stop = CancellationToken::new();
    let (readiness, registry) = (Arc::new(Readiness::default()), Arc::new(Registry::default()));
    let serving = tokio::spawn(server.serve(readiness, registry, stop.clone()));
    let mut idle = Vec::new();
    for number in 0..1000 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        if number % 2 == 0 {
            // A request that never ends.
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: ").await.unwrap();
        }
        idle.push(stream);
    }
    assert_eq!(ask(address, "/healthz").await, (200, "ok\n".to_owned()));
    // The oldest are closed, and the newest are not.
    let mut byte = [0];
    let read = idle[0].read(&mut byte);
    let closed = tokio::time::timeout(Duration::from_secs(5), read).await.expect("is closed");
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    let newest = idle[999].read(&mut byte);
    assert!(tokio::time::timeout(Duration::from_millis(50), newest).await.is_err(), "is open");
    stop.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn headers_without_end_close_the_connection() {
    let server = AdminServer::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = server.address();
    let stop = CancellationToken::new();
    let (readiness, registry) = (Arc::new(Readiness::default()), Arc::new(Registry::default()));
    let serving = tokio::spawn(server.serve(readiness, registry, stop.clone()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    let sending = async {
        // Far less than what the HTTP library takes by itself.
        for _ in 0..64 {
            if stream.write_all(&[b'a'; 1024]).await.is_err() {
                return true;
            }
        }
        let mut byte = [0];
        matches!(stream.read(&mut byte).await, Ok(0) | Err(_))
    };
    let is_closed = tokio::time::timeout(Duration::from_secs(10), sending).await;
    assert_eq!(is_closed, Ok(true));
    // A client that is answered may ask for as long as it likes.
    let mut stream = TcpStream::connect(address).await.unwrap();
    for _ in 0..500 {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut answer = [0; 4096];
        let length = stream.read(&mut answer).await.unwrap();
        assert!(answer[..length].starts_with(b"HTTP/1.1 200"), "{length}");
    }
    stop.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn others_than_the_loopback_get_health_only() {
    let routes = routes(Arc::default(), Arc::new(Registry::default()))
        .layer(middleware::from_fn(loopback_only));
    let status = async |peer: &str, path: &str| {
        let peer: SocketAddr = peer.parse().unwrap();
        let mut request = Request::new(axum::body::Body::empty());
        *request.uri_mut() = path.parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(Peer(peer)));
        let answer = tower::ServiceExt::oneshot(routes.clone(), request).await.unwrap();
        answer.status().as_u16()
    };
    for peer in ["127.0.0.1:5", "[::1]:5", "[::ffff:127.0.0.1]:5"] {
        assert_eq!(status(peer, "/metrics").await, 200, "{peer}");
    }
    for peer in ["10.0.0.7:5", "[fd00::7]:5", "[::ffff:10.0.0.7]:5"] {
        assert_eq!(status(peer, "/metrics").await, 403, "{peer}");
        assert_eq!(status(peer, "/healthz").await, 200, "{peer}");
        assert_eq!(status(peer, "/readyz").await, 503, "{peer}: answered");
    }
}

#[tokio::test]
async fn a_server_for_the_loopback_knows_its_clients() {
    let server = AdminServer::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let server = server.with_access(MetricsAccess::Loopback);
    let (address, stop) = (server.address(), CancellationToken::new());
    tokio::spawn(server.serve(Arc::default(), Arc::new(Registry::default()), stop.clone()));
    assert_eq!(ask(address, "/metrics").await.0, 200);
    stop.cancel();
}
