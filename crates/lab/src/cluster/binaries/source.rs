//! The Go programs of the lab, with their sources as of this binary's build.

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};

/// A Go module whose programs are built once per version.
pub(super) struct Project {
    /// Name of its folder in the cache.
    pub(super) name: &'static str,
    /// Name of the build result: a binary or a folder of binaries.
    pub(super) result: &'static str,
    /// Name for people.
    pub(super) title: String,
    /// Usual duration of a build, for people.
    pub(super) duration_hint: &'static str,
    /// Alternative to installing Go, as the end of a sentence; may be empty.
    pub(super) alternative: &'static str,
    /// Its source files by name. They are embedded, so the lab needs no checkout.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// Package argument of `go build`.
    pub(super) packages: &'static str,
    /// Value of `-ldflags`.
    pub(super) link_flags: String,
}

impl Project {
    /// Whether the build result is a folder.
    pub(super) fn is_folder(&self) -> bool {
        self.packages == TOOLS
    }

    /// Names a build: equal sources and flags give equal names.
    pub(super) fn digest(&self) -> anyhow::Result<String> {
        let mut hash = Sha256::new();
        for (name, text) in self.files {
            for part in [name, text] {
                hash.update(u64::try_from(part.len())?.to_le_bytes());
                hash.update(part.as_bytes());
            }
        }
        hash.update(self.link_flags.as_bytes());
        let digest = hash.finalize();
        let (high, _) = digest.split_at(16);
        Ok(format!("{:032x}", u128::from_be_bytes(high.try_into()?)))
    }
}

/// The `go build` argument for all tools of a module.
const TOOLS: &str = "tool";

/// The control plane, and the kubelet of real nodes.
pub(super) fn control_plane() -> anyhow::Result<Project> {
    Ok(Project {
        name: "control-plane",
        result: "control-plane",
        title: format!("Kubernetes {}", kubernetes_version()?),
        duration_hint: "4 to 8 minutes",
        alternative: ", or set KUBEBUILDER_ASSETS to a folder that holds etcd, kube-apiserver, \
                  kube-controller-manager, kube-scheduler and kubectl",
        files: &CONTROL_PLANE_FILES,
        packages: ".",
        link_flags: link_flags()?,
    })
}

/// containerd, its shim and ctr, for real nodes.
pub(super) fn containerd() -> anyhow::Result<Project> {
    let version = required_version(&CONTAINERD_FILES, "github.com/containerd/containerd/v2 ")?;
    Ok(Project {
        name: "containerd",
        result: "bin",
        title: format!("containerd {version}"),
        duration_hint: "1 to 2 minutes",
        alternative: "",
        files: &CONTAINERD_FILES,
        packages: TOOLS,
        link_flags: format!(
            "-s -w -X github.com/containerd/containerd/v2/version.Version={version}"
        ),
    })
}

const CONTAINERD_FILES: [(&str, &str); 2] = [
    ("go.mod", include_str!("../../../../../lab/containerd/go.mod")),
    ("go.sum", include_str!("../../../../../lab/containerd/go.sum")),
];

const CONTROL_PLANE_FILES: [(&str, &str); 9] = [
    ("main.go", include_str!("../../../../../lab/control-plane/main.go")),
    ("dra_oracle.go", include_str!("../../../../../lab/control-plane/dra_oracle.go")),
    ("dra_oracle_admit.go", include_str!("../../../../../lab/control-plane/dra_oracle_admit.go")),
    ("dra_oracle_check.go", include_str!("../../../../../lab/control-plane/dra_oracle_check.go")),
    (
        "dra_oracle_extended.go",
        include_str!("../../../../../lab/control-plane/dra_oracle_extended.go"),
    ),
    ("etcd.go", include_str!("../../../../../lab/control-plane/etcd.go")),
    ("filter_oracle.go", include_str!("../../../../../lab/control-plane/filter_oracle.go")),
    ("go.mod", include_str!("../../../../../lab/control-plane/go.mod")),
    ("go.sum", include_str!("../../../../../lab/control-plane/go.sum")),
];

/// The Kubernetes version that the Go program pins: `v1.36.3`.
pub(super) fn kubernetes_version() -> anyhow::Result<&'static str> {
    required_version(&CONTROL_PLANE_FILES, "k8s.io/kubernetes ")
}

/// The version that the go.mod among `files` requires of `module`. The module name ends with a
/// space.
fn required_version(
    files: &[(&str, &'static str)],
    module: &'static str,
) -> anyhow::Result<&'static str> {
    let go_mod = files.iter().find(|(name, _)| *name == "go.mod").map(|(_, text)| *text);
    go_mod
        .and_then(|text| text.lines().find_map(|line| line.trim().strip_prefix(module)))
        .and_then(|version| version.split_whitespace().next())
        .with_context(|| format!("a go.mod of the lab requires no {module}"))
}

/// Value of `-ldflags` for Kubernetes: stripped, and stamped with the version. Without the stamps
/// the API server reports v0.0.0, and its feature gates follow that version.
fn link_flags() -> anyhow::Result<String> {
    let version = kubernetes_version()?;
    let mut numbers = version.trim_start_matches('v').split('.');
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        bail!("{version} is not a version of Kubernetes");
    };
    let mut flags = "-s -w".to_owned();
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        for (name, value) in [
            ("gitVersion", version),
            ("gitMajor", major),
            ("gitMinor", minor),
            ("gitTreeState", "clean"),
        ] {
            flags.extend([" -X ", package, ".", name, "=", value]);
        }
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_of_the_program_is_embedded() {
        for project in [control_plane().unwrap(), containerd().unwrap()] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab").join(project.name);
            let on_disk: BTreeSet<String> = std::fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            let embedded: BTreeSet<String> =
                project.files.iter().map(|(name, _)| (*name).to_owned()).collect();
            assert_eq!(on_disk, embedded);
            assert_eq!(project.digest().unwrap().len(), 32);
        }
    }

    #[test]
    fn the_stamps_carry_the_version_of_go_mod() {
        let version = kubernetes_version().unwrap();
        assert!(version.starts_with("v1."), "{version}");
        let flags = link_flags().unwrap();
        assert!(flags.contains(&format!("k8s.io/component-base/version.gitVersion={version}")));
        assert!(flags.contains("k8s.io/client-go/pkg/version.gitMajor=1"));
        let containerd = containerd().unwrap();
        assert!(containerd.title.starts_with("containerd v2."), "{}", containerd.title);
        assert!(
            containerd.link_flags.ends_with(containerd.title.trim_start_matches("containerd "))
        );
    }
}
