//! The lab's processes and their command lines.

use std::collections::BTreeMap;
use std::path::Path;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::cluster::add_ons;
use crate::cluster::layout::Layout;
use crate::cluster::manifests::CONTROLLER;
use crate::cluster::pki::KUBELET_CLIENT;
use crate::cluster::process::CommandLine;
use crate::cluster::settings::Settings;

/// A process of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Component {
    /// etcd.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// The registry of images for real nodes.
    Registry,
    /// `CoreDNS`: the name server of pods on real nodes.
    Coredns,
    /// Kubernetes' controllers.
    KubeControllerManager,
    /// Kubernetes' scheduler.
    KubeScheduler,
    /// Octavo's scheduler.
    OctavoScheduler,
    /// Octavo's controller of `ComputeDomains`.
    OctavoController,
    /// Kubeflow's operator of `MPIJobs`.
    MpiOperator,
    /// The simulated kubelets of all nodes.
    Kubelets,
    /// The real agents of all nodes.
    Agents,
}

impl Component {
    /// All, in the order in which they start.
    pub const ALL: [Self; 11] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::Registry,
        Self::Coredns,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::OctavoScheduler,
        Self::OctavoController,
        Self::MpiOperator,
        Self::Kubelets,
        Self::Agents,
    ];

    /// Its name on the command line, in its log's name and in its pid file's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::Registry => "registry",
            Self::Coredns => "coredns",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::OctavoScheduler => "octavo-scheduler",
            Self::OctavoController => "octavo-controller",
            Self::MpiOperator => "mpi-operator",
            Self::Kubelets => "kubelets",
            Self::Agents => "agents",
        }
    }
}

/// The command line of `component` in the lab of `settings`.
pub(crate) fn command(component: Component, layout: &Layout, settings: &Settings) -> CommandLine {
    let (program, mut args) = match settings.control_plane.get(component.name()) {
        Some(tool) => (tool.program.clone(), tool.args.clone()),
        None => (settings.octavo.clone(), Vec::new()),
    };
    args.extend(match component {
        Component::Etcd => etcd(layout, settings),
        Component::KubeApiserver => apiserver(layout, settings),
        Component::KubeControllerManager => controller_manager(layout, settings),
        Component::KubeScheduler => scheduler(layout, settings),
        Component::OctavoScheduler => octavo_scheduler(layout, settings),
        Component::OctavoController => octavo_controller(layout, settings),
        Component::Coredns => vec!["-conf".into(), text(&layout.name_server_config())],
        Component::MpiOperator => mpi_operator(layout),
        Component::Registry => of_lab("registry", layout),
        Component::Kubelets => of_lab("kubelets", layout),
        Component::Agents => vec!["agent".into(), "--nodes".into(), text(&layout.nodes())],
    });
    // Of repeated flags the last one counts.
    args.extend(settings.more_args.get(&component).into_iter().flatten().cloned());
    CommandLine { program, args, env: environment(component) }
}

/// Variables of a program's environment.
fn environment(component: Component) -> BTreeMap<String, String> {
    let variable = match component {
        // As the chart sets it.
        Component::OctavoController => Some(("MALLOC_ARENA_MAX", "1")),
        // Their start makes much garbage, and with Go's default of 100 a quarter of its time is collection. Kubernetes' scheduler
        // keeps the default, since its figures are compared with those of Octavo's.
        Component::Etcd | Component::KubeApiserver | Component::KubeControllerManager => {
            Some(("GOGC", "400"))
        }
        _ => None,
    };
    variable.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Arguments of a hidden subcommand of `octavo lab`.
fn of_lab(command: &str, layout: &Layout) -> Vec<String> {
    vec!["lab".into(), command.into(), "--state-dir".into(), text(layout.root())]
}

/// The scheduler's configuration file.
pub(crate) fn scheduler_config(layout: &Layout) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": layout.client_kubeconfig("scheduler"),
            "qps": 1000,
            "burst": 2000,
        },
        "leaderElection": { "leaderElect": false },
    })
}

