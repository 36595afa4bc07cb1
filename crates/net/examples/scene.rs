//! Experiment.
#[path = "../../polypath/src/bench/beside_kernel/scene.rs"]
mod scene;
use scene::*;
use std::time::Duration;
fn ip(ns: &polypath_net::Namespace, a: &[&str]) -> std::io::Result<()> {
    let o = ns.run(|| std::process::Command::new("ip").args(a).output())??;
    if o.status.success() { Ok(()) } else { Err(std::io::Error::other(String::from_utf8_lossy(&o.stderr).to_string())) }
}
fn benefit(goodput: f64, single: &[f64]) -> f64 {
    let best = single.iter().copied().fold(0.0, f64::max);
    let sum: f64 = single.iter().sum();
    if goodput >= best { if sum > best { (goodput - best) / (sum - best) } else { 0.0 } } else { (goodput - best) / best }
}
pub static STACK: std::sync::Mutex<Option<polypath_net::Stack>> = std::sync::Mutex::new(None);
fn trace() {
    let t0 = std::time::Instant::now();
    let mut last = (0u64, std::collections::BTreeMap::<u8, u64>::new());
    loop {
        std::thread::sleep(Duration::from_millis(20));
        let g = STACK.lock().unwrap();
        let Some(stack) = g.as_ref() else { continue };
        let Some((_, i)) = stack.connections().first().cloned() else { continue };
        let mut o = format!("{:6.3} next +{:7} wait {:7} |", t0.elapsed().as_secs_f64(), i.receive_next.0.wrapping_sub(last.0), i.reassembly_bytes);
        last.0 = i.receive_next.0;
        for s in &i.subflows {
            let l = last.1.insert(s.id, s.tcp.bytes_received).unwrap_or(0);
            o += &format!(" [{} {} +{:6} est {} aside {} srtt {:?}]", s.id, s.tuple.local.addr, s.tcp.bytes_received - l, s.established as u8, s.set_aside as u8, s.tcp.srtt);
        }
        eprintln!("{o}");
    }
}
#[tokio::main]
async fn main() {
    // args: what(arku...) MB rate,rtt,queue rate,rtt,queue ; or file of lines
    let args: Vec<String> = std::env::args().skip(1).collect();
    let what = args[0].clone();
    let lines: Vec<String> = if args.len() == 2 { std::fs::read_to_string(&args[1]).unwrap().lines().map(String::from).collect() } else { vec![args[1..].join(" ")] };
    for line in lines {
        let w: Vec<&str> = line.split_whitespace().collect();
        let bytes = (w[0].parse::<f64>().unwrap() * 1e6) as u64;
        let links: Vec<AccessLink> = w[1..].iter().take_while(|w| w.contains(',')).map(|l| { let n: Vec<f64> = l.split(',').map(|x| x.parse().unwrap()).collect(); AccessLink { mbit_per_s: n[0], rtt_ms: n[1], queue_ms: n[2] } }).collect();
        let limit = Duration::from_secs(60);
        let mut alone: Vec<f64> = w[1..].iter().skip_while(|w| w.contains(',')).map(|x| x.parse::<f64>().unwrap() * 1e6).collect();
        let mut out = line.clone();
        for c in what.chars() {
            let scene = Scene::new(&links).unwrap();
            match c {
                'a' => { let t = scene.alone(bytes, limit).await.unwrap(); alone = t.iter().map(Transfer::goodput_bps).collect(); for a in &alone { out += &format!(" {:.3}", a / 1e6); } }
                'k' | 'K' => {
                    scene.announce_paths(ip).unwrap();
                    let way = if c == 'k' { Way::Receive } else { Way::Send };
                    let t = scene.by_kernel(way, bytes, limit).await.unwrap();
                    out += &format!(" {c} {:.2}s {:.3}", t.seconds, benefit(t.goodput_bps(), &alone));
                }
                'o' | 'n' | 'O' => {
                    let connection = polypath_mptcp::ConnectionConfig { judge_paths: if c == 'n' { polypath_mptcp::JudgePaths::Never } else { polypath_mptcp::JudgePaths::Foreign }, ..polypath_net::stack::default_connection() };
                    let way = if c == 'O' { Way::Send } else { Way::Receive };
                    let show = std::env::var("SHOW").is_ok();
                    if std::env::var("TRACE").is_ok() { std::thread::spawn(trace); }
                    let r = scene.by_us(connection, way, bytes, limit, |stack| { if show { println!("{:#?}", stack.mib()); } let m = stack.mib(); (m.paths_tried, m.paths_set_aside) }).await;
                    match r { Ok((t, m)) => out += &format!(" {c} {:.2}s {:.3} tried {} aside {}", t.seconds, benefit(t.goodput_bps(), &alone), m.0, m.1), Err(e) => out += &format!(" {c} ERR {e}") }
                }
                _ => {}
            }
        }
        println!("{out}");
    }
}
