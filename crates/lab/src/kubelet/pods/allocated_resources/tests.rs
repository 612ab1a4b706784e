use std::time::Duration;

use serde_json::json;

use super::*;
use crate::kubelet::claims::UsableClaim;
use crate::kubelet::claims::claim_info::Device;
use crate::kubelet::plugins::health::{Health, Report};

#[test]
fn container_shows_health_of_the_devices_it_requests() {
    let pod: Pod = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {
            "resourceClaims": [{"name": "gpus", "resourceClaimName": "c"}],
            "containers": [
                {"name": "one", "resources": {"claims": [{"name": "gpus", "request": "a"}]}},
                {"name": "all", "resources": {"claims": [{"name": "gpus"}]}},
                {"name": "none"},
            ],
        },
    }))
    .unwrap();
    let mut ledger = ClaimInfoCache::default();
    let claim = UsableClaim {
        namespace: "ns".to_owned(),
        name: "c".to_owned(),
        uid: "claim".to_owned(),
        drivers: BTreeSet::from(["d".to_owned()]),
    };
    ledger.reserve("u", &claim).unwrap();
    let device = |request: &str, name: &str, id: Option<&str>| Device {
        requests: vec![request.to_owned()],
        pool: "n".to_owned(),
        name: name.to_owned(),
        cdi_ids: id.map(ToOwned::to_owned).into_iter().collect(),
        share_id: None,
    };
    ledger.record(
        "claim",
        "d",
        vec![device("a", "gpu-0", Some("v/c=gpu-0")), device("b", "gpu-1", None)],
    );
    let (mut reports, now) = (Reports::default(), Instant::now());
    let report = Report {
        pool: "n".to_owned(),
        device: "gpu-0".to_owned(),
        health: Health::Unhealthy,
        message: "XID 79".to_owned(),
        timeout: Duration::from_secs(30),
    };
    reports.update("d", vec![report], now);

    let shown = of_pod(&pod, &ledger, &reports, now);
    assert_eq!(shown.keys().collect::<Vec<_>>(), ["all", "one"]);
    let sick = json!({"health": "Unhealthy", "message": "XID 79", "resourceID": "v/c=gpu-0"});
    let unknown = json!({"health": "Unknown", "resourceID": "d/n/gpu-1"});
    assert_eq!(
        serde_json::to_value(&shown["one"]).unwrap(),
        json!([{"name": "claim:gpus/a", "resources": [sick]}])
    );
    assert_eq!(
        serde_json::to_value(&shown["all"]).unwrap(),
        json!([{"name": "claim:gpus", "resources": [sick, unknown]}])
    );
}
