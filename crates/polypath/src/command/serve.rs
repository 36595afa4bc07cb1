//! `polypath serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;
use polypath::web::{self, Access, FileServer};

use super::engine::EngineArguments;
use super::network::block_on;
use super::{Failure, print_line};

/// What connections may take to close after the end.
const DRAIN: Duration = Duration::from_secs(5);

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// What is served
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// Where to listen; [::] is every address of both families
    #[arg(short, long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::from(([0_u16; 8], web::DEFAULT_PORT)))]
    listen: SocketAddr,
    /// Clients may store files there
    #[arg(long)]
    writable: bool,
    /// Write no line for each request
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    engine: EngineArguments,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let directory = &arguments.directory;
    let files = FileServer::new(directory, arguments.writable).map_err(|error| {
        Failure::Input(format!("{}: {error}; expected a directory that can be read", directory.display()))
    })?;
    block_on(async {
        let engine = arguments.engine.start_listening().await?;
        let listener = engine.listen(arguments.listen).await.map_err(Failure::run)?;
        let address = listener.local_addr().map_err(Failure::run)?;
        print_line(&format!("Serving {} at http://{address}/", directory.display()))?;
        let is_quiet = arguments.quiet;
        let log = move |access: &Access| {
            if !is_quiet {
                // Whoever reads the log may have gone; the files are served nevertheless.
                let _ = print_line(&line(access, SystemTime::now()));
            }
        };
        let stop = async {
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let finished = async {
            web::serve(files, listener, stop, log).await;
            engine.drain(DRAIN).await;
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
            () = impatience => Err(Failure::run("interrupted before all requests were answered")),
        }
    })
}

/// The common log format, with the time as HTTP writes it.
fn line(access: &Access, now: SystemTime) -> String {
    let bytes = access.bytes.map_or("-".into(), |bytes| bytes.to_string());
    let time = httpdate::fmt_http_date(now);
    // What a stranger sends must not draw on the terminal.
    let path: String = access.path.chars().flat_map(char::escape_default).collect();
    format!(
        "{} - - [{time}] \"{} {path} HTTP/1.1\" {} {bytes}",
        access.client.ip(),
        access.method,
        access.status.as_u16()
    )
}
