//! Reads `ResourceSlices`, which not every API server has.

use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::ListParams;
use kube::{Api, Client};
use octavo_view::ViewError;
use octavo_view::fetch::list;

/// The slices that a field selector selects. A server without dynamic resource allocation has none.
pub(crate) async fn slices(client: &Client, fields: &str) -> Result<Vec<ResourceSlice>, ViewError> {
    let params = ListParams::default().fields(fields);
    match list("resourceslices", &Api::all(client.clone()), params).await {
        Err(ViewError::Refused { code: 404, .. }) => Ok(Vec::new()),
        slices => slices,
    }
}
