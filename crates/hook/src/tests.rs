use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::ldcache::{Library, flags_of, format, parse};
use super::rootfs::Rootfs;
use super::{ldcache, linker, links, oci};

struct Container {
    folder: TempDir,
    root: Rootfs,
}

impl Container {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("rootfs")).expect("makes the root");
        let root = Rootfs::open(&folder.path().join("rootfs")).expect("opens");
        Self { folder, root }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("rootfs").join(path.trim_start_matches('/'))
    }

    fn outside(&self) -> PathBuf {
        let outside = self.folder.path().join("outside");
        fs::create_dir_all(&outside).expect("makes a folder");
        outside
    }

    fn link(&self, text: &str) -> anyhow::Result<()> {
        links::create(&self.root, &[text.to_owned()])
    }
}

#[test]
fn links_are_made_replaced_and_made_again() {
    let container = Container::new();
    container.link("libcuda.so.580::/usr/lib64/libcuda.so.1").expect("makes");
    container.link("libcuda.so.580::/usr/lib64/libcuda.so.1").expect("is there already");
    let link = container.path("usr/lib64/libcuda.so.1");
    assert_eq!(fs::read_link(&link).expect("a link"), Path::new("libcuda.so.580"));
    container.link("libcuda.so.590::/usr/lib64/libcuda.so.1").expect("replaces");
    assert_eq!(fs::read_link(&link).expect("a link"), Path::new("libcuda.so.590"));
    fs::write(container.path("usr/lib64/file"), "old").expect("writes");
    container.link("new::/usr/lib64/file").expect("replaces a file");
    assert_eq!(fs::read_link(container.path("usr/lib64/file")).expect("a link"), Path::new("new"));
}

#[test]
fn a_link_of_the_image_does_not_lead_out_of_it() {
    let container = Container::new();
    let outside = container.outside();
    symlink(&outside, container.path("absolute")).expect("links");
    symlink("../outside", container.path("relative")).expect("links");
    symlink("/proc/self/root", container.path("magic")).expect("links");
    for link in ["x::/absolute/a", "x::/relative/b", "x::/magic/c"] {
        // Whether such a path is refused or found inside, nothing may appear outside.
        let _ = container.link(link);
    }
    let mut entries = fs::read_dir(&outside).expect("reads");
    assert!(entries.next().is_none(), "something was made outside of the root");
    assert!(!Path::new("/c").exists());
    // The same absolute path exists inside after all: the link is followed there.
    let inside = container.path(&outside.to_string_lossy());
    fs::create_dir_all(&inside).expect("makes");
    container.link("x::/absolute/a").expect("makes");
    assert!(fs::symlink_metadata(inside.join("a")).is_ok());
}

#[test]
fn a_link_with_dots_or_without_a_target_is_refused() {
    let container = Container::new();
    for text in ["x::/usr/../../a", "x::relative", "::/a", "x::", "x", "x::/", "x::/a/.."] {
        assert!(container.link(text).is_err(), "{text}");
    }
}

#[test]
fn writing_replaces_a_link_and_does_not_follow_it() {
    let container = Container::new();
    let victim = container.outside().join("shadow");
    fs::write(&victim, "secret").expect("writes");
    fs::create_dir(container.path("etc")).expect("makes");
    symlink(&victim, container.path("etc/ld.so.cache")).expect("links");
    linker::update(&container.root, &[PathBuf::from("/usr/lib64")], None).expect("updates");
    assert_eq!(fs::read_to_string(&victim).expect("reads"), "secret");
    assert!(fs::symlink_metadata(container.path("etc/ld.so.cache")).expect("is there").is_file());
}

#[test]
fn a_pipe_in_place_of_a_library_does_not_stop_the_hook() {
    let container = Container::new();
    fs::create_dir_all(container.path("usr/lib64")).expect("makes");
    fs::create_dir_all(container.path("etc")).expect("makes");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    for pipe in ["usr/lib64/libpipe.so.1", "etc/ld.so.cache"] {
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, container.path(pipe), kind, mode, 0).expect("a pipe");
    }
    linker::update(&container.root, &[PathBuf::from("/usr/lib64")], None).expect("updates");
    let cache = fs::read(container.path("etc/ld.so.cache")).expect("reads");
    assert_eq!(parse(&cache), Some(Vec::new()));
}

/// The first bytes of a shared object for x86-64.
fn elf() -> Vec<u8> {
    let mut elf = vec![0; 64];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    elf[16] = 3;
    elf[18] = 62;
    elf
}

