//! Limits of paths where all connections are of our own stack, which is joined to another within the process.

use std::net::{IpAddr, Ipv4Addr};

use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{ConnectionConfig, HostConfig};
use polypath_stack::engine::ConnectOptions;
use polypath_stack::stack::{LimitedWays, PathLimit, SeenSubflow, Stack, StackStream, in_memory};
use polypath_units::BitRate;

use super::*;
use crate::net::{LimitRefused, Surroundings};
use crate::throttle::{Direction, Limit, MinuteOfDay};

const PROXY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// Both are of the other stack.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
/// It waits in the send buffer when the proxy has nothing of it any more.
const OBJECT_BYTES: usize = 300_000;

/// The stack of clients and servers, and that of proxies. A client that reads nothing takes in less than the object.
fn stacks() -> [Stack; 2] {
    let config = |at: Ipv4Addr| {
        let mut connection = ConnectionConfig::default();
        Arc::make_mut(&mut connection.tcp).receive_buffer_bytes = 100_000;
        let (endpoints, connection) = (vec![LocalEndpoint::subflow(at.into(), 1)], Arc::new(connection));
        HostConfig { endpoints, connection, ..HostConfig::default() }
    };
    in_memory::stacks([CLIENT, PROXY].map(config)).expect("stacks")
}

fn proxy_over(stack: &Stack, settings: Settings) -> Proxy {
    Proxy::new(Connector::new(Engine::Stack(stack.clone())), settings, |_| {})
}

/// Of what goes to the client, if its connections are of this network.
fn slow(clients: &[&str]) -> Limit {
    let mut limit = Limit::new("slow");
    limit.rate = Some(BitRate::from_kbps(100));
    limit.flows.peers = vec![IpAddr::from(CLIENT).to_string().parse().unwrap()];
    limit.flows.clients = clients.iter().map(|network| network.parse().unwrap()).collect();
    limit.flows.direction = Some(Direction::Down);
    limit
}

/// How many subflows the limit is of. Another limit has all of them asked anew.
fn subflows(proxy: &Proxy) -> usize {
    let mut other = slow(&[]);
    (other.name, other.flows.peers) = ("other".into(), vec!["192.0.2.0/24".parse().unwrap()]);
    proxy.set_limit(other).unwrap();
    let states = proxy.path_limits();
    assert!(proxy.remove_limit("other"));
    states.iter().find(|state| state.name == "slow").expect("it is set").subflows
}

/// A client whose answer is whole with the proxy's stack, and not with the client: nobody is within any more.
async fn answered(proxy: &Proxy, [outside, inside]: &[Stack; 2], port: u16) -> StackStream {
    let server = outside.listen((SERVER, port).into()).expect("a listener");
    let entrance = Entrance::from(EntranceKind::Forward(Target::from(SocketAddr::from((SERVER, port)))));
    let listener = Engine::Stack(inside.clone()).listen((PROXY, port).into()).await.expect("a listener");
    let serving = proxy.clone();
    tokio::spawn(async move { serving.serve(listener, entrance).await });
    let options = ConnectOptions::default();
    let mut client = outside.connect((PROXY, port).into(), &options).await.expect("a connection");
    let (mut stream, _) = server.accept().await.expect("the proxy's");
    stream.write_all(&vec![7; OBJECT_BYTES]).await.unwrap();
    stream.shutdown().await.unwrap();
    client.shutdown().await.unwrap();
    while proxy.counts().ended.is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    client
}

#[tokio::test]
async fn a_limit_holds_for_what_waits_to_be_sent_whomever_it_names() {
    for (clients, is_limited) in [(&[][..], 1), (&["10.0.0.1"], 1), (&["10.0.0.9"], 0)] {
        let stacks = stacks();
        let proxy = proxy_over(&stacks[1], Settings::default());
        proxy.set_limit(slow(clients)).unwrap();
        let _client = answered(&proxy, &stacks, 80).await;
        assert_eq!(proxy.sessions().count(), 0);
        assert_eq!(subflows(&proxy), is_limited, "{clients:?}");
    }
}

#[tokio::test]
async fn proxies_of_one_stack_have_limits_of_their_own() {
    let stacks = stacks();
    let [one, other] = [(); 2].map(|()| proxy_over(&stacks[1], Settings::default()));
    for proxy in [&one, &other] {
        proxy.set_limit(slow(&["10.0.0.1"])).unwrap();
    }
    let _client = answered(&one, &stacks, 80).await;
    // The other one has said nothing of whose that is.
    assert_eq!((subflows(&one), subflows(&other)), (1, 0));
    assert!(one.remove_limit("slow") && one.path_limits().is_empty());
    assert_eq!(other.path_limits().len(), 1);
    other.set_limit(slow(&[])).unwrap();
    assert_eq!(subflows(&other), 1, "it is of the path, whoever is on it");
}

#[tokio::test]
async fn limits_go_with_their_proxy() {
    let stacks = stacks();
    let proxy = proxy_over(&stacks[1], Settings::default());
    let limits = |count: usize| {
        (0..count).map(|number| Limit { name: number.to_string().into(), ..slow(&["10.0.0.1"]) })
    };
    limits(Stack::MOST_PATH_LIMITS).for_each(|limit| proxy.set_limit(limit).unwrap());
    let next = proxy_over(&stacks[1], Settings::default());
    assert!(matches!(next.set_limit(slow(&[])), Err(LimitRefused::TooMany(_))));
    drop(proxy);
    limits(Stack::MOST_PATH_LIMITS).for_each(|limit| next.set_limit(limit).unwrap());
    let set = stacks[0].path_limit_set();
    let limit = PathLimit::new(BitRate::ZERO, |_: &SeenSubflow| LimitedWays::default());
    assert!(set.set("elsewhere", limit).is_ok());
}

/// It is always that minute.
struct At(u16);

impl Surroundings for At {
    fn interface_of(&self, _: IpAddr) -> Option<Box<str>> {
        None
    }

    fn minute(&self) -> MinuteOfDay {
        MinuteOfDay::new(self.0, 0).unwrap()
    }
}

#[tokio::test]
async fn hours_are_those_of_the_settings_that_hold_now() {
    let stacks = stacks();
    let settings = |hour| Settings { surroundings: Arc::new(At(hour)), ..Settings::default() };
    let proxy = proxy_over(&stacks[1], settings(23));
    let limit = Limit { hours: Some("22:00-06:00".parse().unwrap()), ..slow(&[]) };
    proxy.set_limit(limit).unwrap();
    let _client = answered(&proxy, &stacks, 80).await;
    assert_eq!(subflows(&proxy), 1);
    proxy.set_settings(settings(12));
    assert_eq!(subflows(&proxy), 0);
}
