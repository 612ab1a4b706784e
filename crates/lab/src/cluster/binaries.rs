//! The programs of the control plane and of real nodes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::cli::progress::Progress;
use crate::cluster::add_ons::AddOns;
use crate::cluster::settings::Tool;
use crate::real_node::virtual_machine::image;

mod build;
mod source;

/// The Kubernetes programs of a lab.
const TOOLS: [&str; 5] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];

/// The control plane's programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binaries {
    pub(crate) tools: BTreeMap<String, Tool>,
    /// Version of the lab's own build; `None` if every program comes from `KUBEBUILDER_ASSETS`.
    pub(crate) version: Option<String>,
}

/// Names another kubelet for real nodes, such as an older one.
const KUBELET_VARIABLE: &str = "OCTAVO_LAB_KUBELET";

/// Finds every program, and builds the missing ones that the cache lacks.
///
/// Programs in the folder that `KUBEBUILDER_ASSETS` names are used unchanged. Programs missing
/// there come from the lab's own build. So a folder with only etcd and kube-apiserver, as envtest
/// projects use it, is enough. `kubelet` requests the kubelet of real nodes as well.
pub(crate) async fn find(
    kubelet: bool,
    add_ons: AddOns,
    progress: &Progress,
) -> anyhow::Result<Binaries> {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").filter(|value| !value.is_empty());
    let mut tools =
        assets.map(|folder| from_assets(Path::new(&folder))).transpose()?.unwrap_or_default();
    let missing: Vec<&str> = TOOLS.into_iter().filter(|tool| !tools.contains_key(*tool)).collect();
    let is_built = kubelet || !missing.is_empty();
    if !missing.is_empty() {
        let program = built(&source::control_plane()?, progress).await?;
        for tool in missing {
            let args = vec![tool.to_owned()];
            tools.insert(tool.to_owned(), Tool { program: program.clone(), args });
        }
    }
    if kubelet {
        let program = match std::env::var_os(KUBELET_VARIABLE).filter(|path| !path.is_empty()) {
            Some(other) => PathBuf::from(other),
            None => built(&source::kubelet()?, progress).await?,
        };
        tools.insert("kubelet".to_owned(), Tool { program, args: Vec::new() });
    }
    if add_ons.any() {
        let folder = built(&source::add_ons()?, progress).await?;
        for (name, is_wanted) in
            [("coredns", add_ons.name_server), ("mpi-operator", add_ons.mpi_operator)]
        {
            if is_wanted {
                let program = folder.join(name);
                tools.insert(name.to_owned(), Tool { program, args: Vec::new() });
            }
        }
    }
    let version = is_built.then(source::kubernetes_version).transpose()?.map(str::to_owned);
    Ok(Binaries { tools, version })
}

/// The program that answers with Kubernetes' own code, built if the cache lacks this version. Only
/// tests use it.
pub async fn oracles(progress: &Progress) -> anyhow::Result<PathBuf> {
    built(&source::oracles()?, progress).await
}

/// The file with the times of the steps of the last `up`; `None` if there is no cache folder.
pub(crate) fn step_times() -> Option<PathBuf> {
    let cache = cache_folder(|name| std::env::var_os(name).filter(|value| !value.is_empty()));
    cache.ok().map(|folder| folder.join("step-times.json"))
}

/// The folder with containerd, its shim, ctr and `cdi-devices`, built if the cache lacks this
/// version.
pub async fn containerd(progress: &Progress) -> anyhow::Result<PathBuf> {
    built(&source::containerd()?, progress).await
}

/// The folder with the image of virtual machines, made if the cache lacks this version.
pub(crate) async fn virtual_machine(progress: &Progress) -> anyhow::Result<PathBuf> {
    let cache = cache_folder(|name| std::env::var_os(name).filter(|value| !value.is_empty()))?;
    progress.step("looking for the image of virtual machines: made once, in about a minute");
    tokio::task::spawn_blocking(move || image::find(&cache)).await?
}

/// The result of a project's build.
async fn built(project: &source::Project, progress: &Progress) -> anyhow::Result<PathBuf> {
    let cache = cache_folder(|name| std::env::var_os(name).filter(|value| !value.is_empty()))?;
    build::project(project, &cache, progress).await
}

fn from_assets(folder: &Path) -> anyhow::Result<BTreeMap<String, Tool>> {
    if !folder.is_dir() {
        anyhow::bail!(
            "KUBEBUILDER_ASSETS names {}, which is not a folder: name the folder with etcd and \
             kube-apiserver, or unset it; the lab then builds its own",
            folder.display()
        );
    }
    let found = TOOLS.into_iter().filter_map(|tool| {
        let program = std::path::absolute(folder.join(tool)).ok()?;
        program.is_file().then(|| (tool.to_owned(), Tool { program, args: Vec::new() }))
    });
    Ok(found.collect())
}

/// The cache folder: `$OCTAVO_CACHE_DIR`, else `$XDG_CACHE_HOME/octavo`, else `~/.cache/octavo`.
fn cache_folder(env: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<PathBuf> {
    let folder = if let Some(cache) = env("OCTAVO_CACHE_DIR") {
        PathBuf::from(cache)
    } else if let Some(cache) = env("XDG_CACHE_HOME") {
        Path::new(&cache).join("octavo")
    } else if let Some(home) = env("HOME") {
        Path::new(&home).join(".cache/octavo")
    } else {
        anyhow::bail!("no folder for the control plane: set HOME or OCTAVO_CACHE_DIR")
    };
    Ok(std::path::absolute(folder)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_the_named_one_and_else_the_user_s() {
        let choose = |env: &[(&str, &str)]| {
            cache_folder(|name| env.iter().find(|(key, _)| *key == name).map(|(_, v)| v.into()))
        };
        let all = [("OCTAVO_CACHE_DIR", "/c"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(choose(&all).unwrap(), Path::new("/c"));
        assert_eq!(choose(&all[1..]).unwrap(), Path::new("/x/octavo"));
        assert_eq!(choose(&all[2..]).unwrap(), Path::new("/h/.cache/octavo"));
        assert!(choose(&[]).unwrap_err().to_string().contains("OCTAVO_CACHE_DIR"));
    }

    #[test]
    fn programs_in_the_assets_folder_are_used_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("etcd"), "").unwrap();
        std::fs::write(folder.path().join("README"), "").unwrap();
        let tools = from_assets(folder.path()).unwrap();
        assert_eq!(tools.keys().collect::<Vec<_>>(), ["etcd"]);
        assert_eq!(tools["etcd"].program, folder.path().join("etcd"));
        assert!(tools["etcd"].args.is_empty());
        let message = from_assets(Path::new("/no/such/assets")).unwrap_err().to_string();
        assert!(message.contains("/no/such/assets"), "{message}");
    }
}
