//! `denrei cast recv`.

use super::show::{RecvBar, bytes, seconds};
use super::{DEFAULT_PORT, PortArgs, failure, parse_seconds, reach, resolve_peer};
use crate::cmd::patient::Patient;
use crate::cmd::signals::Ending;
use crate::cmd::wrong_arguments;
use crate::process::NO_THREAD;
use anyhow::{Context, Result};
use clap::Args;
use denrei::Node;
use denrei_cast::{
    BROKEN_OFF, CastError, DEFAULT_GROUP, Destination, ReceiveOptions, ReceiveReport, Receiver,
    check_directory, named, parse_group,
};
use denrei_output::{say, tell};
use serde_json::json;
use signal_hook::consts::SIGXFSZ;
use signal_hook::flag::register;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// A receiver that is not held up looks five times a second whether it is to end.
const GRACE: Duration = Duration::from_secs(1);
/// Till a last word has left.
const GOODBYE: Duration = Duration::from_millis(50);

/// Receive what a host sends to many
///
/// Waits for one cast, receives it, and ends. What arrives is put together in a hidden directory
/// (DIR/.denrei-cast-NAME), verified, and only then appears under its name: a file or a whole
/// directory by one rename, and one by one where a directory of that name is there already. If it is
/// interrupted, the same command goes on where it was, as long as or whenever the sender sends the
/// same again. Nothing is ever written outside of DIR. To throw away what was begun and will not be
/// finished, remove the hidden directory.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit status: 0 everything is here, verified and in its place; 1 it is not (what is here is \
                        kept); 2 the command line is wrong; 3 nothing could be received"
)]
pub struct RecvCommand {
    /// Directory to receive into; - for standard output, which takes one file or a stream
    #[arg(long, value_name = "DIR")]
    into: PathBuf,

    /// The group whose announcements (send --min-members) are answered
    #[arg(long, value_parser = parse_group, default_value = DEFAULT_GROUP, value_name = "ADDR")]
    group: SocketAddr,

    /// Ask the sender at this address, where its announcements do not reach
    #[arg(long, value_name = "HOST:PORT")]
    from: Option<String>,

    /// Wait so long for a sender [default: for ever]
    #[arg(long, value_parser = parse_seconds, value_name = "S")]
    wait: Option<Duration>,

    /// Wait so long for a sender that has vanished in the middle
    #[arg(long, value_parser = parse_seconds, default_value = "60", value_name = "S")]
    patience: Duration,

    /// What the sender's summary calls this receiver [default: the host's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Have everything on disk before it appears under its name
    #[arg(long)]
    fsync: bool,

    /// Print the summary as one JSON object; with --into - on standard error
    #[arg(long)]
    json: bool,

    /// Show no progress
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    port: PortArgs,
}

impl RecvCommand {
    /// Receives; whether everything is here.
    pub fn run(self) -> Result<bool> {
        let (json, piped) = (self.json, self.into.as_os_str() == "-");
        let received = self.receive();
        if json && let Err(error) = &received {
            match piped {
                true => tell!("{}", failure(error)),
                false => say!("{}", failure(error)),
            }
        }
        received
    }

