use std::ffi::OsString;
use std::path::Path;

use super::*;

fn chosen(named: Option<&str>, env: &[(&str, &str)]) -> anyhow::Result<Layout> {
    Layout::choose_from(named.map(Path::new), |name| {
        env.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
    })
}

#[test]
fn a_named_folder_wins_over_the_environment() {
    let env = [("OCTAVO_LAB_DIR", "/lab"), ("XDG_STATE_HOME", "/xdg"), ("HOME", "/h")];
    let layout = chosen(Some("/tmp/mine"), &env).unwrap();
    assert_eq!(layout.root(), Path::new("/tmp/mine"));
    assert_eq!(chosen(None, &env).unwrap().root(), Path::new("/lab"));
}

#[test]
fn the_default_folder_is_the_state_home_and_else_below_the_home() {
    let xdg = chosen(None, &[("XDG_STATE_HOME", "/xdg"), ("HOME", "/h")]).unwrap();
    assert_eq!(xdg.root(), Path::new("/xdg/octavo/lab"));
    let home = chosen(None, &[("HOME", "/h")]).unwrap();
    assert_eq!(home.root(), Path::new("/h/.octavo/lab"));
    assert!(chosen(None, &[]).unwrap_err().to_string().contains("--state-dir"));
}

#[test]
fn too_long_socket_paths_are_refused_with_the_excess_in_bytes() {
    let node = "dgx-h100-0";
    let fixed = "/nodes/".len() + node.len() + 1 + DEEPEST_SOCKET_PATH.len();
    let fits = format!("/{}", "a".repeat(MAX_SOCKET_PATH_BYTES - fixed - 1));
    let layout = Layout::new(Path::new(&fits)).unwrap();
    layout.check_sockets(["x", node].into_iter()).unwrap();

    let layout = Layout::new(Path::new(&format!("{fits}abc"))).unwrap();
    let message = layout.check_sockets(["x", node].into_iter()).unwrap_err().to_string();
    assert!(message.contains("110 bytes") && message.contains("3 bytes shorter"), "{message}");
}

#[test]
fn removal_keeps_the_lock_and_on_request_the_logs() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::new(folder.path()).unwrap();
    for part in ["pki/ca.crt", "nodes/n/agent.yaml", "logs/etcd.log", "lab.json", "lock"] {
        let path = folder.path().join(part);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    layout.remove(true).unwrap();
    assert!(layout.log(Component::Etcd).exists() && layout.lock().exists());
    assert!(!layout.pki().exists() && !layout.settings().exists());
    layout.remove(false).unwrap();
    assert!(!layout.logs().exists() && layout.lock().exists());
}

#[test]
fn a_folder_with_other_files_is_refused_by_their_name() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::new(folder.path()).unwrap();
    layout.check_owned().unwrap();
    std::fs::write(folder.path().join("thesis.tex"), "").unwrap();
    assert!(layout.check_owned().unwrap_err().to_string().contains("thesis.tex"));
}
