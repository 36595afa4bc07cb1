use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;

/// Time that an attempt has before the next address is tried as well (RFC 8305 §8).
const STAGGER: Duration = Duration::from_millis(250);

/// Puts the families in turn, beginning with that of the first address (RFC 8305 §4).
pub(super) fn in_turn(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let begins_v4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|addr| addr.is_ipv4() == begins_v4);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut ordered = Vec::new();
    loop {
        let pair = [first.next(), second.next()];
        if pair == [None, None] {
            return ordered;
        }
        ordered.extend(pair.into_iter().flatten());
    }
}

/// The first of the addresses that answers; the next one is tried when one fails, or after a quarter of a second (RFC 8305 §5). Attempts
/// that lose are dropped. The error has what failed, in that order.
pub(super) async fn race<T, F>(
    addresses: &[SocketAddr],
    attempt: impl Fn(SocketAddr) -> F,
) -> Result<T, Vec<(SocketAddr, io::Error)>>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let mut waiting = addresses.iter().copied();
    let (mut running, mut failures) = (JoinSet::new(), Vec::new());
    loop {
        if let Some(address) = waiting.next() {
            let attempt = attempt(address);
            running.spawn(async move { (address, attempt.await) });
        }
        tokio::select! {
            biased;
            joined = running.join_next() => match joined {
                Some(Ok((_, Ok(stream)))) => return Ok(stream),
                Some(Ok((address, Err(error)))) => failures.push((address, error)),
                Some(Err(_)) => {}
                None => return Err(failures),
            },
            () = tokio::time::sleep(STAGGER), if waiting.len() > 0 => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::time::{Instant, sleep};

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn families_take_turns() {
        let ordered = in_turn(addresses(&["[::1]:1", "[::2]:1", "1.1.1.1:1", "[::3]:1"]));
        assert_eq!(ordered, addresses(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"]));
        assert_eq!(in_turn(Vec::new()), []);
    }

    /// Milliseconds after which each address was tried, and what came of it all; the ports say after how many milliseconds they answer.
    async fn raced(ports: &[u16], fails: fn(u16) -> bool) -> (Vec<u128>, Result<u16, Vec<u16>>) {
        let (began, tried) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
        let list: Vec<SocketAddr> = ports.iter().map(|port| ([127, 0, 0, 1], *port).into()).collect();
        let result = race(&list, |address| {
            tried.lock().unwrap().push(began.elapsed().as_millis());
            async move {
                sleep(Duration::from_millis(address.port().into())).await;
                if fails(address.port()) {
                    Err(io::ErrorKind::ConnectionRefused.into())
                } else {
                    Ok(address.port())
                }
            }
        });
        let result = result.await.map_err(|failures| failures.iter().map(|(addr, _)| addr.port()).collect());
        let tried = tried.lock().unwrap().clone();
        (tried, result)
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_address_has_its_turn_after_a_quarter_of_a_second() {
        assert_eq!(raced(&[100, 1], |_| false).await, (vec![0], Ok(100)));
        assert_eq!(raced(&[5000, 1000, 10], |_| false).await, (vec![0, 250, 500], Ok(10)));
        assert_eq!(raced(&[400, 1000], |_| false).await, (vec![0, 250], Ok(400)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_address_has_its_turn_at_once_when_one_fails() {
        assert_eq!(raced(&[10, 20, 30], |port| port < 30).await, (vec![0, 10, 30], Ok(30)));
        assert_eq!(raced(&[300, 10], |_| true).await, (vec![0, 250], Err(vec![10, 300])));
        assert_eq!(raced(&[], |_| true).await, (vec![], Err(vec![])));
    }
}
