use std::future::pending;
use std::time::Duration;

use polypath_stack::Engine;
use polypath_stack::engine::KernelEngine;
use serde_json::Value;
use tokio::sync::Notify;

use super::*;

/// One measurement over the loopback interface: what the client says, and what the server says.
async fn measure(parameters: Parameters) -> (Value, Value) {
    let engine = Engine::Kernel(KernelEngine::plain_tcp());
    let mut server = Server::bind(&engine, ([127, 0, 0, 1], 0).into()).await.expect("a server");
    let client = Client::new(engine, server.local_addr(), parameters);
    let (sent, served) = tokio::join!(client.run(pending(), |_| ()), server.run_one(|_| ()));
    let json = |report: Report| serde_json::to_value(report).expect("JSON");
    (json(sent.expect("the client's report")), json(served.expect("the server's report")))
}

#[tokio::test]
async fn every_byte_is_counted_at_both_ends() {
    for direction in [Direction::Upload, Direction::Download, Direction::Both] {
        let bytes = 3_000_001;
        let parameters = Parameters {
            direction,
            streams: 3,
            amount: Amount::Bytes(bytes),
            block_bytes: Some(10_000),
            ..Parameters::default()
        };
        let (client, server) = measure(parameters).await;
        for report in [&client, &server] {
            let end = &report["end"];
            let mut sums = vec!["sum_sent", "sum_received"];
            if direction == Direction::Both {
                sums.extend(["sum_sent_bidir_reverse", "sum_received_bidir_reverse"]);
            }
            for sum in sums {
                assert_eq!(end[sum]["bytes"], bytes, "{direction:?} {sum}");
                assert!(end[sum]["bits_per_second"].as_f64() > Some(0.0));
            }
        }
        let sends = direction != Direction::Download;
        assert_eq!(client["end"]["sum_sent"]["sender"], sends);
        assert_eq!(server["end"]["sum_sent"]["sender"], !sends);
        assert_eq!(client["start"]["cookie"], server["start"]["cookie"]);
        let streams = client["end"]["streams"].as_array().expect("streams");
        assert_eq!(streams.len(), if direction == Direction::Both { 6 } else { 3 });
        assert!(streams.iter().all(|stream| stream["paths"].as_array().map(Vec::len) == Some(1)));
    }
}

#[tokio::test]
async fn a_time_ends_what_never_ends_and_the_beginning_is_omitted() {
    let parameters = Parameters {
        amount: Amount::Time(Duration::from_millis(300)),
        omit: Duration::from_millis(200),
        interval: Some(Duration::from_millis(100)),
        rate_limit: Some(8_000_000),
        block_bytes: Some(1000),
        ..Parameters::default()
    };
    let (client, _) = measure(parameters).await;
    let intervals = client["intervals"].as_array().expect("intervals");
    let omitted = intervals.iter().filter(|interval| interval["sum"]["omitted"] == true).count();
    assert!(omitted >= 1 && omitted < intervals.len(), "{omitted} of {}", intervals.len());
    let sent = client["end"]["sum_sent"]["bytes"].as_u64().expect("bytes");
    let seconds = client["end"]["sum_sent"]["seconds"].as_f64().expect("seconds");
    // A megabyte a second; late timers on a busy machine make it less, and nothing makes it much more. The measured time
    // begins when the omitted one was seen to end.
    assert!(seconds >= 0.25 && sent > 0 && sent as f64 <= 1e6 * seconds + 250_000.0, "{sent} in {seconds}");
}

#[tokio::test]
async fn a_measurement_can_be_stopped_early() {
    let engine = Engine::Kernel(KernelEngine::plain_tcp());
    let mut server = Server::bind(&engine, ([127, 0, 0, 1], 0).into()).await.expect("a server");
    let parameters = Parameters {
        amount: Amount::Time(Duration::from_secs(3600)),
        interval: Some(Duration::from_millis(10)),
        ..Parameters::default()
    };
    let client = Client::new(engine, server.local_addr(), parameters);
    let stop = Notify::new();
    let (sent, served) = tokio::join!(
        client.run(stop.notified(), |progress| {
            if matches!(progress, Progress::Interval(_)) {
                stop.notify_one();
            }
        }),
        server.run_one(|_| ())
    );
    assert!(sent.expect("a report").end.sum_received.carried.bytes > 0);
    assert!(served.expect("a report").end.sum_received.carried.bytes > 0);
}

