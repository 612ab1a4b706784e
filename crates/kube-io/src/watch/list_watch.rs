//! Discovers, lists and watches one kind, and lists it again after a gap.

use std::sync::Arc;
use std::time::Duration;

use futures::io::AsyncBufReadExt;
use kube::api::{ListParams, WatchParams};
use kube::core::Status;
use kube::{Client, Error};
use tokio::time::{Instant, sleep, timeout};

use super::discovery::served;
use super::read::{KindReader, Line};
use super::relist::RelistRequests;
use super::resource::{Resource, kind_of};
use super::sender::KindSender;
use super::{WantedKind, WatchOptions};
use crate::Backoff;
use crate::objects::{Delta, Kind, WatchedType};

/// Timeout for a page of a list.
const PAGE_TIMEOUT: Duration = Duration::from_mins(1);
/// Time without data after which a watch counts as dead. Bookmarks come every minute.
const IDLE_TIMEOUT: Duration = Duration::from_mins(3);
/// A watch of at least this duration counts as healthy and resets the backoff.
const MIN_HEALTHY_DURATION: Duration = Duration::from_secs(5);
/// Consecutive failures of a watch after which the kind is listed again.
const MAX_WATCH_FAILURES: u32 = 5;
const MIN_RETRY_DELAY: Duration = Duration::from_millis(250);
/// Short, because a scheduler that waits here schedules nothing after the server is back.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The kind to watch.
pub(super) enum Source {
    /// A kind that every server has.
    Fixed(Resource),
    /// An optional kind.
    Wanted(WantedKind),
}

impl Source {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Fixed(resource) => resource.kind.clone(),
            Self::Wanted(WantedKind { group, versions, kind, .. }) => {
                kind_of(group, versions.first().map_or("", String::as_str), kind)
            }
        }
    }
}

