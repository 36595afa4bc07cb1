//! `polypath get`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use hyper::{Method, StatusCode};
use polypath::web::{Client, digest_of};
use tokio::fs::OpenOptions;
use url::Url;

use super::Failure;
use super::engine::EngineArguments;
use super::network::block_on_interruptibly;
use super::transfer::{bar, failure, file_name, length, refused, store, summary};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// What to download: http://HOST/… or polypath://HOST/…
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// Where it goes, - for standard output [default: the last name in the URL]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Go on with a file that is there in part
    #[arg(short = 'C', long)]
    resume: bool,
    /// Show nothing but failures
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    engine: EngineArguments,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.output.is_some() && arguments.urls.len() > 1 {
        return Err(Failure::input("--output is one file; expected one URL with it"));
    }
    let urls: Vec<Url> =
        arguments.urls.iter().map(|url| Client::parse(url)).collect::<Result<_, _>>().map_err(failure)?;
    block_on_interruptibly(async {
        let engine = arguments.engine.start().await?;
        let client = Client::new(engine.clone());
        let mut failures = Vec::new();
        for url in &urls {
            match download(arguments, &client, url).await {
                Ok(()) => {}
                // The others may still be had.
                Err(Failure::Input(message) | Failure::Run(message)) => failures.push(message),
                Err(exit @ Failure::Exit(_)) => return Err(exit),
            }
        }
        engine.drain(Duration::from_secs(1)).await;
        let last = failures.pop();
        failures.iter().for_each(|message| eprintln!("polypath: {message}"));
        last.map_or(Ok(()), |message| Err(Failure::Run(message)))
    })
}

async fn download(arguments: &Arguments, client: &Client, url: &Url) -> Result<(), Failure> {
    let started = Instant::now();
    let named = file_name(url).unwrap_or_else(|| "index.html".into());
    let place = arguments.output.clone().unwrap_or_else(|| named.into());
    let is_stdout = place == Path::new("-");
    let present = if arguments.resume && !is_stdout {
        std::fs::metadata(&place).map_or(0, |metadata| metadata.len())
    } else {
        0
    };
    let mut fields = Vec::new();
    if present > 0 {
        fields.push(("range", format!("bytes={present}-")));
        fields.push(("want-repr-digest", "sha-256=1".into()));
    }
    let fetched = client.get(Method::GET, url, &fields).await.map_err(failure)?;
    let digest = fetched.digest();
    let first = match fetched.response.status() {
        StatusCode::PARTIAL_CONTENT if fetched.range().is_some_and(|(first, ..)| first == present) => present,
        StatusCode::PARTIAL_CONTENT => {
            return Err(Failure::Run(format!("{url}: the server sends another part than was asked for")));
        }
        StatusCode::RANGE_NOT_SATISFIABLE if present > 0 => return already(&fetched, &place, present),
        status if status.is_success() => 0,
        status => return Err(refused(&fetched.url, status)),
    };
    let total = length(&fetched.response).map(|bytes| bytes + first);
    let name = place.display().to_string();
    let bar = bar(&name, total, first, arguments.quiet || is_stdout);
    let stored = if is_stdout {
        store(fetched, &mut tokio::io::stdout(), &place, &bar).await?
    } else {
        let mut options = OpenOptions::new();
        options.create(true).write(true).append(first > 0).truncate(first == 0);
        let opened = options.open(&place).await;
        let mut file =
            opened.map_err(|error| Failure::Input(format!("{name}: can't be written: {error}")))?;
        store(fetched, &mut file, &place, &bar).await?
    };
    bar.finish_and_clear();
    if let Some(digest) = digest.filter(|_| first > 0)
        && digest_of(&place, None).ok() != Some(digest)
    {
        return Err(Failure::Run(format!(
            "{name}: what was there is no part of the file at {url}; expected to begin without --resume"
        )));
    }
    summary(&name, stored, started, arguments.quiet || is_stdout);
    Ok(())
}

/// The server has nothing beyond what is here: is it the same length?
fn already(fetched: &polypath::web::Fetched, place: &Path, present: u64) -> Result<(), Failure> {
    let field = fetched.response.headers().get("content-range").and_then(|field| field.to_str().ok());
    let total = field.and_then(|field| field.strip_prefix("bytes */")?.parse::<u64>().ok());
    if total == Some(present) {
        return Ok(());
    }
    let total = total.map_or("fewer".into(), |total| total.to_string());
    Err(Failure::Run(format!(
        "{}: has {present} bytes, but the file at {} has {total}; expected to begin without --resume",
        place.display(),
        fetched.url
    )))
}
