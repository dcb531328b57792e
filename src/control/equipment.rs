//! What control needs beside the snapshot to act: passwords, those who deliver alerts, and the way to agents. It is put
//! together before the user changes, for files may be root's alone; for another configuration it is put together anew by whoever
//! brings that, so that control never waits for a file.

use std::sync::Arc;

use crate::control::agent_orders::AgentOrders;
use crate::control::alert::{AlertError, Alerter, Counters};
use crate::control::passwords::{PasswordError, Passwords};
use crate::pure::alert::target::Targets;
use crate::pure::config::Config;

/// What control acts with.
#[derive(Debug, Default)]
pub struct Equipment {
    /// What the files with secrets say.
    pub passwords: Passwords,
    /// Delivers alerts.
    pub alerter: Alerter,
    /// Takes orders for agents; `None`: there is no way to them.
    pub orders: Option<AgentOrders>,
}

/// It can't be put together.
#[derive(Debug, thiserror::Error)]
pub enum EquipmentError {
    /// A password can't be used.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// Alerts can't be delivered.
    #[error(transparent)]
    Alert(#[from] AlertError),
}

impl Equipment {
    /// What `config` asks for, without a way to agents.
    ///
    /// # Errors
    /// [`EquipmentError`] where a file can't be used, or a thread can't be made.
    pub fn of(config: &Config) -> Result<Self, EquipmentError> {
        let passwords = Passwords::read(config)?;
        let alerter = Alerter::start(&config.alert, &passwords)?;
        Ok(Self { passwords, alerter, orders: None })
    }
}

/// What another configuration brings.
#[derive(Debug)]
pub(super) struct Renewal {
    /// What the files say now.
    pub(super) passwords: Passwords,
    /// Who delivers alerts from now on; `None`: who did before.
    pub(super) alerter: Option<Alerter>,
}

/// What control was equipped with last: what the next configuration is held against.
#[derive(Clone, Debug, Default)]
pub(super) struct Equipped {
    passwords: Passwords,
    /// To whom alerts go; `None`: not to those to whom they should.
    alerted: Option<Arc<Targets>>,
    counters: Arc<Counters>,
}

impl Equipped {
    /// With this, whose alerts go to `alerted`.
    pub(super) fn with(equipment: &Equipment, alerted: &Arc<Targets>) -> Self {
        let (passwords, counters) = (equipment.passwords.clone(), equipment.alerter.counters());
        Self { passwords, alerted: Some(Arc::clone(alerted)), counters }
    }

    /// What another configuration brings, and what control is equipped with then. It reads files and starts threads: it is not
    /// for the control thread. What can't be had stays as it was, and is said.
    pub(super) fn renewed(&self, config: &Config) -> (Renewal, Self) {
        let (passwords, errors) = self.passwords.read_again(config);
        for error in errors {
            tracing::error!("{error}: what was read before is used, if anything was");
        }
        let mut next =
            Self { passwords, alerted: Some(Arc::clone(&config.alert)), counters: Arc::clone(&self.counters) };
        let is_same = self.alerted == next.alerted && self.passwords == next.passwords;
        let alerter = (!is_same).then(|| {
            Alerter::start_counting(&config.alert, &next.passwords, Arc::clone(&self.counters)).map_err(|error| {
                tracing::error!("alerts still go where they went before: {error}");
                // The next configuration tries again.
                next.alerted = None;
            })
        });
        let alerter = alerter.and_then(Result::ok);
        (Renewal { passwords: next.passwords.clone(), alerter }, next)
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::pure::alert::target::Webhook;
    use crate::pure::config::{SecretFile, load_text};

    fn config(file: &Path, alert: Targets) -> Config {
        let mut config = load_text("listen \"127.0.0.1:1\"\nrule respond=404\n").unwrap();
        let place = config.places.rules[0].node.clone();
        config.places.secret_files.push(SecretFile { file: file.to_owned(), place });
        config.alert = Arc::new(alert);
        config
    }

    fn webhook(ca: Option<PathBuf>) -> Targets {
        let webhook = Webhook {
            is_tls: ca.is_some(),
            host: "127.0.0.1".to_owned(),
            port: 9,
            authority: "127.0.0.1:9".to_owned(),
            path: "/".to_owned(),
            secret_file: None,
            ca,
        };
        Targets { webhooks: vec![webhook], mails: Vec::new() }
    }

    #[test]
    fn passwords_are_learnt_by_a_reload_that_alerts_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "old\n").unwrap();
        let config = config(&file, Targets::default());
        let equipped = Equipped::with(&Equipment::of(&config).unwrap(), &config.alert);
        let (renewal, equipped) = equipped.renewed(&config);
        assert!(renewal.alerter.is_none() && renewal.passwords.get(&file) == Some("old"), "nothing has changed");
        std::fs::write(&file, "new\n").unwrap();
        let (renewal, equipped) = equipped.renewed(&config);
        assert_eq!(renewal.passwords.get(&file), Some("new"));
        // It may be root's alone, and we are not root any more.
        std::fs::remove_file(&file).unwrap();
        let (renewal, _) = equipped.renewed(&config);
        assert_eq!(renewal.passwords.get(&file), Some("new"));
    }

    #[test]
    fn who_can_not_be_alerted_leaves_those_that_were_and_takes_no_password_away() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "old\n").unwrap();
        let before = config(&file, webhook(None));
        let equipped = Equipped::with(&Equipment::of(&before).unwrap(), &before.alert);
        std::fs::write(&file, "new\n").unwrap();
        let broken = config(&file, webhook(Some(folder.path().join("missing.pem"))));
        let (renewal, equipped) = equipped.renewed(&broken);
        assert!(renewal.alerter.is_none());
        assert_eq!(renewal.passwords.get(&file), Some("new"));
        let (renewal, _) = equipped.renewed(&before);
        assert!(renewal.alerter.is_some(), "tried again");
    }
}