fn etcd(layout: &Layout, settings: &Settings) -> Vec<String> {
    let client = format!("https://127.0.0.1:{}", settings.ports.etcd_client);
    let peer = format!("http://127.0.0.1:{}", settings.ports.etcd_peer);
    vec![
        "--name=lab".into(),
        flag("data-dir", &layout.etcd()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=lab={peer}"),
        flag("cert-file", &layout.pki_file("etcd.crt")),
        flag("key-file", &layout.pki_file("etcd.key")),
        flag("trusted-ca-file", &layout.pki_file("etcd-ca.crt")),
        "--client-cert-auth".into(),
        // The lab is disposable, so it may be lost in a crash of the machine.
        "--unsafe-no-fsync".into(),
        "--quota-backend-bytes=8589934592".into(),
        "--log-level=warn".into(),
    ]
}

fn apiserver(layout: &Layout, settings: &Settings) -> Vec<String> {
    let pki = |name: &str| layout.pki_file(name);
    let mut flags = vec![
        format!("--bind-address={}", settings.apiserver().ip()),
        // Otherwise the API server looks for the address of the default route, which may not exist.
        "--advertise-address=127.0.0.1".into(),
        "--endpoint-reconciler-type=none".into(),
        format!("--secure-port={}", settings.ports.apiserver),
        format!("--etcd-servers=https://127.0.0.1:{}", settings.ports.etcd_client),
        flag("etcd-cafile", &pki("etcd-ca.crt")),
        flag("etcd-certfile", &pki("etcd-client.crt")),
        flag("etcd-keyfile", &pki("etcd-client.key")),
        flag("client-ca-file", &pki("ca.crt")),
        flag("tls-cert-file", &pki("apiserver.crt")),
        flag("tls-private-key-file", &pki("apiserver.key")),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
        flag("service-account-key-file", &pki("sa.pub")),
        flag("service-account-signing-key-file", &pki("sa.key")),
        flag("requestheader-client-ca-file", &pki("front-proxy-ca.crt")),
        "--requestheader-allowed-names=front-proxy-client".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-username-headers=X-Remote-User".into(),
        flag("proxy-client-cert-file", &pki("front-proxy-client.crt")),
        flag("proxy-client-key-file", &pki("front-proxy-client.key")),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--allow-privileged=true".into(),
        "--kubelet-preferred-address-types=InternalIP,Hostname".into(),
        "--max-requests-inflight=2000".into(),
        "--max-mutating-requests-inflight=1000".into(),
        "--profiling=false".into(),
    ];
    if settings.real.is_some() {
        flags.extend([
            flag("kubelet-certificate-authority", &pki("ca.crt")),
            flag("kubelet-client-certificate", &pki(&format!("{KUBELET_CLIENT}.crt"))),
            flag("kubelet-client-key", &pki(&format!("{KUBELET_CLIENT}.key"))),
        ]);
    }
    flags
}

fn controller_manager(layout: &Layout, settings: &Settings) -> Vec<String> {
    let kubeconfig = layout.client_kubeconfig("controller-manager");
    vec![
        flag("kubeconfig", &kubeconfig),
        flag("authentication-kubeconfig", &kubeconfig),
        flag("authorization-kubeconfig", &kubeconfig),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={}", settings.ports.controller_manager),
        flag("root-ca-file", &layout.pki_file("ca.crt")),
        flag("cluster-signing-cert-file", &layout.pki_file("ca.crt")),
        flag("cluster-signing-key-file", &layout.pki_file("ca.key")),
        flag("service-account-private-key-file", &layout.pki_file("sa.key")),
        flag("flex-volume-plugin-dir", &layout.flex_volumes()),
        "--use-service-account-credentials=true".into(),
        "--leader-elect=false".into(),
        // 500 simulated kubelets on two busy cores are sometimes late.
        "--node-monitor-grace-period=2m".into(),
        // A pod counts against its quota before it is stored. A count meanwhile loses it until the next one, by default in 5 minutes.
        "--resource-quota-sync-period=10s".into(),
        "--kube-api-qps=1000".into(),
        "--kube-api-burst=2000".into(),
        "--profiling=false".into(),
    ]
}

fn scheduler(layout: &Layout, settings: &Settings) -> Vec<String> {
    let kubeconfig = layout.client_kubeconfig("scheduler");
    vec![
        flag("config", &layout.scheduler_config()),
        flag("authentication-kubeconfig", &kubeconfig),
        flag("authorization-kubeconfig", &kubeconfig),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={}", settings.ports.scheduler),
    ]
}

fn octavo_scheduler(layout: &Layout, settings: &Settings) -> Vec<String> {
    vec![
        "scheduler".into(),
        flag("kubeconfig", &layout.client_kubeconfig("octavo-scheduler")),
        flag("config", &layout.octavo_scheduler_config()),
        format!("--metrics-listen=127.0.0.1:{}", settings.ports.octavo_scheduler),
    ]
}

fn octavo_controller(layout: &Layout, settings: &Settings) -> Vec<String> {
    vec![
        "controller".into(),
        flag("kubeconfig", &layout.client_kubeconfig(CONTROLLER)),
        flag("config", &layout.octavo_controller_config()),
        format!("--metrics-listen=127.0.0.1:{}", settings.ports.octavo_controller),
    ]
}

/// The operator as clusters have it, at a higher rate of requests.
fn mpi_operator(layout: &Layout) -> Vec<String> {
    vec![
        flag("kubeConfig", &layout.kubeconfig()),
        format!("--cluster-domain={}", add_ons::DOMAIN),
        "--kube-api-qps=100".into(),
        "--kube-api-burst=200".into(),
    ]
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
