//! Compiles the entropy of simulated threads.

fn main() {
    println!("cargo:rerun-if-changed=src/entropy.c");
    let mut entropy = cc::Build::new();
    entropy.file("src/entropy.c").link_lib_modifier("+whole-archive").compile("entropy");
}
