//! The container images of real nodes, packed from programs of this machine.
//!
//! The images for pods under test have one layer. It has busybox with a link per command, and a `cat`
//! that is linked against this machine's C library. It also has the libraries needed by these, the
//! simulated driver and `octavo`. So containers have a shell for inspection, and a dynamically linked
//! program that loads the libraries added by CDI.
//!
//! Octavo's own image has what the `Dockerfile` puts into it, the libraries that the program is linked
//! against, and no shell.

pub(crate) mod mpi;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::dockerfile::{self, Content};
use super::{requirements, tool};
use crate::cluster::layout::Layout;
use crate::nodes::driver_libraries::DriverLibraries;

/// Image of the process that holds a pod's namespaces.
pub(crate) const PAUSE_IMAGE: &str = "octavo.dev/lab/pause:1";

/// Image for tests: a shell and its commands.
pub const TOOLS_IMAGE: &str = "octavo.dev/lab/tools:1";

/// Octavo's image, as the rendered chart and its policies name it. Simulated kubelets run its containers as processes.
pub(crate) const OCTAVO_IMAGE: &str = "octavo.dev/lab/octavo:1";

/// Image for MPI jobs: Open MPI, sshd, a shell and `octavo`.
pub const MPI_IMAGE: &str = "octavo.dev/lab/mpi:1";

/// Folder of dynamically linked programs in the image.
const DYNAMIC_DIR: &str = "dynamic";

/// Media type of a manifest.
pub(super) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// Annotation of the index with the whole name of an image, as containerd's own exports have it.
pub(super) const IMAGE_NAME: &str = "io.containerd.image.name";

/// Packs the images into the folder of the lab's registry. That for MPI jobs takes another second.
pub(crate) fn pack(
    layout: &Layout,
    libraries: &DriverLibraries,
    octavo: &Path,
    has_mpi: bool,
) -> anyhow::Result<()> {
    let work = layout.real().join("images.work");
    let layer = |name: &str, fill: &dyn Fn(&Path) -> anyhow::Result<()>| {
        let root = work.join(name);
        fill(&root)?;
        let layer = work.join(format!("{name}.tar"));
        archive(&root, &layer).map(|()| layer)
    };
    let tools = layer("tools", &|root| fill(root, libraries, octavo))?;
    let own = layer("octavo", &|root| fill_octavo(root, octavo))?;
    // Ends only by SIGKILL, as a pause process should.
    let sleep = json!(["/bin/busybox", "sleep", "2147483647"]);
    let mut images = vec![
        Image { name: PAUSE_IMAGE, command: sleep, layers: vec![&tools] },
        Image { name: TOOLS_IMAGE, command: json!(["/bin/busybox", "sh"]), layers: vec![&tools] },
        Image { name: OCTAVO_IMAGE, command: json!(["octavo"]), layers: vec![&own] },
    ];
    let mpi = if has_mpi { Some(layer("mpi", &mpi::fill)?) } else { None };
    if let Some(mpi) = &mpi {
        let command = json!(["/usr/sbin/sshd", "-De"]);
        images.push(Image { name: MPI_IMAGE, command, layers: vec![&tools, &own, mpi] });
    }
    write_layout(&layout.images(), &images)?;
    fs::remove_dir_all(&work).with_context(|| format!("remove {}", work.display()))
}

/// Fills the root file system of Octavo's containers.
fn fill_octavo(root: &Path, octavo: &Path) -> anyhow::Result<()> {
    fill_base(root)?;
    let mut programs = Vec::new();
    for file in dockerfile::files()? {
        let path = root.join(file.path.strip_prefix("/").unwrap_or(file.path));
        match file.content {
            Content::Program(name) => {
                let program = octavo.with_file_name(name);
                copy(&program, &path)?;
                // Of a debug build nine tenths are symbols.
                tool::run("strip", &["--strip-debug", &path.to_string_lossy()])?;
                programs.push(program);
            }
            Content::Text(text) => {
                let folder = path.parent().unwrap_or(root);
                fs::create_dir_all(folder)
                    .and_then(|()| fs::write(&path, text))
                    .with_context(|| format!("write {}", path.display()))?;
            }
        }
    }
    let programs: Vec<&Path> = programs.iter().map(PathBuf::as_path).collect();
    copy_libraries(root, &programs)
}

