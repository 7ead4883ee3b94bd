use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::limits::{CONNECTIONS_MAX, QUESTION_BYTES_MAX, QUESTIONS_MAX};
use super::*;

const URL: &str = "https://127.0.0.1:8443";

#[test]
fn the_server_is_where_the_job_looks_for_it() {
    for (url, expect) in [
        (URL, Some(("127.0.0.1", 8443))),
        ("https://neap.example.com/subscriptions/1", Some(("neap.example.com", 443))),
        ("https://[fd00::1]:9000/", Some(("fd00::1", 9000))),
        ("https://neap:70000", None),
        ("http://user:pass@neap/simple", Some(("neap", 80))),
        ("https://a b", None),
        ("ftp://neap", None),
        ("https://", None),
    ] {
        assert_eq!(authority(url), expect, "{url}");
    }
    let by_name =
        Relay::with("10.0.0.5:8443", "https://neap.example.com:8443", "", "127.0.0.1 localhost\n".into())
            .unwrap();
    assert_eq!(by_name.hosts(), "127.0.0.54 neap.example.com\n127.0.0.1 localhost\n");
    assert_eq!(by_name.listeners().tcp[0].to_string(), "127.0.0.54:8443");
    let by_address =
        Relay::with("10.0.0.5:8443", "https://10.0.0.5:8443", "nameserver 10.0.0.1\n", "h\n".into()).unwrap();
    assert_eq!(
        (by_address.hosts().as_str(), by_address.listeners().tcp[0].to_string().as_str()),
        ("h\n", "10.0.0.5:8443")
    );
    assert_eq!(by_address.resolv_conf(), "nameserver 127.0.0.53\n");
    let local = Relay::with("127.0.0.1:1", "https://localhost:1", "", String::new()).unwrap();
    assert_eq!(local.listeners().tcp[0].to_string(), "127.0.0.1:1");
}

#[test]
fn builds_reach_what_the_operator_has_set() {
    let relay = Relay::with("10.0.0.5:8443", "https://neap.example.com:8443", "", String::new()).unwrap();
    let values = [
        "http://127.0.0.1:3141/simple",
        "corp=https://pypi.corp.example/simple http://[::1]:8080 https://pypi.corp.example/other",
        "https://neap.example.com:8443",
        "/etc/ssl/certs",
        "1",
    ];
    let relay = relay.also_to(values.into_iter());
    let forwards: Vec<String> =
        relay.forwards.iter().map(|f| format!("{} > {}", f.inside, f.outside)).collect();
    assert_eq!(
        forwards,
        [
            "127.0.0.54:8443 > 10.0.0.5:8443",
            "127.0.0.1:3141 > 127.0.0.1:3141",
            "127.0.0.55:443 > pypi.corp.example:443",
            "[::1]:8080 > [::1]:8080",
        ]
    );
    assert_eq!(relay.hosts(), "127.0.0.54 neap.example.com\n127.0.0.55 pypi.corp.example\n");
    let many: Vec<String> = (1..100).map(|port| format!("http://127.0.0.1:{port}")).collect();
    let relay = relay.also_to(many.iter().map(String::as_str));
    assert_eq!(relay.forwards.len(), limits::FORWARDS_MAX);
    assert!(relay.listeners().len() <= neap_sandbox::net::LISTENERS_MAX);
}

/// A relay on ports of this machine's own, and where it listens: for the server, and for names.
async fn relay(server: &str, resolvers: Vec<SocketAddr>) -> (Serving, [SocketAddr; 3]) {
    let mut relay = Relay::with(server, URL, "", String::new()).unwrap();
    relay.resolvers = resolvers;
    let tcp = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (one, two, udp) = (tcp(), tcp(), std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    let at = [one.local_addr().unwrap(), two.local_addr().unwrap(), udp.local_addr().unwrap()];
    one.set_nonblocking(true).unwrap();
    two.set_nonblocking(true).unwrap();
    udp.set_nonblocking(true).unwrap();
    (relay.serve(vec![one.into(), two.into(), udp.into()]).unwrap(), at)
}

#[tokio::test]
async fn a_half_that_ended_does_not_end_the_other() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (serving, [at, ..]) = relay(&server.local_addr().unwrap().to_string(), Vec::new()).await;
    let mut job = TcpStream::connect(at).await.unwrap();
    let (mut far, _) = server.accept().await.unwrap();
    job.write_all(b"question").await.unwrap();
    job.shutdown().await.unwrap();
    let mut text = String::new();
    far.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "question");
    far.write_all(&vec![7; 1 << 20]).await.unwrap();
    drop(far);
    let mut answer = Vec::new();
    job.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer.len(), 1 << 20);

    let mut open = TcpStream::connect(at).await.unwrap();
    let _far = server.accept().await.unwrap();
    drop(serving);
    assert_eq!(open.read(&mut [0; 1]).await.unwrap_or(0), 0, "connections end with the relay");
}

