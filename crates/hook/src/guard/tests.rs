//! Complete containers, each in its own mount namespace: the test runs itself again in one.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use rustix::mount::{MountFlags, MountPropagationFlags, mount_bind, mount_change, mount_remount};
use tempfile::TempDir;

use super::*;

/// Set where a test runs in a namespace of its own.
const INSIDE: &str = "OCTAVO_TEST_IN_MOUNT_NAMESPACE";

/// Runs the body in its own mount namespace.
fn in_namespace(test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let this = std::env::current_exe().expect("runs from a file");
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount"])
        .arg(this)
        .args(["--exact", "--nocapture", &format!("guard::tests::{test}")])
        .env(INSIDE, "1")
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

/// A host with guard, driver and one share, and a container made from them.
struct Made {
    folder: TempDir,
    args: Args,
    container: Container,
}

impl Made {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |path: &str| folder.path().join(path);
        let files = [
            ("guard/liboctavo_guard.so", "guard"),
            ("guard/libcuda.so.1", "proxy of cuda"),
            ("guard/libnvidia-ml.so.1", "proxy of nvml"),
            ("driver/libcuda.so.580", "driver's cuda"),
            ("driver/libnvidia-ml.so.580", "driver's nvml"),
            ("shares/uid_s/limits", "limits"),
            ("shares/uid_s/state", "state"),
        ];
        for (path, content) in files {
            write(&at(path), content);
        }
        let hook = ["octavo", "cdi-hook", "guard", "--share", "/host/shares/uid_s"];
        let container = Container {
            root: at("rootfs"),
            pid: None,
            env: vec!["PATH=/bin".to_owned(), "LD_LIBRARY_PATH=/opt/own:relative::".to_owned()],
            cwd: "/app".into(),
            hooks: vec![hook.map(str::to_owned).to_vec()],
        };
        let args = Args {
            guard: at("guard"),
            shares: vec![at("shares/uid_s")],
            real: vec![at("driver/libcuda.so.580"), at("driver/libnvidia-ml.so.580")],
            folders: vec!["/usr/lib64".into()],
            cuda_compat: None,
        };
        let made = Self { folder, args, container };
        made.mount("guard", "/run/octavo/guard", true);
        for library in ["libcuda.so.580", "libnvidia-ml.so.580"] {
            let host = format!("driver/{library}");
            made.mount(&host, &format!("/run/octavo/real/{library}"), true);
            made.mount(&host, &format!("/usr/lib64/{library}"), true);
        }
        made.mount("shares/uid_s", "/run/octavo/shares/uid_s", true);
        made.mount("shares/uid_s/state", "/run/octavo/shares/uid_s/state", false);
        symlink("libcuda.so.580", made.at("/usr/lib64/libcuda.so.1")).expect("links");
        symlink("libnvidia-ml.so.580", made.at("/usr/lib64/libnvidia-ml.so.1")).expect("links");
        made
    }

    /// A path of the container.
    fn at(&self, path: &str) -> PathBuf {
        self.container.root.join(path.trim_start_matches('/'))
    }

    /// Mounts something of the host in the container, as a runtime does.
    fn mount(&self, host: &str, path: &str, is_read_only: bool) {
        let (host, target) = (self.folder.path().join(host), self.at(path));
        if host.is_dir() {
            fs::create_dir_all(&target).expect("makes");
        } else if !target.exists() {
            write(&target, "");
        }
        mount_bind(&host, &target).expect("mounts");
        if is_read_only {
            let flags = MountFlags::BIND | MountFlags::RDONLY;
            mount_remount(&target, flags, c"").expect("mounts read-only");
        }
    }

    fn install(&self) -> anyhow::Result<()> {
        install(&Rootfs::open(&self.container.root).expect("opens"), &self.container, &self.args)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).expect(path)
    }

    fn refusal(&self) -> String {
        format!("{:#}", self.install().expect_err("is refused"))
    }
}

/// Compiles a shared object.
fn compile(path: &Path, source: &str, soname: &str) {
    fs::create_dir_all(path.parent().expect("has a parent")).expect("makes");
    let text = path.with_extension("c");
    fs::write(&text, source).expect("writes");
    let soname = format!("-Wl,-soname,{soname}");
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-nostdlib", &soname, "-o"]).arg(path).arg(&text);
    assert!(command.status().expect("a C compiler").success());
    fs::remove_file(text).expect("removes");
}

fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().expect("has a parent")).expect("makes");
    fs::write(path, content).expect("writes");
}

