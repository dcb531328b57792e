//! What an answer says of its server's load ([`crate::pure::feedback::orca`]), in pools that ask: it is noted for control, and
//! clients do not see it, unless the pool passes it on. A few times a second it is read, and each time it is hidden.

use crate::base::time::Timestamp;
use crate::pure::feedback::orca::{self, Form};
use crate::pure::pool::Orca;
use crate::request::exchange::channel::Channel;
use crate::request::exchange::choice::Choice;

/// Looks for it in the answer's head, which has not been passed on.
#[inline(never)]
pub fn note_head(channel: &mut Channel<'_>, choice: &Choice, orca: Orca, now: Timestamp) {
    channel.hides_load = !orca.is_passed_on;
    let Some(server) = &channel.server else { return };
    let bytes = server.buffer.bytes();
    let load = &choice.lease.endpoint().record.load_said;
    for field in &mut channel.scratch.response.fields {
        let Some(form) = Form::of(field.name.of(bytes)) else { continue };
        if load.is_due(now)
            && let Some(said) = orca::read(form, field.value.of(bytes))
        {
            load.say(said, now);
        }
        // What is for this connection alone is not passed on.
        field.hop_by_hop |= !orca.is_passed_on;
    }
}

/// Looks for it in the answer's trailers, once it has been passed on.
#[inline(never)]
pub fn note_trailers(channel: &Channel<'_>, choice: &Choice) {
    let load = &choice.lease.endpoint().record.load_said;
    let now = channel.connection.worker.now();
    if load.is_due(now)
        && let Some(said) = orca::read_trailers(channel.scratch.download.trailers())
    {
        load.say(said, now);
    }
}
