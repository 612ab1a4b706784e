//! What makes a virtual machine a node: its own unit in the image, and the files that the unit reads
//! in the node's folder.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::cluster::settings::RealNodes;
use crate::real_node::{
    NodeContext, RealProgram, config, mounts, node_contexts, node_network, tool,
};

/// Kernel parameter with the path of the node's setup script.
pub(super) const SETUP_PARAMETER: &str = "octavo.setup";

/// Folder at which the virtual machine sees the machine's files.
const MACHINE_DIR: &str = "/machine";

/// Folder of the CNI plugins of Debian's package.
pub(in crate::real_node) const CNI_FOLDER: &str = "/usr/lib/cni";

/// Folders of the virtual machine that no folder of the machine covers.
const OWN_DIRS: [&str; 7] =
    ["/", "/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];

/// Unit of the image that makes the virtual machine a node.
pub(super) const UNIT: &str = "\
[Unit]
Description=Octavo's lab: make this machine a node
After=network-pre.target
# `octavo lab up` then shows the end of the console.
FailureAction=poweroff

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -eu /usr/local/sbin/octavo-node
StandardOutput=journal+console

[Install]
WantedBy=multi-user.target
";

/// Program of the unit.
pub(super) const PROGRAM: &str = "\
mkdir -p /machine
mount -t virtiofs machine /machine
for word in $(cat /proc/cmdline); do
  case $word in octavo.setup=*) exec /bin/sh -eux \"/machine${word#octavo.setup=}\" ;; esac
done
echo 'octavo-node: the kernel parameter octavo.setup is missing' >&2
exit 1
";

/// Path of the setup script, as a kernel parameter can have it.
pub(super) fn setup_path(context: &NodeContext<'_>) -> anyhow::Result<PathBuf> {
    let path = context.layout.real_node(&context.node.name).join("etc/setup");
    if path.to_string_lossy().contains(|c: char| c.is_whitespace() || c == '"') {
        bail!(
            "{} has a space or a quote, which a kernel parameter can't have: name another folder \
             with --state-dir",
            path.display()
        );
    }
    Ok(path)
}

/// The files that the virtual machine reads, by name in the node's folder of config files.
pub(in crate::real_node) fn files(
    context: &NodeContext<'_>,
) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut files = vec![("setup", setup(context)?)];
    for program in RealProgram::ALL {
        let (name, after) = match program {
            RealProgram::Containerd => ("containerd.service", ""),
            RealProgram::Kubelet => ("kubelet.service", "containerd.service"),
        };
        files.push((name, unit(context, program, after)));
    }
    Ok(files)
}

/// Script of the node's file system, network and programs.
fn setup(context: &NodeContext<'_>) -> anyhow::Result<String> {
    let mut script = String::from("# Makes the virtual machine a node of the lab.\n");
    let mut bind = |from: &Path, to: &Path| {
        let from = quoted(&Path::new(MACHINE_DIR).join(from.strip_prefix("/").unwrap_or(from)));
        let to = quoted(to);
        writeln!(script, "mkdir -p {to}; mount --bind {from} {to}")
    };
    for folder in seen_folders(context) {
        bind(&folder, &folder)?;
    }
    let etc = context.layout.real_node(&context.node.name).join("etc");
    bind(&etc, Path::new(mounts::ETC_DIR))?;
    bind(&context.layout.node(&context.node.name), Path::new(mounts::HARDWARE_DIR))?;
    // Containers have the folder. Virtual machines share no memory.
    writeln!(script, "mkdir -p -m 1777 {}", mounts::FABRIC_DIR)?;
    let gateway = context.real.gateway();
    writeln!(script, "ip address add {}/24 dev eth0", context.address())?;
    writeln!(script, "ip link set dev eth0 up")?;
    writeln!(script, "ip route add default via {gateway}")?;
    for peer in
        node_contexts(context.layout, context.settings).filter(|peer| peer.number != context.number)
    {
        writeln!(script, "ip route add {} via {}", RealNodes::pods(peer.number), peer.address())?;
    }
    writeln!(script, "echo 1 > /proc/sys/net/ipv4/ip_forward")?;
    for rule in node_network::address_rules(context) {
        writeln!(script, "iptables {}", rule.join(" "))?;
    }
    writeln!(
        script,
        "cp {}/*.service /run/systemd/system/\nsystemctl daemon-reload\n\
         systemctl start containerd.service kubelet.service",
        mounts::ETC_DIR
    )?;
    Ok(script)
}

/// Folders of the machine that the virtual machine has at the same paths. None is within another.
fn seen_folders(context: &NodeContext<'_>) -> BTreeSet<PathBuf> {
    let settings = context.settings;
    let kubelet = settings.control_plane.get("kubelet").map(|tool| tool.program.as_path());
    let programs = [Some(settings.octavo.as_path()), kubelet];
    let folders = programs.into_iter().flatten().filter_map(Path::parent);
    // These are the virtual machine's own. The image has the program `octavo`.
    let is_own = |folder: &&Path| OWN_DIRS.iter().any(|own| *folder == Path::new(own));
    let folders = folders.filter(|folder| !is_own(folder));
    let all: BTreeSet<&Path> =
        folders.chain([context.layout.root(), context.real.containerd.as_path()]).collect();
    all.iter()
        .filter(|folder| !all.iter().any(|other| other != *folder && folder.starts_with(other)))
        .map(|folder| folder.to_path_buf())
        .collect()
}

/// The systemd unit of a program.
fn unit(context: &NodeContext<'_>, program: RealProgram, after: &str) -> String {
    let name = program.name();
    let log = context.layout.real_log(&context.node.name, name);
    // containerd says when it listens.
    let kind = if program == RealProgram::Containerd { "notify" } else { "exec" };
    let order =
        if after.is_empty() { String::new() } else { format!("After={after}\nRequires={after}\n") };
    let command = config::command(context, program);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let start: Vec<String> = words.map(|word| systemd_quoted(&word.to_string_lossy())).collect();
    format!(
        "[Unit]\nDescription={name} of the lab\n{order}\n\
         [Service]\n\
         Type={kind}\n\
         ExecStart={}\n\
         Environment=PATH={}\n\
         Environment=HOME=/root\n\
         # Containers go on while it restarts.\n\
         KillMode=process\n\
         Delegate=yes\n\
         Restart=always\n\
         RestartSec=1\n\
         TasksMax=infinity\n\
         LimitNOFILE=1048576\n\
         StandardOutput=append:{log}\n\
         StandardError=append:{log}\n",
        start.join(" "),
        tool::PATH,
        log = log.display(),
    )
}

/// A word of a unit's command line (systemd.service(5), COMMAND LINES).
fn systemd_quoted(word: &str) -> String {
    let mut text = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '%' | '$' => text.extend([c, c]),
            c => text.push(c),
        }
    }
    text + "\""
}

/// A word of a shell script.
fn quoted(word: &Path) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;