#[test]
fn the_driver_s_libraries_may_make_no_device_nodes() {
    in_namespace("the_driver_s_libraries_may_make_no_device_nodes", || {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = Rootfs::open(folder.path()).expect("opens");
        crate::device_nodes::forbid(&root).expect("has no driver");
        let params = folder.path().join("proc/driver/nvidia/params");
        write(&params, "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileMode: 438\n");
        let before = mounts();
        for _ in 0..2 {
            crate::device_nodes::forbid(&root).expect("covers");
            let expected =
                "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 0\nDeviceFileMode: 438\n";
            assert_eq!(fs::read_to_string(&params).expect("reads"), expected);
        }
        assert_eq!(mounts(), before + 1, "the second time changes nothing");
        let error = fs::write(&params, "ModifyDeviceFiles: 1\n").expect_err("is read-only");
        assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
    });
}

fn mounts() -> usize {
    fs::read_to_string("/proc/self/mountinfo").expect("reads").lines().count()
}

#[test]
fn every_library_that_a_program_could_find_is_covered_once() {
    in_namespace("every_library_that_a_program_could_find_is_covered_once", || {
        let made = Made::new();
        write(&made.at("/usr/local/cuda-12.4/compat/libcuda.so.550.1"), "image's cuda");
        write(&made.at("/opt/own/libcuda.so.1"), "image's other cuda");
        write(&made.at("/opt/own/libcuda.so.txt"), "covered, too");
        let elsewhere = [
            "/lib/libcuda.so.1",
            "/usr/local/lib/libcuda.so.1",
            "/usr/lib64/glibc-hwcaps/x86-64-v3/libcuda.so.1",
            "/opt/own/glibc-hwcaps/x86-64-v2/libcuda.so",
            "/app/relative/libcuda.so.1",
            "/app/libcuda.so",
        ];
        for path in elsewhere {
            write(&made.at(path), "image's cuda elsewhere");
        }
        write(&made.at("/opt/own/libcudart.so.12"), "image's runtime");
        // Links of the image stay in the image.
        let outside = made.folder.path().join("outside");
        write(&outside, "host's own");
        symlink(&outside, made.at("/opt/own/libcuda.so")).expect("links");
        symlink("nowhere", made.at("/opt/own/libcuda.so.9")).expect("links");
        made.install().expect("installs");
        for path in [
            "/usr/lib64/libcuda.so.1",
            "/usr/lib64/libcuda.so.580",
            "/usr/local/cuda-12.4/compat/libcuda.so.550.1",
            "/opt/own/libcuda.so.1",
        ]
        .into_iter()
        .chain(elsewhere)
        {
            assert_eq!(made.read(path), "proxy of cuda", "{path}");
            assert!(fs::write(made.at(path), "changed").is_err(), "{path} can be written to");
        }
        assert_eq!(made.read("/usr/lib64/libnvidia-ml.so.1"), "proxy of nvml");
        assert_eq!(made.read("/run/octavo/real/libcuda.so.580"), "driver's cuda");
        assert_eq!(made.read("/opt/own/libcudart.so.12"), "image's runtime");
        assert_eq!(fs::read_to_string(&outside).expect("reads"), "host's own");
        assert_eq!(
            fs::read_to_string(made.folder.path().join("driver/libcuda.so.580")).expect("reads"),
            "driver's cuda"
        );
        let before = mounts();
        made.install().expect("installs again, as the hook of another claim does");
        assert_eq!(mounts(), before);
    });
}

#[test]
fn a_mount_that_uncovers_the_driver_is_covered_again() {
    in_namespace("a_mount_that_uncovers_the_driver_is_covered_again", || {
        let made = Made::new();
        made.install().expect("installs");
        made.mount("driver/libcuda.so.580", "/usr/lib64/libcuda.so.580", true);
        assert_eq!(made.read("/usr/lib64/libcuda.so.1"), "driver's cuda");
        made.install().expect("installs");
        assert_eq!(made.read("/usr/lib64/libcuda.so.1"), "proxy of cuda");
    });
}