/// Lists and watches a kind for ever.
pub(super) async fn run_list_watch<T: WatchedType>(
    client: Client,
    source: Source,
    kind_sender: KindSender<T>,
    relist_requests: RelistRequests,
    options: WatchOptions,
) {
    let backoff = Backoff::new(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
    let is_optional = matches!(source, Source::Wanted(_));
    let mut list_watch =
        ListWatch { client, kind_sender, relist_requests, options, backoff, is_optional };
    loop {
        let resource = match &source {
            Source::Fixed(resource) => Ok(Some(resource.clone())),
            Source::Wanted(wanted) => served(&list_watch.client, wanted).await,
        };
        match resource {
            Ok(Some(resource)) => {
                list_watch.kind_sender.update(|health| {
                    health.kind = resource.kind.clone();
                    health.is_served = true;
                });
                let begun = list_watch.follow(&resource).await;
                list_watch.handle_not_served(&resource.kind, begun).await;
                // Another version of an optional kind may be served instead.
                if !is_optional {
                    list_watch.sleep_or_relist(list_watch.options.rediscovery).await;
                }
                list_watch.pause().await;
            }
            Ok(None) => {
                list_watch.kind_sender.update(|health| health.is_served = false);
                list_watch.kind_sender.mark_synced().await;
                sleep(list_watch.options.rediscovery).await;
            }
            Err(error) => {
                let kind = source.kind();
                list_watch
                    .record_failure(&format!("cannot discover whether {kind} is served"), &error);
                list_watch.pause().await;
            }
        }
    }
}

struct ListWatch<T> {
    client: Client,
    kind_sender: KindSender<T>,
    relist_requests: RelistRequests,
    options: WatchOptions,
    backoff: Backoff,
    is_optional: bool,
}

/// Why a watch ended.
enum WatchEnd {
    /// The server closed it, or the connection broke.
    Routine,
    /// The server no longer has the changes since the last version.
    Expired,
    /// A newer list was requested.
    RelistRequested,
    /// The server rejected the request or failed.
    Failed(Error),
}

impl<T: WatchedType> ListWatch<T> {
    /// Lists and watches until the server answers that it does not serve the kind. Returns the
    /// start of that list.
    async fn follow(&mut self, resource: &Resource) -> Instant {
        let mut reader = KindReader::new(resource);
        loop {
            let begun = self.relist_requests.record_list_start();
            let mut version = match self.list(resource, &mut reader, begun).await {
                Ok(version) => version,
                Err(Error::Api(status)) if status.code == 404 => return begun,
                // The continue token of a list has expired: list again.
                Err(Error::Api(status)) if is_expired(&status) => {
                    self.pause().await;
                    continue;
                }
                Err(error) => {
                    self.record_request_error(resource, "list", &error).await;
                    self.pause().await;
                    continue;
                }
            };
            let mut failures = 0;
            while failures < MAX_WATCH_FAILURES {
                let begun = Instant::now();
                let end = self.watch(resource, &mut version, &mut reader).await;
                if begun.elapsed() >= MIN_HEALTHY_DURATION {
                    (failures, self.backoff) = (0, Backoff::new(MIN_RETRY_DELAY, MAX_RETRY_DELAY));
                }
                match end {
                    // A watch that ends at once must not be restarted in a tight loop.
                    WatchEnd::Routine if begun.elapsed() < MIN_HEALTHY_DURATION => {
                        self.pause().await;
                    }
                    WatchEnd::Routine => {}
                    WatchEnd::Expired => {
                        self.pause().await;
                        break;
                    }
                    WatchEnd::RelistRequested => break,
                    WatchEnd::Failed(Error::Api(status)) if status.code == 404 => break,
                    WatchEnd::Failed(error) => {
                        failures += 1;
                        self.record_request_error(resource, "watch", &error).await;
                        self.pause().await;
                    }
                }
            }
        }
    }

    /// Sends the whole list and returns its version.
    async fn list(
        &mut self,
        resource: &Resource,
        reader: &mut KindReader,
        begun: Instant,
    ) -> Result<String, Error> {
        let request = kube::core::Request::new(resource.path());
        let mut params = ListParams {
            limit: Some(self.options.page),
            label_selector: resource.labels.clone(),
            ..ListParams::default()
        };
        let mut all = Vec::new();
        loop {
            let page = request.list(&params).map_err(Error::BuildRequest)?;
            let text = timeout(PAGE_TIMEOUT, self.client.request_text(page)).await;
            let text = text.unwrap_or_else(|elapsed| Err(Error::Service(elapsed.into())))?;
            let page = reader.page(&text, &mut self.kind_sender).map_err(Error::SerdeError)?;
            drop(text);
            all.extend(page.items);
            params.continue_token = page.next;
            if params.continue_token.is_none() {
                self.kind_sender.update(|health| health.lists += 1);
                self.kind_sender.record_contact(&page.version);
                self.send_list(&resource.kind, all, begun).await;
                return Ok(page.version);
            }
        }
    }

    /// Sends the changes after `version` and advances it.
    async fn watch(
        &mut self,
        resource: &Resource,
        version: &mut String,
        reader: &mut KindReader,
    ) -> WatchEnd {
        let request = kube::core::Request::new(resource.path());
        let params =
            WatchParams { label_selector: resource.labels.clone(), ..WatchParams::default() };
        let request = match request.watch(&params, version) {
            Ok(request) => request,
            Err(error) => return WatchEnd::Failed(Error::BuildRequest(error)),
        };
        let stream = tokio::select! {
            biased;
            () = self.relist_requests.wait_until_due() => return WatchEnd::RelistRequested,
            stream = self.client.request_stream(request) => stream,
        };
        let stream = match stream {
            Ok(stream) => stream,
            Err(Error::Api(status)) if is_expired(&status) => return WatchEnd::Expired,
            Err(error) => return WatchEnd::Failed(error),
        };
        self.kind_sender.record_contact("");
        let mut stream = std::pin::pin!(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = tokio::select! {
                biased;
                () = self.relist_requests.wait_until_due() => return WatchEnd::RelistRequested,
                read = timeout(IDLE_TIMEOUT, stream.read_until(b'\n', &mut line)) => read,
            };
            match read {
                Ok(Ok(_)) if line.ends_with(b"\n") => {}
                // The end of the stream, perhaps within a line; a broken connection; silence.
                Ok(Ok(_)) => return WatchEnd::Routine,
                Ok(Err(error)) => {
                    tracing::debug!(kind = %resource.kind, %error, "a watch was interrupted");
                    return WatchEnd::Routine;
                }
                Err(_) => {
                    tracing::debug!(kind = %resource.kind, "a watch was silent for too long");
                    return WatchEnd::Routine;
                }
            }
            let read = match reader.line(&line, &mut self.kind_sender) {
                Ok(Line::Error(status)) if is_expired(&status) => return WatchEnd::Expired,
                Ok(Line::Error(status)) => return WatchEnd::Failed(Error::Api(status)),
                Ok(read) => read,
                Err(error) => return WatchEnd::Failed(Error::SerdeError(error)),
            };
            match &read {
                Line::Upsert(object) | Line::Delete(object) => {
                    let new = &object.meta().version;
                    if !new.is_empty() {
                        (**new).clone_into(version);
                    }
                    self.kind_sender.update(|health| health.changes += 1);
                }
                Line::Bookmark(new) if !new.is_empty() => new.clone_into(version),
                Line::Bookmark(_) | Line::Error(_) => {}
            }
            self.kind_sender.record_contact(version);
            match read {
                Line::Upsert(object) => self.kind_sender.send(Delta::Upsert(object)).await,
                Line::Delete(object) => self.kind_sender.send(Delta::Delete(object)).await,
                Line::Bookmark(_) | Line::Error(_) => {}
            }
        }
    }

    /// Sends the list that started at `begun`.
    async fn send_list(&mut self, kind: &Kind, all: Vec<Arc<T>>, begun: Instant) {
        self.relist_requests.record_delivered(begun);
        self.kind_sender.send_list(kind, all, begun).await;
    }

    async fn pause(&mut self) {
        let delay = self.backoff.next_delay();
        self.sleep_or_relist(delay).await;
    }

    /// Sleeps, or returns early if a newer list is requested.
    async fn sleep_or_relist(&mut self, time: Duration) {
        tokio::select! {
            () = self.relist_requests.wait_for_request() => {}
            () = sleep(time) => {}
        }
    }

    /// Sends an empty list for a kind that is not served. A built-in kind that was listed before is
    /// kept: the server has another version or a wrong setup, and its objects are still in use.
    async fn handle_not_served(&mut self, kind: &Kind, begun: Instant) {
        let was_served =
            self.kind_sender.update(|health| std::mem::replace(&mut health.is_served, false));
        if !self.is_optional {
            let problem = format!("the API server does not serve {kind}: enable it there");
            if was_served {
                tracing::error!("{problem}");
            }
            let was_listed = self.kind_sender.update(|health| {
                health.problem = Some(problem);
                health.lists > 0
            });
            if was_listed {
                return;
            }
        }
        self.send_list(kind, Vec::new(), begun).await;
    }

    /// Records a failed list or watch.
    async fn record_request_error(&mut self, resource: &Resource, verb: &str, error: &Error) {
        if let Error::Api(status) = error
            && status.code == 403
        {
            let Resource { group, plural, .. } = resource;
            self.kind_sender.update(|health| health.is_forbidden = true);
            self.record_failure(
                &format!(
                    "may not {verb} {plural}: grant the verbs list and watch on the resource \
                     {plural:?} of the API group {group:?}"
                ),
                error,
            );
            if self.is_optional {
                self.kind_sender.mark_synced().await;
            }
            return;
        }
        self.record_failure(&format!("cannot {verb} {}", resource.kind), error);
    }

    /// Records a failure, and logs it if it differs from the last.
    fn record_failure(&mut self, what: &str, error: &Error) {
        let problem = format!("{what}: {error}");
        let is_new = self.kind_sender.update(|health| {
            health.failures += 1;
            let is_new = health.problem.as_ref() != Some(&problem);
            health.problem = Some(problem.clone());
            is_new
        });
        if is_new {
            tracing::error!("{problem}");
        }
    }
}

/// Whether the requested version or page is no longer available.
fn is_expired(status: &Status) -> bool {
    status.code == 410 || status.reason == "Expired" || status.reason == "Gone"
}
