//! Which package archive to fetch from: the one the system's package manager is configured with.
//!
//! Both forms of `/etc/apt` are read: deb822 stanzas (`*.sources`) and one line an entry
//! (`sources.list`, `*.list`).

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;

const KEYRING: &str = "usr/share/keyrings/debian-archive-keyring.gpg";

/// A release of the distribution, as `/etc/os-release` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Release {
    pub(super) codename: String,
    /// `None` for testing and unstable.
    pub(super) number: Option<u32>,
}

impl Release {
    /// Reads `etc/os-release` under `root`.
    pub(super) fn of_system(root: &Path) -> Result<Release, Error> {
        let text = fs::read_to_string(root.join("etc/os-release")).unwrap_or_default();
        Release::parse(&text, std::env::consts::ARCH)
    }

    fn parse(text: &str, machine: &str) -> Result<Release, Error> {
        let value = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
                .map(|value| value.trim_matches(['"', '\'']).to_string())
        };
        match (value("ID").as_deref(), value("VERSION_CODENAME"), machine) {
            (Some("debian"), Some(codename), "x86_64") => {
                Ok(Release { codename, number: value("VERSION_ID").and_then(|id| id.parse().ok()) })
            }
            _ => {
                let name = value("PRETTY_NAME").unwrap_or_else(|| "an unknown system".to_string());
                Err(Error::ForeignSystem { system: format!("{name}, {machine}") })
            }
        }
    }

    /// The suites to fetch from; the last one has the newest QEMU.
    ///
    /// QEMU 10.1 came to release 13 with its backports; later releases have it themselves.
    pub(super) fn suites(&self) -> Vec<String> {
        match self.number {
            Some(number) if number <= 13 => vec!["trixie".into(), "trixie-backports".into()],
            _ => vec![self.codename.clone()],
        }
    }

    /// Names under which a source may speak of this release.
    fn names(&self) -> [&str; 3] {
        [&self.codename, "stable", "oldstable"]
    }
}

/// Where packages come from and what their index is signed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Archive {
    uris: Vec<String>,
    signed_by: String,
}

impl Archive {
    /// The archive of `release` that the system under `root` is configured with.
    ///
    /// # Errors
    /// [`Error::NoArchive`]; [`Error::NoKeyring`] where nothing could check its signature.
    pub(super) fn of_system(root: &Path, release: &Release) -> Result<Archive, Error> {
        let source = source_files(&root.join("etc/apt"))
            .into_iter()
            .filter_map(|file| Some((fs::read_to_string(&file).ok()?, file)))
            .flat_map(|(text, file)| match file.extension() {
                Some(extension) if extension == "sources" => parse_stanzas(&text),
                _ => parse_lines(&text),
            })
            .find(|source| source.serves(release))
            .ok_or_else(|| Error::NoArchive { codename: release.codename.clone() })?;
        let keyring = root.join(KEYRING);
        let keyring = keyring.is_file().then_some(keyring.clone()).ok_or(keyring);
        let signed_by = match (&source.signed_by, keyring) {
            // The configured keys may be those of this release only; the keyring knows the next.
            (Some(keys), Ok(file)) if !keys.contains('\n') => format!("{keys} {}", file.display()),
            (_, Ok(file)) => file.display().to_string(),
            (Some(keys), Err(_)) => keys.clone(),
            (None, Err(keyring)) => return Err(Error::NoKeyring { keyring }),
        };
        Ok(Archive { uris: source.uris, signed_by })
    }

    /// A deb822 stanza that offers `suites` of this archive.
    pub(super) fn stanza(&self, suites: &[String]) -> String {
        format!(
            "Types: deb\nURIs: {}\nSuites: {}\nComponents: main\nSigned-By: {}\n",
            self.uris.join(" "),
            suites.join(" "),
            self.signed_by
        )
    }
}

/// One configured source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Source {
    uris: Vec<String>,
    suites: Vec<String>,
    components: Vec<String>,
    signed_by: Option<String>,
}

