//! The kubelet's side of the DRA socket, as a measuring client.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use octavo_kubelet_api::dra::v1;
use octavo_kubelet_api::dra::v1::dra_plugin_client::DraPluginClient;
use tonic::transport::{Channel, Endpoint};

/// A connection to one driver's DRA socket.
#[derive(Clone)]
pub(crate) struct Kubelet {
    client: DraPluginClient<Channel>,
}

impl Kubelet {
    /// Connects to the socket as soon as it exists.
    pub(crate) async fn connect(socket: &Path) -> anyhow::Result<Self> {
        let endpoint = Endpoint::try_from(format!("unix:{}", socket.display()))?;
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match endpoint.connect().await {
                Ok(channel) => return Ok(Self { client: DraPluginClient::new(channel) }),
                Err(error) if Instant::now() > deadline => {
                    return Err(error).with_context(|| format!("connect to {}", socket.display()));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    }

    /// Prepares one claim; an error in the answer is an error here.
    pub(crate) async fn prepare(&self, claim: &v1::Claim) -> anyhow::Result<Vec<v1::Device>> {
        let request = v1::NodePrepareResourcesRequest { claims: vec![claim.clone()] };
        let mut answer = self.client.clone().node_prepare_resources(request).await?.into_inner();
        let Some(answer) = answer.claims.remove(&claim.uid) else {
            bail!("the answer to prepare does not name claim {}", claim.name);
        };
        if !answer.error.is_empty() {
            bail!("prepare of {}: {}", claim.name, answer.error);
        }
        Ok(answer.devices)
    }

    /// Repeats prepare and unprepare of one claim until the agent has read its GPUs.
    pub(crate) async fn until_ready(&self, claim: &v1::Claim) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while let Err(error) = self.prepare(claim).await {
            if Instant::now() > deadline {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.unprepare(claim).await
    }

    /// Unprepares one claim; an error in the answer is an error here.
    pub(crate) async fn unprepare(&self, claim: &v1::Claim) -> anyhow::Result<()> {
        let request = v1::NodeUnprepareResourcesRequest { claims: vec![claim.clone()] };
        let mut answer = self.client.clone().node_unprepare_resources(request).await?.into_inner();
        match answer.claims.remove(&claim.uid) {
            Some(answer) if answer.error.is_empty() => Ok(()),
            Some(answer) => bail!("unprepare of {}: {}", claim.name, answer.error),
            None => bail!("the answer to unprepare does not name claim {}", claim.name),
        }
    }
}