    fn receive(self) -> Result<bool> {
        let piped = self.into.as_os_str() == "-";
        if piped && self.fsync {
            return Err(wrong_arguments("--fsync is for a directory: whoever reads the pipe has it"));
        }
        let destination = if piped {
            let stdout = Patient::of(std::io::stdout()).context("cannot write to standard output")?;
            Destination::Pipe(Box::new(stdout))
        } else {
            let path = self.into.clone();
            match check_directory(&path) {
                Err(CastError::InTheWay { .. }) => {
                    return Err(wrong_arguments(format!("--into: {} is not a directory", path.display())));
                }
                checked => checked?,
            }
            Destination::Directory { path, sync: self.fsync }
        };
        let from = self.from.as_deref().map(|from| resolve_peer("--from", from, None)).transpose()?;
        let node = self.port.open(self.group, DEFAULT_PORT, from.as_slice())?;
        let mut options = ReceiveOptions::new(self.group);
        options.from = from;
        options.wait = self.wait;
        options.patience = self.patience;
        options.name = self.name.unwrap_or(options.name);
        if !self.quiet {
            tell!("receiving at {}, group {}{}", named(node.local_addr()), named(self.group), reach(&node));
        }
        // A file that may not become so large is an error of the call that writes it, and not the end.
        register(SIGXFSZ, Arc::default()).context("cannot watch for signals")?;
        let interrupt = Interrupt::watch(node.clone())?;
        let receiver = Receiver::new(node, destination, options);
        receiver.warnings().iter().for_each(|warning| tell!("denrei: {warning}"));
        let mut bar = RecvBar::new(self.quiet || self.json);
        let received = receiver.run(|progress| {
            bar.show(progress);
            if interrupt.has_come() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        bar.clear();
        interrupt.let_go();
        let (line, text) = match &received {
            Ok(report) => (json_of(report), summary_of(report)),
            Err(CastError::NoReceivers(text)) => anyhow::bail!("{text}"),
            Err(error) => {
                let text = format!("denrei: {error}");
                (failed(&error.to_string()), text)
            }
        };
        let shown = if self.json { line } else { text };
        if piped || (received.is_err() && !self.json) {
            tell!("{shown}");
        } else {
            say!("{shown}");
        }
        if let Err(CastError::Cancelled { .. }) = received {
            interrupt.end_process();
        }
        Ok(received.is_ok())
    }
}

/// Ends the process with the first signal, and has the sender told, which would wait for it otherwise.
struct Interrupt {
    came: Arc<AtomicBool>,
    over: SyncSender<()>,
    /// Until nobody has to be told any more.
    node: Arc<Mutex<Option<Node>>>,
}

impl Interrupt {
    /// From now on signals do not end the process by themselves.
    fn watch(node: Node) -> Result<Self> {
        let (ending, came) = (Ending::watch()?, Arc::new(AtomicBool::new(false)));
        let (over, is_over) = sync_channel(1);
        let (comes, node) = (came.clone(), Arc::new(Mutex::new(Some(node))));
        let held = node.clone();
        let end = move || {
            let Some(signal) = ending.wait(Duration::MAX) else { return };
            comes.store(true, Ordering::SeqCst);
            match is_over.recv_timeout(GRACE) {
                Ok(()) => signal.end_process(),
                // All is here by now.
                Err(RecvTimeoutError::Disconnected) => return,
                // The disk is slow, or who reads the pipe.
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(node) = take(&held) {
                for flow in node.peers() {
                    // It may have just ended by itself.
                    let _ = node.abort(flow.peer, BROKEN_OFF, "interrupted");
                }
            }
            thread::sleep(GOODBYE);
            signal.end_process()
        };
        thread::Builder::new().name("ending".into()).spawn(end).context(NO_THREAD)?;
        Ok(Self { came, over, node })
    }

    /// The receiver is through. With its Node's end all peers hear that nobody is there any more, and that what they
    /// said last was heard: the end of the process alone says nothing, and they would wait for it.
    fn let_go(&self) {
        drop(take(&self.node));
    }

    fn has_come(&self) -> bool {
        self.came.load(Ordering::SeqCst)
    }

    /// The sender knows.
    fn end_process(&self) -> ! {
        // The other side is there until the process ends.
        let _ = self.over.send(());
        loop {
            thread::park();
        }
    }
}

/// What is there, for whoever comes first.
fn take(node: &Mutex<Option<Node>>) -> Option<Node> {
    // Nobody panics with it.
    node.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn failed(error: &str) -> String {
    json!({ "complete": false, "error": error }).to_string()
}

fn json_of(report: &ReceiveReport) -> String {
    let line = json!({
        "cast": format!("{:016x}", report.cast.swap_bytes()),
        "complete": true,
        "sender": report.sender.to_string(),
        "bytes": report.bytes,
        "resumed_bytes": report.resumed_bytes,
        "new_bytes": report.new_bytes,
        "files": report.files,
        "directories": report.directories,
        "seconds": report.took.as_secs_f64(),
    });
    line.to_string()
}

fn summary_of(report: &ReceiveReport) -> String {
    let resumed = match report.resumed_bytes {
        0 => String::new(),
        resumed => format!(", {} of it here before", bytes(resumed)),
    };
    format!(
        "{} in {} files and {} directories from {} in {}{resumed}",
        bytes(report.bytes),
        report.files,
        report.directories,
        named(report.sender),
        seconds(report.took)
    )
}