#[test]
fn the_driver_libraries_come_before_those_of_the_image() {
    let container = Container::new();
    fs::create_dir_all(container.path("usr/lib64")).expect("makes");
    fs::create_dir_all(container.path("etc")).expect("makes");
    fs::write(container.path("usr/lib64/libcuda.so.580"), elf()).expect("writes");
    fs::write(container.path("usr/lib64/libtext.so"), "text").expect("writes");
    symlink("libcuda.so.580", container.path("usr/lib64/libcuda.so.1")).expect("links");
    let library = |name: &str, path: &str, hwcap| Library {
        flags: 0x303,
        name: name.to_owned(),
        path: path.to_owned(),
        hwcap,
    };
    let own = [
        library("libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6", 0),
        library("libcuda.so.1", "/usr/local/cuda/compat/libcuda.so.1", 0),
        library("libz.so.1", "/lib/v3/libz.so.1", 1 << 62),
    ];
    let cache = format(&own).expect("fits");
    fs::write(container.path("etc/ld.so.cache"), cache).expect("writes");

    linker::update(&container.root, &[PathBuf::from("/usr/lib64")], None).expect("updates");
    linker::update(&container.root, &[PathBuf::from("/usr/lib64")], None)
        .expect("changes nothing more");

    let cache = fs::read(container.path("etc/ld.so.cache")).expect("reads");
    let found: Vec<_> = parse(&cache)
        .expect("is a cache")
        .into_iter()
        .map(|library| (library.name, library.path))
        .collect();
    let expected = [
        ("libcuda.so.580", "/usr/lib64/libcuda.so.580"),
        ("libcuda.so.1", "/usr/lib64/libcuda.so.1"),
        ("libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6"),
    ];
    let expected: Vec<_> =
        expected.iter().map(|(n, p)| ((*n).to_owned(), (*p).to_owned())).collect();
    assert_eq!(found, expected);
    let config = fs::read_to_string(container.path("etc/ld.so.conf.d/00-octavo-driver.conf"));
    assert_eq!(config.expect("reads"), "/usr/lib64\n");
}

#[test]
fn cuda_libraries_of_a_newer_driver_come_first() {
    for (own, host, is_used) in [
        ("580.82.07", "570.133.20", true),
        ("570.172.08", "570.133.20", false),
        ("550.54.15", "570.133.20", false),
        ("580.82.07", "unknown", false),
    ] {
        let container = Container::new();
        for folder in ["usr/lib64", "usr/local/cuda-13.0/compat", "etc"] {
            fs::create_dir_all(container.path(folder)).expect("makes");
        }
        symlink("cuda-13.0", container.path("usr/local/cuda")).expect("links");
        let compat = container.path("usr/local/cuda-13.0/compat");
        fs::write(compat.join(format!("libcuda.so.{own}")), elf()).expect("writes");
        symlink(format!("libcuda.so.{own}"), compat.join("libcuda.so.1")).expect("links");
        fs::write(container.path("usr/lib64/libcuda.so.1"), elf()).expect("writes");
        let folders = [PathBuf::from("/usr/lib64")];
        linker::update(&container.root, &folders, Some(host)).expect("updates");
        linker::update(&container.root, &folders, Some(host)).expect("changes nothing more");
        let cache = fs::read(container.path("etc/ld.so.cache")).expect("reads");
        let cache = parse(&cache).expect("is a cache");
        let first = cache.iter().find(|library| library.name == "libcuda.so.1").expect("is there");
        let expected = if is_used { "/usr/local/cuda/compat" } else { "/usr/lib64" };
        assert_eq!(first.path, format!("{expected}/libcuda.so.1"), "{own} on {host}");
    }
}

#[test]
fn libraries_of_the_image_keep_their_order() {
    let container = Container::new();
    for folder in ["usr/lib64", "usr/local/lib", "etc"] {
        fs::create_dir_all(container.path(folder)).expect("makes");
    }
    symlink("usr/lib64", container.path("lib64")).expect("links");
    for file in ["usr/lib64/libz.so.1", "usr/local/lib/libz.so.1", "usr/lib64/libcuda.so.1"] {
        fs::write(container.path(file), elf()).expect("writes");
    }
    let library = |name: &str, path: &str| Library {
        flags: 0x303,
        name: name.to_owned(),
        path: path.to_owned(),
        hwcap: 0,
    };
    // The image's own build of a library precedes the system's, which is in the driver's folder.
    let own = [
        library("libz.so.1", "/usr/local/lib/libz.so.1"),
        library("libz.so.1", "/lib64/libz.so.1"),
    ];
    let cache = format(&own).expect("fits");
    fs::write(container.path("etc/ld.so.cache"), cache).expect("writes");
    linker::update(&container.root, &[PathBuf::from("/usr/lib64")], None).expect("updates");
    let cache = fs::read(container.path("etc/ld.so.cache")).expect("reads");
    let found = parse(&cache).expect("is a cache");
    let [first, second] = own;
    assert_eq!(found, [first, second, library("libcuda.so.1", "/usr/lib64/libcuda.so.1")]);
}