#[tokio::test]
async fn a_busy_server_says_so_and_serves_the_next() {
    let engine = Engine::Kernel(KernelEngine::plain_tcp());
    let mut server = Server::bind(&engine, ([127, 0, 0, 1], 0).into()).await.expect("a server");
    let address = server.local_addr();
    let endless = Parameters { amount: Amount::Time(Duration::from_secs(3600)), ..Parameters::default() };
    let first = Client::new(engine.clone(), address, endless);
    let second = Client::new(engine.clone(), address, Parameters::default());
    let (is_running, stop) = (Notify::new(), Notify::new());
    let intruding = async {
        is_running.notified().await;
        let refused = second.run(pending(), |_| ()).await;
        stop.notify_one();
        refused
    };
    let (first, served, refused) = tokio::join!(
        first.run(stop.notified(), |_| is_running.notify_one()),
        server.run_one(|_| ()),
        intruding
    );
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    assert!(first.is_ok() && served.is_ok());
    let few = Parameters { amount: Amount::Bytes(1), ..Parameters::default() };
    let third = Client::new(engine, address, few);
    let (sent, served) = tokio::join!(third.run(pending(), |_| ()), server.run_one(|_| ()));
    assert_eq!(sent.expect("a report").end.sum_received.carried.bytes, 1);
    assert!(served.is_ok());
}

#[tokio::test]
async fn strangers_disturb_nothing_and_bounds_hold() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let engine = Engine::Kernel(KernelEngine::plain_tcp());
    let mut server = Server::bind(&engine, ([127, 0, 0, 1], 0).into()).await.expect("a server");
    let address = server.local_addr();
    let stranger = async {
        let mut web = tokio::net::TcpStream::connect(address).await.expect("a connection");
        web.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("room");
        // The server closes, with or without a reset.
        let _ = web.read_to_end(&mut Vec::new()).await;
        let mut huge = tokio::net::TcpStream::connect(address).await.expect("a connection");
        huge.write_all(&[&[b'a'; 36][..], b"\0"].concat()).await.expect("room");
        // Its parameters are asked for, and it offers too many.
        let mut state = [0];
        huge.read_exact(&mut state).await.expect("a state");
        huge.write_all(b"\xff\xff\xff\xff").await.expect("room");
        let mut said = Vec::new();
        let _ = huge.read_to_end(&mut said).await;
        assert_eq!((state, said), ([9], vec![0xfe, 0, 0, 0, 114, 0, 0, 0, 0]));
        let few = Parameters { amount: Amount::Bytes(10), ..Parameters::default() };
        Client::new(engine.clone(), address, few).run(pending(), |_| ()).await
    };
    let serving = async {
        let refused = server.run_one(|_| ()).await.expect_err("what can't be served");
        assert!(matches!(refused, Error::Protocol(_)), "{refused}");
        server.run_one(|_| ()).await
    };
    let (sent, served) = tokio::join!(stranger, serving);
    assert!(sent.is_ok() && served.is_ok());
    for parameters in [
        Parameters { streams: 0, ..Parameters::default() },
        Parameters { streams: MAX_STREAMS + 1, ..Parameters::default() },
        Parameters { block_bytes: Some(MAX_BLOCK_BYTES + 1), ..Parameters::default() },
        Parameters { amount: Amount::Bytes(0), ..Parameters::default() },
        Parameters { amount: Amount::Time(Duration::MAX), ..Parameters::default() },
        Parameters { rate_limit: Some(0), ..Parameters::default() },
    ] {
        assert!(parameters.check().is_err(), "{parameters:?}");
    }
}

