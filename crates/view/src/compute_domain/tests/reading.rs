//! Reading of the objects, and the errors for domains that do not exist.

use octavo_testkit::{ScriptedApi, failure};
use serde_json::{Value, json};

use super::*;
use crate::ViewError;
use crate::snapshot::ObjectName;

const DOMAINS: &str = "/apis/resource.nvidia.com/v1beta1/namespaces/team/computedomains";

fn list(items: &Value) -> (u16, Value) {
    (200, json!({"metadata": {}, "items": items}))
}

fn domain() -> Value {
    json!({
        "metadata": {"namespace": "team", "name": "train", "uid": "u-1",
            "annotations": {"octavo.dev/ready-when": "Members"}},
        "spec": {"channel": {"resourceClaimTemplate": {"name": "train-channel"}}},
        "status": {"status": "NotReady", "nodes": [
            {"name": "n-0", "ipAddress": "", "cliqueID": "c1.0", "status": "NotReady"},
        ]},
    })
}

fn claim() -> Value {
    let parameters = json!({
        "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomainChannelConfig",
        "domainID": "u-1",
    });
    let config =
        json!({"opaque": {"driver": "compute-domain.nvidia.com", "parameters": parameters}});
    let result = json!({"request": "channel", "driver": "compute-domain.nvidia.com",
        "pool": "n-0", "device": "channel-0"});
    json!({
        "metadata": {"namespace": "team", "name": "claim-0"},
        "spec": {"devices": {"config": [config]}},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "train-0", "uid": "p"}],
        },
    })
}

/// The daemon's pod, for n-0 and not scheduled yet.
fn daemon() -> Value {
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["n-0"]});
    let required = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
    json!({
        "metadata": {"namespace": "octavo-system", "name": "d-0"},
        "spec": {
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
            "containers": [{"name": "imex-daemon",
                "env": [{"name": "MAX_NODES_PER_IMEX_DOMAIN", "value": "4"}]}],
        },
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "cannot allocate all claims"}]},
    })
}

fn cluster(path: &str, query: &str) -> (u16, Value) {
    let system = "/api/v1/namespaces/octavo-system";
    match path {
        _ if path == format!("{DOMAINS}/train") => (200, domain()),
        "/apis/coordination.k8s.io/v1/namespaces/octavo-system/leases/octavo-controller" => {
            let spec = json!({"holderIdentity": "c-0", "leaseDurationSeconds": 15,
                "renewTime": "2026-01-05T11:59:55.000000Z"});
            (200, json!({"metadata": {"name": "l"}, "spec": spec}))
        }
        "/apis/resource.k8s.io/v1/namespaces/team/resourceclaimtemplates/train-channel" => {
            let metadata = json!({"name": "train-channel",
                "labels": {"resource.nvidia.com/computeDomain": "u-1"}});
            (200, json!({"metadata": metadata, "spec": {"spec": {}}}))
        }
        "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims" => list(&json!([claim()])),
        "/api/v1/namespaces/team/pods" => list(&json!([
            {"metadata": {"namespace": "team", "name": "train-0"},
                "spec": {"containers": [], "nodeName": "n-0",
                    "resourceClaims": [{"name": "c", "resourceClaimName": "claim-0"}]},
                "status": {"phase": "Pending"}},
            {"metadata": {"namespace": "team", "name": "other"}, "spec": {"containers": []}},
        ])),
        "/api/v1/nodes" => {
            assert!(query.contains("computeDomain%3Du-1"), "{query}");
            list(&json!([{"metadata": {"name": "n-0", "labels": {
                "nvidia.com/gpu.clique": "c1.0", "resource.nvidia.com/computeDomain": "u-1"}},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}}]))
        }
        _ if path == format!("{system}/pods") => list(&json!([daemon()])),
        "/apis/apps/v1/namespaces/octavo-system/daemonsets/computedomain-daemon-u-1" => {
            (200, json!({"metadata": {"name": "d"}}))
        }
        "/apis/resource.nvidia.com/v1beta1/namespaces/octavo-system/computedomaincliques" => {
            list(&json!([{"apiVersion": "resource.nvidia.com/v1beta1",
                "kind": "ComputeDomainClique", "metadata": {"name": "u-1.c1.0"}}]))
        }
        _ if path.ends_with("/events") => list(&json!([])),
        _ => failure(404, path),
    }
}

