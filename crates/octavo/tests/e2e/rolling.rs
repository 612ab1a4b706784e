//! Two agents on one node, as during a `DaemonSet` update. The node passes between them, and no
//! claim is lost.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kube::ResourceExt;
use octavo_lab::Component;
use serde_json::json;

use crate::testbed::{OCTAVO, Testbed, eventually};

/// The node of these tests.
const NODE: &str = "l4-0";

/// An agent beside the lab's own.
pub(crate) struct Agent {
    process: Child,
    admin: SocketAddr,
}

impl Agent {
    /// Starts an agent for the node with its own instance id.
    fn start(testbed: &Testbed, instance: &str) -> Self {
        let config = testbed.node(NODE).join("agent.yaml");
        Self::start_program(testbed, &Self::program(), &config, instance)
    }

    /// The program that the chart runs.
    pub(crate) fn program() -> PathBuf {
        Path::new(OCTAVO).with_file_name("octavo-agent")
    }

    /// Starts the agent of a program with a config file and its own instance id.
    pub(crate) fn start_program(
        testbed: &Testbed,
        program: &Path,
        config: &Path,
        instance: &str,
    ) -> Self {
        // The port was free a moment ago; the readiness report shows who listens there.
        let admin = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let log = testbed.lab.layout().root().join(format!("logs/agent-{instance}.log"));
        let log = std::fs::File::create(log).unwrap();
        // Of `octavo` the agent is a subcommand.
        let subcommand = program.file_name().filter(|name| *name == "octavo").map(|_| "agent");
        let process = Command::new(program)
            .args(subcommand)
            .args(["--instance-id", instance, "--admin-address", &admin.to_string()])
            .arg("--config")
            .arg(config)
            .env("RUST_LOG", "info")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { process, admin }
    }

    /// The readiness report; empty without an answer.
    fn report(&self) -> String {
        let mut answer = String::new();
        let Ok(mut stream) = TcpStream::connect(self.admin) else { return answer };
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let request = b"GET /readyz HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n";
        if stream.write_all(request).is_err() || stream.read_to_string(&mut answer).is_err() {
            answer.clear();
        }
        answer
    }

    /// Waits until the agent reports that it is ready, with this line.
    pub(crate) async fn wait_until_ready(&self, line: &str) {
        let is_ready = |report: &str| report.contains("200 OK") && report.contains(line);
        eventually(line, async || is_ready(&self.report()).then_some(())).await;
    }

    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Registration sockets on the node.
fn registrations(testbed: &Testbed) -> Vec<String> {
    let folder = std::fs::read_dir(testbed.node(NODE).join("kubelet/plugins_registry")).unwrap();
    let mut names: Vec<_> =
        folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

async fn versions(testbed: &Testbed) -> Vec<Option<String>> {
    testbed.slices_of(NODE).await.iter().map(ResourceExt::resource_version).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_agent_takes_the_node_over_and_pods_start_meanwhile() {
    let testbed = Testbed::up("l4=1").await;
    testbed.pod_with_claim("before", &json!([])).await;
    testbed.wait_until_running("before").await;
    let slices = versions(&testbed).await;

    let second = Agent::start(&testbed, "b");
    for pod in ["during-1", "during-2"] {
        testbed.pod_with_claim(pod, &json!([])).await;
    }
    for pod in ["during-1", "during-2"] {
        testbed.wait_until_running(pod).await;
    }
    second.wait_until_ready("ready: kubelet").await;
    eventually("only the second agent is registered", async || {
        (registrations(&testbed) == ["gpu.nvidia.com-b@reg.sock"]).then_some(())
    })
    .await;
    assert_eq!(testbed.node_files(NODE).len(), 6, "a record and a spec for every claim");
    assert_eq!(versions(&testbed).await, slices, "nothing had changed, so nothing is written");

    // The first agent ends, as in a DaemonSet update once the second is ready.
    testbed.lab.stop(Component::Agents).await;
    testbed.delete_pod("before").await;
    eventually("the second agent has taken the claim back", async || {
        (testbed.node_files(NODE).len() == 4).then_some(())
    })
    .await;
    testbed.pod_with_claim("after", &json!([])).await;
    testbed.wait_until_running("after").await;
    for pod in ["during-1", "during-2", "after"] {
        testbed.delete_pod(pod).await;
    }
    eventually("no file is left", async || testbed.node_files(NODE).is_empty().then_some(())).await;
    second.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_either_agent_leaves_the_other_serving() {
    let testbed = Testbed::up("l4=1").await;
    testbed.pod_with_claim("steady", &json!([])).await;
    testbed.wait_until_running("steady").await;
    let files = testbed.node_files(NODE);

    // The new agent owns the node and dies: the previous owner takes the node back.
    let second = Agent::start(&testbed, "b");
    second.wait_until_ready("ready: kubelet").await;
    second.kill();
    testbed.pod_with_claim("first", &json!([])).await;
    testbed.wait_until_running("first").await;
    eventually("the dead agent's socket is gone", async || {
        (registrations(&testbed) == ["gpu.nvidia.com@reg.sock"]).then_some(())
    })
    .await;
    assert_eq!(testbed.node_files(NODE).len(), files.len() + 2);

    // The standby agent dies and returns as the new one; the other becomes the standby.
    let third = Agent::start(&testbed, "c");
    third.wait_until_ready("ready: kubelet").await;
    testbed.lab.kill(Component::Agents).await;
    testbed.lab.start(Component::Agents).await.unwrap();
    third.wait_until_ready("ready: standby").await;
    testbed.delete_pod("first").await;

    // Then the active agent dies: the standby knows the claims.
    testbed.lab.kill(Component::Agents).await;
    third.wait_until_ready("ready: kubelet").await;
    testbed.pod_with_claim("last", &json!([])).await;
    testbed.wait_until_running("last").await;
    testbed.wait_until_running("steady").await;
    testbed.delete_pod("last").await;
    testbed.delete_pod("steady").await;
    eventually("no file is left", async || testbed.node_files(NODE).is_empty().then_some(())).await;
    third.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_is_known_after_a_hand_over() {
    let testbed = Testbed::up("l4=1").await;
    testbed.pod_with_claim("patient", &json!([])).await;
    testbed.wait_until_running("patient").await;
    let second = Agent::start(&testbed, "b");
    second.wait_until_ready("ready: kubelet").await;
    testbed.lab.stop(Component::Agents).await;
    // The kubelet forgets the known health when the first agent's stream ends.
    eventually("the pod's GPU is known to be well", async || {
        let pod = serde_json::to_value(testbed.pods().get("patient").await.ok()?).unwrap();
        let resources =
            &pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0]["resources"];
        (resources[0]["health"] == "Healthy").then_some(())
    })
    .await;
    testbed.delete_pod("patient").await;
    second.kill();
}
