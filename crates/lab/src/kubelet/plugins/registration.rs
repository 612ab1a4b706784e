//! Registers a plugin as the kubelet does.
//!
//! ```text
//! socket appears -> GetInfo (1 s) -> choose services -> add -> NotifyRegistrationStatus (5 s)
//! ```
//!
//! The kubelet sends the percent-encoded path of the registration socket as `:authority`. Strict
//! HTTP servers reject a `%` unless it precedes an `@`. Plugins with such servers therefore need an
//! `@` in their socket's name. This kubelet sends the same authority, and rejects sockets for which
//! a strict client cannot write it. The error names the remedy.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use octavo_kubelet_api::registration::v1::registration_client::RegistrationClient;
use octavo_kubelet_api::registration::v1::{InfoRequest, PluginInfo, RegistrationStatus};
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};

use crate::kubelet::plugins::{DraVersion, HealthVersion, PluginDescription};

/// Time limit for connecting, as in the kubelet.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for `GetInfo`, as in the kubelet.
const INFO_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit for `NotifyRegistrationStatus`, as in the kubelet.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);

/// A plugin was not registered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistrationError {
    /// The socket's name gives an authority that cannot be sent.
    #[error(
        "registration socket {0}: the kubelet sends its percent-encoded path as HTTP/2 authority, \
         which strict servers refuse: put an `@` into the file name, as in <driver>@reg.sock"
    )]
    Authority(PathBuf),
    /// No server listens on the socket.
    #[error("dial failed at socket {}", socket.display())]
    Dial {
        socket: PathBuf,
        #[source]
        source: tonic::transport::Error,
    },
    /// A call failed or took too long.
    #[error("{call} at socket {}", socket.display())]
    Call {
        call: &'static str,
        socket: PathBuf,
        #[source]
        source: Box<tonic::Status>,
    },
}

/// A connection to a plugin's registration service.
#[derive(Debug)]
pub(crate) struct Registration {
    socket: PathBuf,
    client: RegistrationClient<Channel>,
}

impl Registration {
    /// Connects to the registration service behind `socket`.
    pub(crate) async fn dial(socket: &Path) -> Result<Self, RegistrationError> {
        let refused = || RegistrationError::Authority(socket.to_owned());
        let origin: Uri =
            format!("http://{}", authority_of(socket)).parse().map_err(|_| refused())?;
        // The path contains a `/`, which is percent-encoded, so the `@` is always needed.
        if !authority_of(socket).contains('@') {
            return Err(refused());
        }
        let dial = |source| RegistrationError::Dial { socket: socket.to_owned(), source };
        let channel = Endpoint::from_shared(format!("unix:{}", socket.display()))
            .map_err(dial)?
            .origin(origin)
            .connect_timeout(DIAL_TIMEOUT)
            .connect()
            .await
            .map_err(dial)?;
        Ok(Self { socket: socket.to_owned(), client: RegistrationClient::new(channel) })
    }

    /// Calls `GetInfo`. The inner error is meant for the plugin.
    pub(crate) async fn info(
        &mut self,
    ) -> Result<Result<PluginDescription, String>, RegistrationError> {
        let mut request = tonic::Request::new(InfoRequest {});
        request.set_timeout(INFO_TIMEOUT);
        let info = within_deadline(INFO_TIMEOUT, self.client.get_info(request)).await;
        let info = info.map_err(|source| self.failed("GetInfo", source))?;
        Ok(describe_plugin(&self.socket, &info))
    }

    /// Reports the result of the registration to the plugin.
    pub(crate) async fn notify(mut self, error: Option<String>) -> Result<(), RegistrationError> {
        let mut request = tonic::Request::new(RegistrationStatus {
            plugin_registered: error.is_none(),
            error: error.unwrap_or_default(),
        });
        request.set_timeout(NOTIFY_TIMEOUT);
        let answer =
            within_deadline(NOTIFY_TIMEOUT, self.client.notify_registration_status(request)).await;
        answer.map(drop).map_err(|source| self.failed("NotifyRegistrationStatus", source))
    }

    fn failed(&self, call: &'static str, source: tonic::Status) -> RegistrationError {
        RegistrationError::Call { call, socket: self.socket.clone(), source: Box::new(source) }
    }
}

/// Runs a call within `limit`, independently of the server's handling of the deadline.
pub(crate) async fn within_deadline<T>(
    limit: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, tonic::Status> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map(tonic::Response::into_inner),
        Err(_) => Err(tonic::Status::deadline_exceeded(format!("no answer within {limit:?}"))),
    }
}

/// Chooses the newest supported services of a plugin, or explains why it cannot be registered.
pub(crate) fn describe_plugin(
    socket: &Path,
    info: &PluginInfo,
) -> Result<PluginDescription, String> {
    if info.r#type != "DRAPlugin" {
        return Err(format!(
            "RegisterPlugin error -- no handler registered for plugin type: {} at socket {}",
            info.r#type,
            socket.display()
        ));
    }
    if info.name.is_empty() {
        return Err("RegisterPlugin error -- DRA driver name is empty".to_owned());
    }
    let offers = |service: &str| info.supported_versions.iter().any(|offer| offer == service);
    let dra = if offers("v1.DRAPlugin") {
        DraVersion::V1
    } else if offers("v1beta1.DRAPlugin") {
        DraVersion::V1Beta1
    } else {
        return Err(format!(
            "RegisterPlugin error -- plugin validation failed with err: none of services supported \
             by the plugin ({:?}) are supported by the kubelet ([\"v1.DRAPlugin\" \
             \"v1beta1.DRAPlugin\"])",
            info.supported_versions
        ));
    };
    let health =
        if offers("v1.DRAResourceHealth") { HealthVersion::V1 } else { HealthVersion::V1Alpha1 };
    let endpoint =
        if info.endpoint.is_empty() { socket.to_owned() } else { PathBuf::from(&info.endpoint) };
    Ok(PluginDescription { driver: info.name.clone(), endpoint, dra, health })
}

/// The `:authority` that the kubelet sends to the socket at `path`. Every byte that is not allowed
/// in an authority is percent-encoded, slashes included.
pub(crate) fn authority_of(path: &Path) -> String {
    let mut authority = String::new();
    for byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]@".contains(byte) {
            authority.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(authority, "%{byte:02X}");
        }
    }
    authority
}

#[cfg(test)]
mod tests;