/// Makes the folders of a root file system, and its accounts.
fn fill_base(root: &Path) -> anyhow::Result<()> {
    for folder in ["bin", DYNAMIC_DIR, "dev", "etc", "proc", "root", "run", "sys", "usr", "var"] {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let folder = root.join("tmp");
    fs::create_dir_all(&folder)
        .and_then(|()| fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)))
        .with_context(|| format!("make {}", folder.display()))?;
    for (file, text) in [("passwd", "root:x:0:0:root:/root:/bin/sh\n"), ("group", "root:x:0:\n")] {
        fs::write(root.join("etc").join(file), text).context("write the accounts of an image")?;
    }
    Ok(())
}

/// Copies the libraries that the dynamic linker loads for some files.
fn copy_libraries(root: &Path, files: &[&Path]) -> anyhow::Result<()> {
    for library in libraries_of(files)? {
        copy(&library, &root.join(library.strip_prefix("/").unwrap_or(&library)))?;
    }
    Ok(())
}

/// Fills the root file system of the containers under test.
fn fill(root: &Path, driver: &DriverLibraries, octavo: &Path) -> anyhow::Result<()> {
    fill_base(root)?;
    let find = |name: &str| {
        requirements::find(name).with_context(|| format!("there is no {name} on this machine"))
    };
    let (busybox, cat) = (find("busybox")?, find("cat")?);
    copy(&busybox, &root.join("bin/busybox"))?;
    copy(&cat, &root.join(DYNAMIC_DIR).join("cat"))?;
    for command in tool::run(&busybox.to_string_lossy(), &["--list"])?.lines() {
        match symlink("busybox", root.join("bin").join(command)) {
            // busybox itself.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            linked => linked.with_context(|| format!("link {command} in an image"))?,
        }
    }
    copy_libraries(root, &[&busybox, &cat, &driver.management, &driver.cuda, octavo])
}

/// The libraries that the dynamic linker loads for programs and libraries on this machine.
fn libraries_of(files: &[&Path]) -> anyhow::Result<BTreeSet<PathBuf>> {
    let output = tool::command("ldd").args(files).output().context("start ldd")?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && !stderr.contains("not a dynamic executable") {
        let first = files.first().map(|file| file.display().to_string()).unwrap_or_default();
        bail!("`ldd {first}` failed ({}): {}", output.status, stderr.trim());
    }
    if let Some(line) = stdout.lines().find(|line| line.contains("not found")) {
        bail!("a program for an image needs a library that does not exist: {}", line.trim());
    }
    Ok(parse_ldd(&stdout))
}

fn parse_ldd(text: &str) -> BTreeSet<PathBuf> {
    // Of several files each has its path in a line of its own.
    let paths = text.lines().filter(|line| line.starts_with('\t')).filter_map(|line| {
        let line = line.split_once("=>").map_or(line, |(_, path)| path);
        line.split_whitespace().next().filter(|word| word.starts_with('/'))
    });
    paths.map(PathBuf::from).collect()
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let folder = to.parent().unwrap_or(to);
    let copied = fs::create_dir_all(folder)
        .and_then(|()| fs::copy(from, to))
        .and_then(|_| fs::set_permissions(to, fs::Permissions::from_mode(0o755)));
    copied.with_context(|| format!("copy {} to {}", from.display(), to.display()))
}

/// Creates a reproducible archive: equal files give equal archives.
fn archive(folder: &Path, to: &Path) -> anyhow::Result<()> {
    let plain = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"];
    let (folder, to) = (folder.to_string_lossy(), to.to_string_lossy());
    let args = [&plain[..], &["-C", &folder, "-cf", &to, "."]].concat();
    tool::run("tar", &args).map(drop)
}