#[test]
fn ldconfig_reads_what_was_written_and_the_other_way_round() {
    let Ok(own) = fs::read("/etc/ld.so.cache") else { return };
    let libraries = parse(&own).expect("the machine's cache is read");
    assert!(libraries.iter().any(|library| library.name == "libc.so.6"), "{}", libraries.len());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("cache");
    fs::write(&path, format(&libraries).expect("fits")).expect("writes");
    let print = |path: &Path| {
        let ldconfig =
            ["/sbin/ldconfig", "/usr/sbin/ldconfig"].iter().find(|p| Path::new(p).exists());
        let output = Command::new(ldconfig?).arg("-p").arg("-C").arg(path).output().ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.lines().filter(|line| line.contains("=>")).map(str::to_owned).collect::<Vec<_>>())
    };
    let Some(written) = print(&path) else { return };
    let plain = libraries.iter().filter(|library| library.hwcap & 1 << 62 == 0).count();
    assert_eq!(written.len(), plain);
    let machine = print(Path::new("/etc/ld.so.cache")).expect("prints");
    let machine: Vec<_> = machine.into_iter().filter(|line| written.contains(line)).collect();
    assert_eq!(machine, written, "the order is the linker's own");
}

#[test]
fn a_cache_of_an_image_is_read_within_bounds() {
    let container = Container::new();
    assert_eq!(ldcache::read(&container.root).expect("is missing"), []);
    fs::create_dir(container.path("/etc")).expect("makes");
    let path = container.path(ldcache::CACHE);
    fs::write(&path, "no cache").expect("writes");
    assert_eq!(ldcache::read(&container.root).expect("is damaged"), []);
    let file = fs::File::create(&path).expect("makes");
    file.set_len(1 << 30).expect("grows");
    let error = ldcache::read(&container.root).expect_err("is too large");
    assert!(error.to_string().contains("8 MiB"), "{error}");
    let error = linker::update(&container.root, &[], None).expect_err("is too large");
    assert!(format!("{error:#}").contains("8 MiB"), "{error:#}");

    // Entries may share strings: a small file can name any number of bytes.
    let library = |name: String| Library { flags: 0x303, name, path: "/a".to_owned(), hwcap: 0 };
    let many: Vec<_> = (0..70_000).map(|_| library("a".to_owned())).collect();
    assert_eq!(parse(&format(&many).expect("fits")), None);
    assert_eq!(parse(&format(&[library("a".repeat(5000))]).expect("fits")), None);
}

#[test]
fn a_damaged_cache_is_none() {
    let libraries =
        [Library { flags: 3, name: "liba.so".to_owned(), path: "/a".to_owned(), hwcap: 0 }];
    let cache = format(&libraries).expect("fits");
    for end in 0..cache.len() {
        assert_eq!(parse(&cache[..end]), None, "cut at {end}");
    }
    let mut huge = cache;
    huge[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(parse(&huge), None);
    assert_eq!(flags_of(b"\x7fELF"), None);
    assert_eq!(flags_of(&elf()), Some(0x303));
}

fn root_of(state: &str) -> anyhow::Result<PathBuf> {
    oci::container(state).map(|container| container.root)
}

#[test]
fn the_root_is_found_through_state_and_config() {
    let bundle = tempfile::tempdir().expect("a temporary folder");
    let state = serde_json::json!({"ociVersion": "1.0.2", "bundle": bundle.path()}).to_string();
    assert!(root_of(&state).is_err(), "there is no config");
    let config = bundle.path().join("config.json");
    fs::write(&config, r#"{"root": {"path": "rootfs"}}"#).expect("writes");
    assert_eq!(root_of(&state).expect("is found"), bundle.path().join("rootfs"));
    fs::write(&config, r#"{"root": {"path": "/run/x/rootfs"}}"#).expect("writes");
    assert_eq!(root_of(&state).expect("is found"), Path::new("/run/x/rootfs"));
    fs::write(&config, r#"{"root": {"path": "/"}}"#).expect("writes");
    assert!(root_of(&state).is_err(), "the node's own root");
    assert!(root_of("{}").is_err());
}
