//! Downloads in ranges: parts of one file over each interface at once, on the system's TCP. A server needs nothing for it that most do not
//! have.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use polypath_config::quantity::parse_rate;
use polypath_fetch::answer::{Digest, DigestAlgorithm};
use polypath_fetch::download::{self, DownloadError, Options, Pool, Target};
use polypath_fetch::metalink::File;
use polypath_system::console;
use polypath_units::BitRate;
use url::Url;

use super::http_arguments::HttpArguments;
use super::incomplete::Incomplete;
use super::interfaces::{Asked, Budget};
use super::network::{Interruption, block_on_saving};
use super::range_job::{Job, sha256};
use super::range_metalink;
use super::range_mirrors::mirrors;
use super::range_ways::{Offer, Ways};
use super::ranges_many::Many;
use super::ranges_shown::Shown;
use super::readiness::{self, Wanted};
use super::transfer::{Place, bytes_in_time, file_name, place_of, survive_file_size_limit};
use super::transfer_report::{Transfer, TransferReport};
use super::{Failure, complain};

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Ranges")]
pub(super) struct RangeArguments {
    /// Fetch parts of a file over each interface at once, by the system's TCP, from any server that has ranges; https:// always does,
    /// and --live does not go with it. The options below are for this only
    #[arg(long)]
    ranges: bool,
    /// Fetch several files at the same time
    #[arg(short = 'Z', long)]
    parallel: bool,
    /// With --parallel, at most so many
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=300))]
    parallel_max: u16,
    /// Another place of the file, for when the URL's server is of no use; where --checksum or the https:// server tells a digest, for
    /// pieces at the same time; repeatable
    #[arg(long = "mirror", value_name = "URL")]
    mirrors: Vec<String>,
    #[command(flatten)]
    http: HttpArguments,
    /// Fetch no faster, all interfaces together, for example 40mbit
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    limit_rate: Option<BitRate>,
    /// Ask again so often, when a server can't be reached or can't answer now
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    retry: u32,
    /// Give up when it is not done after so long
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    max_time: Option<Duration>,
    /// What the file has to be, as sha-256=HEX or sha-512=HEX; repeatable
    #[arg(long, value_name = "KIND=HEX", value_parser = parse_checksum)]
    checksum: Vec<Digest>,
}

impl RangeArguments {
    /// Whether these files are fetched so: somebody said it, or nothing else can.
    pub(super) fn are_wanted(&self, urls: &[Url]) -> Result<bool, Failure> {
        if self.ranges || urls.iter().any(|url| matches!(url.scheme(), "https" | "file")) {
            return Ok(true);
        }
        let of_ranges = [
            ("--parallel", self.parallel),
            ("--mirror", !self.mirrors.is_empty()),
            ("--limit-rate", self.limit_rate.is_some()),
            ("--retry", self.retry > 0),
            ("--max-time", self.max_time.is_some()),
            ("--checksum", !self.checksum.is_empty()),
        ];
        let mut given = self.http.given().into_iter().chain(of_ranges);
        match given.find(|(_, is_given)| *is_given) {
            Some((name, _)) => {
                Err(Failure::Input(format!("{name} is for downloads in ranges; expected --ranges with it")))
            }
            None => Ok(false),
        }
    }

    /// Fetches them, one after another.
    pub(super) fn get(&self, job: &Job<'_>, report: &TransferReport) -> Result<(), Failure> {
        let tls = self.http.tls()?;
        look_at_interfaces(&job.asked, "downloads in ranges")?;
        let cookies = self.http.cookies()?;
        let options = Options { cookies: cookies.cookies(), ..self.options(job)? };
        let proxy = self.http.proxy()?;
        let many = if self.parallel && job.urls.len() > 1 { Some(self.many(job)?) } else { None };
        cookies.end(block_on_saving(async |interruption| {
            let _ignored = survive_file_size_limit().map_err(Failure::run)?;
            report.note_engine("ranges");
            let offer = Offer { tls, proxy, asked: job.asked.clone(), pool: Pool::default() };
            if let Some(many) = many {
                return many.get(&options, &offer, interruption, report).await;
            }
            let mut failures = Vec::new();
            for url in job.urls {
                let found = wanted(job, url, &options, &offer, interruption).await;
                let results = match found {
                    Ok((wanted, left_out)) => {
                        failures.extend(left_out);
                        let mut results = Vec::new();
                        for (name, url, options) in &wanted {
                            let result = fetch(job, (name, url), options, &offer, interruption, report).await;
                            let is_over = matches!(result, Err(Failure::Exit(_)));
                            results.push(result);
                            if is_over {
                                break;
                            }
                        }
                        results
                    }
                    Err(failure) => vec![Err(failure)],
                };
                for result in results {
                    match result {
                        Ok(()) => {}
                        // The others may still be had.
                        Err(Failure::Input(message) | Failure::Run(message)) => failures.push(message),
                        Err(exit @ Failure::Exit(_)) => return Err(exit),
                    }
                }
            }
            let last = failures.pop();
            failures.iter().for_each(|message| complain(message));
            last.map_or(Ok(()), |message| Err(Failure::Run(message)))
        }))
    }

