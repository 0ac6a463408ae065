//! `Fields`: what the fields of JSON lines are called.

use http::HeaderName;

/// The names of fields, by default those of nginx's variables. A dot leads into an object:
/// `request.uri`.
#[derive(Debug)]
pub(crate) struct Fields {
    pub(crate) time: String,
    pub(crate) address: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) status: String,
    pub(crate) user: String,
    pub(crate) host: String,
    pub(crate) grpc_status: String,
    pub(crate) headers: Vec<(HeaderName, String)>,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            time: "time".to_owned(),
            address: "remote_addr".to_owned(),
            method: "request_method".to_owned(),
            path: "request_uri".to_owned(),
            status: "status".to_owned(),
            user: "remote_user".to_owned(),
            host: "host".to_owned(),
            grpc_status: "grpc_status".to_owned(),
            headers: Vec::new(),
        }
    }
}

impl Fields {
    /// Takes `time=ts`, or `header:x-user=request.headers.X-User`.
    ///
    /// # Errors
    ///
    /// Names what there is to name.
    pub(crate) fn set(&mut self, option: &str) -> Result<(), String> {
        let (what, name) = option
            .split_once('=')
            .ok_or("expected such as --field time=ts")?;
        let field = match what {
            "time" => &mut self.time,
            "address" => &mut self.address,
            "method" => &mut self.method,
            "path" => &mut self.path,
            "status" => &mut self.status,
            "user" => &mut self.user,
            "host" => &mut self.host,
            "grpc-status" => &mut self.grpc_status,
            _ => {
                let header = what.strip_prefix("header:").ok_or_else(|| {
                    format!("--field {what}: expected time, address, method, path, status, user, host, grpc-status or header:<name>")
                })?;
                let header = header
                    .parse()
                    .map_err(|_| format!("--field {what}: no header has this name"))?;
                self.headers.push((header, name.to_owned()));
                return Ok(());
            }
        };
        name.clone_into(field);
        Ok(())
    }
}
