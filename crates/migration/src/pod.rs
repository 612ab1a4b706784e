//! One pod or pod template.

mod claims;

use serde_json::Value;

use crate::Options;
use crate::hami::{self, Wanted};
use crate::json::{array, remove_if_empty, text};
use crate::kai;
use crate::keys::{HAMI_RESOURCES, RUNTIME_CLASSES, is_scheduler, is_scheduler_of_kai};
use crate::metadata::{self, Owner};
use crate::report::{Change, Reason, Refusal, Report};
use claims::Claims;
use octavo_api::names::EXTENDED_RESOURCE_GPU;

/// A translated pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Translation {
    /// The changed pod or pod template.
    pub pod: Value,
    /// The `ResourceClaimTemplate`s that it names, each once.
    pub templates: Vec<Value>,
    /// What became of its fields.
    pub changes: Vec<Change>,
}

/// Where a pod or pod template comes from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin<'a> {
    /// Name of the pod or its workload: the names of templates begin with it.
    pub name: &'a str,
    /// Its namespace, if it is written.
    pub namespace: Option<&'a str>,
    /// Priority class that KAI's label of the workload names.
    pub priority_class: Option<&'a str>,
    /// Whether the workload is KAI's, by its own labels.
    pub is_of_kai: bool,
}

/// A container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerRef {
    list: &'static str,
    index: usize,
    /// Its name.
    pub(crate) name: String,
    /// Whether it runs beside the containers, although it is in the list of init containers.
    is_sidecar: bool,
}

impl ContainerRef {
    /// Whether it is in the list of init containers.
    pub(crate) fn is_init(&self) -> bool {
        self.list == INIT
    }

    /// Whether it has ended before the containers start.
    fn ends_before_others(&self) -> bool {
        self.is_init() && !self.is_sidecar
    }

    /// The container in a pod.
    pub(crate) fn at<'a>(&self, pod: &'a Value) -> Option<&'a Value> {
        pod.get("spec")?.get(self.list)?.get(self.index)
    }

    fn at_mut<'a>(&self, pod: &'a mut Value) -> Option<&'a mut Value> {
        pod.get_mut("spec")?.get_mut(self.list)?.get_mut(self.index)
    }
}

const INIT: &str = "initContainers";

/// Translates a pod or a pod template: an object with `metadata` and `spec`. `None` if nothing in it is HAMi's or KAI's.
/// Otherwise the error has every refusal.
pub fn translate(
    pod: &Value,
    origin: &Origin<'_>,
    options: &Options,
) -> Result<Option<Translation>, Vec<Refusal>> {
    let containers = containers(pod);
    let is_of_kai = origin.is_of_kai || metadata::is_of_kai(pod);
    let owner = if options.is_admission { Owner::AdmittedPod } else { Owner::Pod };
    // Labels that stay make no pod KAI's.
    if !has_signs(pod, &containers, owner) && (options.is_admission || !is_of_kai) {
        return Ok(None);
    }
    let mut report = Report::default();
    let selection = hami::selection(pod, &mut report);
    let fraction = kai::fraction(pod, &containers, &mut report);
    let mut claims = Claims::new(pod, options, origin, &selection);
    let mut stripped = Vec::new();
    for container in &containers {
        let Some(value) = container.at(pod) else { continue };
        let Some(wanted) = hami::wanted(value, &container.name, &mut report) else { continue };
        let demand = match wanted {
            Wanted::Nothing => continue,
            // As with any device plugin: the class gpu.nvidia.com serves it.
            Wanted::WholeGpus(_) if selection.is_empty() => continue,
            Wanted::WholeGpus(demand) | Wanted::Parts(demand) => Some(demand),
            Wanted::NoGpu => None,
        };
        let field = hami::described(value, &container.name);
        match demand {
            Some(demand) => claims.add(container, demand, field, &mut report),
            None => report.change(field, "removed, it asks for no GPU"),
        }
        stripped.push(container);
    }
    if let Some(fraction) = fraction
        && let Some(container) = containers.get(fraction.container)
    {
        refuse_both(pod, container, &fraction.field, &mut report);
        claims.add(container, fraction.demand, fraction.field, &mut report);
    }
    let original = pod;
    let mut pod = original.clone();
    let priority = metadata::translate(&mut pod, owner, is_of_kai, &mut report);
    let priority = origin.priority_class.map(str::to_owned).or(priority);
    spec(&mut pod, priority, options, &mut report);
    for container in stripped {
        strip(container.at_mut(&mut pod));
    }
    let templates = claims.apply(&mut pod, &mut report);
    if !report.refusals.is_empty() {
        return Err(report.refusals);
    }
    // A workload of KAI may have pods in which nothing is KAI's.
    let is_changed = pod != *original;
    Ok(is_changed.then_some(Translation { pod, templates, changes: report.changes }))
}

