//! The option `--metrics` of commands that run for long.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use polypath_metrics::{LinkSample, Totals};
use tokio::net::TcpListener;

use super::collect::{Collector, Own, Source};
use super::proxies::OwnProxy;
use super::scrape::serve;
use crate::command::Failure;
use crate::command::offered::Offered;

/// Where figures are offered while a command runs.
#[derive(Clone, Debug, Args)]
pub(in crate::command) struct MetricsArguments {
    /// Offer figures to Prometheus while the command runs; a port alone stands for 127.0.0.1
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = parse_listen)]
    metrics: Option<SocketAddr>,
}

impl MetricsArguments {
    /// Somebody wants figures.
    pub(in crate::command) fn is_given(&self) -> bool {
        self.metrics.is_some()
    }

    /// Offers the figures of a stack, and of the proxy that runs over it if there is one, as long as the runtime lasts. Must be called within a
    /// tokio runtime.
    pub(in crate::command) fn offer(&self, offered: &Offered, proxy: &OwnProxy) -> Result<(), Failure> {
        let Some(at) = self.metrics else { return Ok(()) };
        tokio::spawn(serve(bind("--metrics", at)?, Collector::new(Own(offered.clone(), proxy.clone()))));
        Ok(())
    }

    /// Offers the figures of emulated links, which the caller keeps up to date. Must be called within a tokio runtime.
    pub(in crate::command) fn offer_links(&self) -> Result<LinkFigures, Failure> {
        let links = LinkFigures::default();
        if let Some(at) = self.metrics {
            tokio::spawn(serve(bind("--metrics", at)?, Collector::new(links.clone())));
        }
        Ok(links)
    }
}

/// Figures of emulated links.
#[derive(Clone, Debug, Default)]
pub(in crate::command) struct LinkFigures(Arc<Mutex<Vec<LinkSample>>>);

impl LinkFigures {
    /// As they are now.
    pub(in crate::command) fn set(&self, links: Vec<LinkSample>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = links;
    }
}

impl Source for LinkFigures {
    async fn refresh(&self, _: &mut Totals) {}

    fn links(&self) -> Vec<LinkSample> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// `ADDRESS:PORT`, or a port of the loopback address.
pub(super) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse::<u16>().ok().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    port.or_else(|| text.parse().ok()).ok_or_else(|| {
        "expected an address and a port, such as 127.0.0.1:9400 or [::1]:9400, or a port".into()
    })
}

/// `option` is where another address would be chosen.
pub(super) fn bind(option: &str, at: SocketAddr) -> Result<TcpListener, Failure> {
    let bound = std::net::TcpListener::bind(at).and_then(|listener| {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    });
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Failure::Run(format!(
            "figures can't be offered at {at}: something else has port {0}, which `ss -ltnp sport = :{0}` shows; \
             expected a free one with {option}",
            at.port()
        )),
        _ => Failure::Run(format!("{option} {at}: figures can't be offered there: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_the_loopback_address() {
        assert_eq!(parse_listen("9400"), Ok(([127, 0, 0, 1], 9400).into()));
        assert_eq!(parse_listen("0.0.0.0:1"), Ok(([0, 0, 0, 0], 1).into()));
        assert_eq!(parse_listen("[::1]:9400"), Ok("[::1]:9400".parse().expect("an address")));
        for wrong in ["", "localhost", "127.0.0.1", "x:1", "1.2.3.4:70000"] {
            assert!(parse_listen(wrong).is_err(), "{wrong}");
        }
    }
}
