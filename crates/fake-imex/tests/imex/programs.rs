//! The programs, as a supervisor and a probe run them.

use std::fs;
use std::process::{Child, Command, Output, Stdio};

use octavo_fake_imex::status::ConnectionStatus;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{Rack, eventually, write_config};

/// A running service.
struct Service(Child);

impl Service {
    fn start(rack: &Rack, node: u8) -> Self {
        let config = rack.path("config");
        write_config(&config, &rack.config(node));
        Self::start_with(rack, node, &fs::read_to_string(config).unwrap())
    }

    fn start_with(rack: &Rack, node: u8, text: &str) -> Self {
        let config = rack.path(&format!("imexd-{node}.cfg"));
        fs::write(&config, text).unwrap();
        let service = Command::new(env!("CARGO_BIN_EXE_nvidia-imex"))
            .args(["--nogpu", "-c"])
            .arg(config)
            .arg("--hosts")
            .arg(rack.path("hosts"))
            .stderr(Stdio::null())
            .spawn();
        Self(service.unwrap())
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(rack: &Rack, node: u8, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nvidia-imex-ctl"))
        .arg("-c")
        .arg(rack.path(&format!("imexd-{node}.cfg")))
        .arg("--hosts")
        .arg(rack.path("hosts"))
        .args(args)
        .output()
        .unwrap()
}

#[tokio::test]
async fn the_command_tells_of_the_node_and_of_the_domain() {
    let rack = Rack::new(2);
    rack.write_hosts([0]);
    let first = Service::start(&rack, 0);
    let is_ready = |node| ask(&rack, node, &["-q"]).stdout == b"READY\n";
    eventually("the first is ready", async || is_ready(0)).await;
    rack.write_hosts([0, 1]);
    let mut second = Service::start(&rack, 1);
    eventually("the second is ready", async || is_ready(1)).await;
    rack.wait_for_link(1, 0, ConnectionStatus::Connected).await;
    assert_eq!(rack.link(0, 1).await, ConnectionStatus::NeverConnected);
    first.signal(Signal::USR1);
    eventually("the domain is up", async || {
        let output = ask(&rack, 0, &["-N", "-j"]);
        let domain: Value = serde_json::from_slice(&output.stdout).unwrap();
        domain["status"] == "UP"
    })
    .await;
    let table = ask(&rack, 1, &["-N"]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("Node #1   - node-1"), "{table}");
    assert!(table.ends_with("Domain State: UP\n"), "{table}");

    second.signal(Signal::TERM);
    assert!(second.0.wait().unwrap().success());
    let output = ask(&rack, 1, &["-q"]);
    assert_eq!((output.stdout, output.status.code()), (b"UNAVAILABLE\n".to_vec(), Some(1)));
    assert!(is_ready(0), "the signal has not ended it, and the peer's end neither");
    let domain: Value = serde_json::from_slice(&ask(&rack, 0, &["-N", "-j"]).stdout).unwrap();
    assert_eq!(domain["status"], "DEGRADED");
}

#[tokio::test]
async fn a_subscriber_at_a_socket_sees_the_end() {
    let rack = Rack::new(1);
    let config = rack.path("imexd-0.cfg");
    write_config(&config, &rack.config(0));
    let socket = rack.path("imex.sock");
    let line = format!("IMEX_CMD_UNIX_DOMAIN_PATH={}\n", socket.display());
    let text = fs::read_to_string(&config).unwrap() + &line;
    let service = Service::start_with(&rack, 0, &text);
    eventually("it is ready", async || ask(&rack, 0, &["-q"]).stdout == b"READY\n").await;
    let subscriber = Command::new(env!("CARGO_BIN_EXE_nvidia-imex-ctl"))
        .arg(format!("--u={}", socket.display()))
        .arg("-s")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let at_port = ask(&rack, 0, &["-s", "-t", "300"]);
    assert_eq!((at_port.stdout, at_port.status.code()), (b"READY\n".to_vec(), Some(0)));
    service.signal(Signal::TERM);
    let output = subscriber.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "READY\nSHUTTING_DOWN\n");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_command_needs_one_question() {
    let run = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_nvidia-imex-ctl")).args(args).output().unwrap()
    };
    assert_eq!(run(&[]).status.code(), Some(2));
    assert_eq!(run(&["-q", "-N"]).status.code(), Some(2));
    let missing = run(&["-q", "--u=/no/such.sock"]);
    assert_eq!(missing.stdout, b"UNAVAILABLE\n");
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/no/such.sock"));
}
