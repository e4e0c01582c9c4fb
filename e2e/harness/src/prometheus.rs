//! A real Prometheus: `promtool`, and a server that scrapes.
//!
//! The programs come from `PATH`, or else from Debian's package, which is fetched once per machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use switchyard_parts::{command, debian};

use crate::process::{PORT_TRIES, Process, Program, lost_port};
use crate::{paths, ports, ready};

/// How long the server may take to be ready.
const READY: Duration = Duration::from_secs(30);

/// The two programs of Prometheus.
#[derive(Clone, Debug)]
pub struct Programs {
    server: PathBuf,
    promtool: PathBuf,
}

impl Programs {
    /// The programs in `PATH`, or of Debian's package `prometheus`, which is fetched if needed. Blocks.
    ///
    /// # Errors
    /// When there is neither, with what to install.
    pub fn get() -> anyhow::Result<Self> {
        let dirs = std::env::var_os("PATH").unwrap_or_default();
        let known = std::env::split_paths(&dirs).find_map(|dir| Self::in_dir(&dir));
        match known {
            Some(known) => Ok(known),
            None => Self::of_package(&paths::cache()?.join("prometheus/unpacked")).context(
                "Prometheus is needed: put `prometheus` and `promtool` into PATH, or have apt find the package \
                 `prometheus` (apt-get update)",
            ),
        }
    }

    fn in_dir(dir: &Path) -> Option<Self> {
        let found = Self { server: dir.join("prometheus"), promtool: dir.join("promtool") };
        (found.server.is_file() && found.promtool.is_file()).then_some(found)
    }

    fn of_package(unpacked: &Path) -> anyhow::Result<Self> {
        debian::unpack(&["prometheus"], unpacked)?;
        Self::in_dir(&unpacked.join("usr/bin"))
            .context("the package has no usr/bin/prometheus and usr/bin/promtool")
    }

    /// Runs `promtool` and returns its output.
    ///
    /// # Errors
    /// When it fails or takes longer than a minute; the message has its output.
    pub fn promtool(&self, words: &[&str]) -> anyhow::Result<String> {
        command::output(Command::new(&self.promtool).args(words), Duration::from_secs(60))
    }

    /// Starts a server that scrapes `/metrics` of these loopback ports every second, each as the named job, and evaluates the
    /// rules of a file. Its data and log are in `dir`.
    ///
    /// # Errors
    /// The end of its log.
    pub async fn start(
        &self,
        dir: &Path,
        jobs: &[(String, u16)],
        rules: &Path,
    ) -> anyhow::Result<Prometheus> {
        let (config, data) = (dir.join("prometheus.yaml"), dir.join("prometheus-data"));
        fs::write(&config, configuration(jobs, rules)?)
            .with_context(|| format!("write {}", config.display()))?;
        for _ in 0..PORT_TRIES {
            let port = ports::free()?;
            let program = Program::new("prometheus", &self.server, dir.join("prometheus.log"))
                .arg(format!("--config.file={}", config.display()))
                .arg(format!("--storage.tsdb.path={}", data.display()))
                .arg(format!("--web.listen-address=127.0.0.1:{port}"));
            let process = program.start()?;
            let answers = (port, "/-/ready");
            match ready::program("Prometheus", || process.check(), answers, READY).await {
                Ok(()) => return Ok(Prometheus { process, port }),
                Err(_) if lost_port(&process) => {}
                Err(error) => return Err(error.context(process.log_tail(20))),
            }
        }
        bail!("Prometheus found no free port in {PORT_TRIES} tries")
    }
}

fn configuration(jobs: &[(String, u16)], rules: &Path) -> anyhow::Result<String> {
    let scrape = |(job, port): &(String, u16)| json!({"job_name": job, "honor_labels": true, "static_configs": [{"targets": [format!("127.0.0.1:{port}")]}]});
    let configuration = json!({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [rules],
        "scrape_configs": jobs.iter().map(scrape).collect::<Vec<_>>(),
    });
    Ok(serde_saphyr::to_string(&configuration)?)
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct Prometheus {
    process: Process,
    port: u16,
}

/// One series of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its labels, including `__name__` if it has a name.
    pub labels: BTreeMap<String, String>,
    /// Its value, which may be NaN.
    pub value: f64,
}

impl Prometheus {
    /// Evaluates an expression now.
    ///
    /// # Errors
    /// When it cannot be evaluated, or the result is of another type than instant vector and scalar.
    pub async fn query(&self, expression: &str) -> anyhow::Result<Vec<Sample>> {
        let data = self
            .get(&format!("/api/v1/query?query={}", encoded(expression)))
            .await
            .context(expression.to_owned())?;
        let result = data["result"].as_array().cloned().unwrap_or_default();
        match data["resultType"].as_str() {
            Some("vector") => result.iter().map(sample).collect(),
            Some("scalar") => {
                Ok(vec![Sample { labels: BTreeMap::new(), value: number(&data["result"][1])? }])
            }
            other => bail!("{expression} gives {other:?}"),
        }
    }

    /// The alerting rules that it evaluates, by name, with the error of the last evaluation.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn rules(&self) -> anyhow::Result<BTreeMap<String, Option<String>>> {
        let data = self.get("/api/v1/rules").await?;
        let groups = data["groups"].as_array().context("no groups")?;
        let rules = groups.iter().filter_map(|group| group["rules"].as_array()).flatten();
        let told = rules.map(|rule| {
            let health = rule["health"].as_str().unwrap_or_default();
            let error = (health != "ok").then(|| format!("{health}: {}", rule["lastError"]));
            (rule["name"].as_str().unwrap_or_default().to_owned(), error)
        });
        Ok(told.collect())
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.process.check()?;
        let mut answer: Value = serde_json::from_str(&crate::http::get(self.port, path).await?)?;
        ensure!(answer["status"] == "success", "{answer}");
        Ok(answer["data"].take())
    }
}

fn sample(series: &Value) -> anyhow::Result<Sample> {
    let labels = series["metric"].as_object().context("a series without labels")?;
    let labels = labels
        .iter()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()));
    Ok(Sample { labels: labels.collect(), value: number(&series["value"][1])? })
}

/// Prometheus sends numbers as text, because JSON has no `+Inf` and no `NaN`.
fn number(value: &Value) -> anyhow::Result<f64> {
    let text = value.as_str().context("a value that is no text")?;
    text.parse().with_context(|| format!("{text} is no number"))
}

/// Percent-encodes a text for the query of a URL.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut url, byte| {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_' | b'.' => {
                url.push(char::from(byte))
            }
            _ => {
                // Writing into a String cannot fail.
                let _ = write!(url, "%{byte:02X}");
            }
        }
        url
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_sent_whole() {
        assert_eq!(encoded("a{b=~\"c.*\"} / 2"), "a%7Bb%3D%7E%22c.%2A%22%7D%20%2F%202");
    }

    #[test]
    fn directory_needs_server_and_promtool() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("unpacked/usr/bin")).unwrap();
        fs::write(dir.path().join("unpacked/usr/bin/prometheus"), "").unwrap();
        assert!(
            Programs::in_dir(&dir.path().join("unpacked/usr/bin")).is_none(),
            "both are needed"
        );
    }
}
