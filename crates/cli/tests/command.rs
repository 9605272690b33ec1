//! The command as its users run it: exit statuses, output, errors that help.

mod common;

use common::{denrei, stderr, stdout};
use denrei_netlab::{Lab, LabConfig};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

/// The fields of a line of `--json`: an interface.
const FIELDS: [&str; 11] = [
    "bench",
    "bytes_per_s",
    "cpu_us_per_msg",
    "lost",
    "median_us",
    "msgs_per_s",
    "n",
    "p99_us",
    "retransmitted",
    "size",
    "transport",
];

type Line = serde_json::Map<String, serde_json::Value>;

/// Where all of them are named.
const DOCUMENTED: &str = include_str!("../../../docs/performance.md");

/// The lines of a benchmark that has fields of its own beside those of all.
fn lines_with_more(args: &[&str]) -> Vec<Line> {
    lines_of(&denrei(args), args)
}

fn lines_of(output: &Output, args: &[&str]) -> Vec<Line> {
    assert!(output.status.success(), "{args:?}: {}", stderr(output));
    let lines: Vec<Line> = stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        assert!(FIELDS.iter().all(|name| line.contains_key(*name)), "{args:?}: {line:?}");
        let unnamed = line.keys().find(|name| !DOCUMENTED.contains(&format!("`{name}`")));
        assert_eq!(unnamed, None, "{args:?}");
    }
    lines
}

fn json_lines(args: &[&str]) -> Vec<Line> {
    let lines = lines_with_more(args);
    for line in &lines {
        let names: Vec<&str> = line.keys().map(String::as_str).collect();
        assert_eq!(names, FIELDS, "{args:?}");
    }
    lines
}

#[test]
fn the_demo_delivers_everything_around_a_death() {
    let output = denrei(&["demo", "--nodes", "3", "--no-pingpong", "--seed", "7"]);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("node 2 killed (SIGKILL)"), "{text}");
    assert!(text.contains("every message arrived whole, exactly once and in order"), "{text}");
    assert!(!text.contains("FAULT"), "{text}");
}

#[test]
fn ping_pong_compares_all_transports() {
    let dir = tempfile::tempdir().unwrap();
    for wait in ["sleep", "poll"] {
        let svg = dir.path().join(wait);
        let args = ["bench", "pingpong", "--sizes=16,64K", "--iters=50", "--repeat=1", "--json"];
        let args = [&args[..], &["--wait", wait, "--svg", svg.to_str().unwrap()]].concat();
        let lines = json_lines(&args);
        let names: Vec<_> = lines.iter().map(|line| line["transport"].as_str().unwrap()).collect();
        assert_eq!(&names[..3], ["denrei", "tcp", "udp"]);
        assert!(lines.iter().all(|line| line["n"] == 50), "{lines:?}");
        for line in lines.iter().filter(|line| line["transport"] != "udp") {
            assert_eq!(line["lost"], 0);
            assert!(line["median_us"].as_f64().unwrap() > 0.0);
        }
        let picture = std::fs::read_to_string(svg).unwrap();
        assert!(picture.contains("pingpong: 99th percentile") && picture.contains("64 KiB"), "{picture}");
    }
}

#[test]
fn a_burst_loses_only_what_nobody_protects() {
    let args = ["bench", "burst", "--sizes=64", "--iters=5000", "--repeat=1", "--json", "--read-after=50"];
    for line in json_lines(&args) {
        let lost = line["lost"].as_u64().unwrap();
        assert_eq!(lost > 0, line["transport"] == "udp", "{line:?}");
        assert!(line["median_us"].is_null() && line["msgs_per_s"].is_null());
    }
}

#[test]
fn streams_have_rates_and_paced_ones_latencies() {
    let common = ["bench", "stream", "--sizes=4,100000", "--repeat=1", "--json", "--iters=500"];
    for line in json_lines(&common) {
        assert!(line["median_us"].is_null(), "{line:?}");
        // Bare UDP may lose every large message.
        assert!(line["bytes_per_s"].is_number() || line["transport"] == "udp", "{line:?}");
    }
    let paced = [&common[..], &["--rate=5000"]].concat();
    for line in json_lines(&paced) {
        assert!(line["median_us"].is_number(), "{line:?}");
    }
}

