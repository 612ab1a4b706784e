mod encryption;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use octavo_testkit::{eventually, simulated_imex};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::args::CheckArgs;
use crate::fake_cliques::{CLIQUE, DOMAIN, FakeCliques, NAMESPACE};

/// A clique of simulated services: node `n` is `node-<n>` at 127.0.0.<n + 30>.
struct Rack {
    folder: tempfile::TempDir,
    cliques: FakeCliques,
    ports: [u16; 2],
}

/// A running daemon.
struct Running {
    leave: Option<oneshot::Sender<()>>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    /// Ends it as a signal does.
    async fn leave(mut self) {
        self.leave.take().unwrap().send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }
}

impl Rack {
    fn new() -> Self {
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (folder, cliques) = (tempfile::tempdir().unwrap(), FakeCliques::new());
        Self { folder, cliques, ports: [free(), free()] }
    }

    fn node(&self, node: u8) -> PathBuf {
        self.folder.path().join(format!("node-{node}"))
    }

    /// A script that runs a program with the hosts file of a node.
    fn script(&self, node: u8, name: &str, text: &str) -> PathBuf {
        let path = self.node(node).join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn args(&self, node: u8) -> RunArgs {
        let folder = self.node(node);
        fs::create_dir_all(&folder).unwrap();
        let hosts = folder.join("hosts");
        fs::write(&hosts, "127.0.0.1 localhost\n").unwrap();
        let (imex, ctl) = simulated_imex();
        let (imex, ctl, file) = (imex.display(), ctl.display(), hosts.display());
        let (pids, log) = (folder.join("pids"), folder.join("log"));
        let (pids, log) = (pids.display(), log.display());
        let service = format!(
            "echo $$ >> '{pids}'\nexec '{imex}' --nogpu --hosts '{file}' \"$@\" 2>> '{log}'"
        );
        RunArgs {
            check: CheckArgs {
                clique_id: Some(CLIQUE.to_owned()),
                ctl_program: self.script(
                    node,
                    "ctl",
                    &format!("exec '{ctl}' --hosts '{file}' \"$@\""),
                ),
                folder,
                tls_folder: None,
            },
            node_name: format!("node-{node}"),
            pod_ip: format!("127.0.0.{}", node + 30).parse().unwrap(),
            pod_namespace: NAMESPACE.to_owned(),
            max_nodes: 4,
            domain_uid: Some(DOMAIN.to_owned()),
            domain_name: Some("domain".to_owned()),
            domain_namespace: Some("team".to_owned()),
            imex_program: self.script(node, "imex", &service),
            hosts_file: hosts,
            kubeconfig: None,
            server_port: self.ports[0],
            command_port: self.ports[1],
        }
    }

    fn start(&self, node: u8) -> Running {
        self.start_with(self.args(node))
    }

    fn start_with(&self, args: RunArgs) -> Running {
        let (leave, left) = oneshot::channel();
        let client = self.cliques.server.client();
        let task = tokio::spawn(async move {
            supervise(client, &args, CLIQUE, async { left.await.unwrap() }).await
        });
        Running { leave: Some(leave), task }
    }

    /// Processes of a node's service, the last one is the newest.
    fn pids(&self, node: u8) -> Vec<Pid> {
        let text = fs::read_to_string(self.node(node).join("pids")).unwrap_or_default();
        text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect()
    }

    /// How often a node's service has looked up names since its start.
    fn reloads(&self, node: u8) -> usize {
        let log = fs::read_to_string(self.node(node).join("log")).unwrap_or_default();
        log.matches("the names of peers are looked up again").count()
    }

    fn is_ready(&self, node: u8) -> bool {
        self.cliques.entry(&format!("node-{node}"))["status"] == "Ready"
    }

    async fn wait_until_ready(&self, node: u8) {
        eventually(&format!("node {node} is ready"), || self.is_ready(node)).await;
    }

    /// What a node's service answers to a command.
    fn command_output(&self, node: u8, args: &[&str]) -> String {
        let output = std::process::Command::new(self.node(node).join("ctl"))
            .arg("-c")
            .arg(self.node(node).join("imexd.cfg"))
            .args(args)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What a node's service says of its connection to another.
    fn link(&self, node: u8, to: u8) -> serde_json::Value {
        let text = self.command_output(node, &["-N", "-j"]);
        let domain: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        domain["nodes"][node.to_string()]["connections"][to.to_string()]["status"].clone()
    }

    async fn wait_for_link(&self, node: u8, to: u8) {
        eventually(&format!("{node} is connected to {to}"), || self.link(node, to) == "CONNECTED")
            .await;
    }
}

fn is_running(pid: Pid) -> bool {
    test_kill_process(pid).is_ok()
}

fn slot_line(hosts: &Path, slot: u8) -> String {
    let text = fs::read_to_string(hosts).unwrap_or_default();
    let name = format!("compute-domain-daemon-{slot:04}");
    let line = text.lines().find(|line| line.ends_with(&name)).unwrap_or_default();
    line.split_whitespace().next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_daemons_are_ready_and_a_third_joins_without_a_restart() {
    let rack = Rack::new();
    let first = rack.start(0);
    rack.cliques.put("first", &json!([]));
    rack.wait_until_ready(0).await;
    let second = rack.start(1);
    rack.wait_until_ready(1).await;
    rack.wait_for_link(1, 0).await;
    rack.wait_for_link(0, 1).await;
    let before = [rack.pids(0), rack.pids(1)];

    let third = rack.start(2);
    rack.wait_until_ready(2).await;
    for node in [0, 1] {
        rack.wait_for_link(node, 2).await;
        rack.wait_for_link(2, node).await;
        assert_eq!(slot_line(&rack.node(node).join("hosts"), 2), "127.0.0.32");
        assert_eq!(slot_line(&rack.node(node).join("hosts"), 3), "127.0.0.2", "a free slot");
    }
    eventually("they have looked up its name", || rack.reloads(0) > 0 && rack.reloads(1) > 0).await;
    assert_eq!(rack.reloads(2), 0, "the third knows all names from its start");
    assert_eq!([rack.pids(0), rack.pids(1)], before);
    assert!(before.iter().flatten().all(|pid| is_running(*pid)));
    assert_eq!(before.iter().flatten().count(), 2, "each was started once");
    let text = fs::read_to_string(rack.node(0).join("hosts")).unwrap();
    assert!(text.starts_with("127.0.0.1 localhost\n"), "{text}");

    let mut check = rack.args(2).check;
    assert!(check_of(&check).await.is_ok());
    third.leave().await;
    // The controller sees the end of the pod.
    assert_eq!(rack.cliques.entry("node-2")["status"], "Ready");
    assert!(rack.pids(2).iter().all(|pid| !is_running(*pid)));
    assert_eq!(rack.cliques.entry("node-2")["index"], 2, "the controller's field stays");
    assert!(check_of(&check).await.unwrap_err().to_string().contains("does not answer"));
    check.clique_id = None;
    assert!(check_of(&check).await.is_ok());
    assert_eq!(slot_line(&rack.node(0).join("hosts"), 2), "127.0.0.32", "its line stays");
    assert!(rack.is_ready(0) && rack.is_ready(1));
    first.leave().await;
    second.leave().await;
}

async fn check_of(args: &CheckArgs) -> anyhow::Result<()> {
    let command = ImexDaemonCommand::Check(args.clone());
    run(ImexDaemonArgs { command }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_service_is_not_ready_and_comes_back() {
    let rack = Rack::new();
    rack.cliques.put("first", &json!([]));
    let daemon = rack.start(0);
    rack.wait_until_ready(0).await;
    let [pid] = rack.pids(0)[..] else { panic!("one start") };
    kill_process(pid, Signal::KILL).unwrap();
    eventually("it is ready again", || {
        rack.cliques.history("node-0") == ["NotReady", "Ready", "NotReady", "Ready"]
    })
    .await;
    assert_eq!(rack.pids(0).len(), 2);
    assert!(!is_running(pid), "it was reaped");
    daemon.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_waits_for_a_valid_index_and_follows_another() {
    let rack = Rack::new();
    rack.cliques.give_indices(false);
    rack.cliques.put("first", &json!([]));
    let daemon = rack.start(0);
    eventually("it has an entry", || rack.cliques.entry("node-0")["status"] == "NotReady").await;
    let give = |index: i64| {
        let entry = json!({"nodeName": "node-0", "ipAddress": "127.0.0.30", "cliqueID": CLIQUE,
            "status": rack.cliques.entry("node-0")["status"], "index": index});
        rack.cliques.put("first", &json!([entry]));
    };
    give(4);
    give(-1);
    assert!(rack.pids(0).is_empty(), "neither is a slot");
    give(3);
    rack.wait_until_ready(0).await;
    let hosts = rack.node(0).join("hosts");
    assert_eq!(slot_line(&hosts, 3), "127.0.0.30");
    give(1);
    eventually("it is started with the other index", || rack.pids(0).len() == 2).await;
    rack.wait_until_ready(0).await;
    assert_eq!([slot_line(&hosts, 1), slot_line(&hosts, 3)], ["127.0.0.30", "127.0.0.2"]);
    daemon.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_program_is_tried_again_without_a_crash() {
    let rack = Rack::new();
    rack.cliques.put("first", &json!([]));
    let mut args = rack.args(0);
    let program = std::mem::replace(&mut args.imex_program, rack.node(0).join("later"));
    let later = args.imex_program.clone();
    let daemon = rack.start_with(args);
    let config = rack.node(0).join("imexd.cfg");
    eventually("the first start has failed", || config.is_file()).await;
    assert!(!rack.is_ready(0) && rack.pids(0).is_empty());
    fs::rename(program, later).unwrap();
    rack.wait_until_ready(0).await;
    daemon.leave().await;
}

#[tokio::test]
async fn a_container_without_the_cdi_spec_is_refused_with_the_reason() {
    let rack = Rack::new();
    let mut args = rack.args(0);
    args.domain_uid = Some(String::new());
    let error = rack.start_with(args).task.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("COMPUTE_DOMAIN_UUID is not set"), "{error}");
}

#[tokio::test]
async fn a_node_without_a_clique_idles_until_a_signal() {
    let rack = Rack::new();
    let mut args = rack.args(0);
    args.check.clique_id = Some(String::new());
    let command = ImexDaemonCommand::Run(Box::new(args));
    let mut idle = std::pin::pin!(run(ImexDaemonArgs { command }));
    // The handler of the signal is there after the first poll.
    assert!(futures::poll!(&mut idle).is_pending());
    kill_process(rustix::process::getpid(), Signal::TERM).unwrap();
    idle.await.unwrap();
    assert!(rack.pids(0).is_empty());
}
