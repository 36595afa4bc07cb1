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
pub struct Watch {
    changes: tokio::sync::mpsc::Receiver<()>,
    /// Something has changed that nobody was told yet.
    has_changed: bool,
    tasks: [tokio::task::AbortHandle; 2],
}

impl Watch {
    /// Watches a namespace.
    ///
    /// Must be called within a tokio runtime.
    pub fn new(namespace: &Namespace) -> io::Result<Self> {
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
        Ok(Self { changes, has_changed: false, tasks: [connection.abort_handle(), messages.abort_handle()] })
    }

    /// Waits until something has changed and nothing more follows at once. None if the system tells no more. Whoever stops waiting is told
    /// the next time.
    pub async fn changed(&mut self) -> Option<()> {
        if !self.has_changed {
            self.changes.recv().await?;
            self.has_changed = true;
        }
        while let Ok(Some(())) = tokio::time::timeout(QUIET, self.changes.recv()).await {}
        self.has_changed = false;
        Some(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use polypath_testbed::{Testbed, is_root_or_skip};

    use super::*;

    #[tokio::test]
    async fn what_changes_while_somebody_stops_waiting_is_told_later() {
        let (sender, changes) = tokio::sync::mpsc::channel(1);
        let tasks = [(); 2].map(|()| tokio::spawn(async {}).abort_handle());
        let mut watch = Watch { changes, has_changed: false, tasks };
        sender.send(()).await.unwrap();
        // It is taken, and then given up before it is known that nothing more follows.
        let polled = std::future::poll_fn(|cx| {
            let waiting = std::pin::pin!(watch.changed());
            std::task::Poll::Ready(waiting.poll(cx).is_pending())
        });
        assert!(polled.await);
        assert_eq!(watch.changed().await, Some(()));
    }

    /// Far more than the socket has room for.
    const CHANGES: u32 = 4000;

    fn ip(namespace: &Namespace, commands: &str) {
        let mut ip = Command::new("ip");
        ip.args(["-batch", "-"]).stdin(Stdio::piped());
        let mut running = namespace.run(|| ip.spawn()).expect("the namespace").expect("iproute2");
        let mut input = running.stdin.take().expect("a pipe");
        input.write_all(commands.as_bytes()).expect("it reads");
        drop(input);
        assert!(running.wait().expect("it ends").success());
    }

    /// Messages that the system had no room for, by all sockets of the namespace.
    fn lost(namespace: &Namespace) -> u64 {
        let table = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/netlink"));
        let table = table.expect("the namespace").expect("its sockets");
        table.lines().filter_map(|line| line.split_whitespace().nth(8)?.parse::<u64>().ok()).sum()
    }

    #[tokio::test]
    async fn more_changes_than_the_system_keeps_are_a_change_and_no_end() {
        if !is_root_or_skip("changes of the network") {
            return;
        }
        let testbed = Testbed::new(1).expect("namespaces");
        let mut watch = Watch::new(&testbed.client).expect("a watch");
        // Nothing is read meanwhile: this is the only thread.
        let flood: String =
            (0..CHANGES).map(|n| format!("addr add 10.200.{}.{}/32 dev lo\n", n / 250, n % 250)).collect();
        ip(&testbed.client, &flood);
        assert!(lost(&testbed.client) > 0, "there was room for all of them");
        assert_eq!(watch.changed().await, Some(()));
        ip(&testbed.client, "addr add 10.201.0.1/32 dev lo\n");
        assert_eq!(watch.changed().await, Some(()), "it goes on");
    }
}
