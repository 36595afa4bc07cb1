//! Clients of HTTP: CONNECT, and requests with a whole URL, one server at a time.

mod body;
mod held;
mod outgoing;

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Notify;
use tokio::time::timeout;

use self::body::{Passing, RequestLog};
use self::held::{HeldStream, Taker};
use self::outgoing::Outgoing;
use super::connect::ServerSide;
use super::flow::Way;
use super::gate::{Gate, Gates};
use super::leg::Leg;
use super::owners::of_stack;
use super::session::Ending;
use super::sessions::Session;
use super::settings::Entrance;
use super::watched::Watched;
use super::within::{Inner, Joined, Route, Stop, Visitor};
use crate::failure::ConnectFailure;
use crate::http as message;
use crate::negotiation::Refusal;
use crate::target::Target;

/// Fields that a request may have.
const MOST_FIELDS: usize = 100;
/// What its URL and fields may have.
const FIELDS_BYTES: usize = 32 << 10;
/// Fields that an answer may have: some servers set many cookies.
const MOST_FIELDS_OF_ANSWER: usize = 1000;
/// What is read of a message before it is passed on.
const READ_BYTES: usize = 64 << 10;

type Answer = Response<Either<Full<Bytes>, Passing>>;

/// A connection to a server that may have the next request, too, if that is for the same target and by the same user.
struct Kept {
    target: Target,
    user: Option<Box<str>>,
    route: Route,
    sender: SendRequest<Passing>,
    stream: Watched,
    is_multipath: bool,
    outgoing: Arc<Outgoing>,
}

/// A client that has asked for nothing yet may take so long for its first request once the proxy is to end.
const ABOUT_TO_ASK: Duration = Duration::from_secs(1);

/// One client's connection.
struct Client {
    proxy: Arc<Inner>,
    visitor: Visitor,
    /// Whom its certificate names.
    named: Option<Box<str>>,
    entrance: Arc<Entrance>,
    session: Arc<Session>,
    stream: Watched,
    outgoing: Arc<Outgoing>,
    /// Where the last request went.
    taker: Taker,
    /// The server of the last request, for the next one. It is not shared with other clients: what a server takes for the next answer is always
    /// for the same client.
    last: tokio::sync::Mutex<Option<Kept>>,
    /// What a CONNECT leads to.
    joined: Mutex<Option<(OnUpgrade, ServerSide, Arc<RequestLog>)>>,
}

/// One that came.
pub(super) struct Arrived {
    pub(super) stream: Leg,
    /// What was read of it.
    pub(super) early: Bytes,
    pub(super) visitor: Visitor,
    /// Whom its certificate names.
    pub(super) named: Option<Box<str>>,
}