/// An image to pack.
struct Image<'a> {
    name: &'a str,
    command: Value,
    /// Archives, the lowest first.
    layers: Vec<&'a PathBuf>,
}

/// Writes an OCI image layout with these images in it.
fn write_layout(folder: &Path, images: &[Image<'_>]) -> anyhow::Result<()> {
    let store = Store { blobs: folder.join("blobs/sha256") };
    fs::create_dir_all(&store.blobs).context("make the folder of an image's parts")?;
    let manifests =
        images.iter().map(|image| add_image(&store, image)).collect::<anyhow::Result<Vec<_>>>()?;
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": manifests,
    });
    fs::write(folder.join("index.json"), index.to_string())
        .and_then(|()| fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#))
        .context("write the index of the images")
}

/// Adds an image and returns its index entry.
fn add_image(store: &Store, image: &Image<'_>) -> anyhow::Result<Value> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        arch => arch,
    };
    let mut layers = Vec::new();
    for layer in &image.layers {
        let layer = fs::read(layer).context("read an image's layer")?;
        layers.push(store.add("application/vnd.oci.image.layer.v1.tar", &layer)?);
    }
    let digests: Vec<&Value> = layers.iter().map(|layer| &layer["digest"]).collect();
    let path = format!("PATH=/usr/local/bin:/usr/sbin:/bin:/usr/bin:/{DYNAMIC_DIR}");
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": { "Env": [path], "Cmd": image.command },
        "rootfs": { "type": "layers", "diff_ids": digests },
    });
    let config = store.add_json("application/vnd.oci.image.config.v1+json", &config)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": config,
        "layers": layers,
    });
    let mut line = store.add_json(MANIFEST_TYPE, &manifest)?;
    line["platform"] = json!({ "architecture": architecture, "os": "linux" });
    line["annotations"] = json!({ IMAGE_NAME: image.name });
    Ok(line)
}

/// Blobs of images, stored by checksum.
struct Store {
    blobs: PathBuf,
}

impl Store {
    /// Adds a blob and returns its descriptor.
    fn add(&self, media_type: &str, bytes: &[u8]) -> anyhow::Result<Value> {
        let digest = Sha256::digest(bytes);
        let digest = digest.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        fs::write(self.blobs.join(&digest), bytes).context("write a part of an image")?;
        Ok(json!({
            "mediaType": media_type,
            "digest": format!("sha256:{digest}"),
            "size": bytes.len(),
        }))
    }

    fn add_json(&self, media_type: &str, value: &Value) -> anyhow::Result<Value> {
        self.add(media_type, value.to_string().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_what_ldd_says() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x7f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        let expected = ["/lib/x/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(parse_ldd(text), BTreeSet::from(expected));
        assert!(parse_ldd("\tstatically linked\n").is_empty());
    }

    #[test]
    fn every_part_of_a_layout_lies_under_the_checksum_by_which_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let layer = folder.path().join("layer.tar");
        fs::write(&layer, "a layer").unwrap();
        let image = |name| Image { name, command: json!(["sh"]), layers: vec![&layer, &layer] };
        write_layout(folder.path(), &[image("a"), image("b")]).unwrap();
        let read = |path: &str| -> Value {
            serde_json::from_slice(&fs::read(folder.path().join(path)).unwrap()).unwrap()
        };
        let blob = |part: &Value| {
            let digest = part["digest"].as_str().unwrap().trim_start_matches("sha256:").to_owned();
            format!("blobs/sha256/{digest}")
        };
        let index = read("index.json");
        let names: Vec<&Value> =
            (0..2).map(|i| &index["manifests"][i]["annotations"][IMAGE_NAME]).collect();
        assert_eq!(names, ["a", "b"]);
        for image in index["manifests"].as_array().unwrap() {
            let manifest = read(&blob(image));
            let config = read(&blob(&manifest["config"]));
            let layer = &manifest["layers"][1];
            assert_eq!(config["rootfs"]["diff_ids"][1], layer["digest"]);
            assert_eq!(fs::read(folder.path().join(blob(layer))).unwrap(), b"a layer");
        }
    }
}
