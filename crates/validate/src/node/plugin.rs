//! The component `plugin`: the node offers its GPUs.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use octavo_view::ViewError;

use crate::args::NodeArgs;
use crate::offer::Offer;
use crate::report::{Component, Finding};
use crate::slices::slices;

/// What to do if there is no offer.
pub(crate) const NO_OFFER: &str = "neither ResourceSlices nor the kubelet offer a GPU of this node";
pub(crate) const NO_OFFER_REMEDY: &str = "see that the agent runs on the node and is ready: `octavo doctor`; its log and its events name what it waits for";

/// Asks the API server, unless the caller did.
pub(super) async fn check(args: &NodeArgs) -> Finding {
    if let Some(offered) = &args.offered {
        return Finding::ready(Component::Plugin, format!("{offered}; this container has one"));
    }
    let Some(name) = &args.node_name else {
        let remedy = "give --node-name, or the variable NODE_NAME from the pod's spec.nodeName";
        return Finding::failed(Component::Plugin, "the name of this node is not known", remedy);
    };
    match offer(args, name).await {
        Ok(Some(offer)) => Finding::ready(Component::Plugin, offer.to_string()),
        Ok(None) => Finding::failed(Component::Plugin, NO_OFFER, NO_OFFER_REMEDY),
        Err(error) => {
            let remedy = "the account needs the rights to get nodes and to list resourceslices";
            Finding::failed(Component::Plugin, error.to_string(), remedy)
        }
    }
}

async fn offer(args: &NodeArgs, name: &str) -> Result<Option<Offer>, ViewError> {
    let connection = args.connect.connect().await?;
    let client = &connection.client;
    let read = async {
        let nodes: Api<Node> = Api::all(client.clone());
        let node = nodes.get_opt(name).await.map_err(|error| ViewError::api("nodes", error))?;
        let node = node.ok_or_else(|| ViewError::UnknownNode { node: name.to_owned() })?;
        let slices = slices(client, &format!("spec.nodeName={name}")).await?;
        Ok(Offer::of(&node, &slices))
    };
    connection.within(read).await
}
