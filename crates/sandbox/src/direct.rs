//! Which commands need no shell: those that `bash -c` would only pass on to one program, word by word.
//!
//! A pure function over text. In doubt it says no, and the shell runs the command as ever; it never decides what a
//! command means, only that its meaning is plain. Whether the program exists is found out when it is executed, inside
//! the attempt's own view; if anything is wrong with it then, the shell is asked after all, and says so in its words.

/// How a plain command is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Direct {
    pub words: Vec<String>,
    /// Where its program may be, in the order of the search.
    pub candidates: Vec<String>,
}

/// Names that mean something else to the shell than the program of that name, if there is one.
const SHELLS_OWN: &[&str] = &[
    ".",
    ":",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "case",
    "cd",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "coproc",
    "declare",
    "dirs",
    "disown",
    "do",
    "done",
    "elif",
    "else",
    "enable",
    "esac",
    "eval",
    "exec",
    "exit",
    "export",
    "fc",
    "fg",
    "fi",
    "for",
    "function",
    "getopts",
    "hash",
    "help",
    "history",
    "if",
    "in",
    "jobs",
    "kill",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "select",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "test",
    "then",
    "time",
    "times",
    "trap",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "until",
    "wait",
    "while",
];
/// The shell has them too, and they do the same there as long as they are given no option.
const SAME_WITHOUT_OPTIONS: &[&str] = &["echo", "false", "true"];
/// Variables that the shell acts on, or hands on changed. Those that begin with `BASH` belong here too.
const SHELLS_VARIABLES: &[&str] = &[
    "ENV",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "EUID",
    "FUNCNAME",
    "GROUPS",
    "HISTCMD",
    "IFS",
    "LINENO",
    "OLDPWD",
    "OPTIND",
    "POSIXLY_CORRECT",
    "PPID",
    "PS4",
    "PWD",
    "RANDOM",
    "SECONDS",
    "SHELLOPTS",
    "SHLVL",
    "SRANDOM",
    "UID",
    "_",
];

/// The words of a command that can be executed directly; none if it takes a shell to know what it means.
pub(crate) fn direct(command: &str, env: &[(String, String)]) -> Option<Direct> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:,+=@% \t".contains(&byte);
    let command = command.trim_matches(['\n', ' ', '\t']);
    if !command.bytes().all(plain) || !env.iter().all(|(name, _)| left_alone(name)) {
        return None;
    }
    let words: Vec<String> =
        command.split([' ', '\t']).filter(|word| !word.is_empty()).map(str::to_owned).collect();
    let (program, rest) = words.split_first()?;
    let program = program.as_str();
    if program.contains('=') || program.starts_with('%') || SHELLS_OWN.contains(&program) {
        return None;
    }
    if SAME_WITHOUT_OPTIONS.contains(&program) && rest.iter().any(|word| word.starts_with('-')) {
        return None;
    }
    let candidates = if program.contains('/') {
        vec![program.to_owned()]
    } else {
        let (_, path) = env.iter().find(|(name, _)| name == "PATH")?;
        if !path.split(':').all(|folder| folder.starts_with('/')) {
            return None;
        }
        path.split(':').map(|folder| format!("{}/{program}", folder.trim_end_matches('/'))).collect()
    };
    Some(Direct { words, candidates })
}

/// Whether the shell would hand a variable on as it is.
fn left_alone(name: &str) -> bool {
    let named = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty()
        && name.bytes().all(named)
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.starts_with("BASH")
        && !SHELLS_VARIABLES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &str, expect: Option<&[&str]>) {
        let env = [("PATH".to_owned(), "/v/bin:/usr/bin/:/bin".to_owned())];
        let found = direct(command, &env).map(|found| found.words);
        assert_eq!(found, expect.map(|words| words.iter().map(|w| (*w).to_owned()).collect()), "{command:?}");
    }

    #[test]
    fn plain_commands_need_no_shell() {
        for (command, words) in [
            ("true", &["true"][..]),
            ("  false \n", &["false"]),
            ("sleep 0.1", &["sleep", "0.1"]),
            (
                "python train.py --lr=0.1\t-x a/b:c,d +e",
                &["python", "train.py", "--lr=0.1", "-x", "a/b:c,d", "+e"],
            ),
            ("./run me@home 50%", &["./run", "me@home", "50%"]),
            ("echo hello world", &["echo", "hello", "world"]),
            ("timeout 5 true", &["timeout", "5", "true"]),
        ] {
            check(command, Some(words));
        }
    }

    #[test]
    fn in_doubt_the_shell_is_asked() {
        for command in [
            "",
            " ",
            "a; b",
            "a && b",
            "a | b",
            "a & b",
            "a > f",
            "a < f",
            "echo $X",
            "echo `x`",
            "echo 'x'",
            "echo \"x\"",
            "echo \\x",
            "ls *",
            "ls ?",
            "ls [a]",
            "ls {a,b}",
            "ls ~",
            "a #c",
            "! true",
            "(a)",
            "a\nb",
            "echo ä",
            "x^y",
            "A=1 b",
            "A=1",
            "%1",
            "true --help",
            "false -x",
            "echo -n x",
            "echo --version",
        ] {
            check(command, None);
        }
        for word in SHELLS_OWN {
            check(word, None);
            check(&format!("{word} x"), None);
        }
        assert!(SHELLS_OWN.is_sorted() && SHELLS_VARIABLES.is_sorted(), "easier to read");
    }

    #[test]
    fn the_environment_can_need_a_shell() {
        let found = |env: &[(&str, &str)]| {
            let env: Vec<_> = env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            direct("true", &env).map(|found| found.candidates)
        };
        assert_eq!(
            found(&[("A", "x y"), ("PATH", "/v/bin:/usr/bin/:/")]).unwrap(),
            ["/v/bin/true", "/usr/bin/true", "/true"]
        );
        for path in ["", ":/bin", "/bin:", "/a::/b", "bin", "/bin:./x"] {
            assert_eq!(found(&[("PATH", path)]), None, "{path:?}");
        }
        assert_eq!(found(&[("A", "1")]), None, "no PATH");
        for name in ["BASH_ENV", "BASH_FUNC_true%%", "SHELLOPTS", "PWD", "a.b", "1a", "", "SECONDS"] {
            assert_eq!(found(&[("PATH", "/bin"), (name, "x")]), None, "{name}");
        }
    }
}
