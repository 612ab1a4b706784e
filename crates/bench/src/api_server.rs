//! Counts from the API server's own metrics.

use std::collections::BTreeMap;

use anyhow::Context;
use kube::Client;

/// Requests for resource claims so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClaimRequests {
    /// GETs of one claim.
    pub(crate) gets: f64,
    /// All other requests except the benchmark's own writes: lists, watches, status writes.
    pub(crate) others: f64,
}

/// Counts requests for claims by verb.
pub(crate) async fn claim_requests(client: &Client) -> anyhow::Result<ClaimRequests> {
    let text = metrics(client).await?;
    let mut requests = ClaimRequests::default();
    for (labels, value) in samples(&text, "apiserver_request_total") {
        if !labels.contains("resource=\"resourceclaims\"") {
            continue;
        }
        match label(labels, "verb") {
            "GET" => requests.gets += value,
            _ => requests.others += value,
        }
    }
    Ok(requests)
}

/// Writes that only agents make.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AgentWrites {
    /// To slices, by any verb.
    pub(crate) slices: f64,
    /// To the device status of claims: schedulers and controllers update a claim's status, agents
    /// apply theirs.
    pub(crate) statuses: f64,
}

/// Counts the writes of all agents so far.
pub(crate) async fn agent_writes(client: &Client) -> anyhow::Result<AgentWrites> {
    let text = metrics(client).await?;
    let mut writes = AgentWrites::default();
    for (labels, value) in samples(&text, "apiserver_request_total") {
        let verb = label(labels, "verb");
        match label(labels, "resource") {
            "resourceslices" if !matches!(verb, "GET" | "LIST" | "WATCH") => writes.slices += value,
            "resourceclaims" if matches!(verb, "APPLY" | "PATCH") => writes.statuses += value,
            _ => {}
        }
    }
    Ok(writes)
}

/// Counts the writes of all clients so far, by verb, resource and subresource: `POST pods/binding`.
/// Leases are excluded: they measure elapsed time, not work.
pub(crate) async fn writes(client: &Client) -> anyhow::Result<BTreeMap<String, f64>> {
    let text = metrics(client).await?;
    let mut writes = BTreeMap::new();
    for (labels, value) in samples(&text, "apiserver_request_total") {
        let (verb, resource) = (label(labels, "verb"), label(labels, "resource"));
        let is_read = matches!(verb, "GET" | "LIST" | "WATCH" | "CONNECT" | "PROXY");
        if is_read || resource.is_empty() || resource == "leases" {
            continue;
        }
        let what = match label(labels, "subresource") {
            "" => format!("{verb} {resource}"),
            below => format!("{verb} {resource}/{below}"),
        };
        *writes.entry(what).or_default() += value;
    }
    Ok(writes)
}

/// Counts the writes so far that were refused because the object has changed, by resource: it has another version (409), or the
/// `test` of a JSON patch failed (422). `nodes/status` counts as another resource.
pub(crate) async fn conflicts(client: &Client) -> anyhow::Result<BTreeMap<String, f64>> {
    let text = metrics(client).await?;
    let mut conflicts = BTreeMap::new();
    for (labels, value) in samples(&text, "apiserver_request_total") {
        let is_conflict = match label(labels, "code") {
            "409" => label(labels, "verb") != "POST",
            "422" => label(labels, "verb") == "PATCH",
            _ => false,
        };
        if is_conflict && label(labels, "subresource").is_empty() {
            *conflicts.entry(label(labels, "resource").to_owned()).or_default() += value;
        }
    }
    Ok(conflicts)
}

/// Open watches over claims, of all clients.
pub(crate) async fn claim_watches(client: &Client) -> anyhow::Result<f64> {
    let text = metrics(client).await?;
    Ok(samples(&text, "apiserver_longrunning_requests")
        .filter(|(labels, _)| {
            labels.contains("resource=\"resourceclaims\"") && label(labels, "verb") == "WATCH"
        })
        .map(|(_, value)| value)
        .sum())
}

async fn metrics(client: &Client) -> anyhow::Result<String> {
    let request = http::Request::get("/metrics").body(Vec::new()).context("make a request")?;
    client.request_text(request).await.context("read the API server's metrics")
}

/// Samples of one metric: labels as text, value.
fn samples<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
    text.lines().filter_map(move |line| {
        let (labels, value) = line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} ")?;
        Some((labels, value.trim().parse().ok()?))
    })
}

fn label<'a>(labels: &'a str, name: &str) -> &'a str {
    labels
        .split(',')
        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'))
        .unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_found_by_name_and_label() {
        let text =
            "# HELP x\napi_total{verb=\"GET\",resource=\"pods\"} 3\napi_total_other{a=\"b\"} 9\n";
        let found: Vec<_> = samples(text, "api_total").collect();
        assert_eq!(found, [("verb=\"GET\",resource=\"pods\"", 3.0)]);
        assert_eq!(label(found[0].0, "verb"), "GET");
    }
}