    /// Several at the same time.
    fn many(&self, job: &Job<'_>) -> Result<Many, Failure> {
        if job.urls.iter().any(range_metalink::is_one) {
            let problem = "a Metalink is for one file after another; expected it without --parallel";
            return Err(Failure::input(problem));
        }
        let alone = [("--limit-rate", self.limit_rate.is_some()), ("--http2", self.http.wants_http2())];
        if let Some((name, _)) = alone.into_iter().find(|(_, is_given)| *is_given) {
            let problem = "is for one file after another; expected it without --parallel";
            return Err(Failure::Input(format!("{name} {problem}")));
        }
        Many::new(job, self.parallel_max)
    }

    fn options(&self, job: &Job<'_>) -> Result<Options, Failure> {
        let mirrors = mirrors(&self.mirrors, job.urls)?;
        let mut fields = self.http.fields()?;
        if let Some(token) = job.token.as_ref().filter(|_| !self.http.has_user()) {
            fields.push(("Authorization".into(), format!("Bearer {}", token.reveal())));
        }
        Ok(Options {
            fields,
            mirrors,
            digests: self.checksum.clone(),
            verifies: job.verifies,
            is_unverified: self.http.is_unverified(),
            retries: self.retry,
            silence: job.silence,
            most_time: self.max_time,
            most_rate: self.limit_rate.map(|rate| rate.as_bps() / 8),
            ..Options::default()
        })
    }
}

/// What is left out for its budget, which nobody would keep. Backups may come later; that none of them is there is a mistake, as it
/// is with engines.
pub(super) fn look_at_interfaces(asked: &Asked, what: &str) -> Result<(), Failure> {
    if let Some(Budget { name, .. }) = asked.budgets.first() {
        let has_budget = |name: &String| asked.budgets.iter().any(|budget| budget.name == *name);
        if !asked.only.is_empty() && asked.only.iter().all(has_budget) {
            return Err(Failure::Input(format!(
                "{name}: {what} have no budgets; expected -I without budget="
            )));
        }
        let backup = if asked.backups.contains(name) { ",backup" } else { "" };
        complain(&format!(
            "{name} is left out: {what} keep no budgets (-I {name}{backup} uses it without one)"
        ));
    }
    if asked.backups.is_empty() {
        return Ok(());
    }
    let wanted =
        Wanted { named: asked.backups.clone(), peers: &[], is_for_anybody: false, has_all_tables: true };
    readiness::look(&wanted)?.iter().for_each(|line| complain(line));
    Ok(())
}

/// The files that a URL stands for: names, places, and how each is fetched; and what is left out of them.
async fn wanted(
    job: &Job<'_>,
    url: &Url,
    options: &Options,
    offer: &Offer,
    interruption: &Interruption,
) -> Result<(Vec<(String, Url, Options)>, Option<String>), Failure> {
    if !range_metalink::is_one(url) {
        let named = file_name(url).unwrap_or_else(|| "index.html".into());
        return Ok((vec![(named, url.clone(), options.clone())], None));
    }
    let metalink = range_metalink::read(url, options, offer, interruption).await?;
    let left_out = range_metalink::left_out(&metalink, url);
    let files = metalink.files;
    if files.len() > 1 && (job.output.is_some() || !options.digests.is_empty()) {
        let problem = "--output and --checksum are of one file; expected a Metalink of one with them";
        return Err(Failure::input(problem));
    }
    let of_file = |file: File| {
        let (place, options) = range_metalink::options_of(&file, url, options);
        (file.name, place, options)
    };
    Ok((files.into_iter().map(of_file).collect(), left_out))
}

