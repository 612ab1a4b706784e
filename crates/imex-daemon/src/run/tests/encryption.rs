//! Daemons whose services are encrypted.

use super::*;
use crate::check::check;
use crate::tls::tests::Authority;

/// The arguments of a node with a certificate in a folder of its own.
fn args(rack: &Rack, node: u8, authority: &Authority, last_year: i32) -> RunArgs {
    let mut args = rack.args(node);
    let folder = rack.node(node).join("tls");
    authority.issue(&folder, last_year);
    args.check.tls_folder = Some(folder);
    args
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemons_with_certificates_of_one_authority_connect() {
    let rack = Rack::new();
    rack.cliques.put("first", &json!([]));
    let (ours, theirs) = (Authority::new(), Authority::new());
    let first = rack.start_with(args(&rack, 0, &ours, 2090));
    rack.wait_until_ready(0).await;
    let second = rack.start_with(args(&rack, 1, &ours, 2090));
    rack.wait_until_ready(1).await;
    rack.wait_for_link(0, 1).await;
    rack.wait_for_link(1, 0).await;
    // The services themselves refuse a peer of another authority.
    let third = rack.start_with(args(&rack, 2, &theirs, 2090));
    rack.wait_until_ready(2).await;
    assert_ne!(rack.link(0, 2), "CONNECTED");
    for daemon in [first, second, third] {
        daemon.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_valid_certificate_no_service_is_started() {
    let rack = Rack::new();
    rack.cliques.put("first", &json!([]));
    let ours = Authority::new();
    let args = args(&rack, 0, &ours, 2021);
    let (check_args, folder) = (args.check.clone(), args.check.tls_folder.clone().unwrap());
    let daemon = rack.start_with(args);
    let config = rack.node(0).join("imexd.cfg");
    eventually("the first start has failed", || config.is_file()).await;
    let error = check(&check_args).await.unwrap_err().to_string();
    assert!(error.contains("it has expired"), "{error}");
    assert!(!rack.is_ready(0) && rack.pids(0).is_empty());
    ours.issue(&folder, 2090);
    rack.wait_until_ready(0).await;
    assert!(check(&check_args).await.is_ok());
    daemon.leave().await;
}
