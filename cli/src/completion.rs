//! `switchyard completion SHELL`.

use clap_complete::Shell;

/// Arguments of `switchyard completion`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Shell to complete in.
    pub shell: Shell,
}

#[must_use]
pub fn run(args: &Args, command: &mut clap::Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "switchyard", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_completes_commands_and_flags() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = run(&Args { shell }, &mut crate::help::command());
            for word in ["switchyard", "describe", "mark-lost", "kubeconfig"] {
                assert!(script.contains(word), "{shell} does not complete {word}");
            }
        }
    }
}
