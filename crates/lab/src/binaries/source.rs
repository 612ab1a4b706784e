//! The Go program of the control plane, as it was when this binary was built.

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};

/// Its files, embedded: the lab needs no checkout.
pub(super) const FILES: [(&str, &str); 4] = [
    ("main.go", include_str!("../../../../lab/control-plane/main.go")),
    ("etcd.go", include_str!("../../../../lab/control-plane/etcd.go")),
    ("go.mod", include_str!("../../../../lab/control-plane/go.mod")),
    ("go.sum", include_str!("../../../../lab/control-plane/go.sum")),
];

/// Version of Kubernetes that the Go program pins: `v1.36.3`.
pub(super) fn kubernetes_version() -> anyhow::Result<&'static str> {
    let go_mod = FILES.iter().find(|(name, _)| *name == "go.mod").map(|(_, text)| *text);
    go_mod
        .and_then(|text| {
            text.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "))
        })
        .context("the control plane's go.mod requires no k8s.io/kubernetes")
}

/// Value of `-ldflags`: small, and stamped with the version. Without the stamps the API server
/// calls itself v0.0.0, and feature gates follow that.
pub(super) fn link_flags() -> anyhow::Result<String> {
    let version = kubernetes_version()?;
    let mut numbers = version.trim_start_matches('v').split('.');
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        bail!("{version} is no version of Kubernetes");
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

/// Names a build: the same sources and flags give the same name.
pub(super) fn digest() -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    for (name, text) in FILES {
        for part in [name, text] {
            hash.update(u64::try_from(part.len())?.to_le_bytes());
            hash.update(part.as_bytes());
        }
    }
    hash.update(link_flags()?.as_bytes());
    let digest = hash.finalize();
    let (high, _) = digest.split_at(16);
    Ok(format!("{:032x}", u128::from_be_bytes(high.try_into()?)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_of_the_program_is_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/control-plane");
        let there: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let embedded: BTreeSet<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(there, embedded);
    }

    #[test]
    fn the_stamps_carry_the_version_of_go_mod() {
        let version = kubernetes_version().unwrap();
        assert!(version.starts_with("v1."), "{version}");
        let flags = link_flags().unwrap();
        assert!(flags.contains(&format!("k8s.io/component-base/version.gitVersion={version}")));
        assert!(flags.contains("k8s.io/client-go/pkg/version.gitMajor=1"));
        assert_eq!(digest().unwrap().len(), 32);
    }
}
