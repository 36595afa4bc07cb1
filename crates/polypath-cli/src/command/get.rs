//! `polypath get`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::web::{Client, Download, Target, Verify, without_user};
use clap::Args;
use polypath_config::Policies;
use polypath_netsetup::abilities::Interfaces;
use polypath_system::{Namespace, console};
use url::Url;

use super::curl_habits::CurlHabits;
use super::engine::{EngineArguments, Task};
use super::incomplete::Incomplete;
use super::interfaces;
use super::live::LiveArguments;
use super::network::{Interruption, block_on_saving};
use super::range_job::Job;
use super::range_metalink;
use super::ranges::RangeArguments;
use super::shares::Begun;
use super::transfer::{
    Credentials, Patience, Place, Shown, download_failure, failure, file_name, notices, place, place_of,
    summary, survive_file_size_limit,
};
use super::transfer_report::{ReportArguments, Transfer, TransferReport};
use super::watch::Telling;
use super::{Failure, complain, harmless, url_list};

#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// What to download: http://HOST/…, https://HOST/… or polypath://HOST/…; or a file here, or with --ranges a URL, that ends in .meta4
    /// or .metalink, and says where files are
    #[arg(required_unless_present = "input_file", value_name = "URL")]
    urls: Vec<String>,
    /// Download what a file lists too, one URL a line, - for standard input
    #[arg(short, long, value_name = "FILE")]
    input_file: Option<PathBuf>,
    /// Where it goes, - for standard output [default: the last name in the URL]; FILE.part until it is all there and
    /// compared with what the server says of it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Go on with what is there of a file; a server that tells no SHA-256 sends other people's parts anew
    #[arg(short = 'C', long)]
    resume: bool,
    /// Don't compare SHA-256 sums of both ends
    #[arg(long)]
    no_verify: bool,
    /// Show nothing but failures
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    habits: CurlHabits,
    #[command(flatten)]
    report: ReportArguments,
    #[command(flatten)]
    credentials: Credentials,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    ranges: RangeArguments,
    #[command(flatten)]
    live: LiveArguments,
    #[command(flatten)]
    engine: EngineArguments,
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let has_output = arguments.output.as_deref().is_some_and(is_standard_output);
    arguments.report.report(has_output, |report| get(arguments, policies, report))
}

/// As programs are told that know no dash, too.
fn is_standard_output(place: &Path) -> bool {
    ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].map(Path::new).contains(&place)
}

fn get(given: &Arguments, policies: &Policies, report: &TransferReport) -> Result<(), Failure> {
    let quiet = given.quiet || given.habits.is_quiet();
    let arguments = &Arguments { engine: given.engine.configured(None, policies)?, quiet, ..given.clone() };
    // curl's option has a dash behind it.
    let texts = arguments.urls.iter().filter(|text| !(arguments.resume && *text == "-"));
    let listed = arguments.input_file.as_deref().map(url_list::read).transpose()?.unwrap_or_default();
    let urls: Vec<Url> = texts.chain(&listed).map(|text| parse(text)).collect::<Result<_, _>>()?;
    if urls.is_empty() {
        return Err(Failure::input("there is no URL; expected one, such as http://example.org/file"));
    }
    if arguments.output.is_some() && urls.len() > 1 {
        return Err(Failure::input("--output is one file; expected one URL with it"));
    }
    arguments.output.as_deref().map_or(Ok(()), |output| report.refuse_place(output))?;
    let token = arguments.credentials.token()?;
    if arguments.ranges.are_wanted(&urls)? {
        given.engine.refuse_choices("downloads in ranges")?;
        arguments.live.refuse("downloads in ranges")?;
        let job = Job {
            urls: &urls,
            output: arguments.output.as_deref(),
            resume: arguments.resume,
            verifies: !arguments.no_verify,
            is_quiet: arguments.quiet,
            token,
            silence: arguments.patience.limit(),
            asked: arguments.engine.asked(),
        };
        return arguments.ranges.get(&job, report);
    }
    block_on_saving(async |interruption| {
        let _ignored = survive_file_size_limit().map_err(Failure::run)?;
        let task = arguments.engine.connecting(urls.iter().filter_map(Url::host_str)).await;
        let task = Task { is_quiet: arguments.quiet, ..task };
        let engine = arguments.engine.start(policies, &task).await?;
        report.note_engine(arguments.engine.name_of(&engine));
        let telling = if arguments.quiet { Telling::Silent } else { Telling::OverBar };
        let begun = Begun::connecting(&engine, "server", arguments.engine.asked(), telling);
        let begun = begun.reaching(urls.first().and_then(place));
        let _live = arguments.live.start("polypath get", &engine)?;
        let client = Client::new(engine.clone()).with_progress_limit(arguments.patience.limit());
        let client = client.with_token(token).with_notices(notices(arguments.quiet));
        let mut failures = Vec::new();
        for url in &urls {
            match download(arguments, &client, url, interruption, report).await {
                Ok(()) => {}
                // The others may still be had.
                Err(Failure::Input(message)) => failures.push(message),
                Err(Failure::Run(message)) => failures.push(begun.explained(&engine, message)),
                Err(exit @ Failure::Exit(_)) => {
                    report.note_shares(&begun, &engine);
                    return Err(exit);
                }
            }
        }
        engine.drain(Duration::from_secs(1)).await;
        report.note_shares(&begun, &engine);
        // Of a failure, one line says what there is to say.
        begun.tell(&engine, arguments.quiet || !failures.is_empty());
        let found = Namespace::current().and_then(|namespace| Interfaces::look(&namespace));
        let has_several = found.is_ok_and(|found| found.uplinks.len() > 1);
        if !arguments.quiet && failures.is_empty() && has_several && begun.fallback(&engine).is_some() {
            console::tell("with --ranges, polypath get uses all interfaces without the server's help");
        }
        let last = failures.pop();
        failures.iter().for_each(|message| complain(message));
        last.map_or(Ok(()), |message| Err(Failure::Run(message)))
    })
}

