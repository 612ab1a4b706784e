//! A plugin for tests: registration, prepare and health on one socket. It records all calls.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::{Stream, StreamExt as _};
use octavo_kubelet_api::dra::v1 as dra;
use octavo_kubelet_api::health::{v1, v1alpha1};
use octavo_kubelet_api::registration::v1 as registration;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tokio_util::sync::CancellationToken;
use tonic::codegen::{Service, http};
use tonic::{Request, Response, Status};

use crate::kubelet::fake_api::TEST_TIMEOUT;
use crate::kubelet::plugins::health::Health;

/// A plugin that runs until it is dropped.
pub(crate) struct FakePlugin {
    socket: PathBuf,
    shared: Arc<Shared>,
    stop: CancellationToken,
    is_killed: bool,
}

struct Shared {
    driver: String,
    socket: PathBuf,
    notified: watch::Sender<Option<(bool, String)>>,
    authorities: Mutex<Vec<String>>,
    calls: watch::Sender<Vec<String>>,
    failure: Mutex<Option<String>>,
    health: watch::Sender<Health>,
    epoch: watch::Sender<u64>,
    streams: AtomicUsize,
}

#[derive(Clone)]
struct Services(Arc<Shared>);

/// Records the `:authority` of every request.
#[derive(Clone)]
struct AuthorityRecorder<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl FakePlugin {
    /// Starts a plugin of `driver` with its socket in `folder`.
    pub(crate) fn start(folder: &Path, driver: &str) -> Self {
        Self::start_at(folder.join(format!("{driver}@reg.sock")), driver)
    }

    /// Starts another instance of `driver`, named `instance`.
    pub(crate) fn start_instance(folder: &Path, driver: &str, instance: &str) -> Self {
        Self::start_at(folder.join(format!("{driver}-{instance}@reg.sock")), driver)
    }

    fn start_at(socket: PathBuf, driver: &str) -> Self {
        let shared = Arc::new(Shared {
            driver: driver.to_owned(),
            socket: socket.clone(),
            notified: watch::Sender::new(None),
            authorities: Mutex::default(),
            calls: watch::Sender::default(),
            failure: Mutex::default(),
            health: watch::Sender::new(Health::Unknown),
            epoch: watch::Sender::new(0),
            streams: AtomicUsize::new(0),
        });
        let (services, stop) = (Services(Arc::clone(&shared)), CancellationToken::new());
        let recorded = AuthorityRecorder {
            inner: registration::registration_server::RegistrationServer::new(services.clone()),
            shared: Arc::clone(&shared),
        };
        let prepared = AuthorityRecorder {
            inner: dra::dra_plugin_server::DraPluginServer::new(services.clone()),
            shared: Arc::clone(&shared),
        };
        let server = tonic::transport::Server::builder()
            .add_service(recorded)
            .add_service(prepared)
            .add_service(v1::dra_resource_health_server::DraResourceHealthServer::new(
                services.clone(),
            ))
            .add_service(v1alpha1::dra_resource_health_server::DraResourceHealthServer::new(
                services,
            ));
        let listener = UnixListener::bind(&socket).unwrap();
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(
            server.serve_with_incoming_shutdown(UnixListenerStream::new(listener), stopped),
        );
        Self { socket, shared, stop, is_killed: false }
    }

    /// Ends like a killed process: connections break, and the socket file stays.
    pub(crate) fn kill(mut self) {
        self.is_killed = true;
        self.end_streams();
    }

    /// The socket, which serves all services.
    pub(crate) fn registration_socket(&self) -> PathBuf {
        self.socket.clone()
    }

    /// Waits for the kubelet's registration notification.
    pub(crate) async fn wait_for_notification(&self) -> (bool, String) {
        let mut notified = self.shared.notified.subscribe();
        let received = notified.wait_for(Option::is_some);
        tokio::time::timeout(TEST_TIMEOUT, received).await.unwrap().unwrap().clone().unwrap()
    }

    /// All received `:authority` values, in order.
    pub(crate) fn authorities(&self) -> Vec<String> {
        self.shared.authorities.lock().unwrap().clone()
    }

    /// All received claim calls in order, as `prepare UID` and `unprepare UID`.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.shared.calls.borrow().clone()
    }

    /// Waits until `count` claim calls have been received.
    pub(crate) async fn wait_until_called(&self, count: usize) {
        let mut calls = self.shared.calls.subscribe();
        let came = calls.wait_for(|calls| calls.len() >= count);
        drop(tokio::time::timeout(TEST_TIMEOUT, came).await.unwrap().unwrap());
    }

    /// Makes every prepare fail with `error`; `None` ends that.
    pub(crate) fn fail(&self, error: Option<&str>) {
        *self.shared.failure.lock().unwrap() = error.map(ToOwned::to_owned);
    }

    /// Reports device `gpu-0` of pool `n`.
    pub(crate) fn report_health(&self, health: Health) {
        self.shared.health.send_replace(health);
    }

    /// Ends the health streams that are open.
    pub(crate) fn end_streams(&self) {
        self.shared.epoch.send_modify(|epoch| *epoch += 1);
    }

    /// Number of health streams opened so far.
    pub(crate) fn streams_opened(&self) -> usize {
        self.shared.streams.load(Ordering::SeqCst)
    }
}

