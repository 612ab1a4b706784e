//! Reads the objects that a plan is made of: paged lists and a few `ConfigMap`s. It writes nothing.

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client};
use octavo_migration::plan::{Cluster, Kind, Unread};
use octavo_view::ViewError;
use serde_json::Value;

/// Objects in one answer of the API server.
const PAGE_SIZE: u32 = 500;
const FORBIDDEN: u16 = 403;
const NOT_FOUND: u16 = 404;
const GONE: u16 = 410;
const NODES: &str = "nodes";

/// Reads a cluster. A kind that the server does not have is no error, and one that the user may not read is noted. Without nodes
/// there is no plan.
pub(super) async fn cluster(client: &Client) -> Result<Cluster, ViewError> {
    let mut cluster = Cluster::default();
    for kind in Kind::ALL {
        match list(client, kind).await {
            Ok(part) => {
                cluster.serves_dra |= kind == Kind::SLICES;
                cluster.merge(part);
            }
            Err(ViewError::Refused { code: NOT_FOUND, .. }) => {}
            Err(ViewError::Refused { code: FORBIDDEN, message, .. }) if kind.plural != NODES => {
                cluster.unread.push(Unread { what: kind.plural.to_owned(), why: message });
            }
            Err(error) => return Err(error),
        }
    }
    for name in cluster.config_maps_wanted() {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), &name.namespace, &resource);
        let unread = |why: &str| Unread { what: format!("ConfigMap {name}"), why: why.to_owned() };
        match api.get_opt(&name.name).await {
            Ok(Some(object)) => cluster.add_config_map(value(&object)?),
            Ok(None) => cluster.unread.push(unread("it does not exist, and an operand names it")),
            Err(kube::Error::Api(status)) if status.code == FORBIDDEN => {
                cluster.unread.push(unread(&status.message));
            }
            Err(error) => return Err(failed("configmaps", error)),
        }
    }
    Ok(cluster)
}

/// Lists all pages of a kind. If the continue token expires, the list starts again, once.
async fn list(client: &Client, kind: Kind) -> Result<Cluster, ViewError> {
    let gvk = GroupVersionKind::gvk(kind.group, kind.version, kind.kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut part = Cluster::default();
    let mut params = ListParams::default().limit(PAGE_SIZE);
    let mut is_retried = false;
    loop {
        match api.list(&params).await {
            Ok(page) => {
                for object in &page.items {
                    part.add(kind, value(object)?);
                }
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => params = params.continue_token(&token),
                    None => return Ok(part),
                }
            }
            Err(kube::Error::Api(status)) if status.code == GONE && !is_retried => {
                is_retried = true;
                part = Cluster::default();
                params = ListParams::default().limit(PAGE_SIZE);
            }
            Err(error) => return Err(failed(kind.plural, error)),
        }
    }
}

fn value(object: &DynamicObject) -> Result<Value, ViewError> {
    serde_json::to_value(object)
        .map_err(|error| ViewError::Encode { format: "JSON", message: error.to_string() })
}

fn failed(kind: &'static str, error: kube::Error) -> ViewError {
    match error {
        kube::Error::Api(status) => {
            ViewError::Refused { kind, code: status.code, message: status.message.clone() }
        }
        source => ViewError::Unreachable { kind, source },
    }
}