#[test]
fn library_in_a_shared_mount_fails_the_container_start() {
    in_namespace("library_in_a_shared_mount_fails_the_container_start", || {
        let made = Made::new();
        // A volume of the host with a library, as of a pod with mountPropagation: Bidirectional.
        let volume = made.folder.path().join("volume");
        write(&volume.join("libcuda.so.1"), "host's cuda");
        mount_bind(&volume, &volume).expect("mounts");
        mount_change(&volume, MountPropagationFlags::SHARED).expect("shares");
        made.mount("volume", "/opt/own", false);
        let refusal = made.refusal();
        assert!(refusal.contains("/opt/own/libcuda.so.1"), "{refusal}");
        assert!(refusal.contains("Bidirectional"), "{refusal}");
        let seen = fs::read_to_string(volume.join("libcuda.so.1")).expect("reads");
        assert_eq!(seen, "host's cuda");
        // A mount shared by the host but not by the container (HostToContainer) is covered.
        mount_change(made.at("/opt/own"), MountPropagationFlags::DOWNSTREAM).expect("changes");
        made.install().expect("installs");
        assert_eq!(made.read("/opt/own/libcuda.so.1"), "proxy of cuda");
        let seen = fs::read_to_string(volume.join("libcuda.so.1")).expect("reads");
        assert_eq!(seen, "host's cuda");
    });
}

#[test]
fn a_container_without_the_libraries_starts() {
    in_namespace("a_container_without_the_libraries_starts", || {
        let made = Made::new();
        for library in ["libcuda.so.580", "libnvidia-ml.so.580"] {
            let path = made.at(&format!("/usr/lib64/{library}"));
            let flags = rustix::mount::UnmountFlags::empty();
            rustix::mount::unmount(&path, flags).expect("unmounts");
            fs::remove_file(&path).expect("removes");
        }
        made.install().expect("has nothing to do");
    });
}

#[test]
fn what_the_agent_did_not_mount_keeps_the_container_from_starting() {
    in_namespace("what_the_agent_did_not_mount_keeps_the_container_from_starting", || {
        for path in [
            "/run/octavo/guard/libcuda.so.1",
            "/run/octavo/guard/liboctavo_guard.so",
            "/run/octavo/real/libnvidia-ml.so.580",
            "/run/octavo/shares/uid_s/limits",
            "/run/octavo/shares/uid_s/state",
        ] {
            let made = Made::new();
            write(&made.folder.path().join("own"), "more, please");
            made.mount("own", path, true);
            let refusal = made.refusal();
            assert!(refusal.contains(path) && refusal.contains("remove volumes"), "{refusal}");
        }
        for path in ["/run/octavo/guard", "/run/octavo/shares/uid_s"] {
            let made = Made::new();
            fs::create_dir_all(made.folder.path().join("empty")).expect("makes");
            made.mount("empty", path, false);
            assert!(made.refusal().contains(path));
        }
    });
}

#[test]
fn a_share_that_the_container_brings_itself_keeps_it_from_starting() {
    in_namespace("a_share_that_the_container_brings_itself_keeps_it_from_starting", || {
        let made = Made::new();
        write(&made.at("/run/octavo/shares/mine/limits"), "all of it");
        let refusal = made.refusal();
        assert!(refusal.contains("/run/octavo/shares/mine"), "{refusal}");
    });
}

#[test]
fn a_proxy_that_can_be_written_to_keeps_the_container_from_starting() {
    in_namespace("a_proxy_that_can_be_written_to_keeps_the_container_from_starting", || {
        let made = Made::new();
        made.mount("guard", "/run/octavo/guard", false);
        assert!(made.refusal().contains("can be written to"));
    });
}

/// An image with CUDA libraries of its own on a node with driver 580.
fn with_compat(version: &str) -> Made {
    let mut made = Made::new();
    made.args.cuda_compat = Some("580.65.06".to_owned());
    let guard = "int octavo_hook_cuMemAlloc_v2(void) { return 0; }\n\
                 int octavo_hook_cuMemFree_v2(void) { return 0; }\n\
                 int octavo_unknown_entry(void) { return 0; }";
    compile(&made.folder.path().join("guard/liboctavo_guard.so"), guard, "liboctavo_guard.so");
    let compat = made.at("/usr/local/cuda-14.0/compat");
    let image = "int cuMemAlloc_v2(void) { return 2; }\n\
                 int cuMemFree_v2(void) { return 2; }\n\
                 int cuMemAllocNewly(void) { return 2; }";
    compile(&compat.join(format!("libcuda.so.{version}")), image, "libcuda.so.1");
    symlink(format!("libcuda.so.{version}"), compat.join("libcuda.so.1")).expect("links");
    symlink("cuda-14.0", made.at("/usr/local/cuda")).expect("links");
    made
}

impl Made {
    /// Updates the linker's cache, as the hook before the guard's does.
    fn update_cache(&self) {
        let root = Rootfs::open(&self.container.root).expect("opens");
        let driver = self.args.cuda_compat.as_deref();
        crate::linker::update(&root, &self.args.folders, driver).expect("updates");
    }
}