#[test]
fn a_mesh_of_processes_exchanges_everything() {
    let args = ["bench", "mesh", "--nodes=3", "--sizes=64", "--iters=200", "--repeat=1", "--json"];
    let lines = lines_with_more(&args);
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|line| line["n"] == 3 * 2 * 200 && line["nodes"] == 3), "{lines:?}");
    for line in &lines {
        assert!(
            line["time_ms"].as_f64() > Some(0.0) && line["memory_bytes"].as_u64() > Some(100_000),
            "{line:?}"
        );
        assert!(line["descriptors"].as_u64() > Some(3), "{line:?}");
        assert!(line["lost"] == 0 || line["transport"] == "udp", "{line:?}");
    }
}

#[test]
fn a_mesh_ends_when_its_time_is_over_and_counts_what_was_sent() {
    let args = ["bench", "mesh", "--nodes=3", "--sizes=64", "--iters=100000000", "--seconds=0.2"];
    let begin = std::time::Instant::now();
    let lines = lines_with_more(&[&args[..], &["--repeat=1", "--json"]].concat());
    // Without that limit a run would be of 1 GiB.
    assert!(begin.elapsed() < std::time::Duration::from_secs(60), "{lines:?}");
    for line in &lines {
        let (n, most) = (line["n"].as_u64().unwrap(), (1_u64 << 30) / 64);
        assert!(n >= 3 * 2 && n < most, "{line:?}");
        assert!(line["lost"] == 0 || line["transport"] == "udp", "{line:?}");
    }
}

#[test]
fn a_mesh_over_bare_udp_counts_what_it_loses_and_ends() {
    let args = ["bench", "mesh", "--netns", "--loss=300", "--nodes=3", "--sizes=64,4K", "--iters=300"];
    let args = [&args[..], &["--repeat=1", "--transports=udp", "--json"]].concat();
    let output = denrei(&args);
    let error = stderr(&output);
    if error.contains("need root") || error.contains("is not installed") {
        return eprintln!("SKIPPED a_mesh_over_bare_udp_counts_what_it_loses_and_ends: {error}");
    }
    assert!(output.status.success(), "{error}");
    for line in stdout(&output).lines() {
        let line: Line = serde_json::from_str(line).unwrap();
        // A message of 4 KiB is three segments, of which each may be lost.
        let (lost, n) = (line["lost"].as_u64().unwrap(), 3 * 2 * 300);
        assert!(line["n"] == n && lost > n / 10 && lost < n, "{line:?}");
        assert!(line["retransmitted"].is_null() && line["msgs_per_s"].is_number(), "{line:?}");
    }
}

#[test]
fn a_gather_of_processes_loses_nothing() {
    let args = ["bench", "gather", "--nodes=1,5,1", "--sizes=4,100000,4", "--iters=20", "--repeat=1"];
    let lines = lines_with_more(&[&args[..], &["--transports=denrei,tcp,denrei", "--json"]].concat());
    assert_eq!(lines.len(), 2 * 2 * 2, "each once");
    for line in lines {
        assert_eq!((&line["bench"], &line["lost"]), (&"gather".into(), &0.into()), "{line:?}");
        let figures = ["median_us", "p99_us", "bytes_per_s", "jain", "idle_us"];
        assert!(figures.iter().all(|name| line[*name].as_f64().unwrap() > 0.0), "{line:?}");
        // Without a bottleneck there is nothing to compare with.
        assert!(line["ideal_us"].is_null() && line["goodput_of_link"].is_null(), "{line:?}");
        assert!(line["packet_loss"].is_number() && line["probes"].is_number(), "{line:?}");
    }
}

#[test]
fn a_broadcast_has_the_fields_of_every_benchmark() {
    let args = ["bench", "bcast", "--nodes=2,2", "--sizes=16,4K", "--backend=auto,auto", "--iters=5"];
    let lines = lines_with_more(&[&args[..], &["--repeat=1", "--sealed", "--json"]].concat());
    let text = |line: &Line, name: &str| line[name].as_str().unwrap().to_owned();
    let names: Vec<_> =
        lines.iter().map(|line| text(line, "transport") + " " + &text(line, "backend")).collect();
    assert_eq!(names, ["tcp tcp", "denrei auto", "denrei-sealed auto"].repeat(2));
    for line in &lines {
        assert_eq!((&line["bench"], &line["n"], &line["lost"]), (&"bcast".into(), &5.into(), &0.into()));
        assert!(
            line["median_us"].as_f64() <= line["p99_us"].as_f64() && line["msgs_per_s"].is_f64(),
            "{line:?}"
        );
    }
}

