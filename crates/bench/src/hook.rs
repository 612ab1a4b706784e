//! The program of CDI hooks: its size, and what it adds to the start of a container.
//!
//! A container with a whole GPU runs three hooks before it starts. Each run here begins with an empty root, and its result
//! is checked.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use octavo_embedded::HOOK;
use octavo_figure::{Figure, Goal};
use serde_json::json;

/// Containers that are measured, after one that warms the caches.
const CONTAINERS: usize = 200;
/// Libraries in the container's folder, as a driver's CDI spec mounts.
const LIBRARIES: usize = 40;
const MIB: f64 = (1 << 20) as f64;

/// The hooks of a container with a whole GPU.
const HOOKS: [&[&str]; 3] = [
    &["disable-device-node-modification"],
    &["create-symlinks", "--link", "libcuda.so.580.95.05::/usr/lib64/libcuda.so.1"],
    &["update-ldcache", "--folder", "/usr/lib64", "--cuda-compat", "580.95.05"],
];

/// Measures the program.
pub(crate) fn run() -> anyhow::Result<Vec<Figure>> {
    let folder = tempfile::tempdir().context("make a folder")?;
    let program = folder.path().join("octavo-cdi-hook");
    fs::write(&program, HOOK)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let mut samples = Vec::new();
    for number in 0..=CONTAINERS {
        let bundle = folder.path().join(number.to_string());
        make(&bundle)?;
        let state = json!({"ociVersion": "1.2.0", "bundle": bundle, "pid": 1}).to_string();
        let start = Instant::now();
        for hook in HOOKS {
            run_hook(&program, hook, &state)?;
        }
        samples.push(start.elapsed().as_secs_f64() * 1e3);
        check(&bundle)?;
        fs::remove_dir_all(&bundle)?;
    }
    samples.remove(0);
    #[expect(clippy::cast_precision_loss, reason = "a size of some MiB")]
    let size = HOOK.len() as f64 / MIB;
    Ok(vec![
        Figure::new("size of the hooks' program", "MiB", &[size], Goal::Below(2.0))?,
        Figure::new("three hooks of a container", "ms", &samples, Goal::Below(5.0))?,
    ])
}

/// A bundle whose root has a driver's libraries.
fn make(bundle: &Path) -> anyhow::Result<()> {
    let libraries = bundle.join("rootfs/usr/lib64");
    fs::create_dir_all(&libraries)?;
    fs::create_dir_all(bundle.join("rootfs/etc"))?;
    fs::write(bundle.join("config.json"), json!({"root": {"path": "rootfs"}}).to_string())?;
    // The start of a 64-bit library for x86-64: the hook reads no more.
    let mut start = [0_u8; 64];
    start[..5].copy_from_slice(b"\x7fELF\x02");
    (start[16], start[18]) = (3, 62);
    fs::write(libraries.join("libcuda.so.580.95.05"), start)?;
    for number in 1..LIBRARIES {
        fs::write(libraries.join(format!("libnvidia-{number}.so.580.95.05")), start)?;
    }
    Ok(())
}

fn run_hook(program: &Path, hook: &[&str], state: &str) -> anyhow::Result<()> {
    let mut child = Command::new(program)
        .arg("cdi-hook")
        .args(hook)
        .env_clear()
        .stdin(Stdio::piped())
        .spawn()
        .context("start the hook")?;
    child.stdin.take().context("no standard input")?.write_all(state.as_bytes())?;
    let status = child.wait()?;
    ensure!(status.success(), "the hook {hook:?} failed: {status}");
    Ok(())
}

fn check(bundle: &Path) -> anyhow::Result<()> {
    let root = bundle.join("rootfs");
    let target = fs::read_link(root.join("usr/lib64/libcuda.so.1")).context("no link was made")?;
    ensure!(target == Path::new("libcuda.so.580.95.05"), "the link leads to {}", target.display());
    let cache = fs::read(root.join("etc/ld.so.cache")).context("no cache was written")?;
    let has = |name: &[u8]| cache.windows(name.len()).any(|window| window == name);
    ensure!(
        has(b"libcuda.so.1\0") && has(b"libnvidia-39.so.580.95.05\0"),
        "the cache lacks libraries"
    );
    Ok(())
}
