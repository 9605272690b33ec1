//! Processes that talk to this one by lines of JSON.
//!
//! Inputs → outputs: a [`Command`], or a connection to a process elsewhere → orders written to it,
//! answers read from it, each within a time limit. Dropping a [`LineProcess`] ends the process, and
//! a process whose orders end (because its parent died) ends itself: none is left behind.

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Lines read from a process and not taken yet. A process that says more waits in its `write`.
const MAX_WAITING_LINES: usize = 1024;

/// Longest line, bytes: the arrival times of a paced stream are the longest, 16 digits each.
const MAX_LINE_BYTES: u64 = 64 << 20;

/// Characters that are shown of what cannot be read.
const SHOWN: usize = 80;

/// What there is to do about a thread that could not be started.
pub const NO_THREAD: &str = "cannot start a thread: let this user have more processes (ulimit -u)";

/// The same of a process.
const NO_PROCESS: &str = ": let this user have more processes (ulimit -u)";

/// How often it is looked whether all of several processes live.
const LOOK: Duration = Duration::from_millis(50);

/// After this whoever has ended is seen to have ended, and its last word is here.
const SETTLE: Duration = Duration::from_millis(100);

/// A process, here or on another machine, and the two lines to it.
pub struct LineProcess {
    name: String,
    child: Option<Child>,
    orders: Box<dyn Write + Send>,
    answers: Receiver<std::io::Result<String>>,
}

