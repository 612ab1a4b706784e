//! The life of one kind's watch: found, listed, watched, listed again after a gap.

use std::sync::Arc;
use std::time::Duration;

use futures::io::AsyncBufReadExt;
use kube::api::{ListParams, WatchParams};
use kube::core::Status;
use kube::{Client, Error};
use tokio::time::{Instant, sleep, timeout};

use super::anew::Asked;
use super::discovery::served;
use super::read::{KindReader, Line};
use super::resource::{Resource, kind_of};
use super::sink::Sink;
use super::{WantedKind, WatchOptions};
use crate::Backoff;
use crate::objects::{Delta, Kept, Kind};

/// How long a page of a list may take.
const PAGE_LIMIT: Duration = Duration::from_mins(1);
/// After how long without a word a watch counts as dead. Bookmarks come every minute.
const SILENCE: Duration = Duration::from_mins(3);
/// A watch that lived as long as this went well.
const GOOD_LIFE: Duration = Duration::from_secs(5);
/// After so many failures in a row the list is had anew.
const MANY_FAILURES: u32 = 5;
const FIRST_DELAY: Duration = Duration::from_millis(250);
/// Not long: whoever waits here schedules nothing after the server is back.
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// Which kind is followed.
pub(super) enum Source {
    /// One that every server has.
    Fixed(Resource),
    /// One that may be served.
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

/// Follows a kind for ever.
pub(super) async fn keep_following<T: Kept>(
    client: Client,
    source: Source,
    sink: Sink<T>,
    asked: Asked,
    options: WatchOptions,
) {
    let backoff = Backoff::new(FIRST_DELAY, LONGEST_DELAY);
    let is_optional = matches!(source, Source::Wanted(_));
    let mut follower = Follower { client, sink, asked, options, backoff, is_optional };
    loop {
        let resource = match &source {
            Source::Fixed(resource) => Ok(Some(resource.clone())),
            Source::Wanted(wanted) => served(&follower.client, wanted).await,
        };
        match resource {
            Ok(Some(resource)) => {
                follower.sink.note(|health| {
                    health.kind = resource.kind.clone();
                    health.is_served = true;
                });
                let begun = follower.follow(&resource).await;
                follower.not_served(&resource.kind, begun).await;
                // Another version may be served instead.
                if !is_optional {
                    follower.rest(follower.options.rediscovery).await;
                }
                follower.pause().await;
            }
            Ok(None) => {
                follower.sink.note(|health| health.is_served = false);
                follower.sink.mark_synced().await;
                sleep(follower.options.rediscovery).await;
            }
            Err(error) => {
                let kind = source.kind();
                follower.failed(&format!("cannot ask whether {kind} is served"), &error);
                follower.pause().await;
            }
        }
    }
}

struct Follower<T> {
    client: Client,
    sink: Sink<T>,
    asked: Asked,
    options: WatchOptions,
    backoff: Backoff,
    is_optional: bool,
}

/// Why a watch ended.
enum End {
    /// Its time was over, or the connection was.
    Routine,
    /// What changed since is not known any more.
    Expired,
    /// A newer list is wanted.
    Asked,
    /// The server refuses or cannot.
    Failed(Error),
}

impl<T: Kept> Follower<T> {
    /// Lists and watches until the server says that it does not have the kind; says when the list began
    /// that was answered so.
    async fn follow(&mut self, resource: &Resource) -> Instant {
        let mut reader = KindReader::new(resource);
        loop {
            let begun = self.asked.begin();
            let mut version = match self.list(resource, &mut reader, begun).await {
                Ok(version) => version,
                Err(Error::Api(status)) if status.code == 404 => return begun,
                // The rest of a list has expired: begin anew.
                Err(Error::Api(status)) if is_expired(&status) => {
                    self.pause().await;
                    continue;
                }
                Err(error) => {
                    self.refused(resource, "list", &error).await;
                    self.pause().await;
                    continue;
                }
            };
            let mut failures = 0;
            while failures < MANY_FAILURES {
                let begun = Instant::now();
                let end = self.watch(resource, &mut version, &mut reader).await;
                if begun.elapsed() >= GOOD_LIFE {
                    (failures, self.backoff) = (0, Backoff::new(FIRST_DELAY, LONGEST_DELAY));
                }
                match end {
                    // One that ends at once must not be begun at once again and again.
                    End::Routine if begun.elapsed() < GOOD_LIFE => self.pause().await,
                    End::Routine => {}
                    End::Expired => {
                        self.pause().await;
                        break;
                    }
                    End::Asked => break,
                    End::Failed(Error::Api(status)) if status.code == 404 => break,
                    End::Failed(error) => {
                        failures += 1;
                        self.refused(resource, "watch", &error).await;
                        self.pause().await;
                    }
                }
            }
        }
    }

