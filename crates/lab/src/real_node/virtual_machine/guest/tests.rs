//! The script and the units of a virtual machine.

use std::path::Path;
use std::process::Command;

use super::*;
use crate::cluster::layout::Layout;
use crate::cluster::settings::Settings;
use crate::real_node::tests::{settings, two_nodes};

fn with_second<T>(settings: &Settings, root: &str, ask: impl FnOnce(&NodeContext<'_>) -> T) -> T {
    let layout = Layout::new(Path::new(root)).unwrap();
    let context = node_contexts(&layout, settings).nth(1).unwrap();
    ask(&context)
}

fn virtual_machines() -> Settings {
    let mut real = two_nodes();
    real.virtual_machines = Some("/image".into());
    settings(Some(real))
}

#[test]
fn the_script_mounts_the_node_s_folders_and_sets_up_its_network() {
    let settings = virtual_machines();
    let script = with_second(&settings, "/it's", |context| setup(context).unwrap());
    for line in [
        r"mkdir -p '/it'\''s'; mount --bind '/machine/it'\''s' '/it'\''s'",
        r"mkdir -p '/run/nvidia'; mount --bind '/machine/it'\''s/nodes/real-1' '/run/nvidia'",
        "ip address add 198.18.3.11/24 dev eth0",
        "ip route add 10.244.0.0/24 via 198.18.3.10",
        "iptables -w -t nat -A POSTROUTING -s 10.244.1.0/24 ! -d 10.244.0.0/16 -j MASQUERADE",
        "systemctl start containerd.service kubelet.service",
    ] {
        assert!(script.lines().any(|found| found == line), "{line}: {script}");
    }
    // Script and quoting are those of a shell.
    let checked = Command::new("sh").args(["-n", "-c", &script]).status().unwrap();
    assert!(checked.success(), "{script}");
}

#[test]
fn a_folder_within_another_is_mounted_with_it() {
    let mut settings = virtual_machines();
    settings.octavo = "/s/target/octavo".into();
    let folders = with_second(&settings, "/s", seen_folders);
    assert_eq!(folders, BTreeSet::from(["/c".into(), "/s".into()]));
}

#[test]
fn a_unit_has_the_program_s_words_as_they_are() {
    assert_eq!(systemd_quoted(r#"a "b" \ 5% $HOME"#), r#""a \"b\" \\ 5%% $$HOME""#);
    let settings = virtual_machines();
    let unit = with_second(&settings, "/s", |context| {
        super::unit(context, RealProgram::Kubelet, "containerd.service")
    });
    assert!(unit.contains("\nRequires=containerd.service\n"), "{unit}");
    assert!(unit.contains("\"--node-ip=198.18.3.11\"\n"), "{unit}");
}

#[test]
fn a_state_folder_that_no_kernel_parameter_can_name_is_refused() {
    let settings = virtual_machines();
    let path = |root| with_second(&settings, root, setup_path);
    assert_eq!(path("/s").unwrap(), Path::new("/s/real/real-1/etc/setup"));
    let message = path("/my lab").unwrap_err().to_string();
    assert!(message.contains("/my lab") && message.contains("--state-dir"), "{message}");
}
