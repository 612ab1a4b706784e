//! Containers that run: those of Octavo's own image, as processes of this machine.
//!
//! ```text
//! address      one of the loopback, for each pod
//! environment  the container's, and that of its CDI devices; a kubeconfig with a token of the pod's account
//! files        /etc/hosts, /imexd and volumes of Secrets are files of the pod's folder, named by variables
//! programs     octavo is this program; the driver's are those of the node
//! probes       the readiness probe's command; a startup probe's interval until it succeeds
//! ```
//!
//! There is no isolation: a process sees all of this machine. It survives the simulated kubelet, which finds it by its pid
//! file.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, Probe, ServiceAccount};
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use rustix::process::{Pid, Signal};
use tokio::time::{Instant, sleep_until, timeout};

use crate::cluster::kubeconfig::{self, Credential};
use crate::cluster::layout::Layout;
use crate::cluster::pki;
use crate::cluster::process::{self, CommandLine, Process};
use crate::cluster::settings::Settings;
use crate::kubelet::node::Node;
use crate::kubelet::pods::{containers, volumes};
use crate::kubelet::within;
use crate::real_node::images::OCTAVO_IMAGE;

/// Lifetime of a pod's token in seconds: a day. It is not renewed.
const TOKEN_SECONDS: i64 = 24 * 3600;

/// Seconds between the end of a pod and SIGKILL if its deletion says none.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// What processes of a lab have in common.
#[derive(Debug)]
pub(crate) struct ProcessHost {
    layout: Layout,
    /// Address of the API server; `None` without a lab, as in tests.
    apiserver: Option<SocketAddrV4>,
}

/// A running container.
#[derive(Debug)]
pub(crate) struct ContainerProcess {
    process: Process,
    probe: Option<ExecProbe>,
    command: CommandLine,
}

/// What happened to a running container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEvent {
    /// It ended.
    Exited,
    /// Its probe was run, and succeeded or not.
    Ready(bool),
}

/// A probe that runs a command.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ExecProbe {
    command: Vec<String>,
    /// Interval until it succeeds.
    startup_interval: Duration,
    /// Interval afterwards.
    interval: Duration,
    timeout: Duration,
}

impl ProcessHost {
    /// The lab in a state folder.
    pub(crate) fn new(state_dir: &Path) -> anyhow::Result<Self> {
        let layout = Layout::new(state_dir)?;
        let apiserver = Settings::read(&layout)?.map(|settings| settings.apiserver());
        Ok(Self { layout, apiserver })
    }
}

/// The container of a pod that runs as a process; `None` if the pod's containers are recorded only.
pub(crate) fn container_of(pod: &Pod) -> Option<Container> {
    let containers = pod.spec.as_ref().map(|spec| &spec.containers)?;
    match containers.as_slice() {
        [container] if container.image.as_deref() == Some(OCTAVO_IMAGE) => Some(container.clone()),
        _ => None,
    }
}

/// Starts a container, or finds the process that an earlier kubelet started.
pub(crate) async fn start(
    node: &Node,
    pod: &Pod,
    container: &Container,
    address: &str,
) -> anyhow::Result<ContainerProcess> {
    let folder = node.pod_folder(&pod.uid().unwrap_or_default());
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let pid_file = folder.join(format!("{}.pid", container.name));
    let command = command(node, pod, container, (address, &folder)).await?;
    let probe = probe(container);
    if let Some(process) = Process::read(&pid_file).filter(|process| process.is_alive()) {
        return Ok(ContainerProcess { process, probe, command });
    }
    let log = node.host.layout.logs().join(format!("{}.log", pod.name_any()));
    let state = node.host.layout.root();
    let process = process::spawn(&command, state, &log, &pid_file)?;
    Ok(ContainerProcess { process, probe, command })
}

impl ContainerProcess {
    /// Whether a probe decides when it is ready.
    pub(crate) fn has_probe(&self) -> bool {
        self.probe.is_some()
    }

