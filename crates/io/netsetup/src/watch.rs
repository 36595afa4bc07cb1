//! Waits for changes of interfaces, addresses and default routes.

use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use polypath_system::Namespace;
use rtnetlink::MulticastGroup;

/// Changes come in bursts: an interface that comes up gets its addresses and routes within this time.
const QUIET: Duration = Duration::from_millis(100);

/// Tells when the network has changed.
#[derive(Debug)]
pub(crate) struct Watch {
    changes: tokio::sync::mpsc::Receiver<()>,
    tasks: [tokio::task::AbortHandle; 2],
}

impl Watch {
    /// Watches a namespace.
    ///
    /// Must be called within a tokio runtime.
    pub(crate) fn new(namespace: &Namespace) -> io::Result<Self> {
        let groups = [
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
        ];
        let runtime = tokio::runtime::Handle::current();
        let (connection, _, mut messages) = namespace.run(|| {
            let _entered = runtime.enter();
            rtnetlink::new_multicast_connection(&groups)
        })??;
        let (sender, changes) = tokio::sync::mpsc::channel(1);
        let connection = tokio::spawn(connection);
        let messages = tokio::spawn(async move {
            while messages.next().await.is_some() {
                // A change that is not taken yet covers this one too.
                let _ = sender.try_send(());
            }
        });
        Ok(Self { changes, tasks: [connection.abort_handle(), messages.abort_handle()] })
    }

    /// Waits until something has changed and nothing more follows at once. None if the system tells no more.
    pub(crate) async fn changed(&mut self) -> Option<()> {
        self.changes.recv().await?;
        while let Ok(Some(())) = tokio::time::timeout(QUIET, self.changes.recv()).await {}
        Some(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}
