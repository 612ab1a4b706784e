//! The objects of a Job: itself, and the claim of its pod (pure).

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::{Value, json};

use crate::offer::Offer;
use crate::report::Component;

/// Label of what a validation makes.
pub(super) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Its value.
pub(super) const MANAGER: &str = "octavo-validate";
/// The claim in the pod.
const CLAIM: &str = "gpu";
/// Where the container has the driver's root of the host.
const DRIVER_ROOT: &str = "/driver-root";
/// Where the container writes its results, which the kubelet puts into the pod's status.
const REPORT: &str = "/dev/termination-log";
/// Seconds that a Job lasts after its end if no command removes it.
const TTL_SECONDS: u64 = 600;
/// Limit of a Job where the command has none: a killed command leaves no pod for ever.
const LONGEST: Duration = Duration::from_hours(24);
/// Time that a Job may last beyond the command's limit.
const MARGIN: Duration = Duration::from_mins(1);

/// What is checked by one Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The driver of the host, without a GPU.
    Driver,
    /// A container with a GPU from this offer.
    Gpu(Offer),
}

/// What all Jobs of a validation have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobSettings {
    pub(super) namespace: String,
    pub(super) image: String,
    pub(super) pull_policy: Option<String>,
    /// Names of Secrets.
    pub(super) pull_secrets: Vec<String>,
    /// The account; `None`: that of the namespace.
    pub(super) service_account: Option<String>,
    /// The driver's root on the nodes.
    pub(super) driver_root: String,
    /// Folder of the status files on the nodes; `None`: there are none.
    pub(super) status_dir: Option<String>,
    /// `RuntimeClass` of the pod with a GPU.
    pub(super) runtime_class: Option<String>,
    /// Time that the command waits for it.
    pub(super) limit: Option<Duration>,
}

impl Step {
    /// Its name in that of the Job.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Gpu(_) => "gpu",
        }
    }
}

/// The Job of a step on a node. Its pod waits until its claim, which the Job owns, is made.
pub(super) fn job(step: &Step, name: &str, node: &str, settings: &JobSettings) -> Value {
    let labels = json!({
        "app.kubernetes.io/name": "octavo-validate",
        "app.kubernetes.io/part-of": "octavo",
        "app.kubernetes.io/component": "validate",
        MANAGED_BY: MANAGER,
    });
    let limit = settings.limit.unwrap_or(LONGEST) + MARGIN;
    let spec = json!({
        "activeDeadlineSeconds": limit.as_secs(),
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": TTL_SECONDS,
        "template": {"metadata": {"labels": labels}, "spec": pod(step, name, node, settings)},
    });
    json!({"metadata": {"name": name, "labels": labels}, "spec": spec})
}

/// Whether the pod of a step has a claim.
pub(super) fn has_claim(step: &Step) -> bool {
    matches!(step, Step::Gpu(Offer::Claims { .. }))
}

/// The claim for the pod of a Job, which has the Job's name and is owned by it; `None` if the step has none.
pub(super) fn claim(step: &Step, job: &str, uid: &str) -> Option<Value> {
    let Step::Gpu(Offer::Claims { class, .. }) = step else { return None };
    Some(json!({
        "metadata": {
            "name": job,
            "labels": {MANAGED_BY: MANAGER},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid}],
        },
        "spec": {"devices": {"requests": [{"name": CLAIM, "exactly": {"deviceClassName": class}}]}},
    }))
}

fn pod(step: &Step, job: &str, node: &str, settings: &JobSettings) -> Value {
    let secrets: Vec<Value> =
        settings.pull_secrets.iter().map(|name| json!({"name": name})).collect();
    let mut pod = json!({
        "restartPolicy": "Never",
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": [node]}]}]}}},
        // A cordoned node, and one with taints for GPUs, is checked all the same.
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": false,
        "imagePullSecrets": secrets,
        "volumes": volumes(step, settings),
        "containers": [container(step, settings)],
    });
    if has_claim(step) {
        pod["resourceClaims"] = json!([{"name": CLAIM, "resourceClaimName": job}]);
    }
    if let Some(account) = &settings.service_account {
        pod["serviceAccountName"] = json!(account);
    }
    if let (Step::Gpu(_), Some(class)) = (step, &settings.runtime_class) {
        pod["runtimeClassName"] = json!(class);
    }
    if let Step::Gpu(Offer::Claims { scheduler: Some(scheduler), .. }) = step {
        pod["schedulerName"] = json!(scheduler);
    }
    pod
}

fn container(step: &Step, settings: &JobSettings) -> Value {
    let mut command: Vec<String> = ["octavo", "validate", "node"].map(str::to_owned).to_vec();
    let mut mounts = Vec::new();
    if let Some(folder) = &settings.status_dir {
        command.push(format!("--status-dir={folder}"));
        mounts.push(json!({"name": "status", "mountPath": folder}));
    } else {
        command.push("--no-status-files".to_owned());
    }
    command.push(format!("--report={REPORT}"));
    let mut container = json!({
        "name": "validate",
        "image": settings.image,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    match step {
        Step::Driver => {
            command.push(Component::Driver.name().to_owned());
            command.push(format!("--driver-root={}", settings.driver_root));
            command.push(format!("--driver-root-seen={DRIVER_ROOT}"));
            mounts.push(json!({
                "name": "driver-root", "mountPath": DRIVER_ROOT, "mountPropagation": "HostToContainer",
                "readOnly": settings.driver_root == "/",
            }));
            // The device nodes of all GPUs, of which a runtime knows nothing.
            container["securityContext"] = json!({"privileged": true});
            // NVIDIA's runtime, if it is the default, must add nothing here.
            container["env"] = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]);
        }
        Step::Gpu(offer) => {
            command.extend(Component::OF_GPU.map(|component| component.name().to_owned()));
            command.push(format!("--offered={offer}"));
            // Not privileged, as a user's.
            container["securityContext"] = json!({"allowPrivilegeEscalation": false});
            if settings.status_dir.is_some() {
                // With SELinux it could not write the status files otherwise.
                container["securityContext"]["seLinuxOptions"] = json!({"type": "spc_t"});
            }
            container["resources"] = match offer {
                Offer::Claims { .. } => json!({"claims": [{"name": CLAIM}]}),
                Offer::Resources { resource, .. } => json!({"limits": {resource: "1"}}),
            };
        }
    }
    if let Some(policy) = &settings.pull_policy {
        container["imagePullPolicy"] = json!(policy);
    }
    container["command"] = json!(command);
    container["volumeMounts"] = json!(mounts);
    container
}

fn volumes(step: &Step, settings: &JobSettings) -> Vec<Value> {
    let folder = |name: &str, path: &str| json!({"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}});
    let status = settings.status_dir.as_ref().map(|path| folder("status", path));
    let driver = (*step == Step::Driver).then(|| folder("driver-root", &settings.driver_root));
    status.into_iter().chain(driver).collect()
}
