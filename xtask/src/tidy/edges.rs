//! Which room may use which: the table of ARCHITECTURE.md, checked over `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;

use super::{Finding, SourceFile};

/// Rooms in the order in which data flows, each with the rooms it may use. `octavo` and `xtask`
/// wire and check the others.
const ALLOWED: [(&str, &[&str]); 42] = [
    ("machine", &[]),
    ("gpu", &["machine"]),
    ("cel", &[]),
    ("dra", &["cel"]),
    ("term", &[]),
    ("health", &[]),
    ("api", &["health"]),
    ("kubelet-api", &[]),
    ("arbiter", &["api", "guard-abi"]),
    ("migration", &["api", "dra"]),
    ("engine", &["dra", "health"]),
    ("sim", &["dra", "engine", "health", "term"]),
    ("kube-io", &["api", "dra"]),
    ("guard-abi", &[]),
    ("guard", &["guard-abi"]),
    ("lease-page", &["guard-abi"]),
    ("hook", &["guard-abi", "proxy"]),
    ("embedded", &["guard", "guard-abi"]),
    ("proxy", &["guard-abi"]),
    ("node", &[]),
    ("cdi", &["api", "gpu", "hook", "node"]),
    (
        "enforcement",
        &[
            "arbiter",
            "gpu",
            "dra",
            "api",
            "kube-io",
            "guard-abi",
            "embedded",
            "hook",
            "lease-page",
            "proxy",
            "node",
            "cdi",
            "process-checkpoint",
        ],
    ),
    (
        "agent",
        &[
            "gpu",
            "dra",
            "api",
            "kubelet-api",
            "kube-io",
            "embedded",
            "guard-abi",
            "hook",
            "node",
            "cdi",
            "enforcement",
            "migration",
            "health",
        ],
    ),
    ("controller", &["api", "health", "kube-io", "migration"]),
    ("scheduler", &["api", "cel", "dra", "engine", "health", "kube-io"]),
    ("imex-daemon", &["api", "kube-io"]),
    ("mps-daemon", &["gpu", "node"]),
    ("view", &["api", "dra", "engine", "health", "kube-io", "migration", "term"]),
    ("install", &["api", "migration", "view"]),
    ("validate", &["api", "gpu", "term", "view"]),
    ("fake-gpu", &["machine"]),
    ("fake-nvml", &["machine", "fake-gpu"]),
    ("fake-cuda", &["machine", "fake-gpu"]),
    ("fake-imex", &["machine", "fake-gpu"]),
    ("fake-programs", &["machine", "fake-gpu"]),
    ("probe", &["gpu", "term"]),
    ("process-checkpoint", &["gpu"]),
    ("figure", &["term"]),
    ("research", &["agent", "figure", "gpu", "sim"]),
    ("lab", &["api", "kube-io", "kubelet-api", "machine", "term"]),
    ("oracle", &["lab"]),
    ("testkit", &[]),
];

/// Programs that may use every room.
const WIRING: [&str; 3] = ["octavo", "xtask", "octavo-bench"];

/// Rooms that may name the Kubernetes client; `api` its derive of custom resources alone, without the
/// client ([`check_api`]).
const NAME_KUBE: [&str; 14] = [
    API,
    "octavo-kube-io",
    "octavo-agent",
    "octavo-controller",
    "octavo-enforcement",
    "octavo-scheduler",
    "octavo-imex-daemon",
    "octavo-view",
    "octavo-install",
    "octavo-validate",
    "octavo-lab",
    "octavo",
    "octavo-bench",
    "octavo-testkit",
];

/// Rooms that may contain `unsafe`; every other crate root forbids it.
const UNSAFE: [&str; 8] = [
    "octavo-lease-page",
    "octavo-gpu",
    "octavo-fake-gpu",
    "octavo-fake-cuda",
    "octavo-fake-nvml",
    "octavo-guard",
    "octavo-probe",
    "octavo-process-checkpoint",
];

/// The room of custom resources.
const API: &str = "octavo-api";

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<String>,
    features: Vec<String>,
    uses_default_features: bool,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    src_path: String,
}

pub(super) fn check(root: &Path, _: &[SourceFile]) -> anyhow::Result<Vec<Finding>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root)
        .output()
        .context("run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    if metadata.packages.is_empty() {
        bail!("cargo metadata names no packages");
    }
    let mut findings = Vec::new();
    for package in &metadata.packages {
        check_edges(package, &mut findings);
        check_unsafe(package, &mut findings)?;
    }
    Ok(findings)
}

fn check_edges(package: &Package, findings: &mut Vec<Finding>) {
    let mut complain = |problem: String| {
        findings.push(Finding { place: package.manifest_path.clone(), problem });
    };
    let allowed: BTreeMap<_, _> =
        ALLOWED.iter().map(|(room, uses)| (format!("octavo-{room}"), *uses)).collect();
    let wiring = WIRING.contains(&package.name.as_str());
    let uses: BTreeSet<String> = match allowed.get(&package.name) {
        Some(uses) => uses.iter().map(|room| format!("octavo-{room}")).collect(),
        None if wiring => BTreeSet::new(),
        None => {
            complain("is a room that ARCHITECTURE.md and this check do not know".into());
            return;
        }
    };
    for dependency in &package.dependencies {
        // Tests may look at a room from outside: the driver is tested on the simulated one.
        let in_product = dependency.kind.as_deref() != Some("dev");
        if dependency.path.is_some() && in_product && !wiring && !uses.contains(&dependency.name) {
            complain(format!("may not use {}: see the table in ARCHITECTURE.md", dependency.name));
        }
        if dependency.name == "kube" && package.name == API {
            check_api(dependency, &mut complain);
        }
        if dependency.name == "kube" && !NAME_KUBE.contains(&package.name.as_str()) {
            complain("may not name kube: convert at the edge, in kube-io or a program".into());
        }
    }
}

/// `api` does no I/O: it takes of kube what types of custom resources need, and no client.
fn check_api(kube: &Dependency, complain: &mut impl FnMut(String)) {
    if kube.uses_default_features || kube.features != ["derive"] {
        let features = kube.features.join(", ");
        complain(format!("may have kube's feature derive alone, not the default ones: {features}"));
    }
}

fn check_unsafe(package: &Package, findings: &mut Vec<Finding>) -> anyhow::Result<()> {
    if UNSAFE.contains(&package.name.as_str()) {
        return Ok(());
    }
    for target in &package.targets {
        if !target.kind.iter().any(|kind| ["lib", "bin", "rlib", "cdylib"].contains(&kind.as_str()))
        {
            continue;
        }
        let text = std::fs::read_to_string(&target.src_path)
            .with_context(|| format!("read {}", target.src_path))?;
        if !text.contains("#![forbid(unsafe_code)]") {
            findings.push(Finding {
                place: target.src_path.clone(),
                problem: "lacks #![forbid(unsafe_code)]".into(),
            });
        }
    }
    Ok(())
}
