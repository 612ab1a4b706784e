//! Discovers the served version of a kind.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use kube::{Client, Error};

use super::WantedKind;
use super::resource::Resource;

/// The first of the wanted versions that is served with the verbs list and watch.
pub(super) async fn served(
    client: &Client,
    wanted: &WantedKind,
) -> Result<Option<Resource>, Error> {
    let WantedKind { group, versions, kind, labels } = wanted;
    let there = if group.is_empty() {
        versions.clone()
    } else {
        let Some(found) = optional::<APIGroup>(client, &format!("/apis/{group}")).await? else {
            return Ok(None);
        };
        found.versions.into_iter().map(|version| version.version).collect()
    };
    for version in versions.iter().filter(|version| there.contains(version)) {
        let path = if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        };
        let Some(list) = optional::<APIResourceList>(client, &path).await? else { continue };
        let found = list.resources.into_iter().find(|found| {
            let can = |verb: &str| found.verbs.iter().any(|known| known == verb);
            found.kind == *kind && !found.name.contains('/') && can("list") && can("watch")
        });
        if let Some(found) = found {
            let labels = labels.clone();
            return Ok(Some(Resource {
                labels,
                ..Resource::new(group, version, kind, &found.name)
            }));
        }
    }
    Ok(None)
}

/// The object at a path; `None` for 404.
async fn optional<T: serde::de::DeserializeOwned>(
    client: &Client,
    path: &str,
) -> Result<Option<T>, Error> {
    let request = http::Request::get(path).body(Vec::new());
    let request = request
        .map_err(|error| Error::BuildRequest(kube::core::request::Error::BuildRequest(error)))?;
    match client.request(request).await {
        Ok(found) => Ok(Some(found)),
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}