impl Source {
    fn serves(&self, release: &Release) -> bool {
        let fetchable = self.uris.iter().any(|uri| !uri.starts_with("cdrom:"));
        fetchable
            && self.components.iter().any(|component| component == "main")
            && self.suites.iter().any(|suite| release.names().contains(&suite.as_str()))
    }
}

/// The source files the package manager reads, in its order.
fn source_files(apt: &Path) -> Vec<PathBuf> {
    let parts = fs::read_dir(apt.join("sources.list.d"));
    let mut files: Vec<PathBuf> = parts
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|kind| kind == "sources" || kind == "list"))
        .collect();
    files.sort();
    files.insert(0, apt.join("sources.list"));
    files
}

/// `Key: value` stanzas, parted by empty lines; a value goes on in indented lines.
fn parse_stanzas(text: &str) -> Vec<Source> {
    let mut stanzas: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some(stanza) = stanzas.last_mut() else { continue };
        if line.trim().is_empty() {
            stanzas.push(Vec::new());
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = stanza.last_mut() {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((key, value)) = line.split_once(':') {
            stanza.push((key.trim().to_ascii_lowercase(), value.trim().to_string()));
        }
    }
    stanzas.iter().filter_map(|stanza| source_of_stanza(stanza)).collect()
}

fn source_of_stanza(stanza: &[(String, String)]) -> Option<Source> {
    let value = |key: &str| stanza.iter().find(|(name, _)| name == key).map(|(_, value)| value);
    let words = |key: &str| -> Vec<String> {
        value(key)
            .map(|text| text.split_whitespace().map(String::from).collect())
            .unwrap_or_default()
    };
    let disabled = value("enabled").is_some_and(|text| {
        ["no", "false", "off", "0", "without", "disable"].contains(&text.to_lowercase().as_str())
    });
    if disabled || !words("types").iter().any(|kind| kind == "deb") {
        return None;
    }
    Some(Source {
        uris: words("uris"),
        suites: words("suites"),
        components: words("components"),
        signed_by: value("signed-by").cloned(),
    })
}

/// `deb [options] uri suite component…`, one a line.
fn parse_lines(text: &str) -> Vec<Source> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb")?;
    let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(inner) => inner.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace().map(String::from);
    let (uri, suite) = (words.next()?, words.next()?);
    let signed_by = options
        .split_whitespace()
        .find_map(|option| option.strip_prefix("signed-by="))
        .map(|keys| keys.replace(',', " "));
    Some(Source { uris: vec![uri], suites: vec![suite], components: words.collect(), signed_by })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOKWORM: &str = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"\n\
                            VERSION_CODENAME=bookworm\nID=debian\n";

    fn bookworm() -> Release {
        Release { codename: "bookworm".into(), number: Some(12) }
    }

    #[test]
    fn the_release_decides_the_suites() {
        let release = Release::parse(BOOKWORM, "x86_64").unwrap();
        assert_eq!(release, bookworm());
        assert_eq!(release.suites(), ["trixie", "trixie-backports"]);
        let later = Release { codename: "forky".into(), number: Some(14) };
        assert_eq!(later.suites(), ["forky"]);
        let testing = Release { codename: "forky".into(), number: None };
        assert_eq!(testing.suites(), ["forky"]);
    }

    #[test]
    fn other_systems_are_told_what_to_install() {
        let fedora = "ID=fedora\nPRETTY_NAME=\"Fedora Linux 43\"\n";
        for (text, machine) in [(fedora, "x86_64"), (BOOKWORM, "aarch64"), ("", "x86_64")] {
            let sentence = Release::parse(text, machine).unwrap_err().to_string();
            assert!(sentence.contains("AXON_QEMU") && sentence.contains("10.1"), "{sentence}");
        }
    }

    #[test]
    fn stanzas_are_read() {
        let text = "# comment\nTypes: deb deb-src\nURIs: http://mirror.example/debian\n\
                    Suites: bookworm bookworm-updates\nComponents: main contrib\n\
                    Signed-By: /keys/a.gpg\n\nTypes: deb\nURIs: http://mirror.example/sec\n\
                    Suites: bookworm-security\nComponents: main\nEnabled: no\n";
        let sources = parse_stanzas(text);
        assert_eq!(sources.len(), 1);
        assert_eq!(sources[0].uris, ["http://mirror.example/debian"]);
        assert_eq!(sources[0].suites, ["bookworm", "bookworm-updates"]);
        assert_eq!(sources[0].signed_by.as_deref(), Some("/keys/a.gpg"));
        assert!(sources[0].serves(&bookworm()));
    }

    #[test]
    fn an_inline_key_is_kept_whole() {
        let text = "Types: deb\nURIs: file:/mirror\nSuites: stable\nComponents: main\n\
                    Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abcd\n";
        let sources = parse_stanzas(text);
        assert!(sources[0].signed_by.as_deref().unwrap().ends_with("\n .\n abcd"));
        assert!(sources[0].serves(&bookworm()));
    }

    #[test]
    fn lines_are_read() {
        let text = "deb-src http://a/debian bookworm main\n# deb http://b bookworm main\n\
                    deb cdrom:[disc]/ bookworm main\n\
                    deb [arch=amd64 signed-by=/k/a.gpg,/k/b.gpg] http://c/debian bookworm main # x\n";
        let sources = parse_lines(text);
        let serving: Vec<&Source> = sources.iter().filter(|s| s.serves(&bookworm())).collect();
        assert_eq!(serving.len(), 1);
        assert_eq!(serving[0].uris, ["http://c/debian"]);
        assert_eq!(serving[0].signed_by.as_deref(), Some("/k/a.gpg /k/b.gpg"));
    }

    #[test]
    fn security_and_third_party_sources_do_not_serve() {
        for line in [
            "deb http://a/debian-security bookworm-security main",
            "deb http://a/debian bookworm contrib",
            "deb http://a/node nodistro main",
        ] {
            assert!(!parse_line(line).unwrap().serves(&bookworm()), "{line}");
        }
    }

    /// A system root with one source and, if wanted, the keyring.
    fn system(name: &str, source: &str, keyring: bool) -> PathBuf {
        let root = std::env::temp_dir().join(format!("axon-apt-{}-{name}", std::process::id()));
        fs::create_dir_all(root.join("etc/apt/sources.list.d")).unwrap();
        fs::write(root.join("etc/apt/sources.list.d/debian.list"), source).unwrap();
        if keyring {
            fs::create_dir_all(root.join("usr/share/keyrings")).unwrap();
            fs::write(root.join(KEYRING), "keys").unwrap();
        }
        root
    }

    fn archive(name: &str, source: &str, keyring: bool) -> Result<Archive, Error> {
        let root = system(name, source, keyring);
        let archive = Archive::of_system(&root, &bookworm());
        fs::remove_dir_all(root).unwrap();
        archive
    }

    #[test]
    fn without_a_keyring_nothing_is_fetched() {
        let source = "deb http://a/debian bookworm main\n";
        assert!(matches!(archive("bare", source, false), Err(Error::NoKeyring { .. })));
        let found = archive("keyring", source, true).unwrap();
        assert!(found.signed_by.ends_with(KEYRING));
        let source = "deb [signed-by=/k/own.gpg] http://a/debian bookworm main\n";
        assert_eq!(archive("own", source, false).unwrap().signed_by, "/k/own.gpg");
        assert!(archive("both", source, true).unwrap().signed_by.starts_with("/k/own.gpg /"));
        assert!(matches!(archive("none", "", true), Err(Error::NoArchive { .. })));
    }

    #[test]
    fn the_stanza_never_carries_trust_over() {
        let found =
            archive("trust", "deb [trusted=yes] http://a/debian bookworm main\n", true).unwrap();
        let stanza = found.stanza(&bookworm().suites());
        assert!(stanza.contains("Suites: trixie trixie-backports\n"), "{stanza}");
        assert!(!stanza.to_lowercase().contains("trusted"), "{stanza}");
    }
}