#[test]
fn a_gather_over_a_narrow_link_is_held_against_it() {
    let args = ["bench", "gather", "--netns", "--nodes=4", "--link=1gbit", "--queue=64KiB", "--json"];
    let args = [&args[..], &["--sizes=64K", "--iters=20", "--repeat=1", "--transports=denrei"]].concat();
    let output = denrei_first(&args);
    let error = stderr(&output);
    if error.contains("need root") || error.contains("is not installed") {
        return eprintln!("SKIPPED a_gather_over_a_narrow_link_is_held_against_it: {error}");
    }
    assert!(output.status.success(), "{error}");
    let line: Line = serde_json::from_str(&stdout(&output)).unwrap();
    let figure = |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("{name} in {line:?}"));
    assert_eq!((figure("senders"), figure("link_bytes_per_s")), (4.0, 125e6));
    // Four full messages take 2.15 ms, and nothing is faster than the link.
    assert!(figure("ideal_us") > 2_100.0 && figure("median_us") > 2_100.0, "{line:?}");
    assert!((0.3..1.05).contains(&figure("goodput_of_link")), "{line:?}");
}

#[test]
fn a_sealed_row_stands_beside_the_plain_one() {
    for bench in ["pingpong", "burst", "stream", "mesh"] {
        let args = ["bench", bench, "--sealed", "--sizes=64", "--iters=100", "--repeat=1", "--json"];
        let lines = if bench == "mesh" { lines_with_more(&args) } else { json_lines(&args) };
        let names: Vec<_> = lines.iter().map(|line| line["transport"].as_str().unwrap()).collect();
        assert_eq!(names[..3], ["denrei", "denrei-sealed", "tcp"]);
        assert_eq!(lines[1]["lost"], 0);
    }
}

/// R9: throughput is the rate where the receiver keeps up; a burst beyond its buffer loses at any
/// rate; and there is a picture of it. Whoever else has the cores meanwhile may spoil one measurement; what is
/// wrong spoils all.
#[test]
fn a_rate_is_tracked_and_a_burst_too_large_loses() {
    const MEASUREMENTS: usize = 3;
    let spoilt: Vec<String> = (0..MEASUREMENTS).map_while(|_| tracking_differs()).collect();
    assert!(spoilt.len() < MEASUREMENTS, "{spoilt:#?}");
}

/// What of a tracking is not as it has to be, if anything is.
fn tracking_differs() -> Option<String> {
    let place = tempfile::tempdir().unwrap();
    let svg = place.path().join("rate.svg");
    let args = ["bench", "rate", "--parts=tracking", "--receivers=slow", "--rates=1M", "--bursts=4K,256K"];
    let args = [&args[..], &["--json", "--svg", svg.to_str().unwrap()]].concat();
    let lines = lines_with_more(&args);
    let picture = std::fs::read_to_string(svg).unwrap();
    assert!(picture.contains("<svg") && picture.contains("slow receiver: throughput"), "{picture}");
    assert_eq!(lines.len(), 3, "{lines:?}");
    let (learnt, small, large) = (&lines[0], &lines[1], &lines[2]);
    assert!(learnt["rate"].is_null(), "{learnt:?}");
    let figure = |line: &Line, name: &str| line[name].as_f64().unwrap_or(f64::NAN);
    let of_limit = figure(learnt, "learnt_burst") / figure(learnt, "burst_limit");
    let holds = figure(learnt, "bytes_per_s") > 1e6
        && (0.5..1.5).contains(&of_limit)
        && (0.8..1.1).contains(&(figure(small, "bytes_per_s") / 1_048_576.0))
        && figure(small, "lost_per_1000") < 5.0
        && figure(large, "lost_per_1000") > 50.0
        && figure(large, "recoveries_per_1000") > 0.0;
    (!holds).then(|| format!("{lines:?}"))
}

