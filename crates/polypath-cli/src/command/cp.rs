//! `polypath cp`.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::web::{
    Client, Digest, Download, DownloadError, EntryKind, Target, Verify, digest_of, encoded, file_body,
    part_name,
};
use clap::Args;
use hyper::header::{ALLOW, WWW_AUTHENTICATE};
use hyper::{Method, StatusCode};
use polypath_config::Policies;
use url::Url;

use super::copy_begun::{MAX_DEPTH, common, entries, is_downloaded, is_uploaded, list, unread};
use super::engine::{EngineArguments, Task};
use super::left_out::LeftOut;
use super::live::LiveArguments;
use super::network::{Interruption, block_on_saving};
use super::shares::Begun;
use super::transfer::{
    Credentials, Patience, Shown, bar, download_failure, failure, file_name, is_plain_name, notices, place,
    refused, summary, survive_file_size_limit, wants_token,
};
use super::transfer_report::{ReportArguments, Transfer, TransferReport};
use super::watch::Telling;
use super::{Failure, complain};

/// A file that is no longer is hashed before it is sent, which takes a fraction of a second.
const MOST_HASHED_FIRST_BYTES: u64 = 64 << 20;

#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// What to copy: files here, or polypath://HOST[:PORT]/PATH
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<String>,
    /// Where it goes: the other kind of place
    #[arg(value_name = "TARGET")]
    target: String,
    /// Copy directories with all that is in them, but symbolic links
    #[arg(short, long)]
    recursive: bool,
    /// Go on with copies that broke off; what is whole at the other end is not sent again
    #[arg(short = 'C', long)]
    resume: bool,
    /// Don't compare SHA-256 sums of both ends
    #[arg(long)]
    no_verify: bool,
    /// With --recursive: take files from a server whose names begin with a dot, too, such as .bashrc
    #[arg(long, requires = "recursive")]
    hidden: bool,
    /// Show nothing but failures
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    report: ReportArguments,
    #[command(flatten)]
    credentials: Credentials,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    live: LiveArguments,
    #[command(flatten)]
    engine: EngineArguments,
}

enum Place {
    Here(PathBuf),
    There(Url),
}

impl Place {
    fn parse(text: &str) -> Result<Self, Failure> {
        if text.contains("://") {
            Client::parse(text).map(Self::There).map_err(failure)
        } else {
            Ok(Self::Here(text.into()))
        }
    }

    /// Where its server is reached.
    fn reached(&self) -> Option<String> {
        match self {
            Self::Here(_) => None,
            Self::There(url) => place(url),
        }
    }

    fn host(&self) -> Option<&str> {
        match self {
            Self::Here(_) => None,
            Self::There(url) => url.host_str(),
        }
    }
}

/// What is wrong if no place is elsewhere: mostly the way in which `scp` names one.
fn all_here<'a>(mut names: impl Iterator<Item = &'a str>) -> String {
    let as_scp = names.find_map(|name| {
        let (host, path) = name.split_once(':')?;
        (!host.is_empty() && !host.contains('/') && !Path::new(name).exists()).then_some((name, host, path))
    });
    match as_scp {
        Some((name, host, path)) => {
            let path = path.trim_start_matches('/');
            format!(
                "{name}: HOST:PATH is not understood; expected polypath://{host}/{path}, below what the server serves"
            )
        }
        None => "all places are on this machine; expected a polypath:// URL on one side".into(),
    }
}

struct Copier<'a> {
    arguments: &'a Arguments,
    client: Client,
    interruption: &'a Interruption,
    report: &'a TransferReport,
    left_out: LeftOut,
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    arguments.report.report(false, |report| copy(arguments, policies, report))
}