    /// Waits for its end, or for the result of the next probe.
    pub(crate) async fn next(&self, is_ready: bool) -> ProcessEvent {
        let due = self.probe.as_ref().map(|probe| {
            let pause = if is_ready { probe.interval } else { probe.startup_interval };
            Instant::now() + pause
        });
        let probed = async {
            match (due, &self.probe) {
                (Some(due), Some(probe)) => {
                    sleep_until(due).await;
                    self.run(probe).await
                }
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.ended() => ProcessEvent::Exited,
            is_ready = probed => ProcessEvent::Ready(is_ready),
        }
    }

    /// Ends it: SIGTERM, and SIGKILL after the grace period in seconds.
    pub(crate) async fn stop(&self, grace: Option<i64>) {
        let grace = u64::try_from(grace.unwrap_or(DEFAULT_GRACE_SECONDS)).unwrap_or_default();
        process::stop(&[self.process], Duration::from_secs(grace)).await;
        self.kill_rest();
    }

    async fn ended(&self) {
        self.process.ended().await;
        self.kill_rest();
    }

    /// Kills what the ended process has left in its group, as the end of a container's first process does.
    fn kill_rest(&self) {
        if let Some(group) = Pid::from_raw(self.process.pid) {
            // There is none, mostly.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }

    /// Runs the probe's command in the container's environment.
    async fn run(&self, probe: &ExecProbe) -> bool {
        let [program, args @ ..] = probe.command.as_slice() else { return false };
        let mut command = tokio::process::Command::new(resolve(program, &self.command.env));
        command.args(args).envs(&self.command.env).kill_on_drop(true);
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        command.stderr(std::process::Stdio::null());
        match timeout(probe.timeout, command.status()).await {
            Ok(Ok(status)) => status.success(),
            Ok(Err(_)) | Err(_) => false,
        }
    }
}

/// The command line of a container, with its environment.
async fn command(
    node: &Node,
    pod: &Pod,
    container: &Container,
    (address, folder): (&str, &Path),
) -> anyhow::Result<CommandLine> {
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    let words: Vec<String> = words.cloned().collect();
    let [program, args @ ..] = words.as_slice() else { bail!("the container has no command") };
    let mut env = BTreeMap::new();
    for variable in container.env.iter().flatten() {
        env.insert(variable.name.clone(), value(node, pod, variable, address)?);
    }
    let uid = pod.uid().unwrap_or_default();
    let of_devices = containers::cdi_variables(node, &uid, &container.name);
    for variable in of_devices.context("read the container's record")? {
        if let Some((name, value)) = variable.split_once('=') {
            env.insert(name.to_owned(), value.to_owned());
        }
    }
    for (path, place) in volumes::folders(pod, container, folder) {
        env.values_mut().filter(|value| **value == path).for_each(|value| *value = text(&place));
    }
    let programs = node.driver_programs();
    env.insert("PATH".to_owned(), format!("{}:/usr/bin:/bin", programs.display()));
    env.insert("KUBECONFIG".to_owned(), text(&account(node, pod, folder).await?));
    let hosts = folder.join("hosts");
    if !hosts.exists() {
        let lines = format!("127.0.0.1\tlocalhost\n{address}\t{}\n", pod.name_any());
        std::fs::write(&hosts, lines).with_context(|| format!("write {}", hosts.display()))?;
    }
    env.insert("OCTAVO_HOSTS_FILE".to_owned(), text(&hosts));
    let volume = folder.join("imexd");
    std::fs::create_dir_all(&volume).with_context(|| format!("create {}", volume.display()))?;
    env.insert("OCTAVO_IMEXD_FOLDER".to_owned(), text(&volume));
    let program = resolve(program, &env);
    Ok(CommandLine { program, args: args.to_vec(), env })
}

/// The value of a variable: a text, or a field of the pod (the downward API).
fn value(node: &Node, pod: &Pod, variable: &EnvVar, address: &str) -> anyhow::Result<String> {
    let Some(source) = &variable.value_from else {
        return Ok(variable.value.clone().unwrap_or_default());
    };
    let field = source.field_ref.as_ref().map(|field| field.field_path.as_str());
    Ok(match field {
        Some("metadata.name") => pod.name_any(),
        Some("metadata.namespace") => pod.namespace().unwrap_or_default(),
        Some("metadata.uid") => pod.uid().unwrap_or_default(),
        Some("spec.nodeName") => node.name.clone(),
        Some("status.podIP") => address.to_owned(),
        _ => bail!("variable {} has a source that the lab does not know", variable.name),
    })
}

/// A kubeconfig with a token of the pod's service account, bound to the pod as that of a real one.
async fn account(node: &Node, pod: &Pod, folder: &Path) -> anyhow::Result<PathBuf> {
    let host = &node.host;
    let apiserver = host.apiserver.context("there is no lab with an API server")?;
    let (token_file, kubeconfig) = (folder.join("token"), folder.join("kubeconfig"));
    let name = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
    let name = name.unwrap_or_else(|| "default".to_owned());
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.name_any()),
                uid: pod.uid(),
            }),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let namespace = pod.namespace().unwrap_or_default();
    let accounts: Api<ServiceAccount> = Api::namespaced(node.client.clone(), &namespace);
    let params = PostParams::default();
    let answer = within(accounts.create_token_request(&name, &params, &request)).await;
    let answer = answer.with_context(|| format!("ask for a token of {name}"))?;
    let token = answer.status.and_then(|status| status.token);
    let token = token.context("the API server answered without a token")?;
    pki::write_secret(&token_file, &token)?;
    kubeconfig::write(&kubeconfig, &host.layout, apiserver, &Credential::TokenFile(&token_file))?;
    Ok(kubeconfig)
}

