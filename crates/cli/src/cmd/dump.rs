//! `denrei dump`: what a capture of the network's traffic says, packet by packet.

mod capture;
mod datagrams;
mod lines;

use crate::cmd::patient::Patient;
use crate::cmd::values::whole;
use crate::cmd::wrong_arguments;
use anyhow::{Context, Result};
use capture::Capture;
use clap::Args;
use datagrams::Reader;
use denrei_output::{tell, text};
use lines::Lines;
use std::fs::File;
use std::io::{IsTerminal as _, stdin};
use std::path::{Path, PathBuf};

/// Print the packets of a capture in words: headers, frames, acknowledgements, checksums.
///
/// Reads what tcpdump, dumpcap and Wireshark write (pcap and pcapng), and live what is piped into it:
///
///     tcpdump -i eth0 -w capture.pcap udp port 7411
///     denrei dump capture.pcap
///     tcpdump -i any -U -w - udp | denrei dump
///
/// One line for each datagram: seconds since the first one, from whom, to whom, how
/// long, and what it says. A train that the kernel had not yet cut up when it was
/// captured is shown as its datagrams. Of a sealed packet only the header can be read.
/// What is not of denrei is passed over, and counted on standard error at the end.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct DumpCommand {
    /// The capture; - or nothing: standard input
    #[arg(value_name = "FILE", default_value = "-", hide_default_value = true)]
    file: PathBuf,

    /// Only datagrams from or to this UDP port, and those that are not of denrei as well; may be repeated
    #[arg(long = "port", value_parser = whole(1_u16..=u16::MAX), value_name = "PORT")]
    ports: Vec<u16>,

    /// Print an object of JSON for each datagram
    #[arg(long)]
    json: bool,
}

impl DumpCommand {
    /// Prints the capture up to its end.
    pub fn run(self) -> Result<()> {
        let mut capture = self.open()?;
        let mut reader = Reader::new(self.ports);
        let mut lines = Lines::new(self.json);
        // What was read at once is printed at once: the next look at a pipe may take long.
        while let Some(packets) = capture.next_packets()? {
            for packet in packets {
                reader.read(&packet, |datagram| lines.add(datagram));
            }
            text(&lines.take());
        }
        tell!("{}", reader.counts(capture.is_cut_off()));
        Ok(())
    }

    fn open(&self) -> Result<Capture> {
        if self.file == Path::new("-") {
            if stdin().is_terminal() {
                return Err(wrong_arguments(
                    "which capture? Name a file, or pipe one in: tcpdump -i any -U -w - udp | denrei dump",
                ));
            }
            let stdin = Patient::of(stdin()).context("standard input cannot be read")?;
            return Capture::open(stdin).context("standard input");
        }
        let name = || self.file.display().to_string();
        let file = File::open(&self.file).with_context(name)?;
        Capture::open(file).with_context(name)
    }
}
