use std::os::unix::net::UnixListener;
use std::thread;

use tempfile::TempDir;

use super::*;

/// A host with one container's process, and an agent that answers each request with a line.
struct Host {
    folder: TempDir,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir_all(folder.path().join("proc/77")).expect("makes");
        let host = Self { folder };
        host.set_cgroup("0::/pods.slice/c.scope\n");
        host
    }

    fn set_cgroup(&self, text: &str) {
        fs::write(self.folder.path().join("proc/77/cgroup"), text).expect("writes");
    }

    /// Runs the hook of one of the container's shares. Returns what the agent read, which answers `answer`.
    fn set(&self, shares: &[(&str, u64)], which: usize, answer: &str) -> anyhow::Result<String> {
        let socket = self.folder.path().join("hook.sock");
        drop(fs::remove_file(&socket));
        let listener = UnixListener::bind(&socket).expect("binds");
        let answer = answer.to_owned();
        let agent = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accepts");
            let mut line = String::new();
            BufReader::new(stream.try_clone().expect("clones"))
                .read_line(&mut line)
                .expect("reads");
            stream.write_all(answer.as_bytes()).expect("answers");
            line
        });
        self.run(shares, which)?;
        Ok(agent.join().expect("ends"))
    }

    fn run(&self, shares: &[(&str, u64)], which: usize) -> anyhow::Result<()> {
        let hooks = shares.iter().map(|(gpu, bytes)| {
            let args = ["octavo", "cdi-hook", "memory-limits", "--gpu", gpu];
            let mut args: Vec<_> = args.map(str::to_owned).to_vec();
            args.extend(["--memory-bytes".to_owned(), bytes.to_string()]);
            args
        });
        let container = Container {
            root: "/nowhere".into(),
            pid: Some(77),
            cwd: "/".into(),
            env: Vec::new(),
            hooks: hooks.collect(),
        };
        let (gpu, memory_bytes) = shares[which];
        let args = Args {
            gpu: gpu.to_owned(),
            memory_bytes,
            socket: self.folder.path().join("hook.sock"),
            proc_root: self.folder.path().join("proc"),
        };
        set(&container, &args)
    }
}

#[test]
fn shares_of_one_gpu_in_one_container_add_up_whichever_hook_runs_last() {
    let shares = [("GPU-0", 10 << 30), ("GPU-1", 5 << 30), ("GPU-0", 7 << 30)];
    let host = Host::new();
    for (which, gpu, gib) in [(0, "GPU-0", 17), (1, "GPU-1", 5), (2, "GPU-0", 17)] {
        let asked = host.set(&shares, which, "{}\n").expect("sets");
        let asked: LimitRequest = serde_json::from_str(&asked).expect("is JSON");
        let cgroup = "/pods.slice/c.scope".into();
        assert_eq!(asked, LimitRequest { gpu: gpu.to_owned(), cgroup, memory_bytes: gib << 30 });
    }
}

#[test]
fn a_container_without_its_limit_does_not_start() {
    let host = Host::new();
    let shares = [("GPU-0", 1 << 30)];
    let refusal = |host: &Host, answer: &str| {
        format!("{:#}", host.set(&shares, 0, answer).expect_err("fails"))
    };
    let text = refusal(&host, "{\"error\": \"not supported\"}\n");
    assert!(text.contains("GPU-0") && text.contains("not supported"), "{text}");
    assert!(refusal(&host, "what?\n").contains("no line of JSON"));
    assert!(refusal(&host, "").contains("no line of JSON"));
    drop(fs::remove_file(host.folder.path().join("hook.sock")));
    let text = format!("{:#}", host.run(&shares, 0).expect_err("no agent"));
    assert!(text.contains("is it running?"), "{text}");
}

#[test]
fn only_a_cgroup_of_the_container_s_own_is_limited() {
    let host = Host::new();
    for (text, words) in [
        ("12:memory:/pods/c\n", "no cgroup of version 2"),
        ("0::/\n", "not the container's own"),
        ("0::/../other\n", "not the container's own"),
    ] {
        host.set_cgroup(text);
        let refusal = format!("{:#}", host.run(&[("GPU-0", 1 << 30)], 0).expect_err("fails"));
        assert!(refusal.contains(words), "{refusal}");
    }
    fs::remove_dir_all(host.folder.path().join("proc/77")).expect("removes");
    let refusal = format!("{:#}", host.run(&[("GPU-0", 1 << 30)], 0).expect_err("fails"));
    assert!(refusal.contains("process 77"), "{refusal}");
}
