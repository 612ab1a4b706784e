use crate::testing::{claim, domain, pod};

use super::*;

/// A domain of many racks settles, too.
#[test]
fn a_domain_of_two_thousand_nodes_settles() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    for number in 0..2000 {
        let node = format!("n{number:04}");
        server.put_node(&node, Some(&format!("c.{}", number / 18)), None);
        server.put_claim(claim("a", &node));
        server.put_pod(pod("a", &node, &node));
    }
    settle(&mut server, "a");
    let status = server.domain("domain-a").unwrap().status.unwrap();
    assert_eq!(status.nodes.len(), 2000);
}
