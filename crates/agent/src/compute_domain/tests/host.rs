//! `imex.mode: hostManaged`.

use octavo_api::Refusal;
use serde_json::json;
use tokio::time::timeout;

use super::SOON;
use super::fixtures::{Node, claim, prepare};
use crate::compute_domain::DomainClaims;
use crate::config::Imex;

const CTL: &str = "usr/bin/nvidia-imex-ctl";

fn open(node: &Node) -> DomainClaims {
    node.open_with(Imex::OfHost { socket: "/etc/nvidia-imex/imex_ctrl.sock".into() })
}

/// The refusal of a channel of a domain that is ready.
async fn refused(node: &Node, claims: &DomainClaims) -> String {
    node.domain(&[("node", true)], true);
    loop {
        let refusal = prepare(claims, &claim(node.channel("c", "Single"))).await.unwrap_err();
        assert_eq!(refusal.reason(), "ComputeDomainNotReady", "{refusal}");
        let text = refusal.to_string();
        // Another test's child may have the script open for an instant.
        if !text.contains("os error 26") {
            return text;
        }
    }
}

#[tokio::test]
async fn a_channel_comes_when_the_hosts_service_is_ready() {
    let node = Node::new();
    let claims = open(&node);
    let missing = refused(&node, &claims).await;
    assert!(missing.contains("has no nvidia-imex-ctl") && missing.contains("install"), "{missing}");
    node.install(CTL, "echo INITIALIZING");
    let text = refused(&node, &claims).await;
    assert!(text.contains("INITIALIZING"), "{text}");
    for answer in ["echo 'NOT READY'", "echo NOT_READY", "true"] {
        node.install(CTL, answer);
        assert!(refused(&node, &claims).await.contains("not ready"), "{answer}");
    }
    node.install(CTL, "echo no such socket >&2; exit 1");
    let text = refused(&node, &claims).await;
    let setting = "IMEX_CMD_UNIX_DOMAIN_PATH=/etc/nvidia-imex/imex_ctrl.sock";
    assert!(text.contains("no such socket") && text.contains(setting), "{text}");
    assert!(node.checkpoints().is_empty());
    let socket = node.path("driver/etc/nvidia-imex/imex_ctrl.sock").display().to_string();
    node.install(CTL, &format!("[ \"$*\" = '-q --u={socket}' ] && echo 'state: READY.'"));
    let asked = claim("c");
    let devices = loop {
        match timeout(SOON, prepare(&claims, &asked)).await.unwrap() {
            Err(refusal) if refusal.to_string().contains("os error 26") => {}
            prepared => break prepared.unwrap(),
        }
    };
    assert_eq!(devices[0].cdi_ids, ["k8s.compute-domain.nvidia.com/claim=uid-of-c-channel-0"]);
    let path = node.spec("c")["devices"][0]["containerEdits"]["deviceNodes"][0]["path"].clone();
    assert_eq!(path, "/dev/nvidia-caps-imex-channels/channel0");
}

#[tokio::test]
async fn a_program_in_another_folder_and_behind_a_link_is_found() {
    let node = Node::new();
    let claims = open(&node);
    node.install("opt/imex/ctl", "echo BUSY");
    std::fs::create_dir_all(node.path("driver/usr/sbin")).unwrap();
    let link = node.path("driver/usr/sbin/nvidia-imex-ctl");
    std::os::unix::fs::symlink("/opt/imex/ctl", link).unwrap();
    assert!(refused(&node, &claims).await.contains("BUSY"));
}

#[tokio::test]
async fn a_program_that_hangs_is_given_up() {
    let node = Node::new();
    node.install(CTL, "exec sleep 600");
    let text = refused(&node, &open(&node)).await;
    assert!(text.contains("does not end in 5 s"), "{text}");
}

#[tokio::test]
async fn a_daemon_is_no_device_of_the_node() {
    let node = Node::new();
    let refusal = prepare(&open(&node), &claim(node.daemon("d"))).await.unwrap_err();
    assert!(matches!(refusal, Refusal::UnknownDevice { .. }), "{refusal}");
}

#[tokio::test]
async fn without_a_fabric_the_service_is_not_asked() {
    let node = Node::without_fabric();
    let devices = prepare(&open(&node), &claim(node.channel("c", "Single"))).await.unwrap();
    assert_eq!((json!(devices[0].cdi_ids), node.has_spec("c")), (json!([]), false));
}
