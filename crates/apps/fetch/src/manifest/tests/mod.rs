mod dash;
mod hls;
mod hostile;
mod local;

use std::collections::HashMap;
use std::time::SystemTime;

use url::Url;

use super::{Error, Manifest, Presentation};

pub(super) fn url(text: &str) -> Url {
    Url::parse(text).expect("a URL")
}

/// Gives a manifest what it asks for, by path.
pub(super) fn feed(manifest: &mut Manifest, files: &HashMap<&str, &[u8]>) -> Result<(), Error> {
    while let Some(resource) = manifest.poll_fetch() {
        let file = files.get(resource.url().path()).unwrap_or_else(|| panic!("no file {resource}"));
        let bytes =
            resource.range().map_or(*file, |range| &file[range.first() as usize..=range.last() as usize]);
        manifest.handle_fetched(&resource, resource.url(), bytes)?;
    }
    Ok(())
}

/// Reads the manifest `at`, with what it asks for.
pub(super) fn read(
    at: &str,
    files: &[(&'static str, &str)],
    now: SystemTime,
) -> Result<(Manifest, Presentation), Error> {
    let files: HashMap<&str, &[u8]> = files.iter().map(|(path, text)| (*path, text.as_bytes())).collect();
    let at = url(at);
    let mut manifest = Manifest::parse(files[at.path()], &at, None)?;
    feed(&mut manifest, &files)?;
    let presentation = manifest.presentation(now)?;
    Ok((manifest, presentation))
}
