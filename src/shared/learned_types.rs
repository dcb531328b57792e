//! Placeholder until merge.
/// x
#[derive(Debug, Default)]
pub struct LearnedTypes;
impl LearnedTypes {
    /// x
    pub fn get(&self, _host: &str, _path: &str) -> Option<String> {
        None
    }
}
