//! Two agents on one node, as while a `DaemonSet` is updated: the node passes from one to the other and back, and no
//! claim is lost.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kube::ResourceExt;
use octavo_lab::Component;
use serde_json::json;

use crate::bed::{Bed, OCTAVO, eventually};

/// The node of these tests.
const NODE: &str = "l4-0";

/// An agent beside the lab's own.
struct Agent {
    process: Child,
    admin: SocketAddr,
}

impl Agent {
    /// Starts an agent for the node with an instance id of its own.
    fn start(bed: &Bed, instance: &str) -> Self {
        // Free a moment ago; who listens there is asked before anything else is done.
        let admin = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let log = bed.lab.layout().root().join(format!("logs/agent-{instance}.log"));
        let log = std::fs::File::create(log).unwrap();
        let process = Command::new(OCTAVO)
            .args(["agent", "--instance-id", instance, "--admin-address", &admin.to_string()])
            .arg("--config")
            .arg(bed.node(NODE).join("agent.yaml"))
            .env("RUST_LOG", "info")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { process, admin }
    }

    /// The readiness report; empty while nobody answers.
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

    /// Waits until the agent says that it is ready, and says this, too.
    async fn says(&self, line: &str) {
        let is_said = |report: &str| report.contains("200 OK") && report.contains(line);
        eventually(line, async || is_said(&self.report()).then_some(())).await;
    }

    fn kill(mut self) {
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
fn registrations(bed: &Bed) -> Vec<String> {
    let folder = std::fs::read_dir(bed.node(NODE).join("kubelet/plugins_registry")).unwrap();
    let mut names: Vec<_> =
        folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

async fn versions(bed: &Bed) -> Vec<Option<String>> {
    bed.slices_of(NODE).await.iter().map(ResourceExt::resource_version).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_agent_takes_the_node_over_and_pods_start_meanwhile() {
    let bed = Bed::up("l4=1").await;
    bed.pod_with_claim("before", &json!([])).await;
    bed.running("before").await;
    let slices = versions(&bed).await;

    let second = Agent::start(&bed, "b");
    for pod in ["during-1", "during-2"] {
        bed.pod_with_claim(pod, &json!([])).await;
    }
    for pod in ["during-1", "during-2"] {
        bed.running(pod).await;
    }
    second.says("ready: kubelet").await;
    eventually("only the second agent is registered", async || {
        (registrations(&bed) == ["gpu.nvidia.com-b@reg.sock"]).then_some(())
    })
    .await;
    assert_eq!(bed.node_files(NODE).len(), 6, "a record and a spec for every claim");
    assert_eq!(versions(&bed).await, slices, "nothing had changed, so nothing is written");

    // The first one ends, as a DaemonSet has it when the second one is ready.
    bed.lab.stop(Component::Agents).await;
    bed.delete_pod("before").await;
    eventually("the second agent has taken the claim back", async || {
        (bed.node_files(NODE).len() == 4).then_some(())
    })
    .await;
    bed.pod_with_claim("after", &json!([])).await;
    bed.running("after").await;
    for pod in ["during-1", "during-2", "after"] {
        bed.delete_pod(pod).await;
    }
    eventually("no file is left", async || bed.node_files(NODE).is_empty().then_some(())).await;
    second.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whichever_agent_is_killed_the_other_one_goes_on() {
    let bed = Bed::up("l4=1").await;
    bed.pod_with_claim("steady", &json!([])).await;
    bed.running("steady").await;
    let files = bed.node_files(NODE);

    // The newcomer has the node and dies: who gave it takes it back.
    let second = Agent::start(&bed, "b");
    second.says("ready: kubelet").await;
    second.kill();
    bed.pod_with_claim("first", &json!([])).await;
    bed.running("first").await;
    eventually("the dead agent's socket is gone", async || {
        (registrations(&bed) == ["gpu.nvidia.com@reg.sock"]).then_some(())
    })
    .await;
    assert_eq!(bed.node_files(NODE).len(), files.len() + 2);

    // The one that stands by dies, and comes back as a newcomer: the other one stands by then.
    let third = Agent::start(&bed, "c");
    third.says("ready: kubelet").await;
    bed.lab.kill(Component::Agents).await;
    bed.lab.start(Component::Agents).await.unwrap();
    third.says("ready: standby").await;
    bed.delete_pod("first").await;

    // And the active one dies: the claims are known to the one that stood by.
    bed.lab.kill(Component::Agents).await;
    third.says("ready: kubelet").await;
    bed.pod_with_claim("last", &json!([])).await;
    bed.running("last").await;
    bed.running("steady").await;
    bed.delete_pod("last").await;
    bed.delete_pod("steady").await;
    eventually("no file is left", async || bed.node_files(NODE).is_empty().then_some(())).await;
    third.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_is_known_after_a_hand_over() {
    let bed = Bed::up("l4=1").await;
    bed.pod_with_claim("patient", &json!([])).await;
    bed.running("patient").await;
    let second = Agent::start(&bed, "b");
    second.says("ready: kubelet").await;
    bed.lab.stop(Component::Agents).await;
    // The kubelet forgets the health that it knows when the first agent's stream ends.
    eventually("the pod's GPU is known to be well", async || {
        let pod = serde_json::to_value(bed.pods().get("patient").await.ok()?).unwrap();
        let resources =
            &pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0]["resources"];
        (resources[0]["health"] == "Healthy").then_some(())
    })
    .await;
    bed.delete_pod("patient").await;
    second.kill();
}