#[tokio::test]
async fn a_server_that_falls_silent_is_given_up() {
    let engine = Engine::Kernel(KernelEngine::plain_tcp());
    let listener = engine.listen(([127, 0, 0, 1], 0).into()).await.expect("a listener");
    let at = listener.local_addr().expect("its address");
    let silent = async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        control::read_cookie(&mut stream).await.expect("a cookie");
        let mut control = control::Control::new(stream);
        control.send(wire::State::ParameterExchange).await.expect("room");
        control.offer().await.expect("an offer");
        control.send(wire::State::CreateStreams).await.expect("room");
        let (mut data, _) = listener.accept().await.expect("its data connection");
        control::read_cookie(&mut data).await.expect("a cookie");
        control.send(wire::State::TestStart).await.expect("room");
        control.send(wire::State::TestRunning).await.expect("room");
        pending::<()>().await;
    };
    let parameters =
        Parameters { direction: Direction::Download, amount: Amount::Bytes(1000), ..Parameters::default() };
    let limit = Some(Duration::from_millis(100));
    let client = Client { progress_limit: limit, ..Client::new(engine, at, parameters) };
    let failed = tokio::select! {
        result = client.run(pending(), |_| ()) => result.expect_err("silence"),
        () = silent => unreachable!("it never ends"),
    };
    assert!(matches!(failed, Error::Stalled(_)), "{failed}");
    assert_eq!(failed.to_string(), "the peer is silent: nothing has moved for 100ms");
}

/// Bytes that a connection begins with: a cookie of its own.
fn cookie(letter: u8) -> Vec<u8> {
    [&[letter; 36][..], b"\0"].concat()
}

#[tokio::test]
async fn silent_clients_keep_nobody_waiting() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let engine = Engine::Kernel(KernelEngine::plain_tcp());
    let mut server = Server::bind(&engine, ([127, 0, 0, 1], 0).into()).await.expect("a server");
    let address = server.local_addr();
    let clients = async {
        let mut mute = Vec::new();
        for _ in 0..300 {
            mute.push(tokio::net::TcpStream::connect(address).await.expect("a connection"));
        }
        // These say which test is theirs, and nothing of what it is.
        let mut silent = Vec::new();
        for number in 0..6 {
            let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
            stream.write_all(&cookie(b'a' + number)).await.expect("room");
            let mut state = [0];
            stream.read_exact(&mut state).await.expect("a state");
            assert_eq!(state, [9], "all of them are asked at once");
            silent.push(stream);
        }
        let few = Parameters { amount: Amount::Bytes(10), ..Parameters::default() };
        let sent = Client::new(engine.clone(), address, few).run(pending(), |_| ()).await;
        (sent, silent, mute)
    };
    let ((sent, silent, mute), served) = tokio::join!(clients, server.run_one(|_| ()));
    assert_eq!(served.expect("the first that is served").end.sum_received.carried.bytes, 10);
    assert!(sent.is_ok(), "{sent:?}");
    for mut stream in silent {
        // Where their time was over before, they hear nothing.
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said).await;
        assert!(said.is_empty() || said == [0xff], "{said:?}");
    }
    // The oldest made room for those who came then.
    let mut said = Vec::new();
    let mut first = mute.into_iter().next().expect("a connection");
    assert!(first.read_to_end(&mut said).await.is_err() || said.is_empty());
}

#[tokio::test]
async fn a_client_that_opens_no_data_connection_is_told_and_the_next_is_served() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let engine = Engine::Kernel(KernelEngine::plain_tcp());
    let mut server = Server::bind(&engine, ([127, 0, 0, 1], 0).into()).await.expect("a server");
    let address = server.local_addr();
    let clients = async {
        let mut begun = tokio::net::TcpStream::connect(address).await.expect("a connection");
        begun.write_all(&cookie(b'a')).await.expect("room");
        let mut state = [0];
        begun.read_exact(&mut state).await.expect("a state");
        let offer = br#"{"tcp":true,"omit":0,"time":1,"parallel":1,"len":1000}"#;
        let length = u32::try_from(offer.len()).expect("a short offer");
        begun.write_all(&[&length.to_be_bytes()[..], offer].concat()).await.expect("room");
        begun.read_exact(&mut state).await.expect("a state");
        assert_eq!(state, [10], "data connections are expected");
        // The next comes meanwhile, and is not turned away.
        let few = Parameters { amount: Amount::Bytes(10), ..Parameters::default() };
        let next = Client::new(engine.clone(), address, few);
        let giving_up = async {
            tokio::task::yield_now().await;
            drop(begun);
        };
        tokio::join!(next.run(pending(), |_| ()), giving_up).0
    };
    let serving = async {
        let failed = server.run_one(|_| ()).await.expect_err("no data connection");
        assert!(matches!(failed, Error::Lost { .. }), "{failed}");
        server.run_one(|_| ()).await
    };
    let (sent, served) = tokio::join!(clients, serving);
    assert!(sent.is_ok() && served.is_ok(), "{sent:?}");
}