fn server(answer: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static) -> ScriptedApi {
    ScriptedApi::new(move |request| {
        answer(request.uri().path(), request.uri().query().unwrap_or_default())
    })
}

#[tokio::test]
async fn the_objects_of_a_domain_are_read() {
    let api = server(cluster);
    let name = ObjectName::new("team", "train");
    let facts = read(&api.client(), &name, None, now()).await.unwrap();
    assert_eq!(facts.slots(), 4);
    insta::assert_snapshot!(text(&facts), @r"
    ComputeDomain team/train is not ready: 0 of 1 nodes are ready

    Its pods wait for the daemons of all nodes with an allocated channel.

    Nodes
      NODE  CLIQUE  INDEX  STATE     MISSING     DAEMON             PODS
      n-0   c1.0    -      NotReady  daemon pod  octavo-system/d-0  train-0 (Pending)

    What is missing
      node n-0: the daemon's pod octavo-system/d-0 is not scheduled
        why: the scheduler says: cannot allocate all claims
        do: check that DeviceClass compute-domain-daemon.nvidia.com exists and that the node's agent publishes daemon-0: `octavo doctor`
    ");
}

#[tokio::test]
async fn what_may_not_be_read_is_a_gap() {
    let api = server(|path, query| match path {
        _ if path.contains("octavo-system") || path == "/api/v1/nodes" => failure(403, path),
        _ => cluster(path, query),
    });
    let name = ObjectName::new("team", "train");
    let facts = read(&api.client(), &name, None, now()).await.unwrap();
    let kinds: Vec<String> = facts.gaps.iter().map(|gap| gap.kind.to_string()).collect();
    assert_eq!(
        kinds,
        [
            "the lease of the controller",
            "nodes",
            "daemonsets",
            "pods of the daemons",
            "computedomaincliques"
        ]
    );
    let missing = explain(&facts).missing;
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert_eq!(missing[0].step, Step::Ready);
}

#[tokio::test]
async fn an_unknown_domain_has_a_hint() {
    let error = async |own: Value, all: Value| {
        let api = server(move |path, _| match path {
            DOMAINS => list(&own),
            "/apis/resource.nvidia.com/v1beta1/computedomains" => list(&all),
            "/api/v1/namespaces/team" => (200, json!({"metadata": {"name": "team"}})),
            _ => failure(404, path),
        });
        let name = ObjectName::new("team", "trian");
        read(&api.client(), &name, None, now()).await.unwrap_err()
    };
    let found = error(json!([domain()]), json!([])).await;
    assert_eq!(found.to_string(), "there is no ComputeDomain \"trian\" in namespace \"team\"");
    assert_eq!(found.hint().unwrap(), "those of this namespace are: train");
    let mut other = domain();
    other["metadata"]["namespace"] = json!("team-b");
    let found = error(json!([]), json!([other])).await;
    assert_eq!(found.hint().unwrap(), "a ComputeDomain of this name is in: team-b (use -n)");
    let found = error(json!([]), json!([])).await;
    assert!(found.hint().unwrap().contains("kubectl get computedomains -A"));
}

#[tokio::test]
async fn a_cluster_without_the_kind_says_so() {
    let api = server(|path, _| failure(404, path));
    let name = ObjectName::new("team", "train");
    let error = read(&api.client(), &name, None, now()).await.unwrap_err();
    assert!(matches!(error, ViewError::NoDomainKind), "{error}");
}