fn parse(text: &str) -> Result<Url, Failure> {
    if let Some(metalink) = range_metalink::here(text) {
        return metalink;
    }
    if text.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://")) {
        let text_shown = without_user(text);
        let wrong = |error| Failure::Input(format!("\"{text_shown}\": {error}; expected https://HOST/…"));
        return Url::parse(text).map_err(wrong);
    }
    Client::parse(text).map_err(|error| match interfaces::links() {
        Ok(links) if links.iter().any(|name| name == text) => Failure::Input(format!(
            "\"{text}\" is an interface; expected a URL, and several interfaces as in -I eth0,{text}"
        )),
        _ => refused(text).unwrap_or_else(|| failure(error)),
    })
}

/// A scheme that nothing is downloaded by. The URL may have a password.
fn refused(text: &str) -> Option<Failure> {
    let url = Url::parse(text).ok().filter(|_| text.contains("://"))?;
    let scheme = url.scheme();
    let is_ours = ["http", "https", "polypath"].contains(&scheme);
    let message = format!("{scheme}:// is not offered; expected http://, https:// or polypath://");
    (!is_ours).then_some(Failure::Input(message))
}

async fn download(
    arguments: &Arguments,
    client: &Client,
    url: &Url,
    interruption: &Interruption,
    report: &TransferReport,
) -> Result<(), Failure> {
    let started = Instant::now();
    let named = file_name(url).unwrap_or_else(|| "index.html".into());
    let place = arguments.output.clone().unwrap_or_else(|| named.into());
    let name = place.display().to_string();
    report.refuse_place(&place)?;
    let file = Transfer::download(url, &place);
    let target = match target(place, arguments.resume) {
        Ok(target) => target,
        Err(error) => {
            let failure = Failure::Input(format!("{name}: can't be written: {error}"));
            report.note(file, 0, Err(&failure));
            return Err(failure);
        }
    };
    let is_quiet = arguments.quiet || matches!(target, Target::Stream(_));
    if !is_quiet && let Target::File { place, resume, .. } = &target {
        Incomplete { place, is_in_ranges: false, resume: *resume }.tell();
    }
    let verify = if arguments.no_verify { Verify::Never } else { Verify::IfTold };
    let download = Download { client, url, verify, refuses_directories: false };
    let mut shown = Shown::new(&name, is_quiet);
    let received = interruption.hold(async |signal| {
        download.run_until(target, signal.wait(), |progress| shown.show(progress)).await
    });
    let received = received.await;
    let (bytes, file) = (shown.bytes(), file.with_history(shown.history()));
    drop(shown);
    let received = received.map_err(|error| download_failure(error, interruption));
    report.note(file, bytes, received.as_ref().map(|received| received.compared));
    match received? {
        received if !received.was_there => summary(client.engine(), &name, received.bytes, started, is_quiet),
        _ if is_quiet => {}
        received => {
            let compared = if received.compared.is_some() { "" } else { ", but was not compared" };
            console::tell(format_args!("{} is complete already{compared}", harmless(&name)));
        }
    }
    Ok(())
}

/// What is no file is written as it comes.
fn target(place: PathBuf, resume: bool) -> io::Result<Target> {
    Ok(match place_of(place)? {
        Place::Stream(file) => Target::Stream(file),
        Place::File(place) => {
            let mut part = place.clone().into_os_string();
            part.push(".part");
            Target::File { part: part.into(), place, resume }
        }
    })
}