impl Drop for FakePlugin {
    fn drop(&mut self) {
        self.stop.cancel();
        if !self.is_killed {
            let _ = std::fs::remove_file(&self.socket);
        }
    }
}

impl<S, B> Service<http::Request<B>> for AuthorityRecorder<S>
where
    S: Service<http::Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        self.shared.authorities.lock().unwrap().push(authority);
        self.inner.call(request)
    }
}

impl<S: tonic::server::NamedService> tonic::server::NamedService for AuthorityRecorder<S> {
    const NAME: &'static str = S::NAME;
}

#[tonic::async_trait]
impl registration::registration_server::Registration for Services {
    async fn get_info(
        &self,
        _: Request<registration::InfoRequest>,
    ) -> Result<Response<registration::PluginInfo>, Status> {
        Ok(Response::new(registration::PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: self.0.driver.clone(),
            endpoint: self.0.socket.display().to_string(),
            supported_versions: vec!["v1.DRAPlugin".to_owned(), "v1.DRAResourceHealth".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<registration::RegistrationStatus>,
    ) -> Result<Response<registration::RegistrationStatusResponse>, Status> {
        let status = status.into_inner();
        self.0.notified.send_replace(Some((status.plugin_registered, status.error)));
        Ok(Response::new(registration::RegistrationStatusResponse {}))
    }
}

#[tonic::async_trait]
impl dra::dra_plugin_server::DraPlugin for Services {
    async fn node_prepare_resources(
        &self,
        request: Request<dra::NodePrepareResourcesRequest>,
    ) -> Result<Response<dra::NodePrepareResourcesResponse>, Status> {
        let failure = self.0.failure.lock().unwrap().clone();
        let mut claims = BTreeMap::new();
        for claim in request.into_inner().claims {
            self.0.calls.send_modify(|calls| calls.push(format!("prepare {}", claim.uid)));
            let device = dra::Device {
                request_names: vec!["gpu".to_owned()],
                pool_name: "n".to_owned(),
                device_name: "gpu-0".to_owned(),
                cdi_device_ids: vec![format!("k8s.gpu.nvidia.com/claim={}-gpu-0", claim.uid)],
                share_id: Some("share-1".to_owned()),
            };
            let answer = match &failure {
                Some(error) => {
                    dra::NodePrepareResourceResponse { devices: Vec::new(), error: error.clone() }
                }
                None => {
                    dra::NodePrepareResourceResponse { devices: vec![device], error: String::new() }
                }
            };
            claims.insert(claim.uid, answer);
        }
        let claims = claims.into_iter().collect();
        Ok(Response::new(dra::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<dra::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<dra::NodeUnprepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims.into_iter().map(|claim| {
            self.0.calls.send_modify(|calls| calls.push(format!("unprepare {}", claim.uid)));
            (claim.uid, dra::NodeUnprepareResourceResponse { error: String::new() })
        });
        let claims = claims.collect();
        Ok(Response::new(dra::NodeUnprepareResourcesResponse { claims }))
    }
}

/// The health of `gpu-0`, now and at every change, until the streams are ended.
fn health(shared: &Arc<Shared>) -> impl Stream<Item = Health> + Send + use<> {
    shared.streams.fetch_add(1, Ordering::SeqCst);
    let mut epoch = shared.epoch.subscribe();
    epoch.mark_unchanged();
    let ended = async move { epoch.changed().await.map(drop).unwrap_or_default() };
    WatchStream::new(shared.health.subscribe()).take_until(ended)
}

#[tonic::async_trait]
impl v1::dra_resource_health_server::DraResourceHealth for Services {
    type NodeWatchResourcesStream =
        Pin<Box<dyn Stream<Item = Result<v1::NodeWatchResourcesResponse, Status>> + Send>>;

    async fn node_watch_resources(
        &self,
        _: Request<v1::NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let stream = health(&self.0).map(|health| {
            Ok(v1::NodeWatchResourcesResponse {
                devices: vec![v1::DeviceHealth {
                    device: Some(v1::DeviceIdentifier {
                        pool_name: "n".to_owned(),
                        device_name: "gpu-0".to_owned(),
                    }),
                    health: health as i32,
                    ..v1::DeviceHealth::default()
                }],
            })
        });
        Ok(Response::new(Box::pin(stream)))
    }
}

#[tonic::async_trait]
impl v1alpha1::dra_resource_health_server::DraResourceHealth for Services {
    type NodeWatchResourcesStream =
        Pin<Box<dyn Stream<Item = Result<v1alpha1::NodeWatchResourcesResponse, Status>> + Send>>;

    async fn node_watch_resources(
        &self,
        _: Request<v1alpha1::NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let stream = health(&self.0).map(|health| {
            Ok(v1alpha1::NodeWatchResourcesResponse {
                devices: vec![v1alpha1::DeviceHealth {
                    device: Some(v1alpha1::DeviceIdentifier {
                        pool_name: "n".to_owned(),
                        device_name: "gpu-0".to_owned(),
                    }),
                    health: health as i32,
                    ..v1alpha1::DeviceHealth::default()
                }],
            })
        });
        Ok(Response::new(Box::pin(stream)))
    }
}
