//! Config files and command lines of a real node's programs.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::images::PAUSE_IMAGE;
use super::mounts::ETC_DIR;
use super::virtual_machine::guest;
use super::{NodeContext, RealProgram, registry, requirements};
use crate::cluster::add_ons;
use crate::cluster::component::Component;
use crate::cluster::kubeconfig::{self, Credential};
use crate::cluster::pki;
use crate::cluster::settings::RealNodes;

/// containerd's socket.
pub(super) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// `f_type` of an overlay file system.
const OVERLAYFS: u64 = 0x794c_7630;

/// Stem of a kubelet's client certificate files.
pub(crate) fn client_stem(node: &str) -> String {
    format!("kubelet-{node}")
}

/// Stem of a kubelet's server certificate files.
pub(crate) fn server_stem(node: &str) -> String {
    format!("kubelet-{node}-server")
}

/// Writes a node's files.
pub(crate) fn write(context: &NodeContext<'_>) -> anyhow::Result<()> {
    let name = &context.node.name;
    let folder = context.layout.real_node(name);
    let etc = folder.join("etc");
    for folder in [
        folder.join("lib"),
        folder.join("log"),
        etc.join("cni"),
        etc.join("certs.d").join(registry::HOST),
    ] {
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let stem = client_stem(name);
    let kubeconfig = context.layout.client_kubeconfig(&stem);
    let apiserver = context.settings.apiserver();
    kubeconfig::write(&kubeconfig, context.layout, apiserver, &Credential::Certificate(&stem))?;
    let mut files = vec![
        ("containerd.toml", containerd(context)?),
        ("kubelet.yaml", yaml(&kubelet(context))?),
        ("certs.d/octavo.dev/hosts.toml", registry_host(context)?),
        ("cni/10-octavo.conflist", format!("{:#}\n", cni_network(context.number))),
        // The machine's own file may be a link into `/run`, and names servers that a node cannot
        // reach.
        (
            "resolv.conf",
            "# The name server of pods, if there is one, is in the kubelet's config.\n".to_owned(),
        ),
    ];
    if context.is_virtual_machine() {
        files.extend(guest::files(context)?);
    }
    for (file, text) in files {
        let path = etc.join(file);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// The command of a program within the node.
pub(super) fn command(context: &NodeContext<'_>, program: RealProgram) -> Command {
    let etc = Path::new(ETC_DIR);
    match program {
        RealProgram::Containerd => {
            let mut command = Command::new(context.real.containerd.join("containerd"));
            command.arg("--config").arg(etc.join("containerd.toml"));
            command
        }
        RealProgram::Kubelet => {
            let tool = context.settings.control_plane.get("kubelet");
            let (binary, args) = match tool {
                Some(tool) => (tool.program.as_path(), tool.args.as_slice()),
                None => (Path::new("kubelet"), [].as_slice()),
            };
            let stem = client_stem(&context.node.name);
            let mut command = Command::new(binary);
            command
                .args(args)
                .arg("--config")
                .arg(etc.join("kubelet.yaml"))
                .arg("--kubeconfig")
                .arg(context.layout.client_kubeconfig(&stem))
                .arg(format!("--hostname-override={}", context.node.name))
                .arg(format!("--node-ip={}", context.address()));
            command
        }
    }
}

/// The snapshotter: overlayfs, unless the state folder is on an overlay, which the kernel does not
/// stack. A virtual machine has a disk of its own.
fn snapshotter(context: &NodeContext<'_>) -> &'static str {
    let folder = context.layout.real_node(&context.node.name);
    let kind = rustix::fs::statfs(&folder).map(|file_system| file_system.f_type);
    let is_overlay = kind.is_ok_and(|kind| u64::try_from(kind) == Ok(OVERLAYFS));
    if is_overlay && !context.is_virtual_machine() { "native" } else { "overlayfs" }
}

/// containerd's config file. A virtual machine has its own kernel and systemd. In namespaces the
/// profile of `AppArmor` would be loaded into the machine's kernel, and stay there. And to lower the
/// score for the kernel's killer below one's own takes a right that root in a container often lacks.
fn containerd(context: &NodeContext<'_>) -> anyhow::Result<String> {
    let alone = context.is_virtual_machine();
    let cni = if alone {
        guest::CNI_FOLDER
    } else {
        requirements::cni_folder().context("the CNI plugins are gone")?
    };
    Ok(format!(
        "\
version = 4
root = '/var/lib/containerd'
state = '/run/containerd'
imports = []
disabled_plugins = ['io.containerd.nri.v1.nri']

[plugins.'io.containerd.server.v1.grpc']
  address = '{CONTAINERD_SOCKET}'

[plugins.'io.containerd.internal.v1.opt']
  path = '/var/lib/containerd/opt'

[plugins.'io.containerd.cri.v1.images']
  snapshotter = '{}'

[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = '{ETC_DIR}/certs.d'

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{PAUSE_IMAGE}'

[plugins.'io.containerd.cri.v1.runtime']
  cdi_spec_dirs = ['/run/cdi']
  disable_apparmor = {shared}
  restrict_oom_score_adj = {shared}

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['{cni}']
  conf_dir = '{ETC_DIR}/cni'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = {alone}
",
        snapshotter(context),
        shared = !alone,
    ))
}

/// Where containerd finds the registry in the names of the lab's images (hosts.toml).
fn registry_host(context: &NodeContext<'_>) -> anyhow::Result<String> {
    let address = registry::address(context.settings).context("the lab has no registry")?;
    Ok(format!(
        "server = 'http://{address}'\n\n[host.'http://{address}']\n  capabilities = ['pull', 'resolve']\n"
    ))
}

fn kubelet(context: &NodeContext<'_>) -> Value {
    let (layout, node) = (context.layout, &context.node.name);
    let pki = |name: String| layout.pki_file(&name);
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": layout.pki_file("ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "tlsCertFile": pki(format!("{}.crt", server_stem(node))),
        "tlsPrivateKeyFile": pki(format!("{}.key", server_stem(node))),
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "cgroupDriver": "systemd",
        "failCgroupV1": true,
        "failSwapOn": false,
        "resolvConf": format!("{ETC_DIR}/resolv.conf"),
        // The default is below `/usr`.
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        // The disk is the machine's, so its usage is not the node's concern.
        "evictionHard": { "imagefs.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%" },
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "5s",
        // A failed prepare is retried only at the pod's next sync, by default after a minute or
        // more.
        "syncFrequency": "10s",
    });
    if context.settings.components.contains(&Component::Coredns) {
        config["clusterDNS"] = json!([context.real.gateway()]);
        config["clusterDomain"] = add_ons::DOMAIN.into();
    }
    if !context.is_virtual_machine() {
        // No systemd, the machine's version of cgroups, and a part of its cgroups.
        config["cgroupDriver"] = "cgroupfs".into();
        config["cgroupRoot"] = context.cgroup().into();
        config["failCgroupV1"] = false.into();
        config["oomScoreAdj"] = 0.into();
    }
    config
}

fn cni_network(number: u8) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "octavo",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                // The node's own rule does it, which leaves out the pods of other nodes.
                "ipMasq": false,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{ "subnet": RealNodes::pods(number) }]],
                    "routes": [{ "dst": format!("{}/0", Ipv4Addr::UNSPECIFIED) }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
}

/// Client and server certificates of each node's kubelet.
pub(crate) fn identities(
    real: &RealNodes,
) -> impl Iterator<Item = (pki::NodeClient, pki::NodeServer)> {
    (0_u8..).zip(&real.nodes).map(|(number, node)| {
        let client = pki::NodeClient {
            stem: client_stem(&node.name),
            user: format!("system:node:{}", node.name),
        };
        let server = pki::NodeServer {
            stem: server_stem(&node.name),
            name: node.name.clone(),
            address: real.address(number),
        };
        (client, server)
    })
}

fn yaml(value: &Value) -> anyhow::Result<String> {
    serde_saphyr::to_string(value).context("write a node's file as YAML")
}
