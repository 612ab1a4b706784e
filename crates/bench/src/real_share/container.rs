//! A container without a runtime: a root made from the machine's own, with the edits of CDI specs
//! applied.
//!
//! A shell creates the mounts, in a mount namespace that ends with the command. Writes to the root
//! stay in memory: on an overlay if the kernel has one. Otherwise `/etc` is a copy and the rest is
//! the machine's own.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

/// Makes the root. `$root` is where, `$work` a folder in memory.
const ROOT: &str = r#"
mount --make-rprivate /
mount -t tmpfs octavo "$base"
mkdir "$root" "$base/upper" "$base/work" "$base/etc"
if mount -t overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" octavo "$root" 2> /dev/null; then
  for part in proc sys dev; do mount --rbind "/$part" "$root/$part"; done
  # The overlay shows one file system: lay the others over it, outer ones first.
  awk '{ print $5 }' /proc/self/mountinfo | while read -r place; do
    case $place in
      / | "$base"* | /proc | /proc/* | /sys | /sys/* | /dev | /dev/* | /run | /run/*) ;;
      *) if [ -e "$root$place" ]; then mount --bind "$place" "$root$place" || true; fi ;;
    esac
  done
else
  mount --rbind / "$root"
  cp -a /etc/. "$base/etc"
  mount --bind "$base/etc" "$root/etc"
fi
mount -t tmpfs octavo "$root/run"
"#;

/// The supported part of a CDI spec.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    kind: String,
    devices: Vec<Device>,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Edits {
    env: Vec<String>,
    device_nodes: Vec<Node>,
    mounts: Vec<Mount>,
    hooks: Vec<Hook>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    path: String,
    host_path: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    host_path: String,
    container_path: String,
    #[serde(default)]
    options: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hook {
    #[serde(rename = "hookName")]
    name: String,
    path: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<String>,
}

/// The script and environment of a container.
#[derive(Debug)]
pub(super) struct Container {
    script: PathBuf,
    env: Vec<String>,
}

impl Container {
    /// Makes a container from the specs in a folder that define the named devices. Its files are
    /// written to `folder`.
    pub(super) fn from_specs(
        folder: &Path,
        specs: &Path,
        names: &[String],
    ) -> anyhow::Result<Self> {
        let edits = edits(specs, names)?;
        let (base, bundle) = (folder.join("container"), folder.join("bundle"));
        for folder in [&base, &bundle] {
            fs::create_dir(folder)?;
        }
        let root = base.join("root");
        let inherited = std::env::vars().map(|(name, value)| format!("{name}={value}"));
        let env: Vec<String> = inherited.chain(edits.env.iter().cloned()).collect();
        let hooks = edits
            .hooks
            .iter()
            .map(|hook| json!({"path": hook.path, "args": hook.args, "env": hook.env}));
        let config = json!({
            "ociVersion": "1.2.0",
            "root": {"path": root},
            "process": {"env": env, "args": [], "cwd": "/"},
            "hooks": {"createContainer": hooks.collect::<Vec<Value>>()},
        });
        fs::write(bundle.join("config.json"), config.to_string())?;
        let script = folder.join("container.sh");
        fs::write(&script, text(&edits, &base, &root, &bundle)?)?;
        Ok(Self { script, env })
    }

    /// A command that runs a program in it.
    pub(super) fn command(&self, program: &OsStr, args: &[OsString]) -> anyhow::Result<Command> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-e"]).arg(&self.script).arg(program).args(args);
        command.env_clear();
        for variable in &self.env {
            let (name, value) = variable.split_once('=').context("a variable without a value")?;
            command.env(name, value);
        }
        Ok(command)
    }
}

/// All edits of some devices: those of a spec before those of its devices.
fn edits(folder: &Path, names: &[String]) -> anyhow::Result<Edits> {
    let mut all = Edits::default();
    let mut found = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let spec = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        // JSON is YAML.
        let spec: Spec = serde_saphyr::from_str(&spec)
            .with_context(|| format!("{} is no CDI spec", path.display()))?;
        let name = |device: &Device| format!("{}={}", spec.kind, device.name);
        let wanted: Vec<_> =
            spec.devices.iter().filter(|device| names.contains(&name(device))).collect();
        found += wanted.len();
        if !wanted.is_empty() {
            let parts = wanted.into_iter().map(|device| device.container_edits.clone());
            for mut edits in std::iter::once(spec.container_edits.clone()).chain(parts) {
                all.env.append(&mut edits.env);
                all.device_nodes.append(&mut edits.device_nodes);
                all.mounts.append(&mut edits.mounts);
                all.hooks.append(&mut edits.hooks);
            }
        }
    }
    ensure!(
        found == names.len(),
        "{found} of the CDI devices {names:?} are in {}",
        folder.display()
    );
    Ok(all)
}

/// The script that makes the container and becomes its command.
fn text(edits: &Edits, base: &Path, root: &Path, bundle: &Path) -> anyhow::Result<String> {
    let mut lines = vec![
        format!("base={}", quoted(&base.to_string_lossy())),
        format!("root={}", quoted(&root.to_string_lossy())),
        ROOT.trim().to_owned(),
    ];
    for node in &edits.device_nodes {
        let host = node.host_path.as_ref().unwrap_or(&node.path);
        let kind = fs::metadata(host).with_context(|| format!("look at the device {host}"))?;
        ensure!(
            kind.file_type().is_char_device() || kind.is_file(),
            "{host} is neither a device nor a simulated one"
        );
        lines.push(place(&node.path, false));
        lines.push(format!("mount --bind {} {}", quoted(host), in_root(&node.path)));
    }
    for mount in &edits.mounts {
        let (host, path) = (&mount.host_path, &mount.container_path);
        let is_folder = fs::metadata(host).with_context(|| format!("look at {host}"))?.is_dir();
        lines.push(place(path, is_folder));
        lines.push(format!("mount --rbind {} {}", quoted(host), in_root(path)));
        if mount.options.iter().any(|option| option == "ro") {
            lines.push(format!("mount -o remount,bind,ro {}", in_root(path)));
        }
    }
    let state = "printf '{\"ociVersion\":\"1.2.0\",\"id\":\"share\",\"status\":\"creating\",\"pid\":%d,\"bundle\":\"%s\"}' $$";
    for hook in &edits.hooks {
        ensure!(
            hook.name == "createContainer",
            "unsupported hook {}: only createContainer hooks run here",
            hook.name
        );
        let env: Vec<String> = hook.env.iter().map(|variable| quoted(variable)).collect();
        let args: Vec<String> = hook.args.iter().skip(1).map(|arg| quoted(arg)).collect();
        lines.push(format!(
            "{state} {} | env -i {} {} {}",
            quoted(&bundle.to_string_lossy()),
            env.join(" "),
            quoted(&hook.path),
            args.join(" ")
        ));
    }
    lines.push("exec chroot \"$root\" \"$@\"".to_owned());
    Ok(lines.join("\n") + "\n")
}

/// Creates a mount point if it is missing.
fn place(path: &str, is_folder: bool) -> String {
    let target = in_root(path);
    let parent = Path::new(path).parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
    if is_folder {
        return format!("mkdir -p {target}");
    }
    format!("mkdir -p {} && {{ [ -e {target} ] || : > {target}; }}", in_root(&parent))
}

fn in_root(path: &str) -> String {
    format!("\"$root\"{}", quoted(path))
}

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_one() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn edits_of_the_spec_go_before_those_of_its_devices() {
        let folder = tempfile::tempdir().unwrap();
        let spec = json!({
            "cdiVersion": "0.5.0", "kind": "k/c",
            "devices": [
                {"name": "a", "containerEdits": {"env": ["A=1"]}},
                {"name": "b", "containerEdits": {"env": ["B=1"]}},
            ],
            "containerEdits": {"env": ["ALL=1"]},
        });
        fs::write(folder.path().join("spec.json"), spec.to_string()).unwrap();
        let found = edits(folder.path(), &["k/c=b".to_owned()]).unwrap();
        assert_eq!(found.env, ["ALL=1", "B=1"]);
        assert!(edits(folder.path(), &["k/c=c".to_owned()]).is_err());
    }
}