/// The command before whatever else wants its cores, where that is permitted.
fn denrei_first(args: &[&str]) -> Output {
    let first = ["--fifo", "1"];
    match Command::new("chrt").args(first).arg("true").status() {
        Ok(permitted) if permitted.success() => {
            let command = [&first, &[env!("CARGO_BIN_EXE_denrei")][..], args].concat();
            Command::new("chrt").args(command).output().expect("the command runs")
        }
        _ => denrei(args),
    }
}

/// R2 over three seconds at rates that any machine keeps: of one, what keeps a busy machine from handing packets on for
/// some 60 ms was too much.
#[test]
fn a_rate_is_kept_and_free_capacity_used() {
    let args = ["bench", "rate", "--parts=accuracy,capacity", "--accuracy-seconds=3", "--json"];
    let lines = lines_of(&denrei_first(&args), &args);
    let figure = |line: &Line, name: &str| line[name].as_f64().unwrap_or_else(|| panic!("{name}: {line:?}"));
    for line in lines.iter().filter(|line| line["rate"].as_u64().is_some_and(|rate| rate <= 10_000_000)) {
        // A burst more or less; and what a machine that others use too makes the sender repeat
        // is missing in what it delivers. It is never faster for that.
        let repeated = figure(line, "retransmitted") * figure(line, "size") / figure(line, "rate");
        let error = figure(line, "rate_error");
        assert!(error < 0.05 && error + repeated > -0.05, "{line:?}");
        assert!(figure(line, "burst_p99") > 0.0, "{line:?}");
        // Where RTIMER is long beside what keeps a sender off its core between a look at the clock and sending.
        let is_slow = figure(line, "rate") <= 100_000.0;
        assert!(!is_slow || figure(line, "largest_burst") <= figure(line, "burst"), "{line:?}");
    }
    let capacity = lines.last().unwrap();
    assert_eq!(capacity["part"], "capacity");
    assert!(figure(capacity, "taken_up_ms") < 1_000.0, "{capacity:?}");
}

