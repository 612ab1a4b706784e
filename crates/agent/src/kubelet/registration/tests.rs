use std::path::PathBuf;
use std::time::Duration;

use octavo_kube_io::admin::Readiness;
use octavo_kubelet_api::registration::v1::registration_client::RegistrationClient;
use octavo_kubelet_api::registration::v1::registration_server::RegistrationServer;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Endpoint, Server};

use super::*;

const TIMEOUT: Duration = Duration::from_mins(1);

/// Header block of `GetInfo` from a kubelet for a socket name without `@`: percent-encoded path in `:authority`,
/// `END_HEADERS`.
const HEADERS_WITHOUT_AT: &str = "8386459c62ba2d98d558598c84d83498f52fb4b31909b06931ea63115392a94f\
    41b254587b8ec545868346a8b0f5b632d054aa2c35d16cc6a91158598c84d9e951619abb572f91d35d055c87a56b0b\
    32e8393aff5f8b1d75d0620d263d4c4d65647a8a9acac8b4c7602bbc15c340027465864d833505b11f408e9acac8b0c\
    842d6958b510f21aa9b839bd9ab40899acac8b24d494f6a7f867df7df71db7f";

struct Served {
    socket: PathBuf,
    readiness: Arc<Readiness>,
    _folder: tempfile::TempDir,
}

fn serve() -> Served {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join(DraDriver::GPU.registration_socket(None));
    let readiness = Arc::new(Readiness::default());
    let registration =
        Arc::new(KubeletRegistration::new(readiness.check("kubelet", "not registered")));
    let metrics = Arc::new(Metrics::new(&mut Registry::default()));
    let (driver, endpoint) = (DraDriver::GPU, Path::new("/plugins/dra.sock"));
    let registrar =
        Registrar::new(driver, "node", endpoint, &PLUGIN_VERSIONS, registration, metrics);
    let incoming = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
    let server = Server::builder().add_service(RegistrationServer::new(registrar));
    tokio::spawn(server.serve_with_incoming(incoming));
    Served { socket, readiness, _folder: folder }
}

/// A client that sends the socket's path as the kubelet does.
async fn kubelet(socket: &Path) -> RegistrationClient<tonic::transport::Channel> {
    let path = socket.to_str().unwrap();
    let authority = path.replace('/', "%2F");
    let endpoint = Endpoint::try_from(format!("unix:{path}"))
        .unwrap()
        .origin(format!("http://{authority}").parse().unwrap());
    RegistrationClient::new(endpoint.connect().await.unwrap())
}

#[tokio::test]
async fn a_kubelet_that_sends_the_path_as_authority_is_answered() {
    let served = serve();
    let mut client = kubelet(&served.socket).await;
    let answer = timeout(TIMEOUT, client.get_info(InfoRequest {})).await.unwrap().unwrap();
    let info = answer.into_inner();
    assert_eq!(info.r#type, "DRAPlugin");
    assert_eq!(info.name, "gpu.nvidia.com");
    assert_eq!(info.endpoint, "/plugins/dra.sock");
    assert_eq!(info.supported_versions, PLUGIN_VERSIONS);
}

#[tokio::test]
async fn the_kubelet_s_verdict_decides_readiness() {
    let served = serve();
    let mut client = kubelet(&served.socket).await;
    assert!(!served.readiness.report().0);
    let yes = RegistrationStatus { plugin_registered: true, error: String::new() };
    client.notify_registration_status(yes).await.unwrap();
    assert!(served.readiness.report().0);
    let no = RegistrationStatus { plugin_registered: false, error: "too old".to_owned() };
    client.notify_registration_status(no).await.unwrap();
    let (is_ready, report) = served.readiness.report();
    assert!(!is_ready && report.contains("too old"), "{report}");
}

/// If this test fails because the request is answered, h2 accepts the plain name and the `@` is no longer needed.
#[tokio::test]
async fn the_form_without_the_at_sign_is_reset_before_any_handler() {
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    let served = serve();
    let mut stream = UnixStream::connect(&served.socket).await.unwrap();
    let block: Vec<u8> = (0..HEADERS_WITHOUT_AT.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&HEADERS_WITHOUT_AT[at..at + 2], 16).unwrap())
        .collect();
    let mut request = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // An empty SETTINGS frame, then HEADERS with END_HEADERS on stream 1.
    request.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    request.extend([0, 0, u8::try_from(block.len()).unwrap(), HEADERS, 4, 0, 0, 0, 1]);
    request.extend(block);
    stream.write_all(&request).await.unwrap();
    let reset = async {
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            stream.read_exact(&mut payload).await.unwrap();
            assert_ne!(head[3], HEADERS, "the request was answered");
            if head[3] == RST_STREAM {
                return head[8];
            }
        }
    };
    assert_eq!(timeout(TIMEOUT, reset).await.unwrap(), 1);
}
