mod certificate;
mod channels;
mod gangs;
mod host;
mod indices;
mod labels;
mod objects;
mod sequences;
mod size;
mod status;
mod teardown;

use super::*;
use crate::config::Config;
use crate::store::Store;
use crate::testing::{Server, config, read_with};

/// The plan of a domain on a server whose changes were all seen.
fn plan_of(server: &mut Server, uid: &str) -> Plan {
    plan(&observe(server).view(uid), &config())
}

fn observe(server: &Server) -> Store {
    observe_with(server, &config())
}

/// Plans a domain and writes, until its plan is empty.
fn settle(server: &mut Server, uid: &str) -> Plan {
    settle_with(server, uid, &config())
}

fn observe_with(server: &Server, config: &Config) -> Store {
    let changes = server.objects.values().cloned().map(crate::store::Change::Put);
    read_with(config.services(), changes)
}

fn settle_with(server: &mut Server, uid: &str, config: &Config) -> Plan {
    for _ in 0..20 {
        let plan = plan(&observe_with(server, config).view(uid), config);
        if plan.writes.is_empty() && plan.status.is_none() {
            return plan;
        }
        for write in &plan.writes {
            server.write(write).unwrap();
        }
        if let Some(write) = &plan.status {
            let is_gone = matches!(&plan.writes[..], [Write::SetFinalizers { .. }]);
            assert!(server.write(write).is_ok() || is_gone);
        }
    }
    panic!("the plan of {uid} does not come to an end");
}
