//! `polypath serve`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::web::{self, Access, ByteRate, FileServer, Rates, ServeOptions, Token};
use clap::Args;
use polypath_config::Policies;
use polypath_config::quantity::parse_rate;

use super::engine::{EngineArguments, Task};
use super::live::LiveArguments;
use super::network::block_on_heeding;
use super::ports::cannot_listen;
use super::request_log::Log;
use super::serve_tls::TlsArguments;
use super::shares::Begun;
use super::transfer::token_in;
use super::uplink_names::UplinkNames;
use super::{Failure, complain, harmless, print_line};

/// What connections may take to close after the end.
const DRAIN: Duration = Duration::from_secs(5);

/// How long a reader of the log has for the last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// What is served
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// Where to listen; [::], or a port alone, is every address of both families
    #[arg(short, long, value_name = "[ADDRESS:]PORT", default_value_t = SocketAddr::from(([0_u16; 8], web::DEFAULT_PORT)), value_parser = parse_listen)]
    listen: SocketAddr,
    /// Clients may store files there: those that show a token, which is printed at the start unless --token-file has it;
    /// everybody on this machine if --listen is a loopback address
    #[arg(long)]
    writable: bool,
    /// The token of clients that store files, 16 characters or more
    #[arg(long, value_name = "FILE", requires = "writable")]
    token_file: Option<PathBuf>,
    /// A name by which clients call this server; without a token they may store files only at its names, addresses and
    /// localhost, so that no page of others can have a browser do it. A certificate of --tls-self-signed has it
    #[arg(long, value_name = "HOST")]
    name: Vec<String>,
    /// Serve files whose names begin with a dot, too
    #[arg(long)]
    hidden: bool,
    /// Write no line for each request; lines that nobody reads in time go missing, and are counted
    #[arg(short, long)]
    quiet: bool,
    /// Send no faster, all connections together, for example 40mbit; they take turns
    #[arg(long, value_name = "RATE", value_parser = parse_byte_rate)]
    limit_rate: Option<ByteRate>,
    /// Send no faster to each connection
    #[arg(long, value_name = "RATE", value_parser = parse_byte_rate)]
    limit_rate_per_connection: Option<ByteRate>,
    /// Serve so many connections of one address (IPv6: of one /56 network) at once; further ones are closed
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    limit_connections: Option<u16>,
    #[command(flatten)]
    tls: TlsArguments,
    #[command(flatten)]
    live: LiveArguments,
    #[command(flatten)]
    engine: EngineArguments,
}

/// `ADDRESS:PORT`, or a port of all addresses, with or without a colon.
fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>().ok();
    let everywhere = port.map(|port| SocketAddr::from(([0_u16; 8], port)));
    everywhere.or_else(|| text.parse().ok()).ok_or_else(|| {
        "expected a port, such as 8080, or an address and a port, such as 127.0.0.1:8080 or [::1]:8080".into()
    })
}

