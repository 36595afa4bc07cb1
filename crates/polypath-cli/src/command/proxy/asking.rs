//! Other commands ask the proxies that run, all at once.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::status::PROXIES;

/// One that was asked.
pub(in crate::command) struct AskedProxy {
    /// Its socket, by which it is known while it runs.
    pub(in crate::command) path: PathBuf,
    pub(in crate::command) name: String,
}

/// What those say to a word that this user may ask, in so many bytes at most, each within a time: whose socket it is may be anybody's.
pub(in crate::command) async fn ask_all<T: DeserializeOwned>(
    word: &str,
    most_bytes: u64,
    patience: Duration,
) -> Vec<(AskedProxy, io::Result<T>)> {
    let asked = PROXIES.places().into_iter().map(async |path| {
        let answer = tokio::time::timeout(patience, ask(&path, word, most_bytes)).await;
        let name = PROXIES.name_of(path.file_name()?.to_str()?)?.to_owned();
        Some((AskedProxy { path, name }, answer.map_err(io::Error::from).flatten()))
    });
    join_all(asked).await.into_iter().flatten().collect()
}

async fn ask<T: DeserializeOwned>(path: &Path, word: &str, most_bytes: u64) -> io::Result<T> {
    let mut stream = UnixStream::connect(path).await?;
    stream.write_all(format!("{word}\n").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(most_bytes).read_to_end(&mut answer).await?;
    Ok(serde_json::from_slice(&answer)?)
}
