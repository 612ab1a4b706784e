mod indices;
mod labels;
mod objects;
mod sequences;
mod size;
mod status;
mod teardown;

use super::*;
use crate::store::Store;
use crate::testing::{Server, config, read};

/// The plan of a domain on a server whose changes were all seen.
fn plan_of(server: &mut Server, uid: &str) -> Plan {
    let store = observe(server);
    plan(&store.view(uid), &config())
}

fn observe(server: &Server) -> Store {
    read(server.objects.values().cloned().map(crate::store::Change::Put))
}

/// Plans a domain and writes, until its plan is empty.
fn settle(server: &mut Server, uid: &str) -> Plan {
    for _ in 0..20 {
        let plan = plan_of(server, uid);
        if plan.writes.is_empty() && plan.status.is_none() {
            return plan;
        }
        for write in plan.writes.iter().chain(&plan.status) {
            server.write(write).unwrap();
        }
    }
    panic!("the plan of {uid} does not come to an end");
}