async fn fetch(
    job: &Job<'_>,
    (named, url): (&str, &Url),
    options: &Options,
    offer: &Offer,
    interruption: &Interruption,
    report: &TransferReport,
) -> Result<(), Failure> {
    let started = Instant::now();
    let place = job.output.map_or_else(|| named.into(), Path::to_path_buf);
    let name = place.display().to_string();
    report.refuse_place(&place)?;
    // A Metalink from elsewhere chose the name: it replaces nothing.
    if range_metalink::is_from_elsewhere(options) && job.output.is_none() && !job.resume && place.exists() {
        let problem =
            "is there already, and the Metalink chose that name; expected -o FILE, or that file away";
        return Err(Failure::Input(format!("{name} {problem}")));
    }
    let file = Transfer::download(url, &place);
    let (target, is_stream) = match target(place, job.resume) {
        Ok(target) => target,
        Err(error) => {
            let failure = Failure::Input(format!("{name}: can't be written: {error}"));
            report.note(file, 0, Err(&failure));
            return Err(failure);
        }
    };
    if is_stream && options.pieces.is_some() && options.digests.is_empty() {
        let problem = "the Metalink has digests of pieces alone, which nobody can compare on the way to standard output";
        let failure = Failure::Input(format!("{name}: {problem}; expected -o FILE"));
        report.note(file, 0, Err(&failure));
        return Err(failure);
    }
    if !job.is_quiet
        && let Target::File { place, resume } = &target
    {
        Incomplete { place, is_in_ranges: true, resume: *resume }.tell();
    }
    let (ways, coming) = Ways::to(url, offer).await;
    let mut shown = Shown::new(&name, job.is_quiet || is_stream, job.is_quiet, ways, report);
    let fetched = interruption.hold(async |signal| {
        let progress = |progress| shown.show(progress);
        download::download(url.clone(), options, coming, target, signal.wait(), progress).await
    });
    let fetched = fetched.await;
    let (bytes, shares) = (shown.bytes(), shown.shares());
    let file = file.with_history(shown.take_history());
    drop(shown);
    let fetched = fetched.map_err(|error| failure(&name, error, interruption));
    let file = match &fetched {
        Ok(done) => file.that_came_from(&done.url),
        Err(_) => file,
    };
    report.note(file, bytes, fetched.as_ref().map(|done| sha256(&done.compared)));
    if let Some(shares) = &shares {
        report.note_range_shares(shares.clone());
    }
    let done = fetched?;
    if !job.is_quiet && !is_stream {
        let line = bytes_in_time(&name, bytes, started);
        match done.total_bytes.saturating_sub(bytes) {
            0 => console::tell(line),
            before => console::tell(format_args!("{line}; {before} bytes were there")),
        }
    }
    if !job.is_quiet
        && let Some(shares) = shares
    {
        console::tell(shares);
    }
    Ok(())
}

fn failure(name: &str, error: DownloadError, interruption: &Interruption) -> Failure {
    match error {
        DownloadError::Interrupted { ref kept } => {
            if kept.is_some() {
                complain(&format!("{name}: {error}"));
            }
            interruption.exit()
        }
        DownloadError::Request(_) => Failure::input(error),
        _ => Failure::run(error),
    }
}

/// What is no file is written in order as it comes.
fn target(place: PathBuf, resume: bool) -> io::Result<(Target, bool)> {
    Ok(match place_of(place)? {
        Place::File(place) => (Target::File { place, resume }, false),
        Place::Stream(file) => (Target::Stream(Box::new(tokio::fs::File::from_std(file))), true),
    })
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let expected = "expected seconds, such as 90 or 0.5";
    let seconds: f64 = text.parse().map_err(|_| format!("it is no number; {expected}"))?;
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| format!("it is no time that fits; {expected}"))
}

fn parse_checksum(text: &str) -> Result<Digest, String> {
    let expected = "expected sha-256= or sha-512= and hexadecimal digits";
    let (kind, digits) = text.split_once('=').ok_or_else(|| format!("it names no kind; {expected}"))?;
    let algorithms = [DigestAlgorithm::Sha256, DigestAlgorithm::Sha512];
    let found = algorithms.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(kind));
    let algorithm = found.ok_or_else(|| format!("\"{kind}\" is unknown; {expected}"))?;
    let wrong = || format!("{kind} has {} digits; \"{digits}\" is none", 2 * algorithm.length());
    Digest::from_hex(algorithm, digits).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_have_all_their_digits() {
        let digits = "0a".repeat(32);
        let digest = parse_checksum(&format!("SHA-256={digits}")).unwrap();
        assert_eq!((digest.algorithm, digest.value), (DigestAlgorithm::Sha256, vec![10; 32]));
        for text in [digits.as_str(), "md5=00", "sha-256=00", &format!("sha-256={}", "x".repeat(64))] {
            assert!(parse_checksum(text).is_err(), "{text}");
        }
        // No boundary of a character is in the middle of a digit.
        assert!(parse_checksum(&format!("sha-256={}", "ä".repeat(32))).is_err());
    }

    #[test]
    fn options_of_ranges_want_ranges() {
        let url = |text: &str| vec![Url::parse(text).unwrap()];
        let (plain, secure) = (url("http://192.0.2.1/a"), url("https://192.0.2.1/a"));
        let none = RangeArguments::default();
        assert!(!none.are_wanted(&plain).unwrap_or(true));
        assert!(none.are_wanted(&secure).unwrap_or(false));
        let some = RangeArguments { retry: 1, ..none };
        assert!(some.are_wanted(&secure).unwrap_or(false));
        let refused = some.are_wanted(&plain);
        assert!(matches!(refused, Err(Failure::Input(message)) if message.contains("--retry")));
    }
}
