//! Gives the shared library the name that programs ask for. Its number goes up when programs that are built must be built again.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpolypath.so.0");
}
