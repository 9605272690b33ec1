//! Sandboxes: system calls that fail, for a thread or for a program that is started.

use std::io;

/// The calls by which threads are made: `ulimit -u` refuses them to users without privileges.
#[allow(dead_code)] // not of every test
pub const THREADS: [libc::c_long; 2] = [libc::SYS_clone, libc::SYS_clone3];

/// Makes the kernel refuse `calls` to this thread, and to what it becomes or makes, with `errno`. It makes system calls
/// alone, and allocates nothing, so that a child may do it before it becomes another program.
pub fn forbid(calls: [libc::c_long; 2], errno: i32) -> io::Result<()> {
    let line = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let refusal = libc::SECCOMP_RET_ERRNO | errno as u32;
    let mut program = [
        // The number of the call is the first field of what is judged.
        line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 2, 0, calls[0] as u32),
        line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, calls[1] as u32),
        line(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        line(libc::BPF_RET | libc::BPF_K, 0, 0, refusal),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: both concern this thread alone; the filter and its program live through the call, which copies them.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}