/// Answers requests until the client has no more.
pub(super) async fn serve(
    proxy: &Arc<Inner>,
    arrived: Arrived,
    entrance: &Arc<Entrance>,
    session: Arc<Session>,
) {
    let Arrived { stream, early, visitor, named } = arrived;
    let outgoing = Arc::new(Outgoing::default());
    let stream = Watched::new(stream);
    session.show_answering(stream.clone(), None);
    let taker = Taker::default();
    let held = HeldStream::new(stream.clone(), early, outgoing.clone(), taker.clone());
    let client = Arc::new(Client {
        proxy: proxy.clone(),
        visitor,
        named,
        entrance: entrance.clone(),
        session,
        stream,
        outgoing,
        taker,
        last: tokio::sync::Mutex::default(),
        joined: Mutex::default(),
    });
    let answering = client.clone();
    let has_asked = Arc::new(Notify::new());
    let asks = has_asked.clone();
    let service = service_fn(move |request| {
        asks.notify_one();
        let client = answering.clone();
        async move { Ok::<_, Infallible>(client.answer(request).await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(proxy.settings().timeouts.asking)
        .half_close(true)
        .max_headers(MOST_FIELDS)
        .max_header_size(FIELDS_BYTES)
        .max_buf_size(READ_BYTES);
    let mut stop = proxy.stop();
    let serving = async {
        let served = builder.serve_connection(TokioIo::new(held), service).with_upgrades();
        let mut served = pin!(served);
        let over = tokio::select! {
            served = served.as_mut() => Some(served),
            _ = stop.wait_for(|stop| *stop >= Stop::Draining) => None,
        };
        match over {
            Some(served) => Some(served),
            None => {
                let finishing = pin!(async {
                    // Who has just come is about to ask.
                    tokio::select! {
                        served = served.as_mut() => return served,
                        _ = timeout(ABOUT_TO_ASK, has_asked.notified()) => {}
                    }
                    served.as_mut().graceful_shutdown();
                    served.await
                });
                let served = proxy.unless_stopped(finishing).await;
                if served.is_none() {
                    client.session.give_up(Ending::Stopped);
                }
                served
            }
        }
    };
    // Where nothing moves for too long it is dropped, which resets it in the middle of an answer.
    let served = {
        let serving = pin!(serving);
        let served = client.session.flow().unless_idle(proxy.settings().timeouts.idle, serving).await;
        if served.is_none() {
            client.session.give_up(Ending::Idle);
        }
        served
    };
    // What else goes wrong on a connection is the client's business: of each request is told, and whether its answer is whole.
    if let Some(Some(Err(error))) = served
        && let Some(why) = unreadable(&error)
    {
        proxy.tell_of_nobody(entrance, visitor.address, &Ending::Refused(why));
    }
    let joined = client.joined.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((upgrade, server, log)) = joined {
        client.join(upgrade, server, &log).await;
    }
}

impl Client {
    async fn answer(&self, mut request: Request<Incoming>) -> Answer {
        let log = Arc::new(RequestLog::new(&self.proxy, &self.session));
        if let Err(error) = message::check_length(request.version(), request.headers()) {
            return refused(error, &log);
        }
        if let Err(error) = message::check_meaning(request.method(), request.version(), request.headers()) {
            return refused(error, &log);
        }
        let target = match message::target(request.method(), request.uri()) {
            Ok(target) => target,
            Err(error) => return refused(error, &log),
        };
        log.known(|known| known.target = Some(target.clone()));
        let user = match self.user_of(request.headers()) {
            Ok(user) => user,
            Err(why) => {
                log.ended(Ending::Refused(why));
                let line = "this proxy wants a user name and a password";
                return refusal(StatusCode::PROXY_AUTHENTICATION_REQUIRED, line);
            }
        };
        log.known(|known| known.user.clone_from(&user));
        self.session.asks(user.as_deref(), &target);
        if *request.method() == Method::CONNECT {
            let reached = {
                let reaching = pin!(self.connect(user.as_deref(), &target));
                self.while_there(&log, reaching).await
            };
            return match reached {
                Some(Ok(server)) => {
                    log.known(|known| known.server = Some(server.address));
                    let upgrade = hyper::upgrade::on(&mut request);
                    *self.joined.lock().unwrap_or_else(PoisonError::into_inner) =
                        Some((upgrade, server, log));
                    Response::new(Either::Left(Full::default()))
                }
                Some(Err(failure)) => not_reached(&target, failure, &log),
                None => nobody_reads(),
            };
        }
        self.forward(request, user.as_deref(), target, log).await
    }

    async fn connect(&self, user: Option<&str>, target: &Target) -> Result<ServerSide, ConnectFailure> {
        self.proxy.connect(&self.visitor, user, target, &self.entrance, &mut Bytes::new()).await
    }

    /// What comes of it, unless the client has gone first, which hyper does not notice before it answers.
    async fn while_there<T>(&self, log: &RequestLog, work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            error = self.stream.broken() => {
                log.ended(Ending::ClientBroke(error.to_string().into()));
                None
            }
        }
    }

    /// Who asks, where that has to be said (RFC 9110 §11.7.2, RFC 7617 §2).
    fn user_of(&self, fields: &HeaderMap) -> Result<Option<Box<str>>, Refusal> {
        let Some(users) = self.proxy.settings().users.clone() else { return Ok(self.named.clone()) };
        let credentials =
            fields.get(PROXY_AUTHORIZATION).and_then(|value| message::basic_credentials(value.as_bytes()));
        let known = credentials.filter(|(name, password)| users.knows(name, password));
        let name = known.and_then(|(name, _)| String::from_utf8(name).ok());
        match name {
            Some(name) => Ok(Some(name.into())),
            None => Err(Refusal::Unauthorized),
        }
    }

    async fn forward(
        &self,
        request: Request<Incoming>,
        user: Option<&str>,
        target: Target,
        log: Arc<RequestLog>,
    ) -> Answer {
        let (mut parts, body) = request.into_parts();
        if let Some(answer) = message::max_forwards::pass(&mut parts) {
            log.ended(Ending::Finished);
            return answer.map(|text| Either::Left(Full::from(text)));
        }
        if let Err(error) =
            message::make_request_for_server(&mut parts.uri, parts.version, &mut parts.headers)
        {
            return refused(error, &log);
        }
        parts.version = http::Version::HTTP_11;
        let body = Passing::new(body, Way::ToServer, log.clone());
        // As long as the request moves, its server need not answer.
        let limit = Some(self.proxy.settings().timeouts.answering);
        let sent = {
            let sending = pin!(self.send(Request::from_parts(parts, body), user, &target, &log));
            let sending = pin!(log.flow().unless_idle(limit, sending));
            self.while_there(&log, sending).await
        };
        let (answer, gate) = match sent {
            Some(Some(Ok(answer))) => answer,
            Some(Some(Err(_))) if log.client_broke() => return refused(message::RequestError::Body, &log),
            Some(Some(Err(failure))) => return not_reached(&target, failure, &log),
            Some(None) => return not_reached(&target, ConnectFailure::TimedOut, &log),
            None => return nobody_reads(),
        };
        let (mut parts, body) = answer.into_parts();
        // Nobody has asked for another protocol.
        if parts.status == StatusCode::SWITCHING_PROTOCOLS
            || message::settle_length_of_answer(parts.status, &mut parts.headers).is_err()
        {
            // Where the next answer begins is not known.
            self.last.lock().await.take();
            return not_reached(&target, ConnectFailure::Garbled, &log);
        }
        message::remove_fields_of_one_hop(&mut parts.headers);
        message::add_via(parts.version, &mut parts.headers);
        parts.version = http::Version::HTTP_11;
        log.begins_answer();
        let mut body = Passing::new(body, Way::ToClient, log);
        body.set_outgoing(self.outgoing.clone());
        body.set_gate(gate);
        body.set_client(self.stream.clone());
        Response::from_parts(parts, Either::Right(body))
    }

    /// Over the connection of the last request, if that was to the same server and lives; else over a new one. What holds for the answer comes
    /// with it.
    async fn send(
        &self,
        mut request: Request<Passing>,
        user: Option<&str>,
        target: &Target,
        log: &Arc<RequestLog>,
    ) -> Result<(Response<Incoming>, Gate), ConnectFailure> {
        let mut last = self.last.lock().await;
        let may_have_it = |kept: &Kept| {
            kept.target == *target
                && kept.user.as_deref() == user
                // Rules may have changed since.
                && self.proxy.allows(&self.visitor, user, target, Some(kept.route.address().ip()))
        };
        let kept = last.take().filter(may_have_it);
        if let Some(mut kept) = kept
            && kept.sender.ready().await.is_ok()
        {
            request.body_mut().set_outgoing(kept.outgoing.clone());
            let gate = self.reached(&mut request, log, &kept);
            match kept.sender.try_send_request(request).await {
                Ok(answer) => {
                    *last = Some(kept);
                    return Ok((answer, gate));
                }
                // The server closed it before the request was there.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(failure_of(error.error())),
                },
            }
        }
        let server = self.connect(user, target).await?;
        if !server.early.is_empty() {
            // Before a request there is nothing to be answered.
            return Err(ConnectFailure::Garbled);
        }
        server.stream.send_at_once();
        server.stream.keep_alive();
        let (route, is_multipath) = (self.proxy.route(&server), server.stream.is_multipath());
        let (stream, outgoing) = (Watched::new(server.stream), Arc::new(Outgoing::default()));
        request.body_mut().set_outgoing(outgoing.clone());
        let held =
            HeldStream::new(stream.clone(), Bytes::new(), outgoing.clone(), self.stream.clone().into());
        let mut builder = hyper::client::conn::http1::Builder::new();
        builder.max_headers(MOST_FIELDS_OF_ANSWER);
        let begun = builder.handshake(TokioIo::new(held)).await;
        let (sender, connection) = begun.map_err(|error| failure_of(&error))?;
        // It ends with the sender.
        tokio::spawn(connection);
        let (target, user) = (target.clone(), user.map(Into::into));
        let mut kept = Kept { target, user, route, sender, stream, is_multipath, outgoing };
        let gate = self.reached(&mut request, log, &kept);
        let answer = kept.sender.send_request(request).await.map_err(|error| failure_of(&error))?;
        *last = Some(kept);
        Ok((answer, gate))
    }

    /// A request goes there: says so, and what limits have to say of it and of its answer.
    fn reached(&self, request: &mut Request<Passing>, log: &RequestLog, server: &Kept) -> Gate {
        let address = server.route.address();
        self.session.reached(address);
        self.session.show_answering(self.stream.clone(), Some(server.stream.clone()));
        self.taker.set(server.stream.clone());
        let client_is_multipath = self.stream.lock().as_ref().is_some_and(Leg::is_multipath);
        let known = log.known(|known| {
            known.server = Some(address);
            known.is_multipath = Some((client_is_multipath, server.is_multipath));
            known.clone()
        });
        let ours = [&self.stream, &server.stream].map(|stream| stream.lock().as_ref().and_then(of_stack));
        let Gates { to_server, to_client } =
            self.proxy.gates(self.visitor.address, &known, &server.route, ours);
        request.body_mut().set_gate(to_server);
        to_client
    }

    /// What follows a CONNECT.
    async fn join(&self, upgrade: OnUpgrade, server: ServerSide, log: &RequestLog) {
        let Ok(upgraded) = upgrade.await else { return };
        let Ok(parts) = upgraded.downcast::<TokioIo<HeldStream>>() else { return };
        let Some(stream) = parts.io.into_inner().into_leg() else { return };
        let mut known = log.known(|known| known.clone());
        let joined = Joined { client: stream, server, early: parts.read_buf };
        let passage = self.proxy.begin(joined, &self.session, &mut known);
        let (ending, are_multipath) = self.proxy.pass(passage, &self.session).await;
        log.known(|told| told.is_multipath = Some(are_multipath));
        log.took_the_rest();
        log.ended(ending);
    }
}

/// Why hyper has read no request, so that there is none to tell of. Its words for that are constants, with nothing of the client's.
fn unreadable(error: &hyper::Error) -> Option<Refusal> {
    let why = if error.is_parse_version_h2() {
        "it is of HTTP/2, expected HTTP/1.1".into()
    } else if error.is_parse_too_large() {
        format!(
            "too many fields, or too long: expected {MOST_FIELDS}, and {FIELDS_BYTES} bytes of URL and fields, at most"
        )
    } else if error.is_parse() {
        error.to_string()
    } else {
        return None;
    };
    Some(Refusal::Unreadable(why.into()))
}

fn failure_of(error: &hyper::Error) -> ConnectFailure {
    use std::error::Error as _;
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<std::io::Error>() {
            return ConnectFailure::from(io);
        }
        cause = inner.source();
    }
    if error.is_incomplete_message() || error.is_canceled() {
        ConnectFailure::Reset
    } else {
        ConnectFailure::Garbled
    }
}

/// For who has gone: hyper notices that as it writes.
fn nobody_reads() -> Answer {
    refusal(StatusCode::BAD_REQUEST, "the connection broke")
}

fn not_reached(target: &Target, failure: ConnectFailure, log: &RequestLog) -> Answer {
    log.ended(Ending::NotReached(failure));
    refusal(message::status_of(failure), &format!("{target}: {failure}"))
}

/// For a request that is wrong. What comes behind it may be a part of it, so nothing of that is read.
fn refused(error: message::RequestError, log: &RequestLog) -> Answer {
    log.ended(Ending::Refused(Refusal::Request(error)));
    let mut answer = refusal(error.status(), &error.to_string());
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// An answer of our own.
fn refusal(status: StatusCode, line: &str) -> Answer {
    let mut answer = Response::new(Either::Left(Full::from(format!("{line}\n"))));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        answer.headers_mut().insert(PROXY_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"polypath\""));
    }
    answer
}
