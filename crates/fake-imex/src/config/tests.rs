use super::*;

/// What NVIDIA's DRA driver writes for its daemons, with an address.
const USUAL: &str = "\
# Log
LOG_LEVEL=4
LOG_FILE_NAME=
STATS_FILE_NAME=/var/log/nvidia-imex-stats.log
LOG_APPEND_TO_LOG=0
LOG_FILE_MAX_SIZE=1024
LOG_MAX_ROTATE_COUNT=10
LOG_USE_SYSLOG=0
DAEMONIZE=0
BIND_INTERFACE_IP=
SERVER_PORT=50000
IMEX_NODE_CONFIG_FILE=/imexd/nodes.cfg
NETWORK_INTERFACE=
IMEX_WAIT_FOR_QUORUM=RECOVERY
IMEX_ENABLE_AUTH_ENCRYPTION=0
IMEX_AUTH_ENCRYPTION_MODE=
IMEX_AUTH_SOURCE=
IMEX_SERVER_KEY=
IMEX_GSS_SERVER_NAME=
IMEX_CMD_ENABLED=1
IMEX_CMD_BIND_INTERFACE_IP=10.0.0.7
IMEX_CMD_PORT=50005
IMEX_CMD_UNIX_DOMAIN_PATH=
IMEX_NODE_DISCONNECTED_GRACE_TIME=-1
";

fn refusal(text: &str) -> String {
    format!("{:#}", Config::parse(text).unwrap_err())
}

#[test]
fn the_usual_file_is_read() {
    let expected = Config {
        address: None,
        port: 50_000,
        nodes_file: "/imexd/nodes.cfg".into(),
        quorum: Quorum::Recovery,
        grace_time: None,
        tls: None,
        commands: vec![CommandAddress::Tcp("10.0.0.7:50005".parse().unwrap())],
        log_file: None,
        is_log_kept: false,
    };
    assert_eq!(Config::parse(USUAL).unwrap(), expected);
}

#[test]
fn an_empty_file_has_the_defaults() {
    let config = Config::parse("").unwrap();
    assert_eq!((config.port, config.commands, config.grace_time), (50_000, Vec::new(), None));
    assert!(config.is_log_kept);
    assert_eq!(config.nodes_file, Path::new("/etc/nvidia-imex/nodes_config.cfg"));
}

#[test]
fn commands_may_have_a_socket_beside_the_port() {
    let text = "IMEX_CMD_ENABLED=1\nIMEX_CMD_UNIX_DOMAIN_PATH=/run/imex.sock\n";
    let expected = [
        CommandAddress::Unix("/run/imex.sock".into()),
        CommandAddress::Tcp("0.0.0.0:50005".parse().unwrap()),
    ];
    assert_eq!(Config::parse(text).unwrap().commands, expected);
}

#[test]
fn keys_are_named_and_not_read() {
    let text = |source: &str| {
        let keys = ["KEY", "CERT", "CERT_AUTH"]
            .map(|key| format!("IMEX_SERVER_{key}=/no/s_{key}\nIMEX_CLIENT_{key}=/no/c_{key}\n"));
        format!(
            "IMEX_ENABLE_AUTH_ENCRYPTION=1\nIMEX_AUTH_ENCRYPTION_MODE=SSL_TLS\n\
             IMEX_AUTH_SOURCE={source}\nIMEX_SECURITY_TARGET_OVERRIDE=imex\n{}",
            keys.concat()
        )
    };
    let tls = |source: &str| Config::parse(&text(source)).unwrap().tls.unwrap();
    let files = tls("FILE");
    assert_eq!(files.server.key, Pem::File("/no/s_KEY".into()));
    assert_eq!(files.client.authority, Pem::File("/no/c_CERT_AUTH".into()));
    assert_eq!(files.target.as_deref(), Some("imex"));
    assert_eq!(tls("ENV_PATH").client.key, Pem::FileOf("/no/c_KEY".into()));
    assert_eq!(tls("ENV_VAL").server.certificate, Pem::Variable("/no/s_CERT".into()));
    assert!(refusal(&text("NONE")).contains("IMEX_AUTH_SOURCE is none of"));
}

#[test]
fn what_is_not_simulated_is_refused() {
    for (text, expected) in [
        ("DAEMONIZE=1", "foreground"),
        ("SERVER_PORT=x", "SERVER_PORT=x is no valid value"),
        ("IMEX_CMD_ENABLED=yes", "write 0 or 1"),
        ("IMEX_WAIT_FOR_QUORUM=ALL", "NONE, RECOVERY or FULL"),
        ("NO_SUCH_KEY=1", "unknown key NO_SUCH_KEY"),
        ("no pair", "`no pair` is not KEY=VALUE"),
        ("IMEX_ENABLE_AUTH_ENCRYPTION=1", "IMEX_SERVER_KEY is missing"),
        (
            "IMEX_ENABLE_AUTH_ENCRYPTION=1\nIMEX_AUTH_ENCRYPTION_MODE=GSS_AUTH_ONLY",
            "GSS_AUTH_ONLY is not simulated",
        ),
    ] {
        let refusal = refusal(text);
        assert!(refusal.contains(expected), "{text}: {refusal}");
    }
}
