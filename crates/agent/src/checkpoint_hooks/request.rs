//! Requests as the API server has them. One that this agent cannot read, as of a later controller, fails with field and reason.

use std::time::Duration;

use http::Uri;
use octavo_api::checkpoint::{FileRequest, MAX_DEADLINE_SECONDS, SignalRequest};
use octavo_node::files::is_plain_name;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::http::Target;

/// Fields of a request that this agent knows.
const FIELDS: [&str; 8] =
    ["uid", "namespace", "name", "since", "deadlineSeconds", "signal", "url", "file"];

/// A request that can be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Namespace and name of the pod, for people.
    pub(super) pod: String,
    /// Time that the pod has from the first ask on. Clocks of nodes differ, so `since` does not count.
    pub(super) limit: Duration,
    /// How it is asked.
    pub(super) hook: Hook,
}

/// How a pod is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// A signal to a container.
    Signal(SignalRequest),
    /// A POST.
    Http(Target),
    /// A file that is made.
    File(FileRequest),
}

impl Hook {
    /// Its name in metrics.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Signal(_) => "signal",
            Self::Http(_) => "http",
            Self::File(_) => "file",
        }
    }
}

/// A request as it was read.
pub(super) struct Wanted {
    /// Since when the pod is asked: a later time is another request.
    pub(super) since: String,
    /// What is wanted, or why that cannot be read.
    pub(super) request: Result<Request, String>,
}

impl Wanted {
    /// Reads a request, with the pod's UID. `None` without a UID.
    pub(super) fn read(value: &Value) -> Option<(String, Self)> {
        let text = |field: &str| value.get(field).and_then(Value::as_str);
        let (uid, since) = (text("uid")?.to_owned(), text("since").unwrap_or_default().to_owned());
        let request = Request::fields(&uid, value);
        Some((uid, Self { since, request }))
    }
}

impl Request {
    fn fields(uid: &str, value: &Value) -> Result<Self, String> {
        // It is part of a path.
        if !is_plain_name(uid) {
            return Err("uid: it must have letters, digits and dashes alone".to_owned());
        }
        let (namespace, name): (String, String) = (part(value, "namespace")?, part(value, "name")?);
        let seconds: i64 = part(value, "deadlineSeconds")?;
        let limit =
            u64::try_from(seconds).ok().filter(|_| (1..=MAX_DEADLINE_SECONDS).contains(&seconds));
        let limit = limit.ok_or_else(|| {
            format!("deadlineSeconds: {seconds} is not from 1 to {MAX_DEADLINE_SECONDS}")
        })?;
        let signal: Option<SignalRequest> = part(value, "signal")?;
        let signal = signal.map(checked_signal).transpose()?.map(Hook::Signal);
        let url: Option<String> = part(value, "url")?;
        let url = url.map(|url| checked_url(&url)).transpose()?.map(Hook::Http);
        let file: Option<FileRequest> = part(value, "file")?;
        let file = file.map(checked_file).transpose()?.map(Hook::File);
        let mut hooks = [signal, url, file].into_iter().flatten();
        match (hooks.next(), hooks.next()) {
            (Some(hook), None) => {
                let limit = Duration::from_secs(limit);
                Ok(Self { pod: format!("{namespace}/{name}"), limit, hook })
            }
            (Some(_), Some(_)) => Err("signal, url, file: one of them is to be set".to_owned()),
            (None, _) => {
                let fields = value.as_object().into_iter().flat_map(|fields| fields.keys());
                let unknown: Vec<_> =
                    fields.filter(|field| !FIELDS.contains(&field.as_str())).cloned().collect();
                Err(match &*unknown.join(", ") {
                    "" => "signal, url, file: none of them is set".to_owned(),
                    unknown => format!(
                        "{unknown}: this agent does not know it; it knows signal, url and file"
                    ),
                })
            }
        }
    }
}

/// A field of a request; one that is missing is null.
fn part<T: DeserializeOwned>(value: &Value, field: &str) -> Result<T, String> {
    let value = value.get(field).cloned().unwrap_or_default();
    serde_json::from_value(value).map_err(|error| format!("{field}: {error}"))
}

fn checked_signal(signal: SignalRequest) -> Result<SignalRequest, String> {
    if is_plain_name(&signal.container_id) {
        Ok(signal)
    } else {
        Err("signal.containerID: it must have letters, digits and dashes alone".to_owned())
    }
}

fn checked_url(url: &str) -> Result<Target, String> {
    let url: Uri = url.parse().map_err(|error| format!("url: {error}"))?;
    Target::of(&url).ok_or_else(|| "url: it must be http://, an IP address, and a path".to_owned())
}

fn checked_file(file: FileRequest) -> Result<FileRequest, String> {
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    if !is_part(&file.volume) || file.volume.contains('/') {
        return Err("file.volume: it is no name of a volume".to_owned());
    }
    if !file.path.split('/').all(is_part) {
        return Err("file.path: it must be a path within the volume, without . and ..".to_owned());
    }
    Ok(file)
}

#[cfg(test)]
mod tests;
