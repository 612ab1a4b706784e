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
    /// Files of its modules that the build result has besides: a module, and a path in it.
    pub(super) module_files: &'static [(&'static str, &'static str)],
    /// Value of `-ldflags`.
    pub(super) link_flags: String,
}

impl Project {
    /// Whether the build result is a folder.
    pub(super) fn is_folder(&self) -> bool {
        self.packages == TOOLS || self.packages == COMMANDS
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
        for (module, path) in self.module_files {
            hash.update(module.as_bytes());
            hash.update(path.as_bytes());
        }
        hash.update(self.link_flags.as_bytes());
        let digest = hash.finalize();
        let (high, _) = digest.split_at(16);
        Ok(format!("{:032x}", u128::from_be_bytes(high.try_into()?)))
    }
}

/// The `go build` argument for all tools of a module.
const TOOLS: &str = "tool";

/// The `go build` argument for all commands within a module.
const COMMANDS: &str = "./...";

/// The control plane.
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
        module_files: &[],
        link_flags: link_flags()?,
    })
}

/// The kubelet of real nodes.
pub(super) fn kubelet() -> anyhow::Result<Project> {
    Ok(Project {
        name: "kubelet",
        result: "kubelet",
        title: format!("kubelet {}", kubernetes_version()?),
        duration_hint: "1 minute after the control plane",
        alternative: "",
        files: &KUBELET_FILES,
        packages: "./kubelet",
        module_files: &[],
        link_flags: link_flags()?,
    })
}

/// Kubernetes' own code as an oracle of tests.
pub(super) fn oracles() -> anyhow::Result<Project> {
    Ok(Project {
        name: "oracles",
        result: "oracles",
        title: format!("the oracles of Kubernetes {}", kubernetes_version()?),
        duration_hint: "1 minute after the control plane",
        alternative: "",
        files: &ORACLES_FILES,
        packages: "./oracles",
        module_files: &[],
        link_flags: link_flags()?,
    })
}

/// containerd, its shim and ctr, for real nodes; and a reader of CDI specs, for tests.
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
        module_files: &[],
        link_flags: format!(
            "-s -w -X github.com/containerd/containerd/v2/version.Version={version}"
        ),
    })
}

/// What clusters have and Kubernetes itself has not: a name server, and the operator of `MPIJobs`.
pub(super) fn add_ons() -> anyhow::Result<Project> {
    let version = |module| required_version(&ADD_ON_FILES, module);
    Ok(Project {
        name: "add-ons",
        result: "add-ons",
        title: format!(
            "CoreDNS {} and the MPI operator {}",
            version("github.com/coredns/coredns ")?,
            version("github.com/kubeflow/mpi-operator ")?
        ),
        duration_hint: "2 to 4 minutes",
        alternative: "",
        files: &ADD_ON_FILES,
        packages: COMMANDS,
        module_files: &[MPI_JOBS],
        link_flags: "-s -w".to_owned(),
    })
}

/// The definition of `MPIJobs`.
const MPI_JOBS: (&str, &str) =
    ("github.com/kubeflow/mpi-operator", "manifests/base/kubeflow.org_mpijobs.yaml");

const ADD_ON_FILES: [(&str, &str); 4] = [
    ("coredns/main.go", include_str!("../../../../../lab/add-ons/coredns/main.go")),
    ("mpi-operator/main.go", include_str!("../../../../../lab/add-ons/mpi-operator/main.go")),
    ("go.mod", include_str!("../../../../../lab/add-ons/go.mod")),
    ("go.sum", include_str!("../../../../../lab/add-ons/go.sum")),
];

const CONTAINERD_FILES: [(&str, &str); 3] = [
    ("cdi-devices/main.go", include_str!("../../../../../lab/containerd/cdi-devices/main.go")),
    ("go.mod", include_str!("../../../../../lab/containerd/go.mod")),
    ("go.sum", include_str!("../../../../../lab/containerd/go.sum")),
];

const CONTROL_PLANE_FILES: [(&str, &str); 4] = [
    ("main.go", include_str!("../../../../../lab/control-plane/main.go")),
    ("etcd.go", include_str!("../../../../../lab/control-plane/etcd.go")),
    GO_MOD,
    GO_SUM,
];

const KUBELET_FILES: [(&str, &str); 3] = [
    ("kubelet/main.go", include_str!("../../../../../lab/control-plane/kubelet/main.go")),
    GO_MOD,
    GO_SUM,
];

const ORACLES_FILES: [(&str, &str); 8] = [
    ("oracles/main.go", include_str!("../../../../../lab/control-plane/oracles/main.go")),
    ("oracles/dra.go", include_str!("../../../../../lab/control-plane/oracles/dra.go")),
    ("oracles/dra_admit.go", include_str!("../../../../../lab/control-plane/oracles/dra_admit.go")),
    ("oracles/dra_check.go", include_str!("../../../../../lab/control-plane/oracles/dra_check.go")),
    (
        "oracles/dra_extended.go",
        include_str!("../../../../../lab/control-plane/oracles/dra_extended.go"),
    ),
    ("oracles/filter.go", include_str!("../../../../../lab/control-plane/oracles/filter.go")),
    GO_MOD,
    GO_SUM,
];

/// The module of the control plane, the kubelet and the oracles: one set of versions for all.
const GO_MOD: (&str, &str) = ("go.mod", include_str!("../../../../../lab/control-plane/go.mod"));
const GO_SUM: (&str, &str) = ("go.sum", include_str!("../../../../../lab/control-plane/go.sum"));

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

    /// Files below `folder`, as paths relative to it.
    fn files_of(folder: &Path) -> BTreeSet<String> {
        let mut files = BTreeSet::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if entry.file_type().unwrap().is_dir() {
                let inner = files_of(&entry.path());
                files.extend(inner.into_iter().map(|file| format!("{name}/{file}")));
            } else {
                files.insert(name);
            }
        }
        files
    }

    #[test]
    fn every_file_of_the_modules_is_embedded() {
        let kubernetes = [control_plane().unwrap(), kubelet().unwrap(), oracles().unwrap()];
        for (module, projects) in [
            ("control-plane", kubernetes.as_slice()),
            ("containerd", &[containerd().unwrap()]),
            ("add-ons", &[add_ons().unwrap()]),
        ] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab").join(module);
            let embedded: BTreeSet<String> = projects
                .iter()
                .flat_map(|project| project.files.iter().map(|(name, _)| (*name).to_owned()))
                .collect();
            assert_eq!(files_of(&folder), embedded);
            assert!(projects.iter().all(|project| project.digest().unwrap().len() == 32));
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