#[test]
fn layers_have_a_time_per_pdu_and_a_picture() {
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("layers.svg");
    let output = denrei(&[
        "bench",
        "layers",
        "--figures",
        "ip",
        "--iters",
        "500",
        "--repeat",
        "1",
        "--json",
        "--svg",
        svg.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let rows: Vec<serde_json::Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let together = rows.iter().filter(|row| row["mode"] == "together" && row["transport"] == "ip");
    assert_eq!(together.count(), 4 * 5, "1 to 4 layers, 5 sizes");
    assert!(rows.iter().all(|row| row["ns_per_pdu"].as_f64().unwrap() > 1.0 && row["lost"] == 0));
    let figure = |row: &serde_json::Value, name: &str| row[name].as_f64();
    let is = |row: &&serde_json::Value, layers, threads| row["layers"] == layers && row["threads"] == threads;
    let one = rows.iter().find(|row| is(row, 1, 1)).unwrap();
    assert_eq!((figure(one, "of_one_layer"), figure(one, "paper_us")), (Some(1.0), Some(60.0)), "{one:?}");
    // With one core nothing runs side by side, and there is nothing that a model could be made of.
    if let Some(split) = rows.iter().find(|row| is(row, 2, 2) && row["mode"] == "cores") {
        let compared =
            ["of_one_layer", "speedup", "model_ns", "model_error", "model_layer_ns", "cores_work_before"];
        assert!(compared.iter().all(|name| figure(split, name).is_some()), "{split:?}");
        assert_eq!(figure(split, "paper_us"), Some(80.0));
        let four = rows.iter().find(|row| is(row, 4, 4)).unwrap();
        assert!(figure(four, "model_ns") > Some(0.0), "{four:?}");
    }
    assert!(std::fs::read_to_string(svg).unwrap().contains("<svg"));
}

#[test]
fn layers_are_told_of_figure_by_figure_with_what_has_a_meaning() {
    let figures = "ip,tp4-retain,ip";
    let args = ["bench", "layers", "--figures", figures, "--iters", "100", "--repeat", "1", "--json"];
    let output = denrei(&args);
    assert!(output.status.success(), "{}", stderr(&output));
    let rows: Vec<serde_json::Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (first, last) = (&rows[0], rows.last().unwrap());
    assert_eq!((&first["figure"], &last["figure"]), (&"ip".into(), &"tp4-retain".into()), "each once");
    // IP sends nothing again; TP4 may, and had no reason to.
    assert!(first["retransmitted"].is_null() && last["retransmitted"] == 0, "{first} {last}");
    // What two cores were is told with a figure's rows, as soon as they are there.
    assert_eq!(first["cores_work_after"], last["cores_work_before"]);
    assert_eq!(first["cores_one_way_ns_after"], last["cores_one_way_ns_before"]);
}

#[test]
fn a_relay_says_what_it_relays_and_refuses_what_cannot_work() {
    let mut relay = Command::new(env!("CARGO_BIN_EXE_denrei"))
        .args(["relay", "--route", "127.0.0.1:0=127.0.0.1:9", "--status=1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(relay.stderr.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    relay.kill().unwrap();
    // Standard output is for the objects of --status alone; there is no pair yet.
    assert_eq!(relay.wait_with_output().unwrap().stdout, b"");
    assert!(line.starts_with("relaying 127.0.0.1:") && line.ends_with("to 127.0.0.1:9"), "{line}");
    for (args, hint) in [
        (&["relay"][..], "--route"),
        (&["relay", "--route", "here=there"], "LISTEN=TARGET"),
        (&["relay", "--route", "127.0.0.1:0=127.0.0.1:9", "--pair-bytes=4K"], "no size from 65536 to 1G"),
        (&["relay", "--route", "127.0.0.1:0=127.0.0.1:9", "--max-pairs=0"], "from 1 to 1024"),
        (
            &["relay", "--route", "127.0.0.1:7=127.0.0.1:8", "--route", "127.0.0.1:7=127.0.0.1:9"],
            "route is 127.0.0.1:7=127.0.0.1:9",
        ),
    ] {
        let output = denrei(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(hint), "{args:?}: {}", stderr(&output));
    }
    // Without a key only loopback.
    let open = denrei(&["relay", "--route", "0.0.0.0:0=10.0.0.1:9"]);
    assert_eq!(open.status.code(), Some(3));
    assert!(stderr(&open).contains("--insecure"), "{}", stderr(&open));
}

/// A process that serves the other side of benchmarks, once it does.
struct Server(Child);

impl Server {
    /// `command` is that of a benchmark, without its place.
    fn start(command: &mut Command, addr: &str) -> Self {
        let mut server = command.args(["--listen", addr]).stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(server.stderr.take().unwrap()).lines().next().unwrap().unwrap();
        assert!(said.starts_with("serving benchmarks on"), "{said}");
        Self(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn another_process_can_serve_the_other_side() {
    // A free port, most likely still free a moment later.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let addr = format!("127.0.0.1:{port}");
    let server = Server::start(Command::new(env!("CARGO_BIN_EXE_denrei")).args(["bench", "pingpong"]), &addr);
    let args = ["bench", "stream", "--connect", &addr, "--sizes=1K", "--iters=200", "--repeat=1"];
    let output = denrei(&args);
    let args = ["bench", "mesh", "--connect", &addr, "--nodes=5", "--sizes=1K", "--iters=50", "--repeat=2"];
    let mesh = denrei(&[&args[..], &["--json"]].concat());
    drop(server);
    assert!(mesh.status.success(), "{}", stderr(&mesh));
    let lines: Vec<Line> = stdout(&mesh).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines.iter().all(|line| line["n"] == 2 * 5 * 4 * 50), "{lines:?}");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("vs tcp"), "{}", stdout(&output));
}

#[test]
fn who_has_another_key_than_the_other_side_hears_of_it_soon() {
    let place = tempfile::tempdir().unwrap();
    let [key, other] = ["key", "other"].map(|name| place.path().join(name).display().to_string());
    assert!([&key, &other].iter().all(|file| denrei(&["keygen", "--out", file]).status.success()));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let addr = format!("127.0.0.1:{port}");
    let mut server = Command::new(env!("CARGO_BIN_EXE_denrei"));
    let _server = Server::start(server.args(["bench", "pingpong", "--key-file", &key]), &addr);
    let (began, to) = (std::time::Instant::now(), ["bench", "pingpong", "--connect", &addr]);
    let args = ["--key-file", &other, "--transports=denrei-sealed", "--sizes=64", "--repeat=1"];
    let output = denrei(&[&to[..], &args].concat());
    assert!(stderr(&output).contains("with the same cluster key"), "{}", stderr(&output));
    assert!(began.elapsed().as_secs() < 15, "{:?}", began.elapsed());
}

/// IPv6, and a path that carries less than Ethernet: bare UDP sends segments that fit.
#[test]
fn what_is_larger_than_a_packet_travels_over_a_narrow_path_of_ipv6() {
    const NAME: &str = "what_is_larger_than_a_packet_travels_over_a_narrow_path_of_ipv6";
    let lab = match Lab::with_config(2, LabConfig { mtu: 1280, ..LabConfig::default() }) {
        Ok(lab) => lab,
        Err(error) => return eprintln!("SKIPPED {NAME}: {error}"),
    };
    let Some(ip) = lab.host(1).ipv6() else { return eprintln!("SKIPPED {NAME}: no IPv6") };
    let addr = format!("[{ip}]:7411");
    let mut server = lab.host(1).command(env!("CARGO_BIN_EXE_denrei"));
    let _server = Server::start(server.args(["bench", "pingpong", "--insecure"]), &addr);
    for bench in ["pingpong", "mesh"] {
        let mut command = lab.host(0).command(env!("CARGO_BIN_EXE_denrei"));
        command.args(["bench", bench, "--insecure", "--connect", &addr, "--transports=denrei,tcp,udp"]);
        let output = command.args(["--sizes=4K", "--iters=20", "--repeat=1", "--json"]).output().unwrap();
        assert!(output.status.success(), "{bench}: {}", stderr(&output));
        let lines = stdout(&output);
        let udp: Line = lines.lines().last().map(|line| serde_json::from_str(line).unwrap()).unwrap();
        assert!(udp["lost"].as_u64() < udp["n"].as_u64(), "{bench}: {udp:?}");
    }
}

#[test]
fn namespaces_are_measured_and_removed() {
    let args = ["bench", "pingpong", "--netns", "--loss=10", "--sizes=64", "--iters=100", "--repeat=1"];
    let output = denrei(&args);
    let error = stderr(&output);
    if error.contains("need root") || error.contains("is not installed") {
        return eprintln!("SKIPPED namespaces_are_measured_and_removed: {error}");
    }
    assert!(output.status.success(), "{error}");
    assert!(stdout(&output).contains("denrei"), "{}", stdout(&output));
}

#[test]
fn without_loopback_nothing_is_begun_and_what_to_do_is_said() {
    let alone = |args: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["-k1", "30", "unshare", "--net", env!("CARGO_BIN_EXE_denrei")]).args(args);
        command.output().expect("timeout runs")
    };
    if !alone(&["--version"]).status.success() {
        return eprintln!("SKIPPED without_loopback_nothing_is_begun_and_what_to_do_is_said: needs root");
    }
    for args in [&["demo"][..], &["bench", "pingpong"], &["bench", "gather"], &["bench", "bcast"]] {
        let output = alone(args);
        let said = stderr(&output);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(3), ""), "{args:?}: {said}");
        assert!(said.contains("ip link set lo up"), "{args:?}: {said}");
    }
}

#[test]
fn the_doctor_says_what_it_finds() {
    let output = denrei(&["doctor", "--json"]);
    assert!(matches!(output.status.code(), Some(0 | 1)));
    for line in stdout(&output).lines() {
        let check: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(check["name"].is_string() && check["found"].is_string(), "{line}");
    }
    assert!(stdout(&denrei(&["doctor"])).contains("what to do"));
    let few = ["-c", "ulimit -n 6; exec \"$0\" doctor --json", env!("CARGO_BIN_EXE_denrei")];
    let output = Command::new("sh").args(few).output().expect("a shell runs");
    assert_eq!(output.status.code(), Some(1));
    let udp: serde_json::Value = serde_json::from_str(stdout(&output).lines().next().unwrap()).unwrap();
    assert_eq!(udp["advice"], "let this process open more files: ulimit -n 256");
}
