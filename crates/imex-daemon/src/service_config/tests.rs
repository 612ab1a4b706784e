use std::collections::BTreeMap;

use octavo_fake_imex::Config;
use octavo_fake_imex::config::{Pem, Quorum};

use super::*;

fn config(tls_folder: Option<PathBuf>) -> ServiceConfig {
    ServiceConfig {
        address: "10.0.0.7".parse().unwrap(),
        server_port: 50_000,
        command_port: 50_005,
        nodes_file: "/imexd/nodes.cfg".into(),
        tls_folder,
    }
}

fn keys(text: &str) -> BTreeMap<&str, &str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once('=').unwrap()).collect()
}

#[test]
fn the_config_has_the_keys_of_nvidias_driver_and_is_one_that_the_service_reads() {
    let text = config(None).render();
    let keys = keys(&text);
    assert_eq!(keys.len(), 33);
    assert_eq!(keys["BIND_INTERFACE_IP"], "10.0.0.7");
    assert_eq!(keys["IMEX_CMD_BIND_INTERFACE_IP"], "10.0.0.7");
    assert_eq!(keys["IMEX_ENABLE_AUTH_ENCRYPTION"], "0");
    assert_eq!((keys["LOG_FILE_NAME"], keys["DAEMONIZE"]), ("", "0"));
    let read = Config::parse(&text).unwrap();
    assert_eq!(read.quorum, Quorum::Recovery);
    assert_eq!((read.port, read.address), (50_000, "10.0.0.7".parse().ok()));
    assert_eq!(read.nodes_file, Path::new("/imexd/nodes.cfg"));
    assert_eq!((read.grace_time, read.tls), (None, None));
}

#[test]
fn with_a_secret_connections_are_encrypted_by_its_files() {
    let text = config(Some("/tls".into())).render();
    assert_eq!(keys(&text)["IMEX_AUTH_ENCRYPTION_MODE"], "SSL_TLS");
    let tls = Config::parse(&text).unwrap().tls.unwrap();
    for side in [&tls.server, &tls.client] {
        assert_eq!(side.key, Pem::File("/tls/tls.key".into()));
        assert_eq!(side.certificate, Pem::File("/tls/tls.crt".into()));
        assert_eq!(side.authority, Pem::File("/tls/ca.crt".into()));
    }
}

#[test]
fn the_list_has_the_name_of_each_slot() {
    let list = nodes(18);
    let lines: Vec<_> = list.lines().collect();
    assert_eq!((lines.len(), lines[17]), (18, "compute-domain-daemon-0017"));
    assert!(list.ends_with('\n'));
}

#[test]
fn files_are_replaced_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new/nodes.cfg");
    write(&file, "first").unwrap();
    write(&file, "second").unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "second");
    assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
}