fn copy(arguments: &Arguments, policies: &Policies, report: &TransferReport) -> Result<(), Failure> {
    let arguments = &Arguments { engine: arguments.engine.configured(None, policies)?, ..arguments.clone() };
    let target = Place::parse(&arguments.target)?;
    let sources: Vec<Place> =
        arguments.sources.iter().map(|source| Place::parse(source)).collect::<Result<_, _>>()?;
    for source in &sources {
        match (source, &target) {
            (Place::Here(_), Place::Here(_)) => {
                let names = arguments.sources.iter().chain([&arguments.target]);
                return Err(Failure::Input(all_here(names.map(String::as_str))));
            }
            (Place::There(_), Place::There(_)) => {
                return Err(Failure::input(
                    "all places are elsewhere; expected a path of this machine on one side",
                ));
            }
            _ => {}
        }
    }
    let token = arguments.credentials.token()?;
    block_on_saving(async |interruption| {
        let _ignored = survive_file_size_limit().map_err(Failure::run)?;
        let places = sources.iter().chain([&target]);
        let task = arguments.engine.connecting(places.filter_map(Place::host)).await;
        let task = Task { is_quiet: arguments.quiet, ..task };
        let engine = arguments.engine.start(policies, &task).await?;
        report.note_engine(arguments.engine.name_of(&engine));
        let telling = if arguments.quiet { Telling::Silent } else { Telling::OverBar };
        let begun = Begun::connecting(&engine, "server", arguments.engine.asked(), telling);
        let begun = begun.reaching(sources.iter().chain([&target]).find_map(Place::reached));
        let _live = arguments.live.start("polypath cp", &engine)?;
        let client = Client::new(engine.clone()).with_progress_limit(arguments.patience.limit());
        let client = client.with_token(token).with_notices(notices(arguments.quiet));
        let copier = Copier { arguments, client, interruption, report, left_out: LeftOut::default() };
        let copied = copier.copy(&sources, &target).await;
        copier.left_out.tell_hidden();
        if let Err(failure) = copied {
            report.note_shares(&begun, &engine);
            return Err(match failure {
                Failure::Run(message) => Failure::Run(begun.explained(&engine, message)),
                other => other,
            });
        }
        engine.drain(Duration::from_secs(1)).await;
        report.note_shares(&begun, &engine);
        begun.tell(&engine, arguments.quiet);
        copier.left_out.end()
    })
}

