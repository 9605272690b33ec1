//! Link settings of the shared library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // libfabric unloads its providers when the process exits, while threads may still be in this
    // library's code: it stays mapped.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdenrei-fi.so");
}