/// Whether a pod has a key, a resource or a scheduler of HAMi or KAI.
fn has_signs(pod: &Value, containers: &[ContainerRef], owner: Owner) -> bool {
    let of_container =
        |container: &ContainerRef| container.at(pod).is_some_and(hami::has_resources);
    let scheduler = pod.get("spec").and_then(|spec| text(spec, "schedulerName"));
    metadata::has_signs(pod, owner)
        || containers.iter().any(of_container)
        || scheduler.is_some_and(is_scheduler)
}

/// The containers of a pod, init containers first, as they start.
fn containers(pod: &Value) -> Vec<ContainerRef> {
    let Some(spec) = pod.get("spec") else { return Vec::new() };
    let list = |list: &'static str| {
        array(spec, list).iter().enumerate().map(move |(index, container)| ContainerRef {
            list,
            index,
            name: text(container, "name").unwrap_or_default().to_owned(),
            is_sidecar: text(container, "restartPolicy") == Some("Always"),
        })
    };
    list(INIT).chain(list("containers")).collect()
}

/// A container cannot have GPUs of both schedulers.
fn refuse_both(pod: &Value, container: &ContainerRef, field: &str, report: &mut Report) {
    if container.at(pod).is_some_and(hami::has_resources) {
        let cause = format!(
            "the container {} also has resources of HAMi, and KAI serves none of them",
            container.name
        );
        report.refuse(Reason::Conflict, field, cause, "remove the annotation or the resources");
    }
}

/// Scheduler, runtime class and priority class.
fn spec(pod: &mut Value, priority: Option<String>, options: &Options, report: &mut Report) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let name = |key: &str| spec.get(key).and_then(Value::as_str).map(str::to_owned);
    let (scheduler, runtime, class) =
        (name("schedulerName"), name("runtimeClassName"), name("priorityClassName"));
    let field = |name: &Option<String>| {
        format!("spec.schedulerName: {}", name.as_deref().unwrap_or("not given"))
    };
    match (&scheduler, &options.scheduler_name) {
        (Some(old), None) if is_scheduler(old) => {
            spec.remove("schedulerName");
            let became = "removed, Kubernetes' own scheduler places the pod";
            let gangs = if is_scheduler_of_kai(old) { ", and no gangs" } else { "" };
            report.change(field(&scheduler), format!("{became}{gangs}"));
        }
        (Some(old), Some(new)) if is_scheduler(old) || old == "default-scheduler" && old != new => {
            report.change(field(&scheduler), new.as_str());
            spec.insert("schedulerName".to_owned(), new.as_str().into());
        }
        (None, Some(new)) => {
            report.change(field(&scheduler), new.as_str());
            spec.insert("schedulerName".to_owned(), new.as_str().into());
        }
        _ => {}
    }
    if let Some(runtime) = runtime.filter(|name| RUNTIME_CLASSES.contains(&name.as_str())) {
        spec.remove("runtimeClassName");
        let became =
            "removed, a claim needs none, and under it an image may get all GPUs of the node";
        report.change(format!("spec.runtimeClassName: {runtime}"), became);
    }
    if let Some(priority) = priority {
        let field = format!("label priorityClassName: {priority}");
        match class {
            Some(class) if class == priority => {
                if !options.is_admission {
                    report.change(field, "removed, the spec has it too");
                }
            }
            // At its admission a pod may have it from a default of the cluster. KAI's label wins in KAI.
            Some(class) if !options.is_admission => {
                report.change(field, format!("removed, spec.priorityClassName is {class}"));
            }
            class => {
                let instead = class.map(|class| format!(", instead of {class}"));
                let instead = instead.unwrap_or_default();
                report.change(field, format!("spec.priorityClassName{instead}"));
                spec.insert("priorityClassName".to_owned(), priority.into());
            }
        }
    }
}

/// Removes HAMi's resources and the GPUs of a container.
fn strip(container: Option<&mut Value>) {
    let Some(container) = container else { return };
    let Some(resources) = container.get_mut("resources") else { return };
    for list in ["limits", "requests"] {
        if let Some(amounts) = resources.get_mut(list).and_then(Value::as_object_mut) {
            amounts.remove(EXTENDED_RESOURCE_GPU);
            for name in HAMI_RESOURCES {
                amounts.remove(name);
            }
        }
        remove_if_empty(resources, list);
    }
    remove_if_empty(container, "resources");
}