#[tokio::test]
async fn nothing_moves_and_it_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let _near = TcpStream::connect(at).await.unwrap();
    let near_inside = listener.accept().await.unwrap().0;
    let _far = TcpStream::connect(at).await.unwrap();
    let far_inside = listener.accept().await.unwrap().0;
    let e = tcp::carry(near_inside, far_inside, Duration::from_millis(20)).await.unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_serving, [at, ..]) = relay(&server.local_addr().unwrap().to_string(), Vec::new()).await;
    let (mut jobs, mut fars) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS_MAX {
        jobs.push(TcpStream::connect(at).await.unwrap());
        fars.push(server.accept().await.unwrap().0);
    }
    let mut late = TcpStream::connect(at).await.unwrap();
    late.write_all(b"x").await.unwrap();
    assert!(
        tokio::time::timeout(Duration::from_millis(100), server.accept()).await.is_err(),
        "no more than {CONNECTIONS_MAX}"
    );
    jobs.pop();
    fars.pop();
    let (mut far, _) = server.accept().await.unwrap();
    let mut byte = [0; 1];
    far.read_exact(&mut byte).await.unwrap();
    assert_eq!(&byte, b"x");
}

#[tokio::test]
async fn questions_are_answered() {
    let deaf = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let closed = deaf.local_addr().unwrap();
    drop(deaf);
    let good = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let at_good = good.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        loop {
            let (length, from) = good.recv_from(&mut buffer).await.unwrap();
            // A stranger's answer first: another id.
            good.send_to(&[9; 20], from).await.unwrap();
            buffer[2] |= 0x80;
            good.send_to(&buffer[..length], from).await.unwrap();
        }
    });
    let (_serving, [_, _, at]) = relay("127.0.0.1:1", vec![closed, at_good]).await;
    let job = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    job.connect(at).await.unwrap();
    // Too short, too long, and an answer: none of them is a question.
    job.send(b"short").await.unwrap();
    job.send(&vec![0; QUESTION_BYTES_MAX + 1]).await.unwrap();
    job.send(&[0xff; 20]).await.unwrap();
    for id in 0..QUESTIONS_MAX as u8 * 2 {
        job.send(&[id, 1, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, id]).await.unwrap();
        let mut answer = [0; 64];
        let length = job.recv(&mut answer).await.unwrap();
        assert_eq!(answer[..length], [id, 1, 0x81, 0, 0, 0, 0, 0, 0, 0, 0, 0, id]);
    }
}

#[tokio::test]
async fn without_a_resolver_questions_fail_at_once() {
    let (_serving, [_, names, at]) = relay("127.0.0.1:1", Vec::new()).await;
    let job = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    job.connect(at).await.unwrap();
    job.send(&[1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 5]).await.unwrap();
    let mut answer = [0; 64];
    assert_eq!(job.recv(&mut answer).await.unwrap(), 12);
    assert_eq!(answer[3], 2, "the resolver failed");
    let mut stream = TcpStream::connect(names).await.unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn connections_to_services() {
    let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = service.local_addr().unwrap();
    let socket = neap_sandbox::net::connect_inside(at).unwrap();
    established(socket).await.unwrap().write_all(b"x").await.unwrap();
    drop(service);
    match neap_sandbox::net::connect_inside(at) {
        Ok(socket) => assert!(established(socket).await.is_err()),
        Err(e) => assert_eq!(e.kind(), io::ErrorKind::ConnectionRefused),
    }
}
