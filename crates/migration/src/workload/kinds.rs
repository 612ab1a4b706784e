//! Where objects have their pod templates.

/// What is known of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A pod.
    Pod,
    /// An object with pod templates at these paths.
    Workload(&'static [&'static str]),
    /// An object of HAMi or KAI itself, such as a queue.
    OfScheduler,
    /// Another one.
    Other,
}

/// API groups of KAI's own objects.
const GROUPS_OF_SCHEDULERS: [&str; 3] = ["scheduling.run.ai", "kai.scheduler", "hami.io"];

const RAY_CLUSTER: &[&str] = &["spec.headGroupSpec.template", "spec.workerGroupSpecs.*.template"];

/// What is known of a kind of an API group; `""` is the core group.
pub(super) fn kind(group: &str, kind: &str) -> Kind {
    Kind::Workload(match (group, kind) {
        ("", "Pod") => return Kind::Pod,
        ("", "PodTemplate") => &["template"],
        ("", "ReplicationController")
        | ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet")
        | ("batch", "Job") => &["spec.template"],
        ("batch", "CronJob") => &["spec.jobTemplate.spec.template"],
        ("jobset.x-k8s.io", "JobSet") => &["spec.replicatedJobs.*.template.spec.template"],
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet") => &[
            "spec.leaderWorkerTemplate.leaderTemplate",
            "spec.leaderWorkerTemplate.workerTemplate",
        ],
        ("kubeflow.org", "PyTorchJob") => &["spec.pytorchReplicaSpecs.*.template"],
        ("kubeflow.org", "MPIJob") => &["spec.mpiReplicaSpecs.*.template"],
        ("kubeflow.org", "TFJob") => &["spec.tfReplicaSpecs.*.template"],
        ("kubeflow.org", "XGBoostJob") => &["spec.xgbReplicaSpecs.*.template"],
        ("kubeflow.org", "PaddleJob") => &["spec.paddleReplicaSpecs.*.template"],
        ("kubeflow.org", "JAXJob") => &["spec.jaxReplicaSpecs.*.template"],
        ("ray.io", "RayCluster") => RAY_CLUSTER,
        ("ray.io", "RayJob") => &[
            "spec.rayClusterSpec.headGroupSpec.template",
            "spec.rayClusterSpec.workerGroupSpecs.*.template",
            "spec.submitterPodTemplate",
        ],
        ("ray.io", "RayService") => &[
            "spec.rayClusterConfig.headGroupSpec.template",
            "spec.rayClusterConfig.workerGroupSpecs.*.template",
        ],
        (group, _) if GROUPS_OF_SCHEDULERS.contains(&group) => return Kind::OfScheduler,
        _ => return Kind::Other,
    })
}