#[test]
fn newer_cuda_libraries_of_an_image_are_covered_by_a_proxy_of_their_own() {
    in_namespace("newer_cuda_libraries_of_an_image_are_covered_by_a_proxy_of_their_own", || {
        let made = with_compat("610.1");
        let compat = "/usr/local/cuda/compat/libcuda.so.610.1";
        let own = fs::read(made.at(compat)).expect("reads");
        made.update_cache();
        made.install().expect("installs");
        assert_eq!(fs::read(made.at("/run/octavo/real/compat/libcuda.so.1")).expect("reads"), own);
        let proxy = fs::read(made.at(compat)).expect("reads");
        let has = |name: &str| proxy.windows(name.len()).any(|part| part == name.as_bytes());
        assert!(has("octavo_hook_cuMemAlloc_v2") && has("octavo_hook_cuMemFree_v2"));
        assert!(has("octavo_unknown_entry"), "a function that the guard does not know is counted");
        assert!(has("/run/octavo/real/compat/libcuda.so.1"));
        // Wherever a program finds the library, it gets the same driver.
        for path in ["/usr/local/cuda/compat/libcuda.so.1", "/usr/lib64/libcuda.so.580"] {
            assert_eq!(fs::read(made.at(path)).expect("reads"), proxy, "{path}");
            let error = fs::write(made.at(path), "changed").expect_err("is read-only");
            assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem, "{path}");
        }
        assert_eq!(made.read("/usr/lib64/libnvidia-ml.so.1"), "proxy of nvml");
        assert_eq!(made.read("/run/octavo/real/libcuda.so.580"), "driver's cuda");
        let before = mounts();
        made.install().expect("installs again, as the hook of another claim does");
        assert_eq!(mounts(), before);
        assert_eq!(fs::read(made.at(compat)).expect("reads"), proxy);
    });
}

#[test]
fn cuda_libraries_that_no_program_would_load_first_get_the_node_s_proxy() {
    in_namespace("cuda_libraries_that_no_program_would_load_first_get_the_node_s_proxy", || {
        let compat = "/usr/local/cuda/compat/libcuda.so.1";
        let same_release = with_compat("580.95.05");
        same_release.update_cache();
        let without_cache = with_compat("610.1");
        let mut unknown_driver = with_compat("610.1");
        unknown_driver.update_cache();
        unknown_driver.args.cuda_compat = None;
        let mut named_elsewhere = with_compat("610.1");
        named_elsewhere.update_cache();
        named_elsewhere.container.env.push("LD_LIBRARY_PATH=/usr/lib64".to_owned());
        let cached_elsewhere = with_compat("610.1");
        let library = crate::ldcache::Library {
            flags: 0x0303,
            name: "libcuda.so.1".to_owned(),
            path: "/usr/lib64/libcuda.so.1".to_owned(),
            hwcap: 0,
        };
        let cache = crate::ldcache::format(&[library]).expect("fits");
        fs::create_dir_all(cached_elsewhere.at("/etc")).expect("makes");
        fs::write(cached_elsewhere.at(crate::ldcache::CACHE), cache).expect("writes");
        let all = [same_release, without_cache, unknown_driver, named_elsewhere, cached_elsewhere];
        for (case, made) in all.iter().enumerate() {
            // The second hook decides as the first, though all paths lead to one file now.
            for _ in 0..2 {
                made.install().expect("installs");
                assert_eq!(made.read(compat), "proxy of cuda", "case {case}");
                assert_eq!(made.read("/usr/lib64/libcuda.so.1"), "proxy of cuda", "case {case}");
            }
        }
    });
}

#[test]
fn a_newer_cuda_library_without_a_proxy_keeps_the_container_from_starting() {
    in_namespace("a_newer_cuda_library_without_a_proxy_keeps_the_container_from_starting", || {
        let damaged = with_compat("610.1");
        let library = damaged.at("/usr/local/cuda/compat/libcuda.so.610.1");
        let bytes = fs::read(&library).expect("reads");
        damaged.update_cache();
        for (content, reason) in [
            (&bytes[..bytes.len() / 4], "ends before its segments do"),
            (&b"no library"[..], "no ELF file"),
        ] {
            fs::write(&library, content).expect("writes");
            let refusal = damaged.refusal();
            assert!(refusal.contains("/usr/local/cuda/compat/libcuda.so.1"), "{refusal}");
            assert!(refusal.contains(reason), "{refusal}");
        }
    });
}
