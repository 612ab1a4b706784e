use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::resource::v1::ResourceClaim;
use octavo_api::names::CLASS_GPU;

use super::*;

fn settings() -> JobSettings {
    JobSettings {
        namespace: "octavo-system".to_owned(),
        image: "octavo:1".to_owned(),
        pull_policy: Some("Always".to_owned()),
        pull_secrets: vec!["registry".to_owned()],
        service_account: Some("octavo-agent".to_owned()),
        driver_root: "/run/nvidia/driver".to_owned(),
        status_dir: Some("/run/nvidia/validations".to_owned()),
        runtime_class: Some("nvidia".to_owned()),
        limit: Some(Duration::from_mins(5)),
    }
}

fn by_claim(scheduler: Option<&str>) -> Step {
    let scheduler = scheduler.map(str::to_owned);
    Step::Gpu(Offer::Claims { class: CLASS_GPU, devices: 8, scheduler })
}

/// The Job, which the API's types know whole, and its container's command.
fn checked(step: &Step, settings: &JobSettings) -> (Value, Vec<String>) {
    let value = job(step, "octavo-validate-x", "gpu-1", settings);
    let typed: Job = serde_json::from_value(value.clone()).unwrap();
    let pod = typed.spec.unwrap().template.spec.unwrap();
    (value, pod.containers[0].command.clone().unwrap())
}

#[test]
fn the_driver_is_checked_with_the_rights_of_the_host_and_without_a_gpu() {
    let (job, command) = checked(&Step::Driver, &settings());
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(
        command,
        [
            "octavo",
            "validate",
            "node",
            "--status-dir=/run/nvidia/validations",
            "--report=/dev/termination-log",
            "driver",
            "--driver-root=/run/nvidia/driver",
            "--driver-root-seen=/driver-root",
        ]
    );
    assert_eq!(pod["containers"][0]["securityContext"]["privileged"], true);
    assert_eq!(pod["containers"][0].get("resources"), None);
    assert_eq!(pod.get("resourceClaims"), None);
    assert_eq!(pod.get("runtimeClassName"), None, "it needs nothing of NVIDIA's runtime");
    assert_eq!(pod["serviceAccountName"], "octavo-agent");
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(job["spec"]["activeDeadlineSeconds"], 360);
    let term =
        "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0";
    let node = pod.pointer(&format!("{term}/matchFields/0/values")).unwrap();
    assert_eq!(*node, json!(["gpu-1"]));
    let paths: Vec<&Value> =
        pod["volumes"].as_array().unwrap().iter().map(|it| &it["hostPath"]["path"]).collect();
    assert_eq!(paths, ["/run/nvidia/validations", "/run/nvidia/driver"]);
}

#[test]
fn a_host_s_whole_root_is_mounted_for_reading_only() {
    let read_only = |root: &str| {
        let settings = JobSettings { driver_root: root.to_owned(), ..settings() };
        let job = job(&Step::Driver, "x", "gpu-1", &settings);
        job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][1]["readOnly"].clone()
    };
    assert_eq!((read_only("/"), read_only("/run/nvidia/driver")), (json!(true), json!(false)));
}

#[test]
fn a_claim_goes_with_its_job() {
    let step = by_claim(None);
    let (job, command) = checked(&step, &settings());
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(
        pod["resourceClaims"],
        json!([{"name": "gpu", "resourceClaimName": "octavo-validate-x"}])
    );
    assert_eq!(pod["containers"][0]["resources"], json!({"claims": [{"name": "gpu"}]}));
    assert_eq!(pod["containers"][0]["securityContext"].get("privileged"), None);
    assert_eq!(pod["runtimeClassName"], "nvidia");
    assert_eq!(pod.get("schedulerName"), None);
    assert_eq!(command[5..8], ["toolkit", "cuda", "plugin"]);
    let claim = claim(&step, "octavo-validate-x", "uid-1").unwrap();
    let typed: ResourceClaim = serde_json::from_value(claim.clone()).unwrap();
    assert_eq!(typed.metadata.owner_references.unwrap()[0].uid, "uid-1");
    let request = &claim["spec"]["devices"]["requests"][0]["exactly"];
    assert_eq!(*request, json!({"deviceClassName": "gpu.nvidia.com"}));
}

#[test]
fn the_owner_of_the_devices_places_the_pod() {
    let (job, _) = checked(&by_claim(Some("octavo")), &settings());
    assert_eq!(job["spec"]["template"]["spec"]["schedulerName"], "octavo");
}

#[test]
fn a_counted_resource_needs_no_claim() {
    let step = Step::Gpu(Offer::Resources { resource: "nvidia.com/gpu".to_owned(), amount: 8 });
    let bare = JobSettings { status_dir: None, runtime_class: None, limit: None, ..settings() };
    let (job, command) = checked(&step, &bare);
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(job["spec"]["activeDeadlineSeconds"], 24 * 3600 + 60);
    assert_eq!(pod["containers"][0]["resources"], json!({"limits": {"nvidia.com/gpu": "1"}}));
    assert_eq!(pod["volumes"], json!([]));
    assert!(command.contains(&"--no-status-files".to_owned()), "{command:?}");
    assert_eq!(claim(&step, "x", "uid-1"), None);
}