impl LineProcess {
    /// Starts a process. `name` is what errors call it. Its standard error remains the terminal's.
    pub fn spawn(mut command: Command, name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|error| {
            let advice = if error.kind() == ErrorKind::WouldBlock { NO_PROCESS } else { "" };
            anyhow!(error).context(format!("cannot start {name}{advice}"))
        })?;
        let orders = child.stdin.take().ok_or_else(|| anyhow!("{name} has no standard input"))?;
        let answers = child.stdout.take().ok_or_else(|| anyhow!("{name} has no standard output"))?;
        Ok(Self { name, child: Some(child), orders: Box::new(orders), answers: read_lines(answers)? })
    }

    /// Takes a connection at whose other end a process reads and writes lines.
    pub fn over(stream: TcpStream, name: impl Into<String>) -> Result<Self> {
        stream.set_nodelay(true)?;
        let answers = read_lines(stream.try_clone()?)?;
        Ok(Self { name: name.into(), child: None, orders: Box::new(stream), answers })
    }

    /// What errors call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id, if it runs here.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Sends an order.
    pub fn send(&mut self, order: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        self.orders
            .write_all(line.as_bytes())
            .and_then(|()| self.orders.flush())
            .with_context(|| format!("{} takes no more orders: it has ended", self.name))
    }

    /// Waits for an answer.
    pub fn receive<T: DeserializeOwned>(&self, limit: Duration) -> Result<T> {
        self.receive_within(limit)?.ok_or_else(|| self.silence(limit))
    }

    /// An answer, if one comes in time.
    pub fn receive_within<T: DeserializeOwned>(&self, limit: Duration) -> Result<Option<T>> {
        match self.answers.recv_timeout(limit) {
            Ok(line) => self.parse(line).map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("{} has ended without an answer", self.name),
        }
    }

    fn silence(&self, limit: Duration) -> anyhow::Error {
        anyhow!("{} said nothing for {limit:?}", self.name)
    }

    /// Whether it has ended, as far as that is seen from here.
    fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Lets it end by itself, and ends it after `limit`.
    pub fn end_within(&mut self, limit: Duration) {
        let until = Instant::now() + limit;
        while let Some(child) = &mut self.child {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            if Instant::now() > until {
                return self.kill();
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it at once, as SIGKILL does.
    pub fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself; `wait` collects it either way.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn parse<T: DeserializeOwned>(&self, line: std::io::Result<String>) -> Result<T> {
        let line = line.with_context(|| format!("cannot read from {}", self.name))?;
        serde_json::from_str(&line).with_context(|| format!("{} said {}", self.name, beginning(&line)))
    }
}

impl Drop for LineProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits for what process `index` of several answers that wait for each other. `failure` is why an answer is that one
/// has failed.
///
/// # Errors
/// It has failed, or another one, or one has ended: who ended without an answer is named rather than who failed
/// meanwhile, most likely because of it.
pub fn receive_among<T: DeserializeOwned>(
    processes: &mut [LineProcess],
    index: usize,
    limit: Duration,
    failure: impl Fn(&T) -> Option<String>,
) -> Result<T> {
    let until = Instant::now() + limit;
    loop {
        if let Some(answer) = processes[index].receive_within(LOOK)? {
            let Some(why) = failure(&answer) else { return Ok(answer) };
            thread::sleep(SETTLE);
            look_after_others(processes, index, &failure)?;
            bail!("{}: {why}", processes[index].name);
        }
        look_after_others(processes, index, &failure)?;
        if Instant::now() > until {
            return Err(processes[index].silence(limit));
        }
    }
}

fn look_after_others<T: DeserializeOwned>(
    processes: &mut [LineProcess],
    index: usize,
    failure: impl Fn(&T) -> Option<String>,
) -> Result<()> {
    let count = processes.len();
    let others = || (0..count).filter(|other| *other != index);
    if !others().any(|other| processes[other].has_ended()) {
        return Ok(());
    }
    // Who failed because of another may be seen first.
    thread::sleep(SETTLE);
    let mut failed = Ok(());
    for other in others() {
        let process = &mut processes[other];
        if process.has_ended()
            && let Some(why) = process.receive_within(Duration::ZERO)?.as_ref().and_then(&failure)
        {
            failed = Err(anyhow!("{}: {why}", process.name));
        }
    }
    failed
}

/// What is shown of text that cannot be read.
pub fn beginning(text: &str) -> String {
    let more = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
    format!("{:?}{more}", text.chars().take(SHOWN).collect::<String>())
}

fn read_lines(source: impl Read + Send + 'static) -> Result<Receiver<std::io::Result<String>>> {
    let (lines, receiver) = sync_channel(MAX_WAITING_LINES);
    let reader = thread::Builder::new().name("answers".into());
    let started = reader.spawn(move || {
        let mut source = BufReader::new(source);
        loop {
            let mut line = String::new();
            let read = source.by_ref().take(MAX_LINE_BYTES).read_line(&mut line);
            let ended = !matches!(read, Ok(bytes) if bytes > 0);
            let sent = match read {
                Ok(0) => break,
                Ok(_) => lines.send(Ok(line)),
                Err(error) => lines.send(Err(error)),
            };
            if ended || sent.is_err() {
                break;
            }
        }
    });
    started.context(NO_THREAD)?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_there_and_back() {
        let mut process = LineProcess::spawn(Command::new("cat"), "cat").unwrap();
        process.send(&vec![1, 2, 3]).unwrap();
        let answer: Vec<u8> = process.receive(Duration::from_secs(5)).unwrap();
        assert_eq!(answer, [1, 2, 3]);
        assert!(process.receive_within::<u8>(Duration::ZERO).unwrap().is_none());
        process.kill();
        let error = process.receive::<u8>(Duration::from_secs(5)).unwrap_err();
        assert_eq!(error.to_string(), "cat has ended without an answer");
    }

    /// A shell that answers `"failed"` once the process before it has ended, or waits.
    fn shell(script: &str, name: &str) -> LineProcess {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        LineProcess::spawn(command, name).unwrap()
    }

    #[test]
    fn who_ends_without_a_word_is_named_and_not_who_fails_because_of_it() {
        let why = |answer: &String| (answer == "failed").then(|| "it has failed".to_owned());
        let receive = |processes: &mut [LineProcess]| {
            receive_among(processes, 0, Duration::from_secs(60), why).unwrap_err().to_string()
        };
        let waits = || shell("read line", "one that waits");
        let fails = || shell("echo '\"failed\"'", "one that fails");
        let begun = Instant::now();
        assert_eq!(
            receive(&mut [waits(), waits(), shell("exit 3", "dead")]),
            "dead has ended without an answer"
        );
        assert_eq!(receive(&mut [fails(), shell("exit 3", "dead")]), "dead has ended without an answer");
        assert_eq!(receive(&mut [waits(), fails(), shell("", "dead")]), "dead has ended without an answer");
        assert_eq!(receive(&mut [waits(), fails()]), "one that fails: it has failed");
        assert_eq!(receive(&mut [fails(), waits()]), "one that fails: it has failed");
        assert!(begun.elapsed() < Duration::from_secs(50));
        let mut one = [shell("echo '\"done\"'; read line", "one"), waits()];
        assert_eq!(receive_among(&mut one, 0, Duration::from_secs(60), why).unwrap(), "done");
    }

    #[test]
    fn text_that_cannot_be_read_is_shown_up_to_a_length() {
        assert_eq!(beginning(&"x".repeat(1 << 20)).chars().count(), SHOWN + 3);
        assert_eq!(beginning("short"), "\"short\"");
    }

    #[test]
    fn a_silent_process_is_named() {
        let process = LineProcess::spawn(Command::new("cat"), "node 3").unwrap();
        let error = process.receive::<u8>(Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.to_string(), "node 3 said nothing for 20ms");
    }
}
