//! Figures of proxies: of those that run, by their sockets, and of the one that this process is.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use polypath_control::Peer;
use polypath_metrics::{ProxySample, Totals};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::command::proxy::{Figures, PROXIES};

/// How long a proxy may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// An answer is no longer; whose socket it is may be anybody's.
const MOST_ANSWER_BYTES: u64 = 1 << 18;

/// Asks those of these that are proxies, all at once.
pub(super) async fn refresh(peers: &[Peer], totals: &mut Totals) {
    let proxies: Vec<(&Path, &str)> =
        peers.iter().filter_map(|peer| Some((peer.path(), name(peer.path())?))).collect();
    let answers = join_all(proxies.iter().map(|(path, _)| ask(path))).await;
    let (mut samples, mut silent) = (Vec::new(), Vec::new());
    for ((path, name), answer) in proxies.into_iter().zip(answers) {
        let source = path.display().to_string();
        match answer {
            Ok(figures) => samples.push(figures.sample(source, name)),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => silent.push(source),
            // It has ended, or is of a version that does not know the question.
            Err(_) => {}
        }
    }
    totals.update_proxies(samples, &silent);
}

/// What the proxy is called whose socket this is, if it is one's.
pub(super) fn name(path: &Path) -> Option<&str> {
    PROXIES.name_of(path.file_name()?.to_str()?)
}

async fn ask(path: &Path) -> io::Result<Figures> {
    let asked = async {
        let mut stream = UnixStream::connect(path).await?;
        stream.write_all(b"figures\n").await?;
        let mut answer = Vec::new();
        stream.take(MOST_ANSWER_BYTES).read_to_end(&mut answer).await?;
        Ok(serde_json::from_slice(&answer)?)
    };
    tokio::time::timeout(PATIENCE, asked).await?
}

/// The proxy that this process is, once it is one.
#[derive(Clone, Default)]
pub(in crate::command) struct OwnProxy(Arc<OnceLock<Box<dyn Fn() -> ProxySample + Send + Sync>>>);

impl fmt::Debug for OwnProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnProxy").field(&self.0.get().is_some()).finish()
    }
}

impl OwnProxy {
    /// From now on it has figures. Only the first one counts.
    pub(in crate::command) fn set(&self, sample: impl Fn() -> ProxySample + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(sample));
    }

    pub(super) fn refresh(&self, totals: &mut Totals) {
        let sample = self.0.get().map(|sample| sample());
        totals.update_proxies(sample.into_iter().collect(), &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_known_by_its_socket() {
        assert_eq!(name(Path::new("/run/polypath/proxy-a.b.sock")), Some("a.b"));
        for other in ["/run/polypath/1234.sock", "/run/polypath/tunnel-a.sock", "/proxy-", "/"] {
            assert_eq!(name(Path::new(other)), None, "{other}");
        }
    }
}
