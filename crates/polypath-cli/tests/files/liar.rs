//! A server that says what it is told to say.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::process::Command;

use socket2::{Domain, Socket, Type};

use crate::site::content;

/// Answers each connection with the next of these, and ends it. After the last one it is gone.
pub(super) fn liar(answers: Vec<Vec<u8>>) -> String {
    serve(answers, false)
}

/// The same, and says nothing more on connections that it keeps open.
pub(super) fn silent_liar(answers: Vec<Vec<u8>>) -> String {
    serve(answers, true)
}

fn serve(answers: Vec<Vec<u8>>, is_silent: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let url = format!("http://{}/file", listener.local_addr().expect("its address"));
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).expect("a request") > 0);
            // The client may have heard enough before the end.
            let _ = stream.write_all(&answer);
            if !is_silent {
                let _ = stream.shutdown(Shutdown::Write);
            }
            open.push(stream);
        }
        drop(listener);
        if is_silent {
            std::thread::park();
        }
    });
    url
}

/// Nobody listens there, and nobody else can meanwhile.
pub(super) fn gone() -> String {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
    let at = socket.local_addr().expect("its address").as_socket().expect("an address of IP");
    // It keeps its port to the end.
    std::mem::forget(socket);
    format!("http://{at}/file")
}

/// Says that an answer will come, until nobody listens any more.
pub(super) fn babbler() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let url = format!("http://{}/file", listener.local_addr().expect("its address"));
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        assert!(stream.read(&mut [0; 4096]).expect("a request") > 0);
        let promises = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1000);
        while stream.write_all(&promises).is_ok() {}
    });
    url
}

pub(super) fn answer(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 {status}\r\n{fields}\r\n").as_bytes(), body].concat()
}

/// Bytes `first` to `last` of 1000, of the file with this entity tag.
pub(super) fn piece(etag: &str, first: usize, last: usize) -> Vec<u8> {
    let fields = format!(
        "Content-Length: {}\r\nContent-Range: bytes {first}-{last}/1000\r\nETag: \"{etag}\"\r\n",
        last + 1 - first
    );
    answer("206 Partial Content", &fields, &content(1000)[first..=last])
}

pub(super) fn rest(etag: &str, first: usize) -> Vec<u8> {
    piece(etag, first, 999)
}

/// Leaves a part of a file in a folder as a download that broke off does: `present` bytes of 1000, with an entity tag.
pub(super) fn leave_part(folder: &std::path::Path, present: usize) {
    let fields = "Content-Length: 1000\r\nETag: \"one\"\r\n";
    let url = liar(vec![answer("200 OK", fields, &content(1000)[..present])]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    let output = command.args(["get", "--engine", "tcp", "-q", &url]).current_dir(folder).output();
    let message = String::from_utf8(output.expect("the command runs").stderr).expect("UTF-8");
    assert!(message.contains("--resume goes on from there"), "{message}");
    assert_eq!(fs::read(folder.join("file.part")).expect("what came"), &content(1000)[..present]);
}