/// The program of a command: `octavo` is this one, others are searched in the container's `PATH`.
fn resolve(program: &str, env: &BTreeMap<String, String>) -> PathBuf {
    if program == "octavo"
        && let Ok(own) = std::env::current_exe()
    {
        return own;
    }
    let folders = env.get("PATH").map(|path| std::env::split_paths(path).collect::<Vec<_>>());
    let mut candidates = folders.into_iter().flatten().map(|folder| folder.join(program));
    candidates.find(|candidate| candidate.is_file()).unwrap_or_else(|| program.into())
}

/// The readiness probe of a container.
fn probe(container: &Container) -> Option<ExecProbe> {
    let readiness = container.readiness_probe.as_ref()?;
    let command = readiness.exec.as_ref()?.command.clone()?;
    let seconds = |value: Option<i32>, default: u64| {
        let value = value.and_then(|value| u64::try_from(value).ok()).filter(|value| *value > 0);
        Duration::from_secs(value.unwrap_or(default))
    };
    let interval = |probe: &Probe| seconds(probe.period_seconds, 10);
    let startup = container.startup_probe.as_ref().map_or_else(|| interval(readiness), interval);
    Some(ExecProbe {
        command,
        startup_interval: startup,
        interval: interval(readiness),
        timeout: seconds(readiness.timeout_seconds, 1),
    })
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(value: serde_json::Value) -> Container {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_a_lone_container_of_octavo_s_image_is_a_process() {
        let pod = |images: &[&str]| -> Pod {
            let containers = images.iter().map(|image| json!({"name": "c", "image": image}));
            let spec = json!({"containers": containers.collect::<Vec<_>>()});
            serde_json::from_value(json!({"spec": spec})).unwrap()
        };
        assert!(container_of(&pod(&[OCTAVO_IMAGE])).is_some());
        assert!(container_of(&pod(&["ubuntu:24.04"])).is_none());
        assert!(container_of(&pod(&[OCTAVO_IMAGE, OCTAVO_IMAGE])).is_none());
    }

    #[test]
    fn a_probe_has_the_intervals_of_both_probes() {
        let exec = json!({"command": ["octavo", "imex-daemon", "check"]});
        let both = container(json!({
            "name": "c",
            "readinessProbe": {"exec": exec, "periodSeconds": 2, "timeoutSeconds": 5},
            "startupProbe": {"exec": exec, "periodSeconds": 1},
        }));
        let found = probe(&both).unwrap();
        assert_eq!(found.startup_interval, Duration::from_secs(1));
        assert_eq!(found.interval, Duration::from_secs(2));
        assert_eq!(found.timeout, Duration::from_secs(5));
        assert_eq!(probe(&container(json!({"name": "c"}))), None);
    }

    #[test]
    fn octavo_is_this_program_and_others_are_searched() {
        let env = BTreeMap::from([("PATH".to_owned(), "/nowhere:/bin".to_owned())]);
        assert_eq!(resolve("octavo", &env), std::env::current_exe().unwrap());
        assert_eq!(resolve("sh", &env), Path::new("/bin/sh"));
        assert_eq!(resolve("no-such-program", &env), Path::new("no-such-program"));
    }
}