impl Copier<'_> {
    async fn copy(&self, sources: &[Place], target: &Place) -> Result<(), Failure> {
        let is_many = sources.len() > 1;
        match target {
            Place::Here(target) if is_many && !target.is_dir() => {
                return Err(Failure::Input(format!(
                    "{}: expected a directory for several files",
                    target.display()
                )));
            }
            Place::There(target) => self.check_writable(target).await?,
            Place::Here(_) => {}
        }
        for source in sources {
            match (source, target) {
                (Place::There(url), Place::Here(path)) => self.download(url, path).await?,
                (Place::Here(path), Place::There(url)) => self.upload(path, url, is_many).await?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Into a directory that exists, or as this name.
    async fn download(&self, url: &Url, target: &Path) -> Result<(), Failure> {
        let into = |name: Option<String>| match name {
            Some(name) if target.is_dir() => target.join(name),
            _ => target.to_path_buf(),
        };
        if self.arguments.recursive {
            // The name is that which was asked for, wherever a redirection leads.
            let (mut url, place) = (url.clone(), into(file_name(url)));
            if !url.path().ends_with('/') {
                let known = self.client.get(Method::HEAD, &url, &[]).await.map_err(failure)?;
                if !known.url.path().ends_with('/') {
                    return self.download_file(&url, &place).await;
                }
                url = known.url;
            }
            let begun = target.is_dir() && place != target && self.arguments.resume && !place.exists();
            if begun && is_downloaded(&self.client, &url, target, self.arguments.hidden).await? {
                self.tell_begun(&target.display().to_string());
                return self.download_directory(&url, target, 0).await;
            }
            return self.download_directory(&url, &place, 0).await;
        }
        match file_name(url).filter(|_| !url.path().ends_with('/')) {
            Some(name) => self.download_file(url, &into(Some(name))).await,
            None => Err(Failure::Input(format!("{url}: a directory; expected --recursive"))),
        }
    }

    async fn download_directory(&self, url: &Url, target: &Path, depth: usize) -> Result<(), Failure> {
        if depth > MAX_DEPTH {
            return Err(Failure::Run(format!("{url}: more than {MAX_DEPTH} directories within each other")));
        }
        fs::create_dir_all(target)
            .map_err(|error| Failure::Input(format!("{}: can't be made: {error}", target.display())))?;
        for entry in list(&self.client, url).await? {
            if !self.takes(url, &entry.name) {
                continue;
            }
            let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
            let next = url.join(&format!("./{}{slash}", encoded(&entry.name))).map_err(Failure::run)?;
            let place = target.join(&entry.name);
            match entry.kind {
                EntryKind::Directory => Box::pin(self.download_directory(&next, &place, depth + 1)).await?,
                EntryKind::File => self.download_file(&next, &place).await?,
            }
        }
        Ok(())
    }

    /// Whether a file may have this name here that the server chose: it must not lead elsewhere, look like another one, or
    /// become a file that programs obey, unless that was asked for.
    fn takes(&self, url: &Url, name: &str) -> bool {
        let problem = if !is_plain_name(name) {
            "which is no name for a file here"
        } else if name.starts_with('.') && !self.arguments.hidden {
            "which is hidden; expected --hidden to take it"
        } else {
            return true;
        };
        self.left_out.note_there(url, name, problem);
        false
    }

    /// The same command went into the target the first time, as it was not there, and would now go into a directory in it.
    fn tell_begun(&self, target: &str) {
        if !self.arguments.quiet {
            complain(&format!("{target}: goes on with the copy that was begun there"));
        }
    }

    /// As `.NAME.part` until it is complete and compared.
    async fn download_file(&self, url: &Url, place: &Path) -> Result<(), Failure> {
        let started = Instant::now();
        let name = place.display().to_string();
        let last = place.file_name().and_then(|last| last.to_str());
        let last = last.ok_or_else(|| Failure::Input(format!("{name}: expected a name for a file")))?;
        let part = place.with_file_name(part_name(last));
        let verify = if self.arguments.no_verify { Verify::Never } else { Verify::Required };
        let download = Download { client: &self.client, url, verify, refuses_directories: true };
        let target = Target::File { place: place.into(), part, resume: self.arguments.resume };
        self.report.refuse_place(place)?;
        let file = Transfer::download(url, place);
        let mut shown = Shown::new(&name, self.arguments.quiet);
        let received = self.interruption.hold(async |signal| {
            download.run_until(target, signal.wait(), |progress| shown.show(progress)).await
        });
        let received = received.await;
        let (bytes, file) = (shown.bytes(), file.with_history(shown.history()));
        drop(shown);
        let received = received.map_err(|error| match error {
            DownloadError::Directory(url) => {
                Failure::Input(format!("{url}: a directory; expected --recursive"))
            }
            error => download_failure(error, self.interruption),
        });
        self.report.note(file, bytes, received.as_ref().map(|received| received.compared));
        summary(self.client.engine(), &name, received?.bytes, started, self.arguments.quiet);
        Ok(())
    }

    /// Finds out before gigabytes are under way.
    async fn check_writable(&self, url: &Url) -> Result<(), Failure> {
        let answer = self.client.get(Method::OPTIONS, url, &[]).await.map_err(failure)?;
        let allowed = answer.response.headers().get(ALLOW).and_then(|field| field.to_str().ok());
        if answer.response.headers().contains_key(WWW_AUTHENTICATE) {
            return Err(wants_token(url, self.client.has_token()));
        }
        if allowed.is_some_and(|methods| methods.split(',').any(|method| method.trim() == "PUT")) {
            return Ok(());
        }
        Err(Failure::Run(format!(
            "{url}: the server stores nothing; expected `polypath serve --writable` there"
        )))
    }

    /// Into a directory that exists there, or as this name.
    async fn upload(&self, source: &Path, target: &Url, is_many: bool) -> Result<(), Failure> {
        let unread =
            |error: io::Error| Failure::Input(format!("{}: can't be read: {error}", source.display()));
        let metadata = fs::metadata(source).map_err(unread)?;
        let mut target = target.clone();
        let has_slash = target.path().ends_with('/');
        if !target.path().ends_with('/') {
            let known = self.client.get(Method::HEAD, &target, &[]).await.map_err(failure)?;
            if known.url.path().ends_with('/') {
                target = known.url;
            }
        }
        if is_many && !target.path().ends_with('/') {
            return Err(Failure::Input(format!("{target}: expected a directory for several files")));
        }
        if target.path().ends_with('/') {
            let whole = source.canonicalize().map_err(unread)?;
            let name = whole.file_name().and_then(|name| name.to_str());
            let name =
                name.ok_or_else(|| Failure::Input(format!("{}: no name in UTF-8", source.display())))?;
            let inner = target.join(&format!("./{}", encoded(name))).map_err(Failure::run)?;
            // What was named without a slash may not have been there before the copy that broke off.
            let may_be_begun =
                self.arguments.resume && metadata.is_dir() && !has_slash && !self.is_there(&inner).await?;
            if may_be_begun && is_uploaded(&self.client, source, &target).await? {
                self.tell_begun(target.as_str());
            } else {
                target = inner;
            }
        }
        match (metadata.is_dir(), self.arguments.recursive) {
            (false, _) => self.upload_file(source, &target).await.map_err(|unsent| unsent.failure),
            (true, true) => self.upload_directory(source, &target, 0).await,
            (true, false) => {
                Err(Failure::Input(format!("{}: a directory; expected --recursive", source.display())))
            }
        }
    }

    async fn is_there(&self, url: &Url) -> Result<bool, Failure> {
        let known = self.client.get(Method::HEAD, url, &[]).await.map_err(failure)?;
        Ok(known.response.status().is_success())
    }

    /// A file that can't be read, or that the server refuses, does not stop the others.
    async fn upload_directory(&self, source: &Path, target: &Url, depth: usize) -> Result<(), Failure> {
        if depth > MAX_DEPTH {
            return Err(Failure::Input(format!("{}: too deep, or a link to above", source.display())));
        }
        let mut below = target.clone();
        below.set_path(&format!("{}/", target.path().trim_end_matches('/')));
        for entry in entries(source)? {
            let path = entry.path();
            let shown = path.display();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                self.left_out.note_here(&format!("{shown}: left out, no name in UTF-8"));
                continue;
            };
            let next = below.join(&format!("./{}", encoded(name))).map_err(Failure::run)?;
            if self.left_out.has_hidden() && is_hidden(&next) {
                self.left_out.note_hidden(shown.to_string());
                continue;
            }
            let kind = entry.file_type().map_err(|error| unread(&path, &error))?;
            if kind.is_dir() {
                Box::pin(self.upload_directory(&path, &next, depth + 1)).await?;
                continue;
            }
            if !kind.is_file() {
                let what = if kind.is_symlink() { "it is a symbolic link" } else { "it is no file" };
                self.left_out.note_here(&format!("{shown}: left out, {what}"));
                continue;
            }
            match self.upload_file(&path, &next).await {
                Err(Unsent { extent: Extent::Forbidden, .. }) if is_hidden(&next) => {
                    self.left_out.note_hidden(shown.to_string());
                }
                Err(Unsent { extent: Extent::All, failure }) => return Err(failure),
                Err(Unsent { failure: Failure::Input(message) | Failure::Run(message), .. }) => {
                    self.left_out.note_here(&message);
                }
                Err(Unsent { failure, .. }) => return Err(failure),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    async fn upload_file(&self, source: &Path, target: &Url) -> Result<(), Unsent> {
        let file = Transfer::upload(source, target);
        let sent = Cell::new(0);
        let uploaded = self.send_file(source, target, &sent).await;
        let result = uploaded.as_ref().copied().map_err(|unsent| &unsent.failure);
        self.report.note(file, sent.get(), result);
        uploaded.map(drop)
    }

    /// The SHA-256 that both ends have, if that was compared.
    async fn send_file(
        &self,
        source: &Path,
        target: &Url,
        sent_bytes: &Cell<u64>,
    ) -> Result<Option<Digest>, Unsent> {
        let started = Instant::now();
        let name = source.display().to_string();
        let unread = |error: io::Error| unread(source, &error);
        let file = fs::File::open(source)
            .map_err(|error| Unsent { failure: unread(error), extent: Extent::File })?;
        let metadata = file.metadata().map_err(unread)?;
        if !metadata.is_file() {
            return Err(Failure::Input(format!("{name}: expected a file")).into());
        }
        let total = metadata.len();
        if self.arguments.resume
            && let Some(digest) = common(&self.client, source, target).await?
        {
            summary(self.client.engine(), &name, 0, started, self.arguments.quiet);
            return Ok(Some(digest));
        }
        let first = if self.arguments.resume { self.present(source, total, target).await? } else { 0 };
        let mut fields = vec![("content-length", (total - first).to_string())];
        if first > 0 {
            fields.push(("content-range", format!("bytes {first}-{}/{total}", total - 1)));
        }
        // Before it is sent if that takes no time, and then the server keeps nothing that differs; else afterwards.
        let is_first = total <= MOST_HASHED_FIRST_BYTES && !self.arguments.no_verify;
        let told = if is_first { Some(digest_of(source, None).await.map_err(unread)?) } else { None };
        fields.extend(told.map(|told| ("repr-digest", told.to_field())));
        let bar = bar(&name, Some(total), first, self.arguments.quiet);
        let progress = bar.clone();
        let body = file_body(file, first, total - first, move |bytes| progress.inc(bytes)).map_err(unread)?;
        let stored = self.interruption.hold(async |signal| {
            tokio::select! {
                stored = self.client.put(target, &fields, body) => Some(stored),
                () = signal.wait() => None,
            }
        });
        let stored = stored.await;
        // Its end moves it to the end.
        let sent = bar.position();
        sent_bytes.set(sent.saturating_sub(first));
        bar.finish_and_clear();
        let Some(stored) = stored else {
            complain(&format!(
                "{name}: interrupted; {sent} of {total} bytes were sent; --resume goes on from what the server has kept"
            ));
            return Err(self.interruption.exit().into());
        };
        let stored = stored.map_err(failure)?;
        if !stored.response.status().is_success() {
            let extent = match stored.response.status() {
                StatusCode::FORBIDDEN => Extent::Forbidden,
                StatusCode::UNAUTHORIZED => Extent::All,
                status if status.is_client_error() => Extent::File,
                _ => Extent::All,
            };
            let failure = refused(target, stored, self.client.has_token()).await;
            return Err(Unsent { failure, extent });
        }
        let mut compared = None;
        if !self.arguments.no_verify {
            let own = match told {
                Some(told) => told,
                None => digest_of(source, None).await.map_err(unread)?,
            };
            compare(stored.digest(), own, target)?;
            compared = Some(own);
        }
        summary(self.client.engine(), &name, total - first, started, self.arguments.quiet);
        Ok(compared)
    }

    /// How many bytes of the file are there already, from an upload that broke off.
    async fn present(&self, source: &Path, total: u64, target: &Url) -> Result<u64, Failure> {
        let Some(name) = file_name(target) else { return Ok(0) };
        let part = target.join(&format!("./{}", encoded(&part_name(&name)))).map_err(Failure::run)?;
        let known = self.client.describe(&part).await.map_err(failure)?;
        let there = known.content_length().filter(|_| known.response.status().is_success()).unwrap_or(0);
        // An end without a byte to send can't be said in HTTP.
        if there == 0 || there >= total {
            return Ok(0);
        }
        let own = digest_of(source, Some(there))
            .await
            .map_err(|error| Failure::Input(format!("{}: can't be read: {error}", source.display())))?;
        Ok(if known.digest() == Some(own) { there } else { 0 })
    }
}

/// Why a file was not sent.
struct Unsent {
    failure: Failure,
    extent: Extent,
}

/// What else can't be sent for the same reason.
enum Extent {
    /// What is hidden, if this is.
    Forbidden,
    File,
    All,
}

impl From<Failure> for Unsent {
    fn from(failure: Failure) -> Self {
        Self { failure, extent: Extent::All }
    }
}

/// Something in its path begins with a dot.
fn is_hidden(url: &Url) -> bool {
    url.path().split('/').any(|name| name.starts_with('.'))
}

/// A server that tells no digest is not ours; what it has can't be compared.
fn compare(told: Option<Digest>, own: Digest, url: &Url) -> Result<(), Failure> {
    match told {
        Some(told) if told == own => Ok(()),
        Some(_) => {
            Err(Failure::Run(format!("{url}: the copy differs from the original; expected the same SHA-256")))
        }
        None => Err(Failure::Run(format!(
            "{url}: the server tells no SHA-256; expected --no-verify for such a server"
        ))),
    }
}
