//! What the demo says on the terminal: what runs, and what to try.

use std::io::{self, Write};
use std::path::Path;

use crate::operator::demo::servers::Servers;
use crate::operator::demo::{Ports, rules};

/// Prints the guide.
pub(super) fn print(out: &mut dyn Write, ports: Ports, servers: &Servers, rule_file: &Path) -> io::Result<()> {
    let http = format!("http://127.0.0.1:{}", ports.http);
    let https = format!("https://localhost:{}", ports.https);
    let certificate = rule_file.with_file_name(rules::CERTIFICATE);
    let (certificate, rule_file) = (certificate.display(), rule_file.display());
    writeln!(
        out,
        "Pointsman demo: {} servers in {} pools behind {http} and {https}\n",
        servers.count(),
        servers.pools.len()
    )?;
    for pool in &servers.pools {
        let names: Vec<_> = pool.servers.iter().map(|(name, address)| format!("{name} {address}")).collect();
        writeln!(out, "  {:<8}{}", pool.name, names.join("   "))?;
    }
    writeln!(
        out,
        "
Open {http}/ in a browser, or try in another terminal:

  curl {http}/about                      a page; again: another server
  curl {http}/img/one.svg                an image, by what its name ends in
  curl -H 'Accept: image/*' {http}/two   an image, by what is asked for
  curl {http}/api/hello                  the API, by path; it shows what it got
  curl -d hello {http}/api/echo          what was posted comes back
  curl '{http}/api/slow?ms=3000'         an answer that takes its time
  curl -N {http}/events                  an event a second
  curl -i {http}/old/about               a redirect
  curl -i {http}/secret                  a refusal
  curl --cacert {certificate} {https}/about

Why a request goes where it goes, and whether the rules do what they should:

  pointsman explain {rule_file} GET {http}/img/one.svg
  pointsman check {rule_file}

The access log follows. Ctrl-C ends the demo."
    )?;
    out.flush()
}