    /// Tells the whole list and says its version.
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
            let text = timeout(PAGE_LIMIT, self.client.request_text(page)).await;
            let text = text.unwrap_or_else(|elapsed| Err(Error::Service(elapsed.into())))?;
            let page = reader.page(&text, &mut self.sink).map_err(Error::SerdeError)?;
            drop(text);
            all.extend(page.items);
            params.continue_token = page.next;
            if params.continue_token.is_none() {
                self.sink.note(|health| health.lists += 1);
                self.sink.heard(&page.version);
                self.tell_all(&resource.kind, all, begun).await;
                return Ok(page.version);
            }
        }
    }

    /// Tells what changes after `version`, and moves it on.
    async fn watch(
        &mut self,
        resource: &Resource,
        version: &mut String,
        reader: &mut KindReader,
    ) -> End {
        let request = kube::core::Request::new(resource.path());
        let params =
            WatchParams { label_selector: resource.labels.clone(), ..WatchParams::default() };
        let request = match request.watch(&params, version) {
            Ok(request) => request,
            Err(error) => return End::Failed(Error::BuildRequest(error)),
        };
        let stream = tokio::select! {
            biased;
            () = self.asked.is_due() => return End::Asked,
            stream = self.client.request_stream(request) => stream,
        };
        let stream = match stream {
            Ok(stream) => stream,
            Err(Error::Api(status)) if is_expired(&status) => return End::Expired,
            Err(error) => return End::Failed(error),
        };
        self.sink.heard("");
        let mut stream = std::pin::pin!(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = tokio::select! {
                biased;
                () = self.asked.is_due() => return End::Asked,
                read = timeout(SILENCE, stream.read_until(b'\n', &mut line)) => read,
            };
            match read {
                Ok(Ok(_)) if line.ends_with(b"\n") => {}
                // The end, in the middle of a line or not; broken connections; silence.
                Ok(Ok(_)) => return End::Routine,
                Ok(Err(error)) => {
                    tracing::debug!(kind = %resource.kind, %error, "a watch broke off");
                    return End::Routine;
                }
                Err(_) => {
                    tracing::debug!(kind = %resource.kind, "a watch fell silent");
                    return End::Routine;
                }
            }
            let read = match reader.line(&line, &mut self.sink) {
                Ok(Line::Error(status)) if is_expired(&status) => return End::Expired,
                Ok(Line::Error(status)) => return End::Failed(Error::Api(status)),
                Ok(read) => read,
                Err(error) => return End::Failed(Error::SerdeError(error)),
            };
            match &read {
                Line::Set(object) | Line::Gone(object) => {
                    let new = &object.meta().version;
                    if !new.is_empty() {
                        (**new).clone_into(version);
                    }
                    self.sink.note(|health| health.changes += 1);
                }
                Line::Nothing(new) if !new.is_empty() => new.clone_into(version),
                Line::Nothing(_) | Line::Error(_) => {}
            }
            self.sink.heard(version);
            match read {
                Line::Set(object) => self.sink.tell(Delta::Set(object)).await,
                Line::Gone(object) => self.sink.tell(Delta::Gone(object)).await,
                Line::Nothing(_) | Line::Error(_) => {}
            }
        }
    }

    /// Tells the list that began then.
    async fn tell_all(&mut self, kind: &Kind, all: Vec<Arc<T>>, begun: Instant) {
        self.asked.was_told(begun);
        self.sink.tell_all(kind, all, begun).await;
    }

    async fn pause(&mut self) {
        let delay = self.backoff.next_delay();
        self.rest(delay).await;
    }

    /// Does nothing for so long, or until a newer list is asked for.
    async fn rest(&mut self, time: Duration) {
        tokio::select! {
            () = self.asked.is_asked() => {}
            () = sleep(time) => {}
        }
    }

    /// The kind is not served: there are none. Of one that every server has, and that this one had, nothing is
    /// forgotten: it is a server of another version, or one that is set up wrongly, and what it had is
    /// still in use.
    async fn not_served(&mut self, kind: &Kind, begun: Instant) {
        let was_served = self.sink.note(|health| std::mem::replace(&mut health.is_served, false));
        if !self.is_optional {
            let problem = format!("the API server does not serve {kind}: enable it there");
            if was_served {
                tracing::error!("{problem}");
            }
            let was_listed = self.sink.note(|health| {
                health.problem = Some(problem);
                health.lists > 0
            });
            if was_listed {
                return;
            }
        }
        self.tell_all(kind, Vec::new(), begun).await;
    }

    /// Notes that a list or watch could not be had.
    async fn refused(&mut self, resource: &Resource, verb: &str, error: &Error) {
        if let Error::Api(status) = error
            && status.code == 403
        {
            let Resource { group, plural, .. } = resource;
            self.sink.note(|health| health.is_forbidden = true);
            self.failed(
                &format!(
                    "may not {verb} {plural}: grant the verbs list and watch on the resource \
                     {plural:?} of the API group {group:?}"
                ),
                error,
            );
            if self.is_optional {
                self.sink.mark_synced().await;
            }
            return;
        }
        self.failed(&format!("cannot {verb} {}", resource.kind), error);
    }

    /// Notes a failure, and says it if it is another one than the last.
    fn failed(&mut self, what: &str, error: &Error) {
        let problem = format!("{what}: {error}");
        let is_new = self.sink.note(|health| {
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

/// Whether what is asked for is not kept any more.
fn is_expired(status: &Status) -> bool {
    status.code == 410 || status.reason == "Expired" || status.reason == "Gone"
}
