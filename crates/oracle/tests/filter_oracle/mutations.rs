//! Faults that predicates might have. A fault is simulated by giving our predicates a changed case,
//! as if they ignored something. The comparison must see the difference.

use std::sync::Arc;

use octavo_dra::{ContainerKind, NodeOperator, NodeRequirement, Quantity};
use octavo_kube_io::objects::{Container, Pod, PodSpec, Spread, TaintEffect, VolumeSource};

use crate::case::Case;

/// A fault with its name.
pub(crate) type Mutation = (&'static str, fn(&mut Case));

/// The faults.
pub(crate) const MUTATIONS: [Mutation; 94] = [
    ("ignore overhead", |case| specs(case, |spec| spec.overhead.clear())),
    ("ignore requests of whole pods", |case| specs(case, |spec| spec.pod_requests.clear())),
    ("take requests of whole pods for all of it", |case| {
        specs(case, |spec| {
            if !spec.pod_requests.is_empty() {
                spec.containers.iter_mut().for_each(|one| one.requests.clear());
            }
        });
    }),
    ("take sidecars for containers", |case| {
        kind(case, ContainerKind::Sidecar, ContainerKind::Main);
    }),
    ("take sidecars for init containers", |case| {
        kind(case, ContainerKind::Sidecar, ContainerKind::Init);
    }),
    ("take init containers for containers", |case| {
        kind(case, ContainerKind::Init, ContainerKind::Main);
    }),
    ("take init containers for sidecars", |case| {
        kind(case, ContainerKind::Init, ContainerKind::Sidecar);
    }),
    ("ignore init containers", |case| {
        specs(case, |spec| spec.containers.retain(|one| one.kind != ContainerKind::Init));
    }),
    ("start sidecars before all init containers", |case| {
        specs(case, |spec| spec.containers.sort_by_key(|one| one.kind != ContainerKind::Sidecar));
    }),
    ("ignore the pods that run", |case| case.placed.clear()),
    ("ignore what pods have while they are resized", |case| {
        case.placed.iter_mut().for_each(|pod| pod.held.clear());
    }),
    ("count what init containers have had", |case| {
        for pod in &mut case.placed {
            let held = pod.held.clone();
            for one in &mut Arc::make_mut(&mut pod.spec).containers {
                one.requests.extend(held.get(&one.name).cloned().unwrap_or_default());
            }
        }
    }),
    ("look at the first container alone", |case| {
        specs(case, |spec| {
            let mut is_first = true;
            spec.containers
                .retain(|one| one.kind != ContainerKind::Main || std::mem::take(&mut is_first));
        });
    }),
    ("drop fractions", |case| {
        containers(case, |one| {
            for (name, amount) in &mut one.requests {
                let unit = if name == "cpu" { 1_000_000 } else { 1_000_000_000 };
                *amount = Quantity::from_nanos(amount.nanos() / unit * unit, amount.notation());
            }
        });
    }),
    ("round up before they sum", |case| {
        containers(case, |one| {
            for (name, amount) in &mut one.requests {
                let milli =
                    if name == "cpu" { amount.milli_value() } else { amount.value() * 1_000 };
                *amount = Quantity::from_nanos(milli * 1_000_000, amount.notation());
            }
        });
    }),
    ("ignore ephemeral storage", |case| forget(case, "ephemeral-storage")),
    ("ignore huge pages", |case| forget(case, "hugepages-2Mi")),
    ("ignore extended resources", |case| forget(case, "nvidia.com/gpu")),
    ("ignore resources of Kubernetes' own domain", |case| forget(case, "kubernetes.io/batteries")),
    ("take nodes for boundless in pods", |case| {
        for node in &mut case.nodes {
            node.allocatable.insert("pods".to_owned(), Quantity::decimal(99));
        }
    }),
    ("ignore ports", |case| containers(case, |one| one.ports.clear())),
    ("ignore addresses of ports", |case| ports(case, |ip, _| "0.0.0.0".clone_into(ip))),
    ("take all addresses for one of them", |case| {
        ports(case, |ip, _| {
            if ip.is_empty() || ip == "0.0.0.0" {
                "10.9.9.9".clone_into(ip);
            }
        });
    }),
    ("ignore protocols of ports", |case| ports(case, |_, protocol| "TCP".clone_into(protocol))),
    ("hold ports for init containers", |case| {
        specs(case, |spec| {
            let init = spec.containers.iter().filter(|one| one.kind == ContainerKind::Init);
            let ports = init.flat_map(|one| one.ports.clone()).collect::<Vec<_>>();
            spec.containers.last_mut().unwrap().ports.extend(ports);
        });
    }),
    ("ignore ports of sidecars", |case| {
        containers(case, |one| {
            if one.kind == ContainerKind::Sidecar {
                one.ports.clear();
            }
        });
    }),
    ("ignore taints", |case| case.nodes.iter_mut().for_each(|node| node.taints.clear())),
    ("ignore NoExecute", |case| {
        let is_other = |effect| effect != TaintEffect::NoExecute;
        case.nodes.iter_mut().for_each(|node| node.taints.retain(|one| is_other(one.effect)));
    }),
    ("take PreferNoSchedule for NoSchedule", |case| {
        for taint in case.nodes.iter_mut().flat_map(|node| &mut node.taints) {
            if taint.effect == TaintEffect::PreferNoSchedule {
                taint.effect = TaintEffect::NoSchedule;
            }
        }
    }),
    ("tolerate any effect", |case| {
        newcomer(case, |spec| spec.tolerations.iter_mut().for_each(|one| one.effect.clear()));
    }),
    ("tolerate any value", |case| {
        newcomer(case, |spec| {
            spec.tolerations.iter_mut().for_each(|one| "Exists".clone_into(&mut one.operator));
        });
    }),
    ("take no operator for none", |case| {
        newcomer(case, |spec| spec.tolerations.retain(|one| !one.operator.is_empty()));
    }),
    ("do not know Lt", |case| {
        newcomer(case, |spec| spec.tolerations.retain(|one| one.operator != "Lt"));
    }),
    ("take Lt for Gt", |case| {
        newcomer(case, |spec| {
            for one in spec.tolerations.iter_mut().filter(|one| one.operator == "Lt") {
                "Gt".clone_into(&mut one.operator);
            }
        });
    }),
    ("ignore cordons", |case| case.nodes.iter_mut().for_each(|one| one.is_unschedulable = false)),
    ("never tolerate a cordon", |case| {
        if case.nodes.iter().any(|node| node.is_unschedulable) {
            newcomer(case, |spec| spec.tolerations.clear());
        }
    }),
    ("ignore the node's name", |case| case.pod.node = None),
    ("ignore node selectors", |case| newcomer(case, |spec| spec.node_selector.clear())),
    ("ignore node affinity", |case| newcomer(case, |spec| spec.node_affinity = None)),
    ("look at the first term alone", |case| terms(case, |terms| terms.truncate(1))),
    ("ignore fields", |case| {
        terms(case, |terms| terms.iter_mut().for_each(|term| term.fields.clear()));
    }),
    ("take NotIn for DoesNotExist", |case| {
        requirements(case, |one| {
            if one.operator == NodeOperator::NotIn {
                (one.operator, one.values) = (NodeOperator::DoesNotExist, Vec::new());
            }
        });
    }),
    ("let malformed values match", |case| {
        requirements(case, |one| one.values.retain(|value| value != "-bad-"));
    }),
    ("ignore node affinity of volumes", |case| {
        case.volumes.iter_mut().for_each(|one| one.node_affinity = None);
    }),
    ("look at fields in node affinity of volumes", |case| {
        // An unknown field acts like the node's name.
        for term in case.volumes.iter_mut().flat_map(|one| &mut one.node_affinity) {
            let terms = std::mem::take(&mut term.terms);
            term.terms = terms.into_iter().filter(|term| term.fields.is_empty()).collect();
        }
    }),
    ("ignore zones of volumes", |case| {
        case.volumes.iter_mut().for_each(|one| one.meta.labels.clear());
    }),
    ("look at the newer names of zones alone", |case| {
        let is_new = |key: &String| !key.contains("beta");
        case.volumes.iter_mut().for_each(|one| one.meta.labels.retain(|key, _| is_new(key)));
    }),
    ("take a list of zones for one", |case| {
        for value in case.volumes.iter_mut().flat_map(|one| one.meta.labels.values_mut()) {
            *value = value.split("__").next().unwrap().to_owned();
        }
    }),
    ("ignore limits of volumes", |case| case.csi_nodes.clear()),
    ("count one volume for each claim", |case| {
        for (index, one) in case.volumes.iter_mut().enumerate() {
            one.csi.iter_mut().for_each(|(_, handle)| *handle = index.to_string());
        }
    }),
    ("ignore who owns an ephemeral volume's claim", |case| {
        let pod = Arc::clone(&case.pod.meta.uid);
        for owner in case.claims.iter_mut().filter_map(|one| one.meta.owner.as_mut()) {
            owner.uid = Arc::clone(&pod);
        }
    }),
    ("use claims that are being deleted", |case| {
        case.claims.iter_mut().for_each(|one| one.meta.deleted = None);
    }),
    ("let several pods have a claim for one", |case| {
        case.claims.iter_mut().for_each(|one| one.access_modes.clear());
    }),
    ("let disks that are written be shared", |case| {
        specs(case, |spec| {
            for volume in &mut spec.volumes {
                if let VolumeSource::Exclusive(_, _, is_read_only) = &mut volume.source {
                    *is_read_only = true;
                }
            }
        });
    }),
    ("ignore anti-affinity of running pods", |case| {
        case.placed.iter_mut().for_each(|pod| Arc::make_mut(&mut pod.spec).anti_affinity.clear());
    }),
    ("ignore the node for which a volume is provisioned", |case| {
        case.claims.iter_mut().for_each(|one| one.meta.annotations.clear());
    }),
    ("bind late claims to no volume that exists", |case| {
        case.volumes.iter_mut().for_each(|one| one.is_available = false);
    }),
    ("ignore sizes of volumes", |case| case.volumes.iter_mut().for_each(|one| one.capacity = 9)),
    ("ignore access modes of volumes", |case| {
        for one in &mut case.volumes {
            one.access_modes = vec!["ReadWriteOnce".to_owned(), "ReadWriteOncePod".to_owned()];
        }
    }),
    ("ignore volume modes", |case| {
        case.volumes.iter_mut().for_each(|one| one.is_block = false);
        case.claims.iter_mut().for_each(|one| one.is_block = false);
    }),
    ("ignore selectors of claims", |case| {
        case.claims.iter_mut().for_each(|one| one.selector = None);
    }),
    ("ignore whom volumes are reserved for", |case| {
        case.volumes.iter_mut().for_each(|one| one.claim = None);
    }),
    ("ignore classes of volumes", |case| {
        case.volumes.iter_mut().for_each(|one| one.class = Some("late".to_owned()));
    }),
    ("provision volumes by hand", |case| {
        case.classes.iter_mut().for_each(|one| "csi.example".clone_into(&mut one.provisioner));
    }),
    ("ignore allowed topologies", |case| {
        case.classes.iter_mut().for_each(|one| one.allowed_topologies.clear());
    }),
    ("ignore the capacity of storage", |case| case.drivers.clear()),
    ("take unknown capacities for boundless", |case| {
        case.capacities.iter_mut().for_each(|one| one.most = one.most.or(Some(9)));
    }),
    ("ignore the nodes of capacities", |case| {
        case.capacities.iter_mut().for_each(|one| {
            if let Some(nodes) = &mut one.nodes {
                nodes.labels.clear();
            }
        });
    }),
    ("ignore the pod's own anti-affinity", |case| {
        newcomer(case, |spec| spec.anti_affinity.clear());
    }),
    ("ignore the pod's own affinity", |case| newcomer(case, |spec| spec.affinity.clear())),
    ("look at the first affinity term alone", |case| {
        newcomer(case, |spec| spec.affinity.truncate(1));
    }),
    ("ignore namespaces of affinity", |case| {
        newcomer(case, |spec| spec.affinity.iter_mut().for_each(|term| term.namespaces.clear()));
    }),
    ("ignore namespace selectors of affinity", |case| {
        newcomer(case, |spec| {
            spec.affinity.iter_mut().for_each(|term| term.namespace_selector = None);
        });
    }),
    ("ignore topology spread", |case| newcomer(case, |spec| spec.spread.clear())),
    ("take soft spread constraints for hard ones", |case| {
        spreads(case, |spread| spread.is_hard = true);
    }),
    ("ignore maxSkew", |case| spreads(case, |spread| spread.max_skew = 1)),
    ("ignore minDomains", |case| spreads(case, |spread| spread.min_domains = 1)),
    ("ignore matchLabelKeys", |case| spreads(case, |spread| spread.match_label_keys.clear())),
    ("count pods on all nodes, whatever their labels", |case| {
        spreads(case, |spread| spread.honors_affinity = false);
    }),
    ("count pods on all nodes, whatever their taints", |case| {
        spreads(case, |spread| spread.honors_taints = false);
    }),
    ("count pods that are being deleted", |case| {
        case.placed.iter_mut().for_each(|pod| pod.meta.deleted = None);
    }),
    ("ignore taints that only repel", |case| {
        for node in &mut case.nodes {
            node.taints.retain(|taint| taint.effect != TaintEffect::PreferNoSchedule);
        }
    }),
    ("take a hard toleration for a soft one", |case| {
        newcomer(case, |spec| {
            for toleration in &mut spec.tolerations {
                if toleration.effect == "NoSchedule" {
                    toleration.effect.clear();
                }
            }
        });
    }),
    ("ignore preferred node affinity", |case| {
        newcomer(case, |spec| spec.preferred_nodes.clear());
    }),
    ("ignore the weights of preferred node affinity", |case| {
        newcomer(case, |spec| spec.preferred_nodes.iter_mut().for_each(|(weight, _)| *weight = 1));
    }),
    ("ignore preferred affinity of the pod", |case| {
        newcomer(case, |spec| spec.preferred_affinity.clear());
    }),
    ("take preferred anti-affinity for affinity", |case| {
        specs(case, |spec| {
            spec.preferred_affinity.iter_mut().for_each(|(weight, _)| *weight = weight.abs());
        });
    }),
    ("ignore the weights of preferred affinity", |case| {
        specs(case, |spec| {
            spec.preferred_affinity.iter_mut().for_each(|(weight, _)| *weight = weight.signum());
        });
    }),
    ("ignore preferred affinity of pods with a node", |case| {
        for pod in &mut case.placed {
            Arc::make_mut(&mut pod.spec).preferred_affinity.clear();
        }
    }),
    ("ignore required affinity of pods with a node in scores", |case| {
        for pod in &mut case.placed {
            Arc::make_mut(&mut pod.spec).affinity.clear();
        }
    }),
    ("ignore soft spread", |case| {
        newcomer(case, |spec| spec.spread.retain(|spread| spread.is_hard));
    }),
    ("score spread by pods on all nodes", |case| {
        soft_spread(case, |spread| {
            (spread.honors_affinity, spread.honors_taints) = (false, false);
        });
    }),
    ("ignore the skew that soft spread allows", |case| {
        soft_spread(case, |spread| spread.max_skew = 1);
    }),
    ("ignore label keys of soft spread", |case| {
        soft_spread(case, |spread| spread.match_label_keys.clear());
    }),
];

fn spreads(case: &mut Case, change: impl Fn(&mut Spread)) {
    newcomer(case, |spec| spec.spread.iter_mut().for_each(&change));
}

fn specs(case: &mut Case, change: impl Fn(&mut PodSpec)) {
    let pods = case.placed.iter_mut().chain([&mut case.pod]);
    pods.for_each(|pod: &mut Pod| change(Arc::make_mut(&mut pod.spec)));
}

fn newcomer(case: &mut Case, change: impl Fn(&mut PodSpec)) {
    change(Arc::make_mut(&mut case.pod.spec));
}

fn containers(case: &mut Case, change: impl Fn(&mut Container)) {
    specs(case, |spec| spec.containers.iter_mut().for_each(&change));
}

fn soft_spread(case: &mut Case, change: impl Fn(&mut Spread)) {
    spreads(case, |spread| {
        if !spread.is_hard {
            change(spread);
        }
    });
}

fn kind(case: &mut Case, from: ContainerKind, to: ContainerKind) {
    containers(case, |one| {
        if one.kind == from {
            one.kind = to;
        }
    });
}

fn ports(case: &mut Case, change: impl Fn(&mut String, &mut String)) {
    containers(case, |one| {
        one.ports.iter_mut().for_each(|port| change(&mut port.ip, &mut port.protocol));
    });
}

fn forget(case: &mut Case, resource: &str) {
    specs(case, |spec| {
        for list in [&mut spec.overhead, &mut spec.pod_requests] {
            list.remove(resource);
        }
        spec.containers.iter_mut().for_each(|one| _ = one.requests.remove(resource));
    });
}

fn terms(case: &mut Case, change: impl Fn(&mut Vec<octavo_dra::NodeSelectorTerm>)) {
    newcomer(case, |spec| spec.node_affinity.iter_mut().for_each(|one| change(&mut one.terms)));
}

fn requirements(case: &mut Case, change: impl Fn(&mut NodeRequirement)) {
    terms(case, |terms| terms.iter_mut().for_each(|one| one.labels.iter_mut().for_each(&change)));
}