fn parse_byte_rate(text: &str) -> Result<ByteRate, String> {
    let rate = parse_rate(text)?;
    ByteRate::new(rate.as_bps() / 8).ok_or_else(|| "expected a rate above 0, such as 40mbit".into())
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let arguments = &Arguments { engine: arguments.engine.configured(None, policies)?, ..arguments.clone() };
    if !arguments.name.is_empty() && !arguments.writable && !arguments.tls.is_self_signed() {
        return Err(Failure::Input(
            "--name has no use here; expected --writable or --tls-self-signed with it".into(),
        ));
    }
    let directory = &arguments.directory;
    let mut files = FileServer::new(directory, arguments.writable).map_err(|error| {
        Failure::Input(format!("{}: {error}; expected a directory that can be read", directory.display()))
    })?;
    files = files.with_names(arguments.name.clone());
    if arguments.hidden {
        files = files.with_hidden_files();
    }
    let token = token(arguments)?;
    let addresses = arguments.engine.announced().chain([arguments.listen.ip()]);
    let https = arguments.tls.start(&arguments.name, addresses)?;
    if let Some(token) = &token {
        files = files.with_token(token.clone());
    }
    let heeds_hangup = arguments.tls.heeds_hangup();
    block_on_heeding(!heeds_hangup, async {
        let at = arguments.listen;
        let task = Task { is_quiet: arguments.quiet, ..Task::listening(at.ip(), at.port()) };
        let engine = arguments.engine.start(policies, &task).await?;
        let live = arguments.live.start("polypath serve", &engine)?;
        let listener = engine.listen(arguments.listen).await;
        let listener =
            listener.map_err(|error| cannot_listen(arguments.listen.port(), error.kind(), error))?;
        let address = listener.local_addr().map_err(Failure::run)?;
        print_line(&format!("Serving {} at {}://{address}/", directory.display(), arguments.tls.scheme()))?;
        print_line(&exposure(arguments, address, token.as_ref()))?;
        if let Some(note) = https.as_ref().and_then(|https| https.note.as_ref()) {
            print_line(note)?;
        }
        let (requests, written) = Log::new(io::stdout(), complain).map_err(Failure::run)?;
        let requests = Arc::new(requests);
        // What is drawn is not to be written over.
        let (is_quiet, lines) = (arguments.quiet || live.is_drawn(), requests.clone());
        let names = UplinkNames::default();
        let log = move |access: &Access| {
            if !is_quiet {
                let over = access.own.and_then(|own| names.name_of(own));
                lines.line(&line(access, over.as_deref(), SystemTime::now()));
            }
        };
        let stop = async {
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let begun = Begun::serving(&engine);
        let tls = https.map(|https| https.tls);
        let renewing = async {
            match &tls {
                Some(tls) if heeds_hangup => arguments.tls.renew(tls).await,
                _ => std::future::pending().await,
            }
        };
        let rates = Rates { all: arguments.limit_rate, each: arguments.limit_rate_per_connection };
        let most_of_client = arguments.limit_connections.map(usize::from);
        let options = ServeOptions { tls: tls.clone(), rates, most_of_client };
        let finished = async {
            web::serve(files, listener, options, stop, log).await;
            engine.drain(DRAIN).await;
            begun.tell(&engine, arguments.quiet);
            if let Some(requests) = Arc::into_inner(requests) {
                requests.finish(&written, LAST_LINES);
            }
        };
        let impatience = async {
            // The first signal asks to finish, the second to leave.
            for _ in 0..2 {
                if tokio::signal::ctrl_c().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            () = finished => Ok(()),
            ended = renewing => ended,
            () = impatience => Err(Failure::run("interrupted before all requests were answered")),
        }
    })
}

/// Needed where others than this machine's own people can store files.
fn token(arguments: &Arguments) -> Result<Option<Token>, Failure> {
    if let Some(file) = &arguments.token_file {
        return token_in(file).map(Some);
    }
    // An address of our own stacks is not the system's loopback, whatever its numbers.
    let is_local =
        arguments.listen.ip().to_canonical().is_loopback() && arguments.engine.is_kernel_within_the_machine();
    if !arguments.writable || is_local {
        return Ok(None);
    }
    let failed = |error| Failure::Run(format!("can't make a token: {error}; expected --token-file"));
    Token::random().map(Some).map_err(failed)
}

/// What everybody can see and do who reaches this.
fn exposure(arguments: &Arguments, address: SocketAddr, token: Option<&Token>) -> String {
    let who = if address.ip().to_canonical().is_loopback() {
        "Everybody on this machine"
    } else {
        "Everybody who reaches this machine"
    };
    let what = if arguments.hidden { "hidden ones too" } else { "but not hidden ones" };
    let storing = match token {
        _ if !arguments.writable => "nobody can store any".into(),
        None => "can store some".into(),
        Some(_) if arguments.token_file.is_some() => "whoever has the token can store some".into(),
        Some(token) => {
            // `polypath cp` does not go by HTTPS.
            let how = match arguments.tls.scheme() {
                "https" => "curl -T FILE -u :TOKEN",
                _ => "polypath cp --token-file, or POLYPATH_TOKEN",
            };
            format!("whoever has this token can store some ({how}): {}", token.reveal())
        }
    };
    format!("{who} can read these files, {what}; {storing}")
}

/// The common log format, with the time as HTTP writes it, and the interface that the client came over.
fn line(access: &Access, over: Option<&str>, now: SystemTime) -> String {
    let bytes = access.bytes.map_or("-".into(), |bytes| bytes.to_string());
    let time = httpdate::fmt_http_date(now);
    // What a stranger sends must not draw on the terminal.
    let over = over.map_or(String::new(), |name| format!(" over {}", harmless(name)));
    let path: String = access.path.chars().flat_map(char::escape_default).collect();
    format!(
        "{} - - [{time}] \"{} {path} {:?}\" {} {bytes}{over}",
        access.client.ip(),
        access.method,
        access.version,
        access.status.as_u16()
    )
}

#[cfg(test)]
mod tests {
    use hyper::{Method, StatusCode, Version};

    use super::*;

    #[test]
    fn a_port_alone_is_at_all_addresses() {
        for text in ["8099", ":8099", "[::]:8099"] {
            assert_eq!(parse_listen(text), Ok(([0_u16; 8], 8099).into()), "{text}");
        }
        assert_eq!(parse_listen("127.0.0.1:80"), Ok(([127, 0, 0, 1], 80).into()));
        for wrong in ["", ":", "localhost", "127.0.0.1", "::", "1.2.3.4:70000"] {
            assert!(parse_listen(wrong).is_err_and(|error| error.contains("such as 8080")), "{wrong}");
        }
    }

    #[test]
    fn rates_are_those_of_other_commands_and_not_nothing() {
        assert_eq!(parse_byte_rate("40mbit"), Ok(ByteRate::new(5_000_000).expect("a rate")));
        for wrong in ["", "40", "fast", "0mbit"] {
            assert!(parse_byte_rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_line_ends_with_the_interface_that_the_client_came_over() {
        let access = Access {
            client: ([192, 0, 2, 1], 7).into(),
            own: Some([192, 0, 2, 2].into()),
            method: Method::GET,
            path: "/a\u{1b}".into(),
            version: Version::HTTP_11,
            status: StatusCode::OK,
            bytes: Some(3),
        };
        let begin = r#"192.0.2.1 - - [Thu, 01 Jan 1970 00:00:00 GMT] "GET /a\u{1b} HTTP/1.1" 200 3"#;
        assert_eq!(line(&access, Some("wifi"), SystemTime::UNIX_EPOCH), format!("{begin} over wifi"));
        assert_eq!(line(&access, None, SystemTime::UNIX_EPOCH), begin);
    }
}
